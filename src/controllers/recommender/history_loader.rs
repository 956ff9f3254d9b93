//! History out of a Prometheus: read on beside the passes, taken in a VPA at a time, and gone on with where it stopped.
//!
//! ```text
//!   wanted ──▶ what checkpoints remember ──▶ what is missing since, or all of it ──▶ Loading ──▶ Bootstrap
//!                                              whole: into the fleet, at once ◀─────────────────────┘
//!   the server is away ──▶ what checkpoints remember counts, and the gap is filled later
//! ```

mod fallback;
mod from_checkpoint;
mod group_by_gap;
mod label_selection;
mod missing_history;

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use plimsoll_core::{
    history::{Sample, SampleBatch, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::{
    Error, LoadRequest,
    prometheus::history::{HistoryLoad, KnownPods, PrometheusHistory},
};

use self::{from_checkpoint::CheckpointSink, group_by_gap::group_similar};
use super::{MAX_BACKOFF, MIN_BACKOFF, Recommender, ShutdownToken, storage_loader::POLL_INTERVAL};
use plimsoll_core::recommender::{HistoryBootstrap, HistoryBuilder, bootstrap::SampleCounts};

/// The owner of each VPA's pods.
type VpaOwners = HashMap<ObjectKey, Option<Box<str>>>;

/// A server that history is read from.
#[derive(Debug)]
pub(super) struct HistorySource {
    pub(super) history: Arc<PrometheusHistory>,
    /// Where it is, without secrets.
    pub(super) address: String,
    /// How far back.
    pub(super) history_length: Duration,
    /// Whether checkpoints are written too, and stand in while the server is away.
    pub(super) has_fallback: bool,
}

/// The histories of some VPAs, on their way.
#[derive(Debug)]
struct HistoryRead {
    loadings: Vec<HistoryLoad>,
    bootstrap: HistoryBootstrap,
    /// Which wait of each VPA this is for.
    load_generations: HashMap<ObjectKey, u64>,
    /// What each lacks, where they have the rest already.
    gaps: HashMap<ObjectKey, Gap>,
    started: Instant,
    histories_loaded: usize,
    /// The VPAs of which nothing was found.
    without_history: Vec<ObjectKey>,
}

/// The time that a history lacks: after the one, and before the other.
#[derive(Clone, Copy, Debug)]
struct Gap {
    load_generation: u64,
    after: Time,
    before: Time,
}

/// All that is under way.
#[derive(Debug, Default)]
struct HistoryReads {
    in_progress: Vec<HistoryRead>,
    gaps: HashMap<ObjectKey, Gap>,
}

impl Recommender {
    /// Reads the history of every VPA when it is first seen. What fails is tried again, and goes on where it stopped.
    pub(super) async fn run_prometheus_load_loop(
        self: Arc<Self>,
        series: Arc<HistorySource>,
        stop: ShutdownToken,
    ) {
        let mut readings = HistoryReads::default();
        let mut pause = MIN_BACKOFF;
        loop {
            let read = tokio::select! {
                () = stop.cancelled() => return,
                read = self.advance_reads(&series, &mut readings) => read,
            };
            self.history_unreadable.store(read.is_err(), Ordering::Release);
            let wait = match read {
                Ok(()) => {
                    pause = MIN_BACKOFF;
                    POLL_INTERVAL
                }
                Err(error) => {
                    tracing::error!(%error, "history cannot be read now; it is tried again");
                    self.continue_without_prometheus(&series, &mut readings).await;
                    let wait = pause;
                    pause = (pause * 2).min(MAX_BACKOFF);
                    wait
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                // A server that fails is left alone until its time has come.
                () = self.history_wanted.notified(), if wait == POLL_INTERVAL => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Begins what is wanted, and reads on what is under way. The first failure is answered, after all was tried.
    async fn advance_reads(
        &self,
        series: &HistorySource,
        readings: &mut HistoryReads,
    ) -> Result<(), Error> {
        let wanted = self.vpas_to_read(readings);
        let mut failure = None;
        if !wanted.is_empty() {
            match self.start_read(series, wanted).await {
                Ok(reading) => readings.in_progress.push(reading),
                Err(error) => failure = Some(error),
            }
        }
        if failure.is_none() && !readings.gaps.is_empty() {
            match self.start_gap_read(series, &readings.gaps).await {
                Ok(reading) => {
                    readings.gaps.clear();
                    readings.in_progress.push(reading);
                }
                Err(error) => failure = Some(error),
            }
        }
        for reading in &mut readings.in_progress {
            if let Err(error) = self.advance(series, reading).await {
                failure.get_or_insert(error);
            }
        }
        readings.in_progress.retain(|reading| !reading.is_done());
        failure.map_or(Ok(()), Err)
    }

    /// The VPAs that wait for their history, or were left without, and that nobody reads it for.
    fn vpas_to_read(&self, readings: &HistoryReads) -> VpaOwners {
        let mut wanted = self.vpas_without_history(true);
        let core = self.state.lock();
        wanted.retain(|key, _| {
            let sighting = core.vpa_registry.load_generation(key);
            let is_read =
                |reading: &HistoryRead| reading.load_generations.get(key).copied() == sighting;
            !readings.in_progress.iter().any(is_read)
        });
        wanted
    }

    /// Which wait of each VPA this is.
    fn load_generations(&self, wanted: &VpaOwners) -> HashMap<ObjectKey, u64> {
        let core = self.state.lock();
        let sighting =
            |key: &ObjectKey| Some((key.clone(), core.vpa_registry.load_generation(key)?));
        wanted.keys().filter_map(sighting).collect()
    }

    async fn start_read(
        &self,
        series: &HistorySource,
        wanted: VpaOwners,
    ) -> Result<HistoryRead, Error> {
        let now = self.clock.now();
        let sightings = self.load_generations(&wanted);
        let whose = self.pod_ownership(series, wanted.keys(), None).await?;
        let live = self.live_pods(&wanted);
        let pods = KnownPods { by_label: whose.as_ref(), live: Some(&live) };
        let mut bootstrap = HistoryBootstrap::new(self.state.lock().vpa_registry.settings(), now);
        let mut since = HashMap::new();
        if series.has_fallback {
            // What lies further back than the server is asked for is in no series any more.
            let begin = now.earlier(series.history_length);
            let mut recalled = CheckpointSink::new(self, &mut bootstrap, now, begin);
            self.storage.load(&LoadRequest::Vpas(wanted.clone()), &mut recalled).await?;
            since = recalled.into_last_alive();
        }
        let mut loadings = Vec::new();
        let (some, all): (VpaOwners, VpaOwners) =
            wanted.into_iter().partition(|(key, _)| since.contains_key(key));
        if !all.is_empty() {
            loadings.push(start_loading(series, pods, &all, None, None).await?);
        }
        let some = some.into_iter().map(|(key, owner)| (since[&key], (key, owner)));
        for group in group_similar(some, now) {
            let after = group.iter().map(|(since, _)| *since).min();
            let owners = group.into_iter().map(|(_, owned)| owned).collect();
            loadings.push(start_loading(series, pods, &owners, after, None).await?);
        }
        let mut reading = HistoryRead::new(loadings, bootstrap, sightings, HashMap::new());
        self.finish_without_queries(&mut reading);
        Ok(reading)
    }

    /// Begins to fill what the histories of these VPAs lack.
    async fn start_gap_read(
        &self,
        series: &HistorySource,
        gaps: &HashMap<ObjectKey, Gap>,
    ) -> Result<HistoryRead, Error> {
        let now = self.clock.now();
        let (owners, bootstrap) = {
            let core = self.state.lock();
            let is_same = |(key, gap): &(&ObjectKey, &Gap)| {
                core.vpa_registry
                    .load_generation(key)
                    .is_some_and(|sighting| sighting == gap.load_generation)
            };
            let owner = |(key, _): (&ObjectKey, &Gap)| {
                let owner = core.vpa_registry.get(key).and_then(|known| known.owner());
                (key.clone(), owner.map(Into::into))
            };
            let owners: VpaOwners = gaps.iter().filter(is_same).map(owner).collect();
            (owners, HistoryBootstrap::new(core.vpa_registry.settings(), now))
        };
        let sightings = self.load_generations(&owners);
        let whose = self.pod_ownership(series, owners.keys(), None).await?;
        let live = self.live_pods(&owners);
        let pods = KnownPods { by_label: whose.as_ref(), live: Some(&live) };
        let mut loadings = Vec::new();
        let owners = owners.into_iter().map(|(key, owner)| (gaps[&key].after, (key, owner)));
        for group in group_similar(owners, now) {
            let after = group.iter().map(|(after, _)| *after).min();
            let before = group.iter().map(|(_, (key, _))| gaps[key].before).max();
            let owners = group.into_iter().map(|(_, owned)| owned).collect();
            loadings.push(start_loading(series, pods, &owners, after, before).await?);
        }
        let mut reading = HistoryRead::new(loadings, bootstrap, sightings, gaps.clone());
        self.finish_without_queries(&mut reading);
        Ok(reading)
    }

    /// Takes those in of which nothing is to be asked: their pods cannot be told, or they lack nothing.
    fn finish_without_queries(&self, reading: &mut HistoryRead) {
        let asked: HashSet<ObjectKey> =
            reading.loadings.iter().flat_map(HistoryLoad::pending).cloned().collect();
        let idle = reading.load_generations.keys().filter(|key| !asked.contains(*key));
        let idle: Vec<ObjectKey> = idle.cloned().collect();
        let HistoryRead { bootstrap, load_generations: sightings, gaps, .. } = reading;
        let mut intake = HistorySink::new(self, bootstrap, sightings, gaps);
        for key in &idle {
            intake.complete(key);
        }
        reading.histories_loaded += intake.histories_loaded;
    }

    async fn advance(
        &self,
        series: &HistorySource,
        reading: &mut HistoryRead,
    ) -> Result<(), Error> {
        let mut failure = None;
        let HistoryRead { loadings, bootstrap, load_generations: sightings, gaps, .. } = reading;
        let mut intake = HistorySink::new(self, bootstrap, sightings, gaps);
        for loading in loadings {
            if let Err(stalled) = loading.advance(&mut intake).await {
                failure.get_or_insert(series.unavailable_error(&stalled));
            }
        }
        reading.histories_loaded += intake.histories_loaded;
        reading.without_history.append(&mut intake.without_history);
        if reading.is_done() {
            self.log_read_result(series, reading);
            self.report_missing_history(series, mem::take(&mut reading.without_history)).await;
        }
        failure.map_or(Ok(()), Err)
    }

    /// Says what a reading came to.
    fn log_read_result(&self, series: &HistorySource, reading: &HistoryRead) {
        let SampleCounts {
            accepted: taken,
            already_known: known,
            invalid: senseless,
            in_future,
            ..
        } = reading.bootstrap.counts();
        let reports = reading.loadings.iter().map(HistoryLoad::report);
        let (mut queries, mut bytes, mut foreign) = (0, 0, 0);
        for report in reports {
            queries += report.queries;
            bytes += report.bytes;
            foreign += report.skipped.other_workloads;
            for warning in &report.warnings {
                let server = &series.address;
                tracing::warn!(server, warning, "the server warns of its answers about history");
            }
        }
        tracing::info!(
            storage = self.storage.name(),
            vpas = reading.load_generations.len(),
            containers = reading.histories_loaded,
            samples = taken,
            known,
            senseless,
            in_future,
            foreign,
            queries,
            bytes,
            took = ?reading.started.elapsed(),
            length = ?series.history_length,
            "history loaded"
        );
    }
}

async fn start_loading(
    series: &HistorySource,
    pods: KnownPods<'_>,
    owners: &VpaOwners,
    after: Option<Time>,
    until: Option<Time>,
) -> Result<HistoryLoad, Error> {
    let begun = series.history.start_load_with_pods(owners, after, until, pods).await;
    let (loading, skipped) = begun.map_err(|unknown| series.unavailable_error(&unknown))?;
    for skipped in &skipped {
        tracing::warn!(what = skipped.record, why = skipped.reason, "no history can be read");
    }
    Ok(loading)
}

impl HistorySource {
    pub(super) fn unavailable_error(&self, why: &impl ToString) -> Error {
        Error::Unavailable { place: self.address.clone(), why: why.to_string() }
    }
}

impl HistoryRead {
    fn new(
        loadings: Vec<HistoryLoad>,
        bootstrap: HistoryBootstrap,
        sightings: HashMap<ObjectKey, u64>,
        gaps: HashMap<ObjectKey, Gap>,
    ) -> Self {
        let (began, taken, empty) = (Instant::now(), 0, Vec::new());
        Self {
            loadings,
            bootstrap,
            load_generations: sightings,
            gaps,
            started: began,
            histories_loaded: taken,
            without_history: empty,
        }
    }

    fn is_done(&self) -> bool {
        self.loadings.iter().all(HistoryLoad::is_done)
    }
}

/// Takes samples into histories, and histories that are whole into the fleet.
struct HistorySink<'a> {
    role: &'a Recommender,
    bootstrap: &'a mut HistoryBootstrap,
    load_generations: &'a HashMap<ObjectKey, u64>,
    gaps: &'a HashMap<ObjectKey, Gap>,
    now: Time,
    histories_loaded: usize,
    without_history: Vec<ObjectKey>,
}

impl<'a> HistorySink<'a> {
    fn new(
        role: &'a Recommender,
        bootstrap: &'a mut HistoryBootstrap,
        sightings: &'a HashMap<ObjectKey, u64>,
        gaps: &'a HashMap<ObjectKey, Gap>,
    ) -> Self {
        let now = role.clock.now();
        Self {
            role,
            bootstrap,
            load_generations: sightings,
            gaps,
            now,
            histories_loaded: 0,
            without_history: Vec::new(),
        }
    }
}

impl Sink for HistorySink<'_> {
    fn snapshot(&mut self, key: ContainerKey, _: Snapshot) {
        tracing::debug!(%key, "series have no snapshots");
    }

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        let Self { role, load_generations: sightings, gaps, .. } = self;
        self.bootstrap.add_sample(key, &sample, |vpa| start_history(role, sightings, gaps, vpa));
    }

    fn batch(&mut self, key: &ContainerKey, run: SampleBatch<'_>) {
        let Self { role, load_generations: sightings, gaps, .. } = self;
        self.bootstrap.add_batch(key, run, |vpa| start_history(role, sightings, gaps, vpa));
    }

    fn abandon(&mut self, vpa: &ObjectKey) {
        self.bootstrap.abandon(vpa);
    }

    fn complete(&mut self, vpa: &ObjectKey) {
        let Some(&sighting) = self.load_generations.get(vpa) else { return };
        let mut core = self.role.state.lock();
        if let Some(folded) = self.bootstrap.take_builder(vpa) {
            self.histories_loaded += core.vpa_registry.merge_history(vpa, folded, self.now);
        } else if !self.gaps.contains_key(vpa) {
            self.without_history.push(vpa.clone());
        }
        core.vpa_registry.mark_loaded(vpa, sighting);
        drop(core);
        self.role.history_loaded.notify_one();
    }
}

/// What the history of a VPA begins with; `None` where it is not waited for any more.
fn start_history(
    role: &Recommender,
    sightings: &HashMap<ObjectKey, u64>,
    gaps: &HashMap<ObjectKey, Gap>,
    vpa: &ObjectKey,
) -> Option<HistoryBuilder> {
    let core = role.state.lock();
    // One that points elsewhere by now waits for another history than this.
    if core.vpa_registry.load_generation(vpa) != Some(*sightings.get(vpa)?) {
        return None;
    }
    let folding = core.vpa_registry.start_history(vpa)?;
    Some(match gaps.get(vpa) {
        Some(gap) => folding.for_gap(gap.after, gap.before),
        None => folding,
    })
}
