//! What is remembered about one VPA: a history for each of its containers.

use std::sync::Arc;

use crate::types::Time;

use super::{
    container::ContainerHistory,
    early_samples::{EarlySamples, exceeds_max_pods},
    settings::{ModelRules, Settings},
    vpa_settings::VpaSettings,
};
use crate::types::{
    compat::Fix,
    units::{Bytes, MilliCpu},
};

/// The histories of one VPA's containers, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    containers: Vec<(Arc<str>, ContainerHistory)>,
    /// Containers whose stored record says nothing any more, though it may have seen more than ours.
    stale_records: Vec<StaleRecord>,
    /// The first sample of each pod, as long as a stored history may come that has it too.
    early_samples: EarlySamples,
}

/// A stored record that says nothing any more.
#[derive(Clone, Debug, PartialEq)]
struct StaleRecord {
    name: Arc<str>,
    /// Whether that is so by this process's clock alone.
    by_clock: bool,
}

/// What became of something remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreResult {
    /// It is part of the history now.
    Merged,
    /// It was before: a load that is tried again brings everything twice.
    AlreadyLoaded,
    /// It lies so far back that it says nothing any more.
    Expired,
}

impl History {
    /// The history of a container that a live pod has, started now if there is none.
    pub fn container_mut(
        &mut self,
        name: &str,
        now: Time,
        rules: &ModelRules,
    ) -> &mut ContainerHistory {
        let container = self.get_or_start(name, now, rules);
        container.mark_alive(now);
        container
    }

    /// The history of a container, started now if there is none; it does not become alive by that.
    pub fn get_or_start(
        &mut self,
        name: &str,
        now: Time,
        rules: &ModelRules,
    ) -> &mut ContainerHistory {
        let index = match self.find(name) {
            Ok(index) => index,
            Err(index) => {
                self.containers.reserve_exact(1);
                self.containers.insert(index, (name.into(), ContainerHistory::new(now, rules)));
                index
            }
        };
        &mut self.containers[index].1
    }

    /// Takes in what a storage remembered, on top of what is known already; once for each container.
    pub fn restore(
        &mut self,
        name: Arc<str>,
        remembered: ContainerHistory,
        now: Time,
        rules: &ModelRules,
    ) -> RestoreResult {
        if remembered.is_expired(now, rules) {
            self.mark_expired(name);
            return RestoreResult::Expired;
        }
        match self.find(&name) {
            Ok(index) if self.containers[index].1.restored => return RestoreResult::AlreadyLoaded,
            Ok(index) => {
                let early = self.early_samples.for_container(&name);
                self.containers[index].1.merge(&remembered, early, rules);
            }
            Err(index) => self.containers.insert(index, (name, remembered)),
        }
        RestoreResult::Merged
    }

    /// Takes in what was missed, on top of what is known, remembered or not. Whoever brings it has left out what is.
    pub fn fill_gap(
        &mut self,
        name: Arc<str>,
        missed: ContainerHistory,
        now: Time,
        rules: &ModelRules,
    ) -> RestoreResult {
        if missed.is_expired(now, rules) {
            return RestoreResult::Expired;
        }
        match self.find(&name) {
            Ok(index) => self.containers[index].1.merge(&missed, std::iter::empty(), rules),
            Err(index) => self.containers.insert(index, (name, missed)),
        }
        RestoreResult::Merged
    }

    /// Notes the sample that is about to be taken, if it is the first of its pod. Call it while a stored history
    /// may still come.
    pub fn record_first_sample(
        &mut self,
        container: &str,
        pod: &str,
        at: Time,
        used: (Option<MilliCpu>, Option<Bytes>),
    ) {
        let known = self.get(container);
        if known.is_none_or(|known| !known.restored && !known.has_replica(pod)) {
            self.early_samples.record((container, pod), at, used);
        }
    }

    /// The first samples of pods.
    pub(super) fn early_samples(&self) -> &EarlySamples {
        &self.early_samples
    }

    /// Whether any container has more pods than are kept for a stored history that may come.
    pub fn is_crowded(&self) -> bool {
        self.containers.iter().any(|(_, container)| exceeds_max_pods(container.replicas().len()))
    }

