//! Histories of many VPAs, made of single samples while these arrive: what a load has come to before it ends. A VPA
//! whose samples did not all come is left out as a whole.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use crate::{
    history::{Run, Sample},
    types::{Key, Time, VpaKey},
};

use super::{
    container::ContainerHistory,
    fading::Fading,
    folding::{Folded, Folding},
    settings::Settings,
};

/// A load of single samples that is under way.
#[derive(Debug)]
pub struct Bootstrap {
    settings: Settings,
    now: Time,
    /// Where each VPA is among the foldings.
    places: HashMap<VpaKey, usize>,
    /// `None` for a VPA that nobody asks about, or whose history came in part.
    foldings: Vec<Option<Folding>>,
    /// Of which VPA the last sample was, and its place: the next is nearly always of the same.
    last: Option<(VpaKey, usize)>,
    /// Of the samples of all histories.
    fading: Fading,
    tally: Tally,
}

/// How many samples became what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// They count.
    pub taken: u64,
    /// They were known.
    pub known: u64,
    /// They cannot be.
    pub senseless: u64,
    /// They are from the future.
    pub in_future: u64,
    /// They are kills of long ago.
    pub too_old: u64,
    /// Nobody asked.
    pub ignored: u64,
}

impl Bootstrap {
    /// Nothing has come yet.
    pub fn new(settings: &Settings, now: Time) -> Self {
        Self {
            settings: settings.clone(),
            now,
            places: HashMap::new(),
            foldings: Vec::new(),
            last: None,
            fading: Fading::shared(),
            tally: Tally::default(),
        }
    }

    /// Takes a sample. The first one of a VPA asks what to begin its history with, `None` where nobody wants it.
    pub fn take(
        &mut self,
        key: &Key,
        sample: &Sample,
        begin: impl FnOnce(&VpaKey) -> Option<Folding>,
    ) -> Folded {
        let place = self.place(&key.vpa, begin);
        let folded = match self.foldings.get_mut(place) {
            Some(Some(folding)) => folding.take(&key.container, sample, &self.settings, self.now),
            _ => Folded::Ignored,
        };
        *self.tally.of(folded) += 1;
        folded
    }

    /// Takes a run of samples, as if they came one by one.
    pub fn take_run(
        &mut self,
        key: &Key,
        run: Run<'_>,
        begin: impl FnOnce(&VpaKey) -> Option<Folding>,
    ) {
        let place = self.place(&key.vpa, begin);
        let Self { settings, now, foldings, fading, tally, .. } = self;
        match foldings.get_mut(place) {
            Some(Some(folding)) => {
                let tell = |folded| *tally.of(folded) += 1;
                folding.take_run(&key.container, run, (settings, *now), fading, tell);
            }
            _ => tally.ignored += run.points.len() as u64,
        }
    }

    /// Goes on from what another storage remembers of a container, if no sample of it came yet.
    pub fn go_on_from(
        &mut self,
        key: &Key,
        history: ContainerHistory,
        begin: impl FnOnce(&VpaKey) -> Option<Folding>,
    ) {
        let place = self.place(&key.vpa, begin);
        if let Some(Some(folding)) = self.foldings.get_mut(place) {
            folding.go_on_from(Arc::clone(&key.container), history, &self.settings);
        }
    }

    /// Forgets what was taken of a VPA, as if nothing had come yet.
    pub fn begin_anew(&mut self, vpa: &VpaKey) {
        let place = self.places.remove(vpa);
        if let Some(folding) = place.and_then(|place| self.foldings.get_mut(place)) {
            *folding = None;
        }
        self.last = None;
    }

    /// Leaves a VPA out: part of its history did not come.
    pub fn discard(&mut self, vpa: &VpaKey) {
        let place = self.place(vpa, |_| None);
        if let Some(folding) = self.foldings.get_mut(place) {
            *folding = None;
        }
    }

    /// How many samples became what.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Takes out the history of a VPA that is whole, to be handed to [`Fleet::take_folded`](super::Fleet::take_folded).
    /// The others stay, for what is still to come of them.
    pub fn release(&mut self, vpa: &VpaKey) -> Option<Folding> {
        let place = *self.places.get(vpa)?;
        self.foldings.get_mut(place).and_then(Option::take)
    }

    /// All of them.
    pub fn finish(self) -> impl Iterator<Item = (VpaKey, Folding)> {
        let Self { places, mut foldings, .. } = self;
        places.into_iter().filter_map(move |(key, place)| {
            let folding = foldings.get_mut(place).and_then(Option::take)?;
            Some((key, folding))
        })
    }

    fn place(&mut self, vpa: &VpaKey, begin: impl FnOnce(&VpaKey) -> Option<Folding>) -> usize {
        if let Some((_, place)) = self.last.as_ref().filter(|(last, _)| last == vpa) {
            return *place;
        }
        let place = match self.places.entry(vpa.clone()) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.foldings.push(begin(vpa));
                *entry.insert(self.foldings.len() - 1)
            }
        };
        self.last = Some((vpa.clone(), place));
        place
    }
}

impl Tally {
    fn of(&mut self, folded: Folded) -> &mut u64 {
        match folded {
            Folded::Taken => &mut self.taken,
            Folded::Known => &mut self.known,
            Folded::Senseless => &mut self.senseless,
            Folded::InFuture => &mut self.in_future,
            Folded::TooOld => &mut self.too_old,
            Folded::Ignored => &mut self.ignored,
        }
    }
}
