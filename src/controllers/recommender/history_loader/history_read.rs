//! A running read of the histories of some VPAs, which merges each history once it is complete, and reports missing ones.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    mem,
    time::{Duration, Instant},
};

use plimsoll_core::{
    history::{Sample, SampleBatch, Sink, Snapshot},
    recommender::{HistoryBootstrap, HistoryBuilder, bootstrap::SampleCounts},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::{Error, prometheus::history::HistoryLoad};

use crate::controllers::recommender::{Shared, history_source::HistorySource, state::SharedState};

/// Pods older than this have been scraped, if they are scraped at all.
const SCRAPE_GRACE: Duration = Duration::from_mins(10);
/// Maximum number of VPAs named in the log.
const MAX_NAMED: usize = 5;

#[derive(Debug)]
pub(super) struct HistoryRead {
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
pub(super) struct Gap {
    pub load_generation: u64,
    pub after: Time,
    pub before: Time,
}

impl HistoryRead {
    /// Begins a read, and completes VPAs without queries: their pods cannot be identified, or they have no gap.
    pub fn begin(
        state: &SharedState,
        loadings: Vec<HistoryLoad>,
        bootstrap: HistoryBootstrap,
        load_generations: HashMap<ObjectKey, u64>,
        gaps: HashMap<ObjectKey, Gap>,
        now: Time,
    ) -> Self {
        let pending: HashSet<&ObjectKey> = loadings.iter().flat_map(HistoryLoad::pending).collect();
        let is_complete = |key: &&ObjectKey| !pending.contains(*key);
        let complete: Vec<ObjectKey> =
            load_generations.keys().filter(is_complete).cloned().collect();
        let mut histories =
            Histories { bootstrap, load_generations, gaps, loaded: 0, missing: Vec::new() };
        let mut sink = HistorySink { state, histories: &mut histories, now };
        for key in &complete {
            sink.complete(key);
        }
        histories.missing.clear();
        Self { loadings, histories, started: Instant::now() }
    }

    pub fn is_done(&self) -> bool {
        self.loadings.iter().all(HistoryLoad::is_done)
    }

    /// The load generation of a VPA, if it is read.
    pub fn load_generation(&self, key: &ObjectKey) -> Option<u64> {
        self.histories.load_generations.get(key).copied()
    }

    /// Removes VPAs from the read. Returns whether there are others.
    pub fn remove(&mut self, is_removed: impl Fn(&ObjectKey) -> bool) -> bool {
        self.histories.load_generations.retain(|key, _| !is_removed(key));
        !self.histories.load_generations.is_empty()
    }

    pub async fn advance(&mut self, source: &HistorySource, storage: &str) -> Result<(), Error> {
        let Shared { clock, state, .. } = &*source.shared;
        let mut failure = None;
        let Self { loadings, histories, .. } = self;
        let mut sink = HistorySink { state, histories, now: clock.now() };
        for loading in loadings {
            if let Err(error) = loading.advance(&mut sink).await {
                failure.get_or_insert(source.unavailable_error(&error));
            }
        }
        if self.is_done() {
            self.log_result(source, storage);
            let missing = mem::take(&mut self.histories.missing);
            report_missing_history(source, missing).await;
        }
        failure.map_or(Ok(()), Err)
    }

    fn log_result(&self, source: &HistorySource, storage: &str) {
        let SampleCounts { accepted, already_known, invalid, in_future, .. } =
            self.histories.bootstrap.counts;
        let reports = self.loadings.iter().map(|load| &load.report);
        let (mut queries, mut bytes, mut other_workloads) = (0, 0, 0);
        for report in reports {
            queries += report.reads.queries;
            bytes += report.reads.bytes;
            other_workloads += report.skipped.other_workloads;
            for warning in &report.reads.warnings {
                let server = &source.history.server;
                tracing::warn!(server, warning, "Prometheus returned a warning");
            }
        }
        tracing::info!(
            storage,
            vpas = self.histories.load_generations.len(),
            containers = self.histories.loaded,
            samples = accepted,
            already_known,
            invalid,
            in_future,
            other_workloads,
            queries,
            bytes,
            took = ?self.started.elapsed(),
            length = ?source.shared.config.prometheus.history_length,
            "loaded history"
        );
    }
}

/// Adds samples to histories, and merges complete histories into the registry.
struct HistorySink<'a> {
    state: &'a SharedState,
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
            .add_sample(key, &sample, |vpa| start_history(self.state, load_generations, gaps, vpa));
    }

    fn batch(&mut self, key: &ContainerKey, batch: SampleBatch<'_>) {
        let Histories { bootstrap, load_generations, gaps, .. } = &mut *self.histories;
        bootstrap
            .add_batch(key, batch, |vpa| start_history(self.state, load_generations, gaps, vpa));
    }

    fn complete(&mut self, vpa: &ObjectKey) {
        let histories = &mut *self.histories;
        let Some(&generation) = histories.load_generations.get(vpa) else { return };
        let mut state = self.state.lock();
        if let Some(builder) = histories.bootstrap.take_builder(vpa) {
            histories.loaded += state.vpa_registry.merge_history(vpa, builder, self.now);
        } else if !histories.gaps.contains_key(vpa) {
            histories.missing.push(vpa.clone());
        }
        state.vpa_registry.mark_loaded(vpa, generation);
        drop(state);
        self.state.signals.history_loaded.notify_one();
    }
}

/// The history builder of a VPA; `None` if its history is not awaited any more.
fn start_history(
    state: &SharedState,
    load_generations: &HashMap<ObjectKey, u64>,
    gaps: &HashMap<ObjectKey, Gap>,
    vpa: &ObjectKey,
) -> Option<HistoryBuilder> {
    let state = state.lock();
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

/// Reports those of these VPAs whose namespaces have series: in one log line, and as a condition of each.
async fn report_missing_history(source: &HistorySource, mut empty: Vec<ObjectKey>) {
    let Shared { clock, state, .. } = &*source.shared;
    let now = clock.now();
    empty.retain(|key| has_scraped_pods(state, key, now));
    let namespaces: BTreeSet<&str> = empty.iter().map(|key| &*key.namespace).collect();
    if namespaces.is_empty() {
        return;
    }
    let with_series: HashSet<Box<str>> =
        match source.history.namespaces_with_series(&Vec::from_iter(namespaces)).await {
            Ok(with_series) => with_series,
            Err(error) => {
                tracing::debug!(%error, "failed to query which namespaces have series");
                return;
            }
        };
    empty.retain(|key| with_series.contains(&*key.namespace));
    if empty.is_empty() {
        return;
    }
    empty.sort();
    let first: Vec<String> = empty.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    tracing::warn!(
        server = &source.history.server,
        vpas = empty.len(),
        first = first.join(", "),
        "no history found: Prometheus has series of these namespaces, but none of the pods of these VPAs; \
         recommendations start from live usage; run `plimsoll doctor` for details"
    );
    for key in &empty {
        state.lock().vpa_registry.mark_not_found(key, now);
    }
}

/// Whether a VPA has pods that should have series by now.
fn has_scraped_pods(state: &SharedState, key: &ObjectKey, now: Time) -> bool {
    let is_scraped = |created: Time| created != Time::EPOCH && now >= created.later(SCRAPE_GRACE);
    let state = state.lock();
    state.index.pods_of(key).any(|(_, pod)| !pod.is_finished && is_scraped(pod.created))
}
