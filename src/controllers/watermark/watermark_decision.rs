//! A decision about a WatermarkPodAutoscaler, from which its status and events are rendered.

use plimsoll_core::{
    api::wpa::WatermarkPodAutoscalerStatus,
    scaling::{Event, ScaleOutcome},
    types::Time,
    watermark::{Decision, conditions, status_update::StatusBuilder},
};

use super::super::replicas::DecisionRecord;

/// A decision with what its status and events are rendered from.
#[derive(Debug)]
pub struct WatermarkDecision {
    pub builder: StatusBuilder,
    pub decision: Decision,
    /// The status with the pending scale resolved: one that was never made is undone.
    pub resolved_status: WatermarkPodAutoscalerStatus,
}

impl DecisionRecord<WatermarkPodAutoscalerStatus> for WatermarkDecision {
    fn change(&self) -> Option<(i32, &str)> {
        self.decision.change.as_ref().map(|change| (change.to, &*change.reason))
    }

    fn desired(&self) -> i32 {
        self.decision.desired
    }

    /// The status after this outcome. Keeps concurrent changes of the status, except the fields that a scale that was never
    /// made has set.
    fn status(
        &self,
        before: &WatermarkPodAutoscalerStatus,
        outcome: &ScaleOutcome,
        now: Time,
    ) -> WatermarkPodAutoscalerStatus {
        let mut base = before.clone();
        base.last_scale_time.clone_from(&self.resolved_status.last_scale_time);
        base.scaling_events_count = self.resolved_status.scaling_events_count;
        self.builder.status(&base, &self.decision, outcome, now)
    }

    fn events(&self, outcome: &ScaleOutcome, _: Time) -> Vec<Event> {
        let last = self.resolved_status.last_scale_time.as_ref().map(conditions::from_timestamp);
        self.builder.events(&self.decision, outcome, last)
    }

    fn status_failure_reason(&self, outcome: &ScaleOutcome) -> &'static str {
        StatusBuilder::status_failure_reason(&self.decision, outcome)
    }
}
