//! Builds the histories of many VPAs from single samples while a load is running.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use crate::{
    history::{Sample, SampleBatch},
    types::{ContainerKey, ObjectKey, Time},
};

use super::{
    container::ContainerHistory,
    decay_cache::DecayCache,
    history_builder::{HistoryBuilder, SampleResult},
    model_settings::Settings,
};

/// A running load of single samples.
#[derive(Debug)]
pub struct HistoryBootstrap {
    settings: Settings,
    now: Time,
    /// The index of each VPA in `builders`.
    builder_indices: HashMap<ObjectKey, usize>,
    /// `None` for a VPA that is unknown, or whose history is complete and was taken.
    builders: Vec<Option<HistoryBuilder>>,
    /// The VPA of the last sample and its index: the next sample is nearly always of the same VPA.
    last: Option<(ObjectKey, usize)>,
    decay_cache: DecayCache,
    pub counts: SampleCounts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleCounts {
    pub accepted: u64,
    /// Samples that the history already has.
    pub already_known: u64,
    pub invalid: u64,
    /// Samples with a timestamp in the future.
    pub in_future: u64,
    /// OOM kills that are too old.
    pub too_old: u64,
    /// Samples of unknown VPAs.
    pub ignored: u64,
}

impl HistoryBootstrap {
    pub fn new(settings: &Settings, now: Time) -> Self {
        Self {
            settings: settings.clone(),
            now,
            builder_indices: HashMap::new(),
            builders: Vec::new(),
            last: None,
            decay_cache: DecayCache::with_cache(),
            counts: SampleCounts::default(),
        }
    }

    /// Adds a sample. `new_builder` is called for the first one of a VPA; it returns `None` for an unknown VPA.
    pub fn add_sample(
        &mut self,
        key: &ContainerKey,
        sample: &Sample,
        new_builder: impl FnOnce(&ObjectKey) -> Option<HistoryBuilder>,
    ) -> SampleResult {
        let index = self.builder_index(&key.vpa, new_builder);
        let result = match self.builders.get_mut(index) {
            Some(Some(builder)) => {
                builder.add_sample(&key.container, sample, &self.settings, self.now)
            }
            _ => SampleResult::Ignored,
        };
        *self.counts.counter(result) += 1;
        result
    }

    /// Adds a batch of samples, as if they were added one by one.
    pub fn add_batch(
        &mut self,
        key: &ContainerKey,
        batch: SampleBatch<'_>,
        new_builder: impl FnOnce(&ObjectKey) -> Option<HistoryBuilder>,
    ) {
        let index = self.builder_index(&key.vpa, new_builder);
        let Self { settings, now, builders, decay_cache, counts, .. } = self;
        match builders.get_mut(index) {
            Some(Some(builder)) => {
                let count = |result| *counts.counter(result) += 1;
                builder.add_batch(&key.container, batch, (settings, *now), decay_cache, count);
            }
            _ => counts.ignored += batch.points.len() as u64,
        }
    }

    /// Continues from a container's history in another storage, unless a sample of it already came.
    pub fn resume_from(
        &mut self,
        key: &ContainerKey,
        history: ContainerHistory,
        new_builder: impl FnOnce(&ObjectKey) -> Option<HistoryBuilder>,
    ) {
        let index = self.builder_index(&key.vpa, new_builder);
        if let Some(Some(builder)) = self.builders.get_mut(index) {
            builder.resume_from(Arc::clone(&key.container), history, &self.settings);
        }
    }

    /// Discards the samples of a VPA, as if none had come yet.
    pub fn restart(&mut self, vpa: &ObjectKey) {
        let index = self.builder_indices.remove(vpa);
        if let Some(builder) = index.and_then(|index| self.builders.get_mut(index)) {
            *builder = None;
        }
        self.last = None;
    }

    /// Removes the builder of a VPA whose history is complete, for
    /// [`VpaRegistry::merge_history`](super::VpaRegistry::merge_history). The others stay and accept more samples.
    pub fn take_builder(&mut self, vpa: &ObjectKey) -> Option<HistoryBuilder> {
        let index = *self.builder_indices.get(vpa)?;
        self.builders.get_mut(index).and_then(Option::take)
    }

    /// Returns all remaining builders.
    pub fn finish(self) -> impl Iterator<Item = (ObjectKey, HistoryBuilder)> {
        let Self { builder_indices, mut builders, .. } = self;
        builder_indices.into_iter().filter_map(move |(key, index)| {
            let builder = builders.get_mut(index).and_then(Option::take)?;
            Some((key, builder))
        })
    }

    fn builder_index(
        &mut self,
        vpa: &ObjectKey,
        new_builder: impl FnOnce(&ObjectKey) -> Option<HistoryBuilder>,
    ) -> usize {
        if let Some((_, index)) = self.last.as_ref().filter(|(last, _)| last == vpa) {
            return *index;
        }
        let index = match self.builder_indices.entry(vpa.clone()) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.builders.push(new_builder(vpa));
                *entry.insert(self.builders.len() - 1)
            }
        };
        self.last = Some((vpa.clone(), index));
        index
    }
}

impl SampleCounts {
    fn counter(&mut self, result: SampleResult) -> &mut u64 {
        match result {
            SampleResult::Accepted => &mut self.accepted,
            SampleResult::AlreadyKnown => &mut self.already_known,
            SampleResult::Invalid => &mut self.invalid,
            SampleResult::InFuture => &mut self.in_future,
            SampleResult::TooOld => &mut self.too_old,
            SampleResult::Ignored => &mut self.ignored,
        }
    }
}
