//! Whether something else lets an object be followed: a monitor that has to be well.

use std::time::Duration;

use super::conditions::{ConditionType, ConditionUpdate};

/// Whether the monitor of the same name has to be well.
pub const ENABLED_ANNOTATION: &str = "wpa.datadoghq.com/lifecycle-control.enabled";

/// What came of looking at a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Monitor {
    /// It is in this state.
    State(String),
    /// It says nothing of its state.
    NoState,
    /// It could not be read, or there is none.
    Unreadable(String),
}

/// What follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateResult {
    /// What is to be said of the object.
    pub condition: ConditionUpdate,
    /// Why it is not followed, and when it is looked at again.
    pub blocked: Option<(String, Duration)>,
}

/// What an object says of it: whether a monitor has to be well, or what is wrong with what it says. Empty is no.
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

/// What came of asking for an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alert {
    /// It fires.
    Firing,
    /// It does not.
    NotFiring,
    /// Nobody can tell.
    Unknown(String),
}

/// What follows from an alert. `open` says what holds while nobody can tell how it stands; it is asked again each period.
pub fn evaluate_alert(name: &str, alert: &Alert, open: bool, period: Duration) -> GateResult {
    let (blocks, reason, message) = match alert {
        Alert::Firing => (true, "AlertFiring", format!("alert {name} fires, replicas stay")),
        Alert::NotFiring => (false, "AlertQuiet", format!("alert {name} does not fire")),
        Alert::Unknown(why) => {
            let follows = if open { "it is taken for quiet" } else { "replicas stay" };
            let message = format!("alert {name} cannot be asked for, {follows}: {why}");
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

/// What is said of an object that was blocked, and that names nothing any more that would have to be well.
pub fn unblocked() -> ConditionUpdate {
    ConditionUpdate::new(
        ConditionType::ScalingBlocked,
        false,
        "NotControlled",
        "nothing has to be well any more",
    )
}

/// What follows from the monitor `object`, which is a namespace and a name. `open` says what holds while nobody can tell
/// how it stands.
pub fn evaluate_monitor(object: &str, monitor: &Monitor, open: bool) -> GateResult {
    const UNREAD: Duration = Duration::from_mins(2);
    const UNWELL: Duration = Duration::from_mins(1);
    let blocked = |reason: &str, message: String, pause| GateResult {
        condition: ConditionUpdate::new(
            ConditionType::ScalingBlocked,
            true,
            reason,
            message.clone(),
        ),
        blocked: Some((message, pause)),
    };
    let tells_nothing = match monitor {
        Monitor::Unreadable(_) | Monitor::NoState => true,
        Monitor::State(state) => state == "No Data",
    };
    if open && tells_nothing {
        let message = format!("monitor {object} tells nothing, and is taken for well");
        let said = ConditionUpdate::new(
            ConditionType::ScalingBlocked,
            false,
            "DatadogMonitorUnknown",
            message,
        );
        return GateResult { condition: said, blocked: None };
    }
    match monitor {
        Monitor::Unreadable(_) => {
            let message = format!("monitor {object} not found, blocking the WPA from proceeding");
            blocked("FailedGetDatadogMonitor", message, UNREAD)
        }
        Monitor::NoState => {
            let message =
                format!("monitor {object} state not found, blocking the WPA from proceeding");
            blocked("DatadogMonitorNotOK", message, UNWELL)
        }
        Monitor::State(state) if state == "OK" => {
            let message =
                format!("monitor {object} is in a OK state, allowing the WPA from proceeding");
            let said = ConditionUpdate::new(
                ConditionType::ScalingBlocked,
                false,
                "DatadogMonitorOK",
                message,
            );
            GateResult { condition: said, blocked: None }
        }
        Monitor::State(state) => {
            let message =
                format!("monitor {object} is in {state} state, blocking the WPA from proceeding");
            blocked("DatadogMonitorNotOK", message, UNWELL)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_switched_on_by_what_go_takes_for_true() {
        for (text, expected) in
            [("true", true), ("1", true), ("T", true), ("", false), ("F", false)]
        {
            assert_eq!(is_enabled(Some(text)), Ok(expected), "{text}");
        }
        assert_eq!(is_enabled(None), Ok(false));
        let said = is_enabled(Some("yes")).expect_err("it is none of them");
        assert!(!said.holds && said.message.contains("\"yes\""), "{said:?}");
    }

    #[test]
    fn only_a_monitor_that_is_well_lets_it_be_followed() {
        let of = |monitor| evaluate_monitor("shop/web", &monitor, false);
        let well = of(Monitor::State("OK".into()));
        assert_eq!((well.blocked, well.condition.reason.as_str()), (None, "DatadogMonitorOK"));
        for state in ["Alert", "Warn", "No Data", ""] {
            let verdict = of(Monitor::State(state.into()));
            let (why, pause) = verdict.blocked.expect("it is not well");
            assert_eq!(pause, Duration::from_mins(1), "{why}");
        }
        let unread = of(Monitor::Unreadable("forbidden".into()));
        assert_eq!(unread.blocked.expect("unknown").1, Duration::from_mins(2));
        assert_eq!(unread.condition.reason, "FailedGetDatadogMonitor");
        assert!(of(Monitor::NoState).condition.message.contains("state not found"));
    }

    #[test]
    fn what_tells_nothing_may_be_taken_for_well_where_that_is_asked_for() {
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
            let verdict = evaluate_alert("Broken", alert, open, period);
            assert_eq!(verdict.condition.holds, verdict.blocked.is_some());
            verdict.blocked.is_some()
        };
        let unknown = Alert::Unknown("away".into());
        assert_eq!([false, true].map(|open| blocks(&Alert::Firing, open)), [true, true]);
        assert_eq!([false, true].map(|open| blocks(&Alert::NotFiring, open)), [false, false]);
        assert_eq!([false, true].map(|open| blocks(&unknown, open)), [true, false]);
    }
}
