//! The state of one VPA: its settings, its history, and what of it is saved.

use std::{sync::Arc, time::Duration};

use crate::{
    api::vpa::{ContainerMode, ContainerPolicy},
    types::Time,
};

use super::saving::Unsaved;
use crate::recommender::{
    history::History, recommendation_summary::RecommendationSummary, vpa_settings::VpaSettings,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HistoryState {
    /// It has not been loaded yet: there is no recommendation, and the stored history is not overwritten.
    #[default]
    Waiting,
    /// It was merged into the history.
    Loaded,
    /// It could not be loaded, and the recommender continues without it. Loading is retried; until then the stored history
    /// is not overwritten.
    Missing,
}

/// After this time, live samples have replaced a history that was not found.
const REPLACED_WITHIN: Duration = Duration::from_hours(24);

#[derive(Debug, Default)]
pub struct VpaState {
    pub settings: VpaSettings,
    pub(super) created: Time,
    /// Topmost scalable owner of the pods, if known.
    pub(super) owner: Option<Box<str>>,
    pub history: History,
    pub state: HistoryState,
    /// When it was found that there is no history, although there is one of other pods.
    pub(super) not_found: Option<Time>,
    /// Identifies the current or last load of the stored history.
    pub(super) load_generation: u64,
    pub summaries: Box<[RecommendationSummary]>,
    pub(super) has_been_recommended: bool,
    /// Start of the time without a recommendation.
    pub without_recommendation_since: Option<Time>,
    pub(super) unsaved: Option<Unsaved>,
    pub(super) saving: Option<Unsaved>,
    pub(super) last_saved: Option<Time>,
    pub(super) save_failed: bool,
    /// Whether it was reported that part of it can never be saved.
    pub(super) save_rejected: bool,
    pub last_sample: Option<Time>,
    /// Counted OOM kills, by container.
    pub(super) oom_counts: Vec<(Box<str>, u64)>,
}

impl VpaState {
    /// Whether a storage has a history of it: it was loaded, saved, or built from stored samples.
    pub fn is_stored(&self) -> bool {
        self.last_saved.is_some()
            || self.history.iter().any(|(_, history)| history.built_from_samples)
    }

    /// Whether no history was found although one was expected, and live samples have not replaced it yet.
    pub fn is_without_history(&self, now: Time) -> bool {
        self.not_found.is_some_and(|at| now < at.later(REPLACED_WITHIN))
    }

    /// The topmost owner of its pods.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    pub fn summary_for(&self, container: &str) -> Option<&RecommendationSummary> {
        let index = self.summaries.binary_search_by(|known| (*known.container).cmp(container));
        index.ok().map(|index| &self.summaries[index])
    }

    /// Whether the policy of this container is `Off`.
    pub fn is_off(&self, container: &str) -> bool {
        ContainerPolicy::find(&self.settings.policies, container)
            .is_some_and(|policy| policy.mode == Some(ContainerMode::Off))
    }

    /// Returns the number of OOM kills of a container that this process has counted.
    pub fn oom_count(&self, container: &str) -> u64 {
        let count = self.oom_counts.iter().find(|(name, _)| **name == *container);
        count.map_or(0, |(_, kills)| *kills)
    }

    pub(super) fn count_oom(&mut self, container: &str) {
        match self.oom_counts.iter_mut().find(|(name, _)| **name == *container) {
            Some((_, kills)) => *kills += 1,
            None => self.oom_counts.push((container.into(), 1)),
        }
    }

    pub(super) fn mark_changed(&mut self, now: Time, urgent: bool) {
        self.unsaved = Some(match self.unsaved {
            Some(known) => Unsaved { since: known.since, urgent: known.urgent || urgent },
            None => Unsaved { since: now, urgent },
        });
    }

    pub(super) fn return_unsaved(&mut self) {
        self.unsaved = match (self.saving.take(), self.unsaved) {
            (Some(before), Some(since)) => {
                Some(Unsaved { since: before.since, urgent: before.urgent || since.urgent })
            }
            (before, since) => before.or(since),
        };
    }

    /// Resets the state for another workload. The stored history is marked stale.
    pub(super) fn reset(&mut self) {
        let former = std::mem::take(&mut self.history);
        for name in former.iter().map(|(name, _)| name).chain(former.stale_records()) {
            self.history.mark_stale(Arc::clone(name), false);
        }
        self.state = HistoryState::Waiting;
        self.not_found = None;
        self.summaries = Box::default();
        self.oom_counts.clear();
        // Running saves are of the old workload.
        (self.unsaved, self.saving) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_history_is_reported_until_there_is_a_day_of_usage() {
        let at = Time::from_secs(1_000);
        let mut vpa = VpaState::default();
        assert!(!vpa.is_without_history(at));
        vpa.not_found = Some(at);
        assert!(vpa.is_without_history(at.later(Duration::from_hours(23))));
        assert!(!vpa.is_without_history(at.later(REPLACED_WITHIN)));
        vpa.reset();
        assert!(!vpa.is_without_history(at), "another workload has another history");
    }
}
