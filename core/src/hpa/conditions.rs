//! `status.conditions`: in the order in which they were first set. The transition time changes only with the status.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;

use crate::types::Time;

/// Whether the target's scale can be read and updated.
pub const ABLE_TO_SCALE: &str = "AbleToScale";
/// Whether replicas are computed from metrics.
pub const SCALING_ACTIVE: &str = "ScalingActive";
/// Whether bounds or rates limited the proposal.
pub const SCALING_LIMITED: &str = "ScalingLimited";
/// Whether this object scaled the target to zero.
pub const SCALED_TO_ZERO: &str = "ScaledToZero";

/// The reason of [`ABLE_TO_SCALE`] while an older recommendation delays a scale-down.
pub const SCALE_DOWN_STABILIZED: &str = "ScaleDownStabilized";
/// The reason of [`ABLE_TO_SCALE`] while an older recommendation delays a scale-up.
pub const SCALE_UP_STABILIZED: &str = "ScaleUpStabilized";

/// The conditions of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions(pub Vec<HorizontalPodAutoscalerCondition>);

/// A condition to set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The condition type. Upstream leaves it empty if there are no metrics.
    pub kind: &'static str,
    /// `True` or `False`; `None` is the empty string.
    pub status: Option<bool>,
    pub reason: &'static str,
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
    pub fn set(&mut self, condition: Condition, now: Time) {
        let status = match condition.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "",
        };
        let index = self.0.iter().position(|stored| stored.type_ == condition.kind);
        let index = index.unwrap_or_else(|| {
            self.0.push(HorizontalPodAutoscalerCondition {
                type_: condition.kind.to_owned(),
                // Differs from every status, so that a new condition gets a transition time.
                status: "new".to_owned(),
                ..HorizontalPodAutoscalerCondition::default()
            });
            self.0.len() - 1
        });
        let stored = &mut self.0[index];
        if stored.status != status {
            stored.last_transition_time = Some(ApiTime(now.into()));
        }
        status.clone_into(&mut stored.status);
        stored.reason = Some(condition.reason.to_owned());
        stored.message = Some(condition.message);
    }

    pub fn remove(&mut self, kind: &str) {
        self.0.retain(|condition| condition.type_ != kind);
    }

    /// Whether a condition is `True`.
    pub fn is_true(&self, kind: &str) -> bool {
        self.0.iter().any(|condition| condition.type_ == kind && condition.status == "True")
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
