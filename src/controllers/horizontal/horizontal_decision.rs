//! A decision about a HorizontalPodAutoscaler, from which its status and events are rendered.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
use plimsoll_core::{
    hpa::{Decision, EventType},
    scaling::{Event, ScaleOutcome},
    types::Time,
};

use super::super::replicas::DecisionRecord;

/// A decision of one pass.
#[derive(Debug)]
pub struct HorizontalDecision(pub Decision);

impl HorizontalDecision {
    /// The decision with the outcome of the update of the scale.
    fn completed(&self, outcome: &ScaleOutcome, now: Time) -> Decision {
        let mut decision = self.0.clone();
        match outcome {
            ScaleOutcome::Done => decision.record_write(Ok(()), now),
            ScaleOutcome::Failed(error) => decision.record_write(Err(error), now),
            ScaleOutcome::NoChange | ScaleOutcome::Pending | ScaleOutcome::DryRun => {}
        }
        decision
    }
}

impl DecisionRecord<HorizontalPodAutoscalerStatus> for HorizontalDecision {
    fn change(&self) -> Option<(i32, &str)> {
        Some((self.0.write?, &self.0.rescale_reason))
    }

    fn desired(&self) -> i32 {
        self.0.desired.or(self.0.current).unwrap_or_default()
    }

    fn status(
        &self,
        _before: &HorizontalPodAutoscalerStatus,
        outcome: &ScaleOutcome,
        now: Time,
    ) -> HorizontalPodAutoscalerStatus {
        self.completed(outcome, now).status
    }

    fn events(&self, outcome: &ScaleOutcome, now: Time) -> Vec<Event> {
        let events = self.completed(outcome, now).events.into_iter();
        let event = |event: plimsoll_core::hpa::Event| Event {
            is_warning: event.kind == EventType::Warning,
            reason: event.reason,
            message: event.message,
        };
        events.map(event).collect()
    }

    fn status_failure_reason(&self, _outcome: &ScaleOutcome) -> &'static str {
        "FailedUpdateStatus"
    }
}
