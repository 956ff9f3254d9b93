//! Gates that block scaling: a Datadog monitor that is not OK, or an alert that is firing.

use std::time::Duration;

use super::conditions::{ConditionType, ConditionUpdate};
use crate::scaling::Alert;

/// Annotation that requires the DatadogMonitor of the same name to be OK.
pub const ENABLED_ANNOTATION: &str = "wpa.datadoghq.com/lifecycle-control.enabled";

/// The result of reading a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Monitor {
    /// The monitor reports this state.
    State(String),
    /// The monitor reports no state.
    NoState,
    /// The monitor does not exist or could not be read.
    Unreadable(String),
}

/// The result of evaluating a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateResult {
    /// The condition to set.
    pub condition: ConditionUpdate,
    /// If scaling is blocked: why, and after how long to retry.
    pub blocked: Option<(String, Duration)>,
}

/// Whether the annotation enables the gate. Empty is `false`; an invalid value returns the condition to set.
pub fn is_enabled(value: Option<&str>) -> Result<bool, ConditionUpdate> {
    match value.unwrap_or_default() {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "" | "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        other => {
            let message = format!(
                "Lifecycle Control is not correctly enabled: strconv.ParseBool: parsing {other:?}: invalid syntax"
            );
            Err(ConditionUpdate::new(
                ConditionType::ScalingBlocked,
                false,
                "FailedGetDatadogMonitor",
                message,
            ))
        }
    }
}

/// Evaluates an alert. `open` decides whether scaling continues while its state is unknown. It is queried again each
/// period.
pub fn evaluate_alert(name: &str, alert: &Alert, open: bool, period: Duration) -> GateResult {
    let (blocks, reason, message) = match alert {
        Alert::Firing => {
            (true, "AlertFiring", format!("alert {name} is firing, replicas are not changed"))
        }
        Alert::NotFiring => (false, "AlertQuiet", format!("alert {name} is not firing")),
        Alert::Unknown(why) => {
            let effect = if open { "treated as not firing" } else { "replicas are not changed" };
            let message = format!("state of alert {name} is unknown, {effect}: {why}");
            (!open, "AlertUnknown", message)
        }
    };
    GateResult {
        condition: ConditionUpdate::new(
            ConditionType::ScalingBlocked,
            blocks,
            reason,
            message.clone(),
        ),
        blocked: blocks.then_some((message, period)),
    }
}

/// The condition of an object that was blocked and no longer has a gate.
pub fn unblocked() -> ConditionUpdate {
    ConditionUpdate::new(
        ConditionType::ScalingBlocked,
        false,
        "NotControlled",
        "no monitor or alert is configured any more",
    )
}

/// Evaluates the monitor `object` (`namespace/name`). `open` decides whether scaling continues while its state is unknown.
pub fn evaluate_monitor(object: &str, monitor: &Monitor, open: bool) -> GateResult {
    const RETRY_UNREADABLE: Duration = Duration::from_mins(2);
    const RETRY_NOT_OK: Duration = Duration::from_mins(1);
    let blocked = |reason: &str, message: String, retry_after| GateResult {
        condition: ConditionUpdate::new(
            ConditionType::ScalingBlocked,
            true,
            reason,
            message.clone(),
        ),
        blocked: Some((message, retry_after)),
    };
    let is_unknown = match monitor {
        Monitor::Unreadable(_) | Monitor::NoState => true,
        Monitor::State(state) => state == "No Data",
    };
    if open && is_unknown {
        let message = format!("state of monitor {object} is unknown, treated as OK");
        let condition = ConditionUpdate::new(
            ConditionType::ScalingBlocked,
            false,
            "DatadogMonitorUnknown",
            message,
        );
        return GateResult { condition, blocked: None };
    }
    match monitor {
        Monitor::Unreadable(_) => {
            let message = format!("monitor {object} not found, blocking the WPA from proceeding");
            blocked("FailedGetDatadogMonitor", message, RETRY_UNREADABLE)
        }
        Monitor::NoState => {
            let message =
                format!("monitor {object} state not found, blocking the WPA from proceeding");
            blocked("DatadogMonitorNotOK", message, RETRY_NOT_OK)
        }
        Monitor::State(state) if state == "OK" => {
            let message =
                format!("monitor {object} is in a OK state, allowing the WPA from proceeding");
            let condition = ConditionUpdate::new(
                ConditionType::ScalingBlocked,
                false,
                "DatadogMonitorOK",
                message,
            );
            GateResult { condition, blocked: None }
        }
        Monitor::State(state) => {
            let message =
                format!("monitor {object} is in {state} state, blocking the WPA from proceeding");
            blocked("DatadogMonitorNotOK", message, RETRY_NOT_OK)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lifecycle_annotation_accepts_gos_booleans() {
        for (text, expected) in
            [("true", true), ("1", true), ("T", true), ("", false), ("F", false)]
        {
            assert_eq!(is_enabled(Some(text)), Ok(expected), "{text}");
        }
        assert_eq!(is_enabled(None), Ok(false));
        let condition = is_enabled(Some("yes")).expect_err("not a boolean");
        assert!(!condition.holds && condition.message.contains("\"yes\""), "{condition:?}");
    }

    #[test]
    fn only_a_healthy_monitor_allows_reconciles() {
        let evaluate = |monitor| evaluate_monitor("shop/web", &monitor, false);
        let ok = evaluate(Monitor::State("OK".into()));
        assert_eq!((ok.blocked, ok.condition.reason.as_str()), (None, "DatadogMonitorOK"));
        for state in ["Alert", "Warn", "No Data", ""] {
            let result = evaluate(Monitor::State(state.into()));
            let (why, retry_after) = result.blocked.expect("the monitor blocks");
            assert_eq!(retry_after, Duration::from_mins(1), "{why}");
        }
        let unreadable = evaluate(Monitor::Unreadable("forbidden".into()));
        assert_eq!(unreadable.blocked.expect("unknown").1, Duration::from_mins(2));
        assert_eq!(unreadable.condition.reason, "FailedGetDatadogMonitor");
        assert!(evaluate(Monitor::NoState).condition.message.contains("state not found"));
    }

    #[test]
    fn an_unknown_monitor_state_counts_as_healthy_only_if_enabled() {
        for monitor in [
            Monitor::Unreadable("forbidden".into()),
            Monitor::NoState,
            Monitor::State("No Data".into()),
        ] {
            assert!(evaluate_monitor("shop/web", &monitor, false).blocked.is_some(), "{monitor:?}");
            assert_eq!(evaluate_monitor("shop/web", &monitor, true).blocked, None, "{monitor:?}");
        }
        assert!(
            evaluate_monitor("shop/web", &Monitor::State("Alert".into()), true).blocked.is_some()
        );
        let period = Duration::from_secs(15);
        let blocks = |alert: &Alert, open| {
            let result = evaluate_alert("Broken", alert, open, period);
            assert_eq!(result.condition.holds, result.blocked.is_some());
            result.blocked.is_some()
        };
        let unknown = Alert::Unknown("away".into());
        assert_eq!([false, true].map(|open| blocks(&Alert::Firing, open)), [true, true]);
        assert_eq!([false, true].map(|open| blocks(&Alert::NotFiring, open)), [false, false]);
        assert_eq!([false, true].map(|open| blocks(&unknown, open)), [true, false]);
    }
}
