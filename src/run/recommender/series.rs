//! History out of a Prometheus: read on beside the passes, taken in a VPA at a time, and gone on with where it stopped.
//!
//! ```text
//!   wanted ──▶ what checkpoints remember ──▶ what is missing since, or all of it ──▶ Loading ──▶ Bootstrap
//!                                              whole: into the fleet, at once ◀─────────────────────┘
//!   the server is away ──▶ what checkpoints remember counts, and the gap is filled later
//! ```

mod away;
mod reach;
mod recalled;
mod selected;
mod unfound;

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use plimsoll_core::{
    history::{Run, Sample, Sink, Snapshot},
    types::{Key, Time, VpaKey},
};
use plimsoll_storage::{
    Error, Wanted,
    prometheus::history::{KnownPods, Loading, PrometheusHistory},
};

use self::{reach::alike, recalled::Recalled};
use super::{FIRST_PAUSE, LONGEST_PAUSE, Role, Stop, history::LOOK};
use plimsoll_core::recommender::{Bootstrap, Folding, bootstrap::Tally};

/// The owner of each VPA's pods.
type Owners = HashMap<VpaKey, Option<Box<str>>>;

/// A server that history is read from.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) history: Arc<PrometheusHistory>,
    /// Where it is, without secrets.
    pub(super) place: String,
    /// How far back.
    pub(super) length: Duration,
    /// Whether checkpoints are written too, and stand in while the server is away.
    pub(super) has_fallback: bool,
}

/// The histories of some VPAs, on their way.
#[derive(Debug)]
struct Reading {
    loadings: Vec<Loading>,
    bootstrap: Bootstrap,
    /// Which wait of each VPA this is for.
    sightings: HashMap<VpaKey, u64>,
    /// What each lacks, where they have the rest already.
    gaps: HashMap<VpaKey, Gap>,
    began: Instant,
    taken: usize,
    /// The VPAs of which nothing was found.
    empty: Vec<VpaKey>,
}

/// The time that a history lacks: after the one, and before the other.
#[derive(Clone, Copy, Debug)]
struct Gap {
    sighting: u64,
    after: Time,
    before: Time,
}

/// All that is under way.
#[derive(Debug, Default)]
struct Readings {
    under_way: Vec<Reading>,
    gaps: HashMap<VpaKey, Gap>,
}

