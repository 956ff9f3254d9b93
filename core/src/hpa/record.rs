//! The record of an object whose replicas this controller changes: what has to survive the process, as an annotation.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{
    decision::Decision,
    hpa_state::{HpaState, Recommendation, ScaleEvent, Windows},
    shared_states::SharedStates,
    spec::Behavior,
};
use crate::{scaling::ScaleOutcome, types::Time};

/// The annotation that holds the record.
pub const RECORD_ANNOTATION: &str = "plimsoll.dev/decision";
/// A longer annotation is not read. Records are far shorter.
const MAX_BYTES: usize = 32 * 1024;
/// More recommendations are merged, so that the annotation stays within [`MAX_BYTES`].
const MAX_RECOMMENDATIONS: usize = 160;
/// More scale events of one direction are merged.
const MAX_EVENTS: usize = 120;

/// A change of replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleChange {
    /// The replicas before.
    pub from: i32,
    /// The replicas after.
    pub to: i32,
    /// When it was made, or was about to be made.
    pub at: Time,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What is stored of an object.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HpaRecord {
    /// The desired replicas of the last decision.
    pub desired_replicas: Option<i32>,
    /// Why replicas differ from what the metrics ask for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restrictions: Vec<String>,
    /// A change that is about to be made, or whose outcome is unknown.
    pub pending: Option<ScaleChange>,
    /// The last change that this controller made.
    pub last_scale: Option<ScaleChange>,
    /// Recommendations and scale events.
    pub memory: HpaState,
    /// What is remembered about the requests that VPAs change. Updater and admission controller read it.
    #[serde(skip_serializing_if = "SharedStates::is_empty")]
    pub shared_requests: SharedStates,
}

impl HpaRecord {
    /// Reads an annotation. The error is a one-line message.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("it has {} bytes, more than {MAX_BYTES}", text.len()));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// The text of the annotation.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The record of a decision whose change of the scale had this outcome.
    #[must_use]
    pub fn with_decision(
        &self,
        decision: &Decision,
        outcome: &ScaleOutcome,
        windows: Windows,
        now: Time,
    ) -> Self {
        let change = decision.current.zip(decision.write).map(|(from, to)| ScaleChange {
            from,
            to,
            at: now,
            reason: decision.rescale_reason.clone(),
        });
        let (pending, made) = match outcome {
            ScaleOutcome::Pending => (change, None),
            ScaleOutcome::Done => (None, change),
            ScaleOutcome::NoChange | ScaleOutcome::Failed(_) | ScaleOutcome::DryRun => (None, None),
        };
        let restrictions = decision.restrictions.iter();
        Self {
            desired_replicas: decision.desired.or(self.desired_replicas),
            restrictions: restrictions.map(|reason| reason.into_str().to_owned()).collect(),
            pending,
            last_scale: made.or_else(|| self.last_scale.clone()),
            memory: bounded(decision.memory.compact(windows, now)),
            shared_requests: self.shared_requests.clone(),
        }
    }

    /// Resolves a change whose outcome is unknown by the current replicas. If it was made, it becomes a scale event. Returns
    /// whether it was.
    pub fn resolve_pending(&mut self, replicas: i32, behavior: Option<&Behavior>) -> bool {
        let Some(change) = self.pending.take_if(|change| change.to == replicas) else {
            self.pending = None;
            return false;
        };
        if let Some(behavior) = behavior {
            self.memory.scaled_once(change.from, change.to, behavior, change.at);
        }
        self.last_scale = Some(change);
        true
    }

    /// The memory with which a new process continues. A recommendation that does not change is not stored again, so the last
    /// one holds until now.
    pub fn restored_memory(&self, now: Time) -> HpaState {
        let mut memory = self.memory.clone();
        if let Some(recommendations) = &mut memory.recommendations {
            recommendations.retain(|past| past.at <= now);
            match recommendations.last_mut() {
                Some(last) => last.at = now,
                // It is seeded with the current replicas.
                None => memory.recommendations = None,
            }
        }
        memory
    }

    /// The record to store in place of `stored`: that one, if a new process would continue the same, or if only times differ
    /// and it was made less than `interval` ago.
    #[must_use]
    pub fn unless_recent(self, stored: Option<&Self>, interval: Duration, now: Time) -> Self {
        let Some(stored) = stored else { return self };
        // The newest recommendation is always stored.
        let made_at = stored.memory.recommendations().last().map(|last| last.at);
        let is_recent = made_at.is_some_and(|at| now < at.later(interval))
            && stored.without_times() == self.without_times();
        if is_recent || stored.is_same(&self) { stored.clone() } else { self }
    }

    /// Whether a new process would continue as with the other record.
    pub fn is_same(&self, other: &Self) -> bool {
        self.without_last_time() == other.without_last_time()
    }

    fn without_last_time(&self) -> Self {
        let mut record = self.clone();
        let last = record.memory.recommendations.iter_mut().filter_map(|all| all.last_mut());
        last.for_each(|last| last.at = Time::EPOCH);
        record
    }

    /// The part whose changes are stored at once: decisions, changes of replicas, and how many replicas are held. The times
    /// of recommendations may be stored later.
    #[must_use]
    pub fn without_times(&self) -> Self {
        let replicas = self.memory.recommendations().iter().map(|past| past.replicas);
        let extremes = replicas.clone().max().into_iter().chain(replicas.min());
        let at = Time::EPOCH;
        let recommendations = extremes.map(|replicas| Recommendation { replicas, at }).collect();
        let memory = HpaState { recommendations: Some(recommendations), ..self.memory.clone() };
        Self { memory, shared_requests: self.shared_requests.without_times(), ..self.clone() }
    }
}

/// The state with less detail, if it would not fit. It never holds replicas for less time, nor counts fewer changes.
fn bounded(mut state: HpaState) -> HpaState {
    let recommendations = state.recommendations.iter_mut();
    for recommendations in recommendations.filter(|all| all.len() > MAX_RECOMMENDATIONS) {
        merge_pairs(recommendations, |first, last| Recommendation {
            replicas: first.replicas.max(last.replicas),
            ..*last
        });
    }
    for events in [&mut state.scale_up_events, &mut state.scale_down_events] {
        if events.len() > MAX_EVENTS {
            merge_pairs(events, |first, last| ScaleEvent {
                change: first.change.saturating_add(last.change),
                ..*last
            });
        }
    }
    state
}

/// Replaces each two neighbors by one.
fn merge_pairs<T: Copy>(all: &mut Vec<T>, merge: impl Fn(&T, &T) -> T) {
    let pairs = all.chunks(2);
    *all = pairs
        .filter_map(|pair| match pair {
            [first, last] => Some(merge(first, last)),
            _ => pair.first().copied(),
        })
        .collect();
}

#[cfg(test)]
mod tests;
