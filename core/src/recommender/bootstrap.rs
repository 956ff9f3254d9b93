//! Histories of many VPAs, made of single samples while these arrive: what a load has come to before it ends. A VPA
//! whose samples did not all come is left out as a whole.

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
    settings::Settings,
};

/// A load of single samples that is under way.
#[derive(Debug)]
pub struct HistoryBootstrap {
    settings: Settings,
    now: Time,
    /// Where each VPA is among the foldings.
    builder_indices: HashMap<ObjectKey, usize>,
    /// `None` for a VPA that nobody asks about, or whose history came in part.
    builders: Vec<Option<HistoryBuilder>>,
    /// Of which VPA the last sample was, and its place: the next is nearly always of the same.
    last: Option<(ObjectKey, usize)>,
    /// Of the samples of all histories.
    decay_cache: DecayCache,
    counts: SampleCounts,
}

/// How many samples became what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// They count.
    pub accepted: u64,
    /// They were known.
    pub already_known: u64,
    /// They cannot be.
    pub invalid: u64,
    /// They are from the future.
    pub in_future: u64,
    /// They are kills of long ago.
    pub too_old: u64,
    /// Nobody asked.
    pub ignored: u64,
}

impl HistoryBootstrap {
    /// Nothing has come yet.
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

    /// Takes a sample. The first one of a VPA asks what to begin its history with, `None` where nobody wants it.
    pub fn add_sample(
        &mut self,
        key: &ContainerKey,
        sample: &Sample,
        begin: impl FnOnce(&ObjectKey) -> Option<HistoryBuilder>,
    ) -> SampleResult {
        let place = self.builder_index(&key.vpa, begin);
        let folded = match self.builders.get_mut(place) {
            Some(Some(folding)) => {
                folding.add_sample(&key.container, sample, &self.settings, self.now)
            }
            _ => SampleResult::Ignored,
        };
        *self.counts.counter(folded) += 1;
        folded
    }

    /// Takes a run of samples, as if they came one by one.
    pub fn add_batch(
        &mut self,
        key: &ContainerKey,
        run: SampleBatch<'_>,
        begin: impl FnOnce(&ObjectKey) -> Option<HistoryBuilder>,
    ) {
        let place = self.builder_index(&key.vpa, begin);
        let Self { settings, now, builders: foldings, decay_cache: fading, counts: tally, .. } =
            self;
        match foldings.get_mut(place) {
            Some(Some(folding)) => {
                let tell = |folded| *tally.counter(folded) += 1;
                folding.add_batch(&key.container, run, (settings, *now), fading, tell);
            }
            _ => tally.ignored += run.points.len() as u64,
        }
    }

    /// Goes on from what another storage remembers of a container, if no sample of it came yet.
    pub fn resume_from(
        &mut self,
        key: &ContainerKey,
        history: ContainerHistory,
        begin: impl FnOnce(&ObjectKey) -> Option<HistoryBuilder>,
    ) {
        let place = self.builder_index(&key.vpa, begin);
        if let Some(Some(folding)) = self.builders.get_mut(place) {
            folding.resume_from(Arc::clone(&key.container), history, &self.settings);
        }
    }

    /// Forgets what was taken of a VPA, as if nothing had come yet.
    pub fn restart(&mut self, vpa: &ObjectKey) {
        let place = self.builder_indices.remove(vpa);
        if let Some(folding) = place.and_then(|place| self.builders.get_mut(place)) {
            *folding = None;
        }
        self.last = None;
    }

    /// Leaves a VPA out: part of its history did not come.
    pub fn abandon(&mut self, vpa: &ObjectKey) {
        let place = self.builder_index(vpa, |_| None);
        if let Some(folding) = self.builders.get_mut(place) {
            *folding = None;
        }
    }

    /// How many samples became what.
    pub fn counts(&self) -> SampleCounts {
        self.counts
    }

    /// Takes out the history of a VPA that is whole, to be handed to [`Fleet::take_folded`](super::Fleet::take_folded).
    /// The others stay, for what is still to come of them.
    pub fn take_builder(&mut self, vpa: &ObjectKey) -> Option<HistoryBuilder> {
        let place = *self.builder_indices.get(vpa)?;
        self.builders.get_mut(place).and_then(Option::take)
    }

    /// All of them.
    pub fn finish(self) -> impl Iterator<Item = (ObjectKey, HistoryBuilder)> {
        let Self { builder_indices: places, builders: mut foldings, .. } = self;
        places.into_iter().filter_map(move |(key, place)| {
            let folding = foldings.get_mut(place).and_then(Option::take)?;
            Some((key, folding))
        })
    }

    fn builder_index(
        &mut self,
        vpa: &ObjectKey,
        begin: impl FnOnce(&ObjectKey) -> Option<HistoryBuilder>,
    ) -> usize {
        if let Some((_, place)) = self.last.as_ref().filter(|(last, _)| last == vpa) {
            return *place;
        }
        let place = match self.builder_indices.entry(vpa.clone()) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.builders.push(begin(vpa));
                *entry.insert(self.builders.len() - 1)
            }
        };
        self.last = Some((vpa.clone(), place));
        place
    }
}

impl SampleCounts {
    fn counter(&mut self, folded: SampleResult) -> &mut u64 {
        match folded {
            SampleResult::Accepted => &mut self.accepted,
            SampleResult::AlreadyKnown => &mut self.already_known,
            SampleResult::Invalid => &mut self.invalid,
            SampleResult::InFuture => &mut self.in_future,
            SampleResult::TooOld => &mut self.too_old,
            SampleResult::Ignored => &mut self.ignored,
        }
    }
}
