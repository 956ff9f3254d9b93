//! `status.conditions`: in the order of their first appearance, with a transition time that follows the status alone.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;

use crate::types::Time;

/// Whether the target's scale can be read and written.
pub const ABLE_TO_SCALE: &str = "AbleToScale";
/// Whether metrics decide.
pub const SCALING_ACTIVE: &str = "ScalingActive";
/// Whether bounds or rates cut what metrics ask for.
pub const SCALING_LIMITED: &str = "ScalingLimited";
/// Whether a target at zero got there by this object.
pub const SCALED_TO_ZERO: &str = "ScaledToZero";

/// The conditions of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions(pub Vec<HorizontalPodAutoscalerCondition>);

/// What is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Its type; upstream sets one without if there are no metrics at all.
    pub kind: &'static str,
    /// True or False; `None` is the empty text.
    pub status: Option<bool>,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl Condition {
    /// A condition with a message.
    pub fn new(
        kind: &'static str,
        status: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { kind, status: Some(status), reason, message: message.into() }
    }
}

impl Conditions {
    /// Sets a condition.
    pub fn set(&mut self, condition: Condition, now: Time) {
        let status = match condition.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "",
        };
        let place = self.0.iter().position(|one| one.type_ == condition.kind);
        let place = place.unwrap_or_else(|| {
            self.0.push(HorizontalPodAutoscalerCondition {
                type_: condition.kind.to_owned(),
                // A condition that is new begins now, whatever its status.
                status: "new".to_owned(),
                ..HorizontalPodAutoscalerCondition::default()
            });
            self.0.len() - 1
        });
        let stored = &mut self.0[place];
        if stored.status != status {
            stored.last_transition_time = Some(ApiTime(now.into()));
        }
        status.clone_into(&mut stored.status);
        stored.reason = Some(condition.reason.to_owned());
        stored.message = Some(condition.message);
    }

    /// Takes a condition away.
    pub fn remove(&mut self, kind: &str) {
        self.0.retain(|one| one.type_ != kind);
    }

    /// Whether a condition is True.
    pub fn is_true(&self, kind: &str) -> bool {
        self.0.iter().any(|one| one.type_ == kind && one.status == "True")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_follows_the_status_alone() {
        let mut conditions = Conditions::default();
        let set = |conditions: &mut Conditions, status, reason, at| {
            conditions
                .set(Condition::new(ABLE_TO_SCALE, status, reason, "text"), Time::from_secs(at));
        };
        let moved = |conditions: &Conditions| {
            let time = conditions.0[0].last_transition_time.as_ref();
            time.map(|time| Time::from(time.0).as_secs())
        };
        set(&mut conditions, true, "SucceededGetScale", 10);
        set(&mut conditions, true, "ReadyForNewScale", 20);
        assert_eq!(
            (moved(&conditions), conditions.0[0].reason.as_deref()),
            (Some(10), Some("ReadyForNewScale"))
        );
        set(&mut conditions, false, "FailedGetScale", 30);
        assert_eq!(moved(&conditions), Some(30));
        assert!(!conditions.is_true(ABLE_TO_SCALE));
        conditions.remove(ABLE_TO_SCALE);
        assert!(conditions.0.is_empty());
    }
}
