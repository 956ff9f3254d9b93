//! Loads history from Prometheus in the background: it merges one VPA at a time, and resumes after failures.
//!
//! ```text
//!   VPAs without history ──▶ checkpoints ──▶ the gap since, or everything ──▶ HistoryLoad ──▶ HistoryBootstrap
//!                                        complete: merged into VpaRegistry at once ◀─────────────────┘
//!   Prometheus is unavailable ──▶ checkpoints are used, and the gap is filled later
//! ```

mod fallback;
pub(super) mod from_checkpoint;
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
use super::{MAX_BACKOFF, MIN_BACKOFF, Recommender, storage_loader::POLL_INTERVAL};
use plimsoll_core::recommender::{HistoryBootstrap, HistoryBuilder, bootstrap::SampleCounts};

type VpaOwners = HashMap<ObjectKey, Option<Box<str>>>;

/// A Prometheus server to read history from.
#[derive(Debug)]
pub(super) struct HistorySource {
    pub(super) history: Arc<PrometheusHistory>,
    /// Its address, without credentials.
    pub(super) address: String,
    /// How far back to read.
    pub(super) history_length: Duration,
    /// Whether checkpoints are written as well, and used while the server is unavailable.
    pub(super) has_fallback: bool,
}

/// A running read of the histories of some VPAs.
#[derive(Debug)]
struct HistoryRead {
    loadings: Vec<HistoryLoad>,
    histories: Histories,
    started: Instant,
}

/// The histories of a read, as far as they were read.
#[derive(Debug)]
struct Histories {
    bootstrap: HistoryBootstrap,
    load_generations: HashMap<ObjectKey, u64>,
    /// The gap of each VPA that has the rest of its history already.
    gaps: HashMap<ObjectKey, Gap>,
    loaded: usize,
    /// VPAs whose series were queried and do not exist.
    missing: Vec<ObjectKey>,
}

/// A gap in a history, between `after` and `before`.
#[derive(Clone, Copy, Debug)]
struct Gap {
    load_generation: u64,
    after: Time,
    before: Time,
}

#[derive(Debug, Default)]
struct HistoryReads {
    in_progress: Vec<HistoryRead>,
    gaps: HashMap<ObjectKey, Gap>,
}

