//! Gates that block scaling: a Datadog monitor that is not OK, or an alert that is firing.

use std::time::Duration;

use super::conditions::{ConditionType, ConditionUpdate};
use crate::scaling::Alert;

/// Annotation that requires the DatadogMonitor of the same name to be OK.
pub const ENABLED_ANNOTATION: &str = "wpa.datadoghq.com/lifecycle-control.enabled";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Monitor {
    State(String),
    NoState,
    /// The monitor does not exist or could not be read.
    Unreadable(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateResult {
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
            Err(condition(false, "FailedGetDatadogMonitor", message))
        }
    }
}

fn condition(blocks: bool, reason: &str, message: impl Into<String>) -> ConditionUpdate {
    ConditionUpdate::new(ConditionType::ScalingBlocked, blocks, reason, message)
}

impl GateResult {
    /// `retry_after` is `None` if the gate does not block.
    fn new(retry_after: Option<Duration>, reason: &str, message: String) -> Self {
        let condition = condition(retry_after.is_some(), reason, &message);
        Self { condition, blocked: retry_after.map(|retry_after| (message, retry_after)) }
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
    GateResult::new(blocks.then_some(period), reason, message)
}

/// The condition of an object that was blocked and no longer has a gate.
pub fn unblocked() -> ConditionUpdate {
    condition(false, "NotControlled", "no monitor or alert is configured any more")
}

/// Evaluates the monitor `object` (`namespace/name`). `open` decides whether scaling continues while its state is unknown.
pub fn evaluate_monitor(object: &str, monitor: &Monitor, open: bool) -> GateResult {
    const RETRY_UNREADABLE: Duration = Duration::from_mins(2);
    const RETRY_NOT_OK: Duration = Duration::from_mins(1);
    let is_unknown = match monitor {
        Monitor::Unreadable(_) | Monitor::NoState => true,
        Monitor::State(state) => state == "No Data",
    };
    if open && is_unknown {
        let message = format!("state of monitor {object} is unknown, treated as OK");
        return GateResult::new(None, "DatadogMonitorUnknown", message);
    }
    let (retry_after, reason, what) = match monitor {
        Monitor::Unreadable(_) => {
            (Some(RETRY_UNREADABLE), "FailedGetDatadogMonitor", "not found".to_owned())
        }
        Monitor::NoState => {
            (Some(RETRY_NOT_OK), "DatadogMonitorNotOK", "state not found".to_owned())
        }
        Monitor::State(state) if state == "OK" => {
            (None, "DatadogMonitorOK", "is in a OK state".to_owned())
        }
        Monitor::State(state) => {
            (Some(RETRY_NOT_OK), "DatadogMonitorNotOK", format!("is in {state} state"))
        }
    };
    let effect = if retry_after.is_some() { "blocking" } else { "allowing" };
    let message = format!("monitor {object} {what}, {effect} the WPA from proceeding");
    GateResult::new(retry_after, reason, message)
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