impl Role {
    /// Reads the history of every VPA when it is first seen. What fails is tried again, and goes on where it stopped.
    pub(super) async fn keep_reading(self: Arc<Self>, series: Arc<Series>, stop: Stop) {
        let mut readings = Readings::default();
        let mut pause = FIRST_PAUSE;
        loop {
            let read = tokio::select! {
                () = stop.stopped() => return,
                read = self.read_on(&series, &mut readings) => read,
            };
            self.unreadable.store(read.is_err(), Ordering::Release);
            let wait = match read {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    LOOK
                }
                Err(error) => {
                    tracing::error!(%error, "history cannot be read now; it is tried again");
                    self.go_on_without(&series, &mut readings).await;
                    let wait = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    wait
                }
            };
            tokio::select! {
                () = stop.stopped() => return,
                // A server that fails is left alone until its time has come.
                () = self.news.notified(), if wait == LOOK => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Begins what is wanted, and reads on what is under way. The first failure is answered, after all was tried.
    async fn read_on(&self, series: &Series, readings: &mut Readings) -> Result<(), Error> {
        let wanted = self.not_under_way(readings);
        let mut failure = None;
        if !wanted.is_empty() {
            match self.begin_reading(series, wanted).await {
                Ok(reading) => readings.under_way.push(reading),
                Err(error) => failure = Some(error),
            }
        }
        if failure.is_none() && !readings.gaps.is_empty() {
            match self.begin_filling(series, &readings.gaps).await {
                Ok(reading) => {
                    readings.gaps.clear();
                    readings.under_way.push(reading);
                }
                Err(error) => failure = Some(error),
            }
        }
        for reading in &mut readings.under_way {
            if let Err(error) = self.advance(series, reading).await {
                failure.get_or_insert(error);
            }
        }
        readings.under_way.retain(|reading| !reading.is_done());
        failure.map_or(Ok(()), Err)
    }

    /// The VPAs that wait for their history, or were left without, and that nobody reads it for.
    fn not_under_way(&self, readings: &Readings) -> Owners {
        let mut wanted = self.wanted_histories(true);
        let core = self.state.lock();
        wanted.retain(|key, _| {
            let sighting = core.fleet.sighting(key);
            let is_read = |reading: &Reading| reading.sightings.get(key).copied() == sighting;
            !readings.under_way.iter().any(is_read)
        });
        wanted
    }

    /// Which wait of each VPA this is.
    fn sightings(&self, wanted: &Owners) -> HashMap<VpaKey, u64> {
        let core = self.state.lock();
        let sighting = |key: &VpaKey| Some((key.clone(), core.fleet.sighting(key)?));
        wanted.keys().filter_map(sighting).collect()
    }

    async fn begin_reading(&self, series: &Series, wanted: Owners) -> Result<Reading, Error> {
        let now = self.clock.now();
        let sightings = self.sightings(&wanted);
        let whose = self.whose(series, wanted.keys(), None).await?;
        let live = self.live_pods(&wanted);
        let pods = KnownPods { labelled: whose.as_ref(), live: Some(&live) };
        let mut bootstrap = Bootstrap::new(self.state.lock().fleet.settings(), now);
        let mut since = HashMap::new();
        if series.has_fallback {
            // What lies further back than the server is asked for is in no series any more.
            let begin = now.earlier(series.length);
            let mut recalled = Recalled::new(self, &mut bootstrap, now, begin);
            self.storage.load(&Wanted::Vpas(wanted.clone()), &mut recalled).await?;
            since = recalled.since();
        }
        let mut loadings = Vec::new();
        let (some, all): (Owners, Owners) =
            wanted.into_iter().partition(|(key, _)| since.contains_key(key));
        if !all.is_empty() {
            loadings.push(begin_loading(series, pods, &all, None, None).await?);
        }
        let some = some.into_iter().map(|(key, owner)| (since[&key], (key, owner)));
        for group in alike(some, now) {
            let after = group.iter().map(|(since, _)| *since).min();
            let owners = group.into_iter().map(|(_, owned)| owned).collect();
            loadings.push(begin_loading(series, pods, &owners, after, None).await?);
        }
        let mut reading = Reading::new(loadings, bootstrap, sightings, HashMap::new());
        self.take_idle(&mut reading);
        Ok(reading)
    }

    /// Begins to fill what the histories of these VPAs lack.
    async fn begin_filling(
        &self,
        series: &Series,
        gaps: &HashMap<VpaKey, Gap>,
    ) -> Result<Reading, Error> {
        let now = self.clock.now();
        let (owners, bootstrap) = {
            let core = self.state.lock();
            let is_same = |(key, gap): &(&VpaKey, &Gap)| {
                core.fleet.sighting(key).is_some_and(|sighting| sighting == gap.sighting)
            };
            let owner = |(key, _): (&VpaKey, &Gap)| {
                let owner = core.fleet.get(key).and_then(|known| known.owner());
                (key.clone(), owner.map(Into::into))
            };
            let owners: Owners = gaps.iter().filter(is_same).map(owner).collect();
            (owners, Bootstrap::new(core.fleet.settings(), now))
        };
        let sightings = self.sightings(&owners);
        let whose = self.whose(series, owners.keys(), None).await?;
        let live = self.live_pods(&owners);
        let pods = KnownPods { labelled: whose.as_ref(), live: Some(&live) };
        let mut loadings = Vec::new();
        let owners = owners.into_iter().map(|(key, owner)| (gaps[&key].after, (key, owner)));
        for group in alike(owners, now) {
            let after = group.iter().map(|(after, _)| *after).min();
            let before = group.iter().map(|(_, (key, _))| gaps[key].before).max();
            let owners = group.into_iter().map(|(_, owned)| owned).collect();
            loadings.push(begin_loading(series, pods, &owners, after, before).await?);
        }
        let mut reading = Reading::new(loadings, bootstrap, sightings, gaps.clone());
        self.take_idle(&mut reading);
        Ok(reading)
    }

    /// Takes those in of which nothing is to be asked: their pods cannot be told, or they lack nothing.
    fn take_idle(&self, reading: &mut Reading) {
        let asked: HashSet<VpaKey> =
            reading.loadings.iter().flat_map(Loading::pending).cloned().collect();
        let idle = reading.sightings.keys().filter(|key| !asked.contains(*key));
        let idle: Vec<VpaKey> = idle.cloned().collect();
        let Reading { bootstrap, sightings, gaps, .. } = reading;
        let mut intake = Intake::new(self, bootstrap, sightings, gaps);
        for key in &idle {
            intake.whole(key);
        }
        reading.taken += intake.taken;
    }

    async fn advance(&self, series: &Series, reading: &mut Reading) -> Result<(), Error> {
        let mut failure = None;
        let Reading { loadings, bootstrap, sightings, gaps, .. } = reading;
        let mut intake = Intake::new(self, bootstrap, sightings, gaps);
        for loading in loadings {
            if let Err(stalled) = loading.advance(&mut intake).await {
                failure.get_or_insert(series.away(&stalled));
            }
        }
        reading.taken += intake.taken;
        reading.empty.append(&mut intake.empty);
        if reading.is_done() {
            self.told(series, reading);
            self.report_unfound(series, mem::take(&mut reading.empty)).await;
        }
        failure.map_or(Ok(()), Err)
    }

    /// Says what a reading came to.
    fn told(&self, series: &Series, reading: &Reading) {
        let Tally { taken, known, senseless, in_future, .. } = reading.bootstrap.tally();
        let reports = reading.loadings.iter().map(Loading::report);
        let (mut queries, mut bytes, mut foreign) = (0, 0, 0);
        for report in reports {
            queries += report.queries;
            bytes += report.bytes;
            foreign += report.passed.foreign;
            for warning in &report.warnings {
                let server = &series.place;
                tracing::warn!(server, warning, "the server warns of its answers about history");
            }
        }
        tracing::info!(
            storage = self.storage.name(),
            vpas = reading.sightings.len(),
            containers = reading.taken,
            samples = taken,
            known,
            senseless,
            in_future,
            foreign,
            queries,
            bytes,
            took = ?reading.began.elapsed(),
            length = ?series.length,
            "history loaded"
        );
    }
}

async fn begin_loading(
    series: &Series,
    pods: KnownPods<'_>,
    owners: &Owners,
    after: Option<Time>,
    until: Option<Time>,
) -> Result<Loading, Error> {
    let begun = series.history.begin_knowing(owners, after, until, pods).await;
    let (loading, skipped) = begun.map_err(|unknown| series.away(&unknown))?;
    for skipped in &skipped {
        tracing::warn!(what = skipped.what, why = skipped.why, "no history can be read");
    }
    Ok(loading)
}

impl Series {
    pub(super) fn away(&self, why: &impl ToString) -> Error {
        Error::Unavailable { place: self.place.clone(), why: why.to_string() }
    }
}

impl Reading {
    fn new(
        loadings: Vec<Loading>,
        bootstrap: Bootstrap,
        sightings: HashMap<VpaKey, u64>,
        gaps: HashMap<VpaKey, Gap>,
    ) -> Self {
        let (began, taken, empty) = (Instant::now(), 0, Vec::new());
        Self { loadings, bootstrap, sightings, gaps, began, taken, empty }
    }

    fn is_done(&self) -> bool {
        self.loadings.iter().all(Loading::is_done)
    }
}

/// Takes samples into histories, and histories that are whole into the fleet.
struct Intake<'a> {
    role: &'a Role,
    bootstrap: &'a mut Bootstrap,
    sightings: &'a HashMap<VpaKey, u64>,
    gaps: &'a HashMap<VpaKey, Gap>,
    now: Time,
    taken: usize,
    empty: Vec<VpaKey>,
}

impl<'a> Intake<'a> {
    fn new(
        role: &'a Role,
        bootstrap: &'a mut Bootstrap,
        sightings: &'a HashMap<VpaKey, u64>,
        gaps: &'a HashMap<VpaKey, Gap>,
    ) -> Self {
        let now = role.clock.now();
        Self { role, bootstrap, sightings, gaps, now, taken: 0, empty: Vec::new() }
    }
}

impl Sink for Intake<'_> {
    fn snapshot(&mut self, key: Key, _: Snapshot) {
        tracing::debug!(%key, "series have no snapshots");
    }