impl Recommender {
    /// Reads the history of each new VPA. Failed reads are retried, and resume where they stopped.
    pub(super) async fn run_prometheus_load_loop(self: Arc<Self>, source: Arc<HistorySource>) {
        let mut reads = HistoryReads::default();
        let mut pause = MIN_BACKOFF;
        loop {
            let result = self.advance_reads(&source, &mut reads).await;
            self.history_unreadable.store(result.is_err(), Ordering::Release);
            let wait = match result {
                Ok(()) => {
                    pause = MIN_BACKOFF;
                    POLL_INTERVAL
                }
                Err(error) => {
                    tracing::error!(%error, "failed to read history; will retry");
                    self.continue_without_prometheus(&source, &mut reads).await;
                    let wait = pause;
                    pause = (pause * 2).min(MAX_BACKOFF);
                    wait
                }
            };
            tokio::select! {
                // Do not wake early for a failing server: wait for the backoff.
                () = self.history_wanted.notified(), if wait == POLL_INTERVAL => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Starts new reads and advances the running ones. Returns the first error after trying all.
    async fn advance_reads(
        &self,
        source: &HistorySource,
        reads: &mut HistoryReads,
    ) -> Result<(), Error> {
        let wanted = self.vpas_to_read(reads);
        let mut failure = None;
        if !wanted.is_empty() {
            match self.start_read(source, wanted).await {
                Ok(read) => reads.in_progress.push(read),
                Err(error) => failure = Some(error),
            }
        }
        if failure.is_none() && !reads.gaps.is_empty() {
            match self.start_gap_read(source, &reads.gaps).await {
                Ok(read) => {
                    reads.gaps.clear();
                    reads.in_progress.push(read);
                }
                Err(error) => failure = Some(error),
            }
        }
        for read in &mut reads.in_progress {
            if let Err(error) = self.advance(source, read).await {
                failure.get_or_insert(error);
            }
        }
        reads.in_progress.retain(|read| !read.is_done());
        failure.map_or(Ok(()), Err)
    }

    /// The VPAs whose history is missing and not being read yet.
    fn vpas_to_read(&self, reads: &HistoryReads) -> VpaOwners {
        let mut wanted = self.vpas_without_history(true);
        let state = self.state.lock();
        wanted.retain(|key, _| {
            let generation = state.vpa_registry.load_generation(key);
            let is_in_progress = |read: &HistoryRead| {
                read.histories.load_generations.get(key).copied() == generation
            };
            !reads.in_progress.iter().any(is_in_progress)
        });
        wanted
    }

    fn load_generations(&self, wanted: &VpaOwners) -> HashMap<ObjectKey, u64> {
        let state = self.state.lock();
        let generation =
            |key: &ObjectKey| Some((key.clone(), state.vpa_registry.load_generation(key)?));
        wanted.keys().filter_map(generation).collect()
    }

    async fn start_read(
        &self,
        source: &HistorySource,
        wanted: VpaOwners,
    ) -> Result<HistoryRead, Error> {
        let now = self.clock.now();
        let generations = self.load_generations(&wanted);
        let ownership = self.pod_ownership(source, wanted.keys(), None).await?;
        let live = self.live_pods(&wanted);
        let pods = KnownPods { by_label: ownership.as_ref(), live: Some(&live) };
        let mut bootstrap = HistoryBootstrap::new(self.state.lock().vpa_registry.settings(), now);
        let mut last_alive = HashMap::new();
        if source.has_fallback {
            // Data older than the history length is in no series any more.
            let begin = now.earlier(source.history_length);
            let mut checkpoints = CheckpointSink::new(self, &mut bootstrap, now, begin);
            self.storage.load(&LoadRequest::Vpas(wanted.clone()), &mut checkpoints).await?;
            last_alive = checkpoints.into_last_alive();
        }
        let mut loadings = Vec::new();
        let (partial, missing): (VpaOwners, VpaOwners) =
            wanted.into_iter().partition(|(key, _)| last_alive.contains_key(key));
        if !missing.is_empty() {
            loadings.push(start_loading(source, pods, &missing, None, None).await?);
        }
        let partial = partial.into_iter().map(|(key, owner)| (last_alive[&key], (key, owner)));
        for group in group_similar(partial, now) {
            let after = group.iter().map(|(after, _)| *after).min();
            let owners = group.into_iter().map(|(_, owner)| owner).collect();
            loadings.push(start_loading(source, pods, &owners, after, None).await?);
        }
        Ok(self.begin_read(loadings, bootstrap, generations, HashMap::new()))
    }

    async fn start_gap_read(
        &self,
        source: &HistorySource,
        gaps: &HashMap<ObjectKey, Gap>,
    ) -> Result<HistoryRead, Error> {
        let now = self.clock.now();
        let (owners, bootstrap) = {
            let state = self.state.lock();
            let is_current = |(key, gap): &(&ObjectKey, &Gap)| {
                state
                    .vpa_registry
                    .load_generation(key)
                    .is_some_and(|generation| generation == gap.load_generation)
            };
            let owner = |(key, _): (&ObjectKey, &Gap)| {
                let owner = state.vpa_registry.get(key).and_then(|vpa| vpa.owner());
                (key.clone(), owner.map(Into::into))
            };
            let owners: VpaOwners = gaps.iter().filter(is_current).map(owner).collect();
            (owners, HistoryBootstrap::new(state.vpa_registry.settings(), now))
        };
        let generations = self.load_generations(&owners);
        let ownership = self.pod_ownership(source, owners.keys(), None).await?;
        let live = self.live_pods(&owners);
        let pods = KnownPods { by_label: ownership.as_ref(), live: Some(&live) };
        let mut loadings = Vec::new();
        let owners = owners.into_iter().map(|(key, owner)| (gaps[&key].after, (key, owner)));
        for group in group_similar(owners, now) {
            let after = group.iter().map(|(after, _)| *after).min();
            let before = group.iter().map(|(_, (key, _))| gaps[key].before).max();
            let owners = group.into_iter().map(|(_, owner)| owner).collect();
            loadings.push(start_loading(source, pods, &owners, after, before).await?);
        }
        Ok(self.begin_read(loadings, bootstrap, generations, gaps.clone()))
    }

    /// Begins a read, and completes VPAs without queries: their pods cannot be identified, or they have no gap.
    fn begin_read(
        &self,
        loadings: Vec<HistoryLoad>,
        bootstrap: HistoryBootstrap,
        load_generations: HashMap<ObjectKey, u64>,
        gaps: HashMap<ObjectKey, Gap>,
    ) -> HistoryRead {
        let pending: HashSet<&ObjectKey> = loadings.iter().flat_map(HistoryLoad::pending).collect();
        let is_complete = |key: &&ObjectKey| !pending.contains(*key);
        let complete: Vec<ObjectKey> =
            load_generations.keys().filter(is_complete).cloned().collect();
        let mut histories =
            Histories { bootstrap, load_generations, gaps, loaded: 0, missing: Vec::new() };
        let mut sink = HistorySink { role: self, histories: &mut histories, now: self.clock.now() };
        for key in &complete {
            sink.complete(key);
        }
        histories.missing.clear();
        HistoryRead { loadings, histories, started: Instant::now() }
    }

    async fn advance(&self, source: &HistorySource, read: &mut HistoryRead) -> Result<(), Error> {
        let mut failure = None;
        let HistoryRead { loadings, histories, .. } = read;
        let mut sink = HistorySink { role: self, histories, now: self.clock.now() };
        for loading in loadings {
            if let Err(error) = loading.advance(&mut sink).await {
                failure.get_or_insert(source.unavailable_error(&error));
            }
        }
        if read.is_done() {
            self.log_read_result(source, read);
            let missing = mem::take(&mut read.histories.missing);
            self.report_missing_history(source, missing).await;
        }
        failure.map_or(Ok(()), Err)
    }

    fn log_read_result(&self, source: &HistorySource, read: &HistoryRead) {
        let SampleCounts { accepted, already_known, invalid, in_future, .. } =
            read.histories.bootstrap.counts();
        let reports = read.loadings.iter().map(HistoryLoad::report);
        let (mut queries, mut bytes, mut other_workloads) = (0, 0, 0);
        for report in reports {
            queries += report.reads.queries;
            bytes += report.reads.bytes;
            other_workloads += report.skipped.other_workloads;
            for warning in &report.reads.warnings {
                let server = &source.address;
                tracing::warn!(server, warning, "Prometheus returned a warning");
            }
        }
        tracing::info!(
            storage = self.storage.name(),
            vpas = read.histories.load_generations.len(),
            containers = read.histories.loaded,
            samples = accepted,
            already_known,
            invalid,
            in_future,
            other_workloads,
            queries,
            bytes,
            took = ?read.started.elapsed(),
            length = ?source.history_length,
            "loaded history"
        );
    }
}

async fn start_loading(
    source: &HistorySource,
    pods: KnownPods<'_>,
    owners: &VpaOwners,
    after: Option<Time>,
    until: Option<Time>,
) -> Result<HistoryLoad, Error> {
    let started = source.history.start_load_with_pods(owners, after, until, pods).await;
    let (loading, skipped) = started.map_err(|error| source.unavailable_error(&error))?;
    for skipped in &skipped {
        tracing::warn!(record = skipped.record, reason = skipped.reason, "failed to read history");
    }
    Ok(loading)
}

impl HistorySource {
    pub(super) fn unavailable_error(&self, error: &impl ToString) -> Error {
        Error::Unavailable { place: self.address.clone(), why: error.to_string() }
    }
}

impl HistoryRead {
    fn is_done(&self) -> bool {
        self.loadings.iter().all(HistoryLoad::is_done)
    }
}

/// Adds samples to histories, and merges complete histories into the registry.
struct HistorySink<'a> {
    role: &'a Recommender,
    histories: &'a mut Histories,
    now: Time,
}

impl Sink for HistorySink<'_> {
    fn snapshot(&mut self, key: ContainerKey, _: Snapshot) {
        tracing::debug!(%key, "unexpected snapshot from Prometheus");
    }

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        let Histories { bootstrap, load_generations, gaps, .. } = &mut *self.histories;
        bootstrap
            .add_sample(key, &sample, |vpa| start_history(self.role, load_generations, gaps, vpa));
    }

