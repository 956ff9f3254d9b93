//! Two histories of one container become one: what was seen, and what a storage remembered.

use crate::history::Throttling;

use super::{
    container::{CPU_WEIGHT, ContainerHistory, earliest},
    early_samples::EarlySample,
    memory_window,
    settings::ModelRules,
};

impl ContainerHistory {
    /// Adds what is remembered of the same container. Of what was seen first since, that counts once which is
    /// remembered as well; a history that came back without its pods does not say, and upstream counts it twice.
    pub(super) fn merge<'a>(
        &mut self,
        remembered: &Self,
        early: impl Iterator<Item = &'a EarlySample>,
        rules: &ModelRules,
    ) {
        let mut remembered = remembered.clone();
        // Both sides are brought to the same measure first.
        let now = self.memory_samples.last.max(self.cpu_samples.last).unwrap_or(self.created);
        self.adopt_half_lives(now, rules);
        remembered.adopt_half_lives(now, rules);
        self.subtract_duplicates(&remembered, early, rules);
        let axis = rules.memory_histogram_config();
        match (&mut self.restored_aggregate, remembered.restored_aggregate.take()) {
            (Some(ours), Some(theirs)) => ours.merge(&theirs, rules),
            (ours, theirs) => *ours = ours.take().or(theirs),
        }
        self.cpu.merge(rules.cpu_histogram_config(), &remembered.cpu);
        self.memory.merge(axis, &remembered.memory);
        match (&mut self.largest_replica, remembered.largest_replica.take()) {
            (Some(ours), Some(theirs)) => {
                ours.peaks.merge(axis, &theirs.peaks);
                memory_window::merge_windows(
                    &mut ours.peaks,
                    axis,
                    &mut ours.window,
                    &theirs.window,
                );
            }
            (ours, theirs) => *ours = ours.take().or(theirs),
        }
        for (ours, theirs) in [
            (&mut self.cpu_samples, remembered.cpu_samples),
            (&mut self.memory_samples, remembered.memory_samples),
        ] {
            ours.count = ours.count.saturating_add(theirs.count);
            ours.first = earliest(ours.first, theirs.first);
            ours.last = ours.last.max(theirs.last);
        }
        self.created = self.created.min(remembered.created);
        self.last_alive = self.last_alive.max(remembered.last_alive);
        self.owner = self.owner.take().or(remembered.owner);
        if let Some(bump) = remembered.bump {
            self.record_bump(bump, rules);
        }
        let measured = |of: &Option<Box<Throttling>>| of.as_deref().map(|known| known.at);
        if measured(&remembered.throttling) > measured(&self.throttling) {
            self.throttling = remembered.throttling.take();
        }
        for replica in remembered.replicas {
            match self.replicas.binary_search_by(|known| known.name.cmp(&replica.name)) {
                Ok(index) => {
                    memory_window::merge_windows(
                        &mut self.memory,
                        axis,
                        &mut self.replicas[index],
                        &replica,
                    );
                }
                Err(index) => self.replicas.insert(index, replica),
            }
        }
        self.restored |= remembered.restored;
        self.built_from_samples |= remembered.built_from_samples;
        self.bootstrapped |= remembered.bootstrapped;
    }

    /// Takes out what is part of what is remembered too. Peaks need nothing: of one window the larger stands.
    fn subtract_duplicates<'a>(
        &mut self,
        remembered: &Self,
        early: impl Iterator<Item = &'a EarlySample>,
        rules: &ModelRules,
    ) {
        for EarlySample { pod, at, cpu, has_memory, .. } in early {
            let known = remembered.replicas.binary_search_by(|known| known.name.cmp(pod));
            let Some(known) = known.ok().map(|index| &remembered.replicas[index]) else { continue };
            if let Some(cpu) = cpu.filter(|cpu| cpu.0 >= 0 && Some(*at) <= known.last_cpu) {
                self.cpu.subtract(rules.cpu_histogram_config(), cpu.as_cores(), CPU_WEIGHT, *at);
                self.cpu_samples.count = self.cpu_samples.count.saturating_sub(1);
            }
            if *has_memory && Some(*at) <= known.last_memory {
                self.memory_samples.count = self.memory_samples.count.saturating_sub(1);
            }
        }
    }
}
