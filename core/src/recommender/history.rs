//! The history of one VPA: one history per container.

use std::sync::Arc;

use crate::types::Time;

use super::{
    container::ContainerHistory,
    early_samples::{EarlySamples, exceeds_max_pods},
    merging::merge,
    model_settings::{ModelRules, Settings},
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
    /// Containers whose stored record is stale, although it may have more samples than the history here.
    stale_records: Vec<StaleRecord>,
    /// The first live sample of each pod, while a stored history that also has it may still be loaded.
    pub(super) early_samples: EarlySamples,
}

/// A stored record that must not be used any more.
#[derive(Clone, Debug, PartialEq)]
struct StaleRecord {
    name: Arc<str>,
    /// Whether the only reason is its age according to this process's clock.
    by_clock: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreResult {
    Merged,
    /// It was merged before: a retried load returns everything again.
    AlreadyLoaded,
    Expired,
}

impl History {
    /// Returns the history of a container of a live pod; creates it if necessary.
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

    /// Returns the history of a container without marking it alive; creates it if necessary.
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

    /// Merges stored history into the live history, once per container.
    pub fn restore(
        &mut self,
        name: Arc<str>,
        stored: ContainerHistory,
        now: Time,
        rules: &ModelRules,
    ) -> RestoreResult {
        if stored.is_expired(now, rules) {
            self.mark_stale(name, true);
            return RestoreResult::Expired;
        }
        match self.find(&name) {
            Ok(index) if self.containers[index].1.restored => return RestoreResult::AlreadyLoaded,
            Ok(index) => {
                let early = self.early_samples.for_container(&name);
                merge(&mut self.containers[index].1, &stored, early, rules);
            }
            Err(index) => self.containers.insert(index, (name, stored)),
        }
        RestoreResult::Merged
    }

    /// Merges history that fills a gap. It must not have samples that the history already has.
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
            Ok(index) => merge(&mut self.containers[index].1, &missed, std::iter::empty(), rules),
            Err(index) => self.containers.insert(index, (name, missed)),
        }
        RestoreResult::Merged
    }

    /// Records the next sample if it is the first of its pod. To be called while a stored history may still be loaded.
    pub fn record_first_sample(
        &mut self,
        container: &str,
        pod: &str,
        at: Time,
        usage: (Option<MilliCpu>, Option<Bytes>),
    ) {
        let history = self.get(container);
        if history.is_none_or(|history| !history.restored && !history.has_replica(pod)) {
            self.early_samples.record((container, pod), at, usage);
        }
    }

    /// Whether any container has more pods than are tracked while a stored history may still be loaded.
    pub fn is_crowded(&self) -> bool {
        self.containers.iter().any(|(_, container)| exceeds_max_pods(container.replicas().len()))
    }

    /// Records that no stored history will be loaded any more.
    pub fn finish_loading(&mut self) {
        self.early_samples = EarlySamples::default();
    }

    /// Marks the stored record of this container as stale: it is another workload's, or it has expired by this process's
    /// clock (`by_clock`) or cannot be restored. It is replaced even if it has more samples.
    pub fn mark_stale(&mut self, name: Arc<str>, by_clock: bool) {
        match self.stale_records.iter_mut().find(|record| record.name == name) {
            Some(record) => record.by_clock &= by_clock,
            None => self.stale_records.push(StaleRecord { name, by_clock }),
        }
    }

    /// Whether the next save of this container replaces even a richer record.
    pub fn supersedes(&self, name: &str) -> bool {
        self.stale_records.iter().any(|record| *record.name == *name)
    }

    /// Whether any stored record is stale only by this process's clock.
    pub fn has_expired(&self) -> bool {
        self.stale_records.iter().any(|record| record.by_clock)
    }

    /// Unmarks the records that are stale only by this process's clock, because it was wrong.
    pub fn forget_expired_by_clock(&mut self) {
        self.stale_records.retain(|record| !record.by_clock);
    }

    pub fn mark_saved(&mut self, name: &str) {
        self.stale_records.retain(|record| *record.name != *name);
    }

    pub fn stale_records(&self) -> impl Iterator<Item = &Arc<str>> {
        self.stale_records.iter().map(|record| &record.name)
    }

    pub fn clear_stale_records(&mut self) {
        let containers = &self.containers;
        self.stale_records.retain(|record| containers.iter().any(|(name, _)| *name == record.name));
        self.stale_records.shrink_to_fit();
    }

    pub fn get(&self, name: &str) -> Option<&ContainerHistory> {
        self.find(name).ok().map(|index| &self.containers[index].1)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut ContainerHistory> {
        self.find(name).ok().map(|index| &mut self.containers[index].1)
    }

    pub fn remove(&mut self, name: &str) {
        if let Ok(index) = self.find(name) {
            self.containers.remove(index);
        }
    }

    /// Iterates over all containers, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &ContainerHistory)> {
        self.containers.iter().map(|(name, container)| (name, container))
    }

    /// Iterates over all containers mutably, by name.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut ContainerHistory)> {
        self.containers.iter_mut().map(|(name, container)| (&*name, container))
    }

    /// Removes expired histories and returns the names of their containers: their stored records may be deleted, too.
    pub fn forget_expired(
        &mut self,
        now: Time,
        vpa_settings: &VpaSettings,
        settings: &Settings,
    ) -> Vec<Arc<str>> {
        let mut removed = Vec::new();
        self.containers.retain(|(name, container)| {
            let rules = vpa_settings.rules(Some(container), settings);
            let keep = !container.is_expired(now, &rules);
            if !keep {
                removed.push(Arc::clone(name));
            }
            keep
        });
        for name in &removed {
            self.mark_stale(Arc::clone(name), true);
        }
        removed
    }

    /// Whether a container has left the pods of its VPA: other containers were seen alive long after it. Without live pods
    /// nothing is stale, so a workload that is scaled to zero keeps its history.
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
