//! A decision about a HorizontalPodAutoscaler whose replicas this controller changes, from which its record, status and events
//! are rendered.

use std::time::Duration;

use plimsoll_core::{
    hpa::{Decision, EventStage, EventType, HpaRecord, hpa_state::Windows},
    scaling::{Event, ScaleOutcome},
    types::Time,
};

use super::{super::replicas::DecisionRecord, stored_status::StoredStatus};

/// The time between two writes of a record that only differs in the times of recommendations.
pub(super) const RECORD_INTERVAL: Duration = Duration::from_mins(1);

/// A decision with what its record is rendered from.
#[derive(Debug)]
pub struct HorizontalDecision {
    pub decision: Decision,
    /// The record before, with its pending change resolved.
    pub resolved: HpaRecord,
    pub windows: Windows,
    /// Whether the status and all events are those of this controller, and not of the HPA controller of the cluster.
    pub replaces: bool,
}

impl HorizontalDecision {
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

impl DecisionRecord<StoredStatus> for HorizontalDecision {
    fn change(&self) -> Option<(i32, &str)> {
        Some((self.decision.write?, &self.decision.rescale_reason))
    }

    fn desired(&self) -> i32 {
        self.decision.desired.or(self.decision.current).unwrap_or_default()
    }

    fn status(&self, before: &StoredStatus, outcome: &ScaleOutcome, now: Time) -> StoredStatus {
        let completed = self.completed(outcome, now);
        let record = self.resolved.with_decision(&completed, outcome, self.windows, now);
        if !self.replaces {
            return StoredStatus { record: Some(record), status: None };
        }
        // The status is written with each change of a value, and the record need not be.
        let record = record.unless_recent(before.record.as_ref(), RECORD_INTERVAL, now);
        // The status shows a change of the scale after it was made.
        let status = (*outcome != ScaleOutcome::Pending).then_some(completed.status);
        StoredStatus { record: Some(record), status }
    }

    fn events(&self, outcome: &ScaleOutcome, now: Time) -> Vec<Event> {
        let events = self.completed(outcome, now).events.into_iter();
        // Otherwise the HPA controller of the cluster reports metrics that fail.
        let events = events.filter(|event| self.replaces || event.stage == EventStage::Scale);
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
