//! One VPA of the fleet: what it says about itself, what is remembered of it, and how far that is saved.

use std::{sync::Arc, time::Duration};

use crate::types::Time;

use super::saving::Unsaved;
use crate::recommender::{
    history::History, policy, summary::RecommendationSummary, vpa_settings::VpaSettings,
};

/// How far the stored history of a VPA has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HistoryState {
    /// It was not read yet: nothing is recommended, and nothing is written over it.
    #[default]
    Waiting,
    /// It is part of what is known.
    Loaded,
    /// It could not be read, and the recommender was told to go on without. It is tried again; until then nothing
    /// is written over it.
    Missing,
}

/// A history that was not found is replaced by what is measured within this time.
const REPLACED_WITHIN: Duration = Duration::from_hours(24);

/// One VPA.
#[derive(Debug, Default)]
pub struct VpaState {
    pub(super) settings: VpaSettings,
    pub(super) created: Time,
    /// Topmost scalable owner of the pods, once it is known.
    pub(super) owner: Option<Box<str>>,
    pub(super) history: History,
    pub(super) state: HistoryState,
    /// When it turned out that there is none, though there is one of others.
    pub(super) not_found: Option<Time>,
    /// Which of its waits for the stored history this is, or was.
    pub(super) load_generation: u64,
    pub(super) summaries: Box<[RecommendationSummary]>,
    pub(super) has_been_recommended: bool,
    /// Since when it has had no recommendation.
    pub(super) without_recommendation_since: Option<Time>,
    pub(super) unsaved: Option<Unsaved>,
    /// What is being written.
    pub(super) saving: Option<Unsaved>,
    pub(super) last_saved: Option<Time>,
    /// Whether the last attempt to save it failed.
    pub(super) save_failed: bool,
    /// Whether it was told that part of it can never be saved.
    pub(super) save_rejected: bool,
    pub(super) last_sample: Option<Time>,
    /// Out-of-memory kills that were counted, of the few containers that had any.
    pub(super) oom_counts: Vec<(Box<str>, u64)>,
}

impl VpaState {
    /// What it says about itself.
    pub fn settings(&self) -> &VpaSettings {
        &self.settings
    }

    /// What is remembered.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// How far its stored history has come.
    pub fn state(&self) -> HistoryState {
        self.state
    }

    /// Whether a storage holds anything of it: it was found there, or saved, or its samples are.
    pub fn is_stored(&self) -> bool {
        self.last_saved.is_some()
            || self.history.iter().any(|(_, history)| history.is_built_from_samples())
    }

    /// Whether no history was found where one was to be expected, and little is known yet in its place.
    pub fn is_without_history(&self, now: Time) -> bool {
        self.not_found.is_some_and(|at| now < at.later(REPLACED_WITHIN))
    }

    /// The topmost owner of its pods.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// What was last decided, by container.
    pub fn summaries(&self) -> &[RecommendationSummary] {
        &self.summaries
    }

    /// What was last decided about a container.
    pub fn summary_for(&self, container: &str) -> Option<&RecommendationSummary> {
        let index = self.summaries.binary_search_by(|known| (*known.container).cmp(container));
        index.ok().map(|index| &self.summaries[index])
    }

    /// Whether a policy switches this container off.
    pub fn is_off(&self, container: &str) -> bool {
        policy::policy_for(&self.settings.policies, container).is_some_and(|policy| policy.off)
    }

    /// When the latest sample was measured.
    pub fn last_sample(&self) -> Option<Time> {
        self.last_sample
    }

    /// How many out-of-memory kills of a container were counted since this process knows of it.
    pub fn oom_count(&self, container: &str) -> u64 {
        let known = self.oom_counts.iter().find(|(name, _)| **name == *container);
        known.map_or(0, |(_, kills)| *kills)
    }

    pub(super) fn count_oom(&mut self, container: &str) {
        match self.oom_counts.iter_mut().find(|(name, _)| **name == *container) {
            Some((_, kills)) => *kills += 1,
            None => self.oom_counts.push((container.into(), 1)),
        }
    }

    /// Since when it has had no recommendation.
    pub fn without_recommendation_since(&self) -> Option<Time> {
        self.without_recommendation_since
    }

    pub(super) fn mark_changed(&mut self, now: Time, urgent: bool) {
        self.unsaved = Some(match self.unsaved {
            Some(known) => Unsaved { since: known.since, urgent: known.urgent || urgent },
            None => Unsaved { since: now, urgent },
        });
    }

    /// Forgets a workload for another one. What is stored of it is not to be kept for what it has seen.
    pub(super) fn reset(&mut self) {
        let former = std::mem::take(&mut self.history);
        for (name, _) in former.iter() {
            self.history.mark_stale(Arc::clone(name));
        }
        for name in former.stale_records() {
            self.history.mark_stale(Arc::clone(name));
        }
        self.state = HistoryState::Waiting;
        self.not_found = None;
        self.summaries = Box::default();
        self.oom_counts.clear();
        // What is on its way to the storage is of the other workload.
        (self.unsaved, self.saving) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_history_is_reported_until_a_day_of_usage_has_taken_its_place() {
        let at = Time::from_secs(1_000);
        let mut watched = VpaState::default();
        assert!(!watched.is_without_history(at));
        watched.not_found = Some(at);
        assert!(watched.is_without_history(at.later(Duration::from_hours(23))));
        assert!(!watched.is_without_history(at.later(REPLACED_WITHIN)));
        watched.reset();
        assert!(!watched.is_without_history(at), "another workload has another history");
    }
}