    /// Notes that no stored history is to come.
    pub fn finish_loading(&mut self) {
        self.early_samples = EarlySamples::default();
    }

    /// Notes that the stored record of this container is not to be kept for what it has seen: it is another
    /// workload's.
    pub fn mark_stale(&mut self, name: Arc<str>) {
        self.add_stale_record(name, false);
    }

    /// Notes that the stored record of this container is not to be kept for what it has seen: by this process's clock it
    /// has expired, or cannot be taken back.
    pub fn mark_expired(&mut self, name: Arc<str>) {
        self.add_stale_record(name, true);
    }

    fn add_stale_record(&mut self, name: Arc<str>, by_clock: bool) {
        match self.stale_records.iter_mut().find(|known| known.name == name) {
            Some(known) => known.by_clock &= by_clock,
            None => self.stale_records.push(StaleRecord { name, by_clock }),
        }
    }

    /// Whether the next save of this container replaces even a richer record.
    pub fn supersedes(&self, name: &str) -> bool {
        self.stale_records.iter().any(|outdated| *outdated.name == *name)
    }

    /// Whether any stored record says nothing any more by this process's clock alone.
    pub fn has_expired(&self) -> bool {
        self.stale_records.iter().any(|outdated| outdated.by_clock)
    }

    /// The clock was wrong: what says nothing any more by it alone may count after all.
    pub fn forget_expired_by_clock(&mut self) {
        self.stale_records.retain(|outdated| !outdated.by_clock);
    }

    /// Notes that a container was saved.
    pub fn mark_saved(&mut self, name: &str) {
        self.stale_records.retain(|outdated| *outdated.name != *name);
    }

    /// The containers whose stored records say nothing any more.
    pub fn stale_records(&self) -> impl Iterator<Item = &Arc<str>> {
        self.stale_records.iter().map(|outdated| &outdated.name)
    }

    /// Forgets the outdated records of containers without a history.
    pub fn clear_stale_records(&mut self) {
        let containers = &self.containers;
        self.stale_records.retain(|it| containers.iter().any(|(known, _)| *known == it.name));
        self.stale_records.shrink_to_fit();
    }

    /// The history of a container.
    pub fn get(&self, name: &str) -> Option<&ContainerHistory> {
        self.find(name).ok().map(|index| &self.containers[index].1)
    }

    /// Forgets a container.
    pub fn remove(&mut self, name: &str) {
        if let Ok(index) = self.find(name) {
            self.containers.remove(index);
        }
    }

    /// Number of containers.
    pub fn len(&self) -> usize {
        self.containers.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    /// All containers, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &ContainerHistory)> {
        self.containers.iter().map(|(name, container)| (name, container))
    }

    /// All containers for writing, by name.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut ContainerHistory)> {
        self.containers.iter_mut().map(|(name, container)| (&*name, container))
    }

    /// Forgets the containers whose history says nothing any more. Answers their names: their stored
    /// records may go too.
    pub fn forget_expired(
        &mut self,
        now: Time,
        directives: &VpaSettings,
        settings: &Settings,
    ) -> Vec<Arc<str>> {
        let mut gone = Vec::new();
        self.containers.retain(|(name, container)| {
            let rules = directives.rules(Some(container), settings);
            let keep = !container.is_expired(now, &rules);
            if !keep {
                gone.push(Arc::clone(name));
            }
            keep
        });
        for name in &gone {
            self.mark_expired(Arc::clone(name));
        }
        gone
    }

    /// Whether a container has left the pods of its VPA: others of them were seen alive long after it.
    /// Without any live pod nothing is stale, so that a workload scaled to zero keeps what it had.
    pub fn is_stale(&self, container: &ContainerHistory, settings: &Settings) -> bool {
        if !settings.fixes.has(Fix::StaleContainersLeave) {
            return false;
        }
        let newest = self.containers.iter().filter_map(|(_, other)| other.last_alive).max();
        match (newest, container.last_alive) {
            (Some(newest), Some(last)) => newest > last.later(settings.stale_after),
            (Some(newest), None) => newest > container.created.later(settings.stale_after),
            (None, _) => false,
        }
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.containers.binary_search_by(|(known, _)| (**known).cmp(name))
    }
}
