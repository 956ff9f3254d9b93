//! Merges two histories of one container: the live and the stored one.

use crate::history::Throttling;

use super::{
    container::{CPU_WEIGHT, ContainerHistory, earliest},
    early_samples::EarlySample,
    memory_window,
    model_settings::ModelRules,
};

impl ContainerHistory {
    /// Merges the stored history of the same container. Early live samples that are also stored count once; a stored history
    /// without pods does not tell which they are, and upstream counts them twice.
    pub(super) fn merge<'a>(
        &mut self,
        stored: &Self,
        early: impl Iterator<Item = &'a EarlySample>,
        rules: &ModelRules,
    ) {
        let mut stored = stored.clone();
        // Convert both sides to the same half-lives first.
        let now = self.memory_samples.last.max(self.cpu_samples.last).unwrap_or(self.created);
        self.adopt_half_lives(now, rules);
        stored.adopt_half_lives(now, rules);
        self.subtract_duplicates(&stored, early, rules);
        let config = rules.memory_histogram_config();
        match (&mut self.restored_aggregate, stored.restored_aggregate.take()) {
            (Some(ours), Some(theirs)) => ours.merge(&theirs.cpu, &theirs.memory, rules),
            (ours, theirs) => *ours = ours.take().or(theirs),
        }
        self.cpu.merge(rules.cpu_histogram_config(), &stored.cpu);
        self.memory.merge(config, &stored.memory);
        match (&mut self.largest_replica, stored.largest_replica.take()) {
            (Some(ours), Some(theirs)) => {
                ours.peaks.merge(config, &theirs.peaks);
                memory_window::merge_windows(
                    &mut ours.peaks,
                    config,
                    &mut ours.window,
                    &theirs.window,
                );
            }
            (ours, theirs) => *ours = ours.take().or(theirs),
        }
        for (ours, theirs) in [
            (&mut self.cpu_samples, stored.cpu_samples),
            (&mut self.memory_samples, stored.memory_samples),
        ] {
            ours.count = ours.count.saturating_add(theirs.count);
            ours.first = earliest(ours.first, theirs.first);
            ours.last = ours.last.max(theirs.last);
        }
        self.created = self.created.min(stored.created);
        self.last_alive = self.last_alive.max(stored.last_alive);
        self.owner = self.owner.take().or(stored.owner);
        if let Some(bump) = stored.bump {
            self.record_bump(bump, rules);
        }
        let measured_at =
            |of: &Option<Box<Throttling>>| of.as_deref().map(|throttling| throttling.at);
        if measured_at(&stored.throttling) > measured_at(&self.throttling) {
            self.throttling = stored.throttling.take();
        }
        for replica in stored.replicas {
            match self.replicas.binary_search_by(|known| known.name.cmp(&replica.name)) {
                Ok(index) => {
                    memory_window::merge_windows(
                        &mut self.memory,
                        config,
                        &mut self.replicas[index],
                        &replica,
                    );
                }
                Err(index) => self.replicas.insert(index, replica),
            }
        }
        self.restored |= stored.restored;
        self.built_from_samples |= stored.built_from_samples;
        self.bootstrapped |= stored.bootstrapped;
    }

    /// Subtracts live samples that are also stored. Peaks need no change: the larger one of a window is kept.
    fn subtract_duplicates<'a>(
        &mut self,
        stored: &Self,
        early: impl Iterator<Item = &'a EarlySample>,
        rules: &ModelRules,
    ) {
        for EarlySample { pod, at, cpu, has_memory, .. } in early {
            let index = stored.replicas.binary_search_by(|replica| replica.name.cmp(pod));
            let Some(replica) = index.ok().map(|index| &stored.replicas[index]) else { continue };
            if let Some(cpu) = cpu.filter(|cpu| cpu.0 >= 0 && Some(*at) <= replica.last_cpu) {
                self.cpu.subtract(rules.cpu_histogram_config(), cpu.as_cores(), CPU_WEIGHT, *at);
                self.cpu_samples.count = self.cpu_samples.count.saturating_sub(1);
            }
            if *has_memory && Some(*at) <= replica.last_memory {
                self.memory_samples.count = self.memory_samples.count.saturating_sub(1);
            }
        }
    }
}