    fn batch(&mut self, key: &ContainerKey, batch: SampleBatch<'_>) {
        let Histories { bootstrap, load_generations, gaps, .. } = &mut *self.histories;
        bootstrap
            .add_batch(key, batch, |vpa| start_history(self.role, load_generations, gaps, vpa));
    }

    fn abandon(&mut self, vpa: &ObjectKey) {
        self.histories.bootstrap.abandon(vpa);
    }

    fn complete(&mut self, vpa: &ObjectKey) {
        let histories = &mut *self.histories;
        let Some(&generation) = histories.load_generations.get(vpa) else { return };
        let mut state = self.role.state.lock();
        if let Some(builder) = histories.bootstrap.take_builder(vpa) {
            histories.loaded += state.vpa_registry.merge_history(vpa, builder, self.now);
        } else if !histories.gaps.contains_key(vpa) {
            histories.missing.push(vpa.clone());
        }
        state.vpa_registry.mark_loaded(vpa, generation);
        drop(state);
        self.role.history_loaded.notify_one();
    }
}

/// The history builder of a VPA; `None` if its history is not awaited any more.
fn start_history(
    role: &Recommender,
    load_generations: &HashMap<ObjectKey, u64>,
    gaps: &HashMap<ObjectKey, Gap>,
    vpa: &ObjectKey,
) -> Option<HistoryBuilder> {
    let state = role.state.lock();
    // The target has changed since: this history is not the one that it needs.
    if state.vpa_registry.load_generation(vpa) != Some(*load_generations.get(vpa)?) {
        return None;
    }
    let builder = state.vpa_registry.start_history(vpa)?;
    Some(match gaps.get(vpa) {
        Some(gap) => builder.for_gap(gap.after, gap.before),
        None => builder,
    })
}