    fn sample(&mut self, key: &Key, sample: Sample) {
        let Self { role, sightings, gaps, .. } = self;
        self.bootstrap.take(key, &sample, |vpa| begin(role, sightings, gaps, vpa));
    }

    fn run(&mut self, key: &Key, run: Run<'_>) {
        let Self { role, sightings, gaps, .. } = self;
        self.bootstrap.take_run(key, run, |vpa| begin(role, sightings, gaps, vpa));
    }

    fn discard(&mut self, vpa: &VpaKey) {
        self.bootstrap.discard(vpa);
    }

    fn whole(&mut self, vpa: &VpaKey) {
        let Some(&sighting) = self.sightings.get(vpa) else { return };
        let mut core = self.role.state.lock();
        if let Some(folded) = self.bootstrap.release(vpa) {
            self.taken += core.fleet.take_folded(vpa, folded, self.now);
        } else if !self.gaps.contains_key(vpa) {
            self.empty.push(vpa.clone());
        }
        core.fleet.loaded(vpa, sighting);
        drop(core);
        self.role.loaded.notify_one();
    }
}

/// What the history of a VPA begins with; `None` where it is not waited for any more.
fn begin(
    role: &Role,
    sightings: &HashMap<VpaKey, u64>,
    gaps: &HashMap<VpaKey, Gap>,
    vpa: &VpaKey,
) -> Option<Folding> {
    let core = role.state.lock();
    // One that points elsewhere by now waits for another history than this.
    if core.fleet.sighting(vpa) != Some(*sightings.get(vpa)?) {
        return None;
    }
    let folding = core.fleet.begin_folding(vpa)?;
    Some(match gaps.get(vpa) {
        Some(gap) => folding.between(gap.after, gap.before),
        None => folding,
    })
}
