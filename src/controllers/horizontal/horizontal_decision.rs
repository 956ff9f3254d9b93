//! A decision about a HorizontalPodAutoscaler whose replicas this controller changes, from which its record and events are
//! rendered.

use plimsoll_core::{
    hpa::{Decision, EventStage, EventType, HpaRecord, hpa_state::Windows},
    scaling::{Event, ScaleOutcome},
    types::Time,
};

use super::super::replicas::DecisionRecord;

/// A decision with what its record is rendered from.
#[derive(Debug)]
pub struct HorizontalDecision {
    pub decision: Decision,
    /// The record before, with its pending change resolved.
    pub resolved: HpaRecord,
    pub windows: Windows,
}

impl HorizontalDecision {
    /// The decision with the outcome of the update of the scale.
    fn completed(&self, outcome: &ScaleOutcome, now: Time) -> Decision {
        let mut decision = self.decision.clone();
        match outcome {
            ScaleOutcome::Done => decision.record_write(Ok(()), now),
            ScaleOutcome::Failed(error) => decision.record_write(Err(error), now),
            ScaleOutcome::NoChange | ScaleOutcome::Pending | ScaleOutcome::DryRun => {}
        }
        decision
    }
}

impl DecisionRecord<HpaRecord> for HorizontalDecision {
    fn change(&self) -> Option<(i32, &str)> {
        Some((self.decision.write?, &self.decision.rescale_reason))
    }

    fn desired(&self) -> i32 {
        self.decision.desired.or(self.decision.current).unwrap_or_default()
    }

    fn status(&self, _before: &HpaRecord, outcome: &ScaleOutcome, now: Time) -> HpaRecord {
        let completed = self.completed(outcome, now);
        self.resolved.with_decision(&completed, outcome, self.windows, now)
    }

    /// The HPA controller of the cluster reports metrics that fail.
    fn events(&self, outcome: &ScaleOutcome, now: Time) -> Vec<Event> {
        let events = self.completed(outcome, now).events.into_iter();
        let events = events.filter(|event| event.stage == EventStage::Scale);
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
