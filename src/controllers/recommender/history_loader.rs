//! Loads history from Prometheus in the background: it merges one VPA at a time, and resumes after failures.
//!
//! ```text
//!   VPAs without history ──▶ checkpoints ──▶ the gap since, or everything ──▶ HistoryLoad ──▶ HistoryBootstrap
//!                                        complete: merged into VpaRegistry at once ◀─────────────────┘
//!   Prometheus is unavailable ──▶ checkpoints are used, and the gap is filled later
//! ```

pub(super) mod from_checkpoint;
mod group_by_gap;
mod history_read;

use std::{collections::HashMap, sync::Arc};

use plimsoll_core::{
    history::SkippedRecord,
    recommender::HistoryBootstrap,
    types::{ObjectKey, Time},
};
use plimsoll_storage::{
    Error, LoadRequest,
    prometheus::history::{HistoryLoad, KnownPods},
};

use self::{
    from_checkpoint::CheckpointSink,
    group_by_gap::group_similar,
    history_read::{Gap, HistoryRead},
};
use super::{
    MAX_BACKOFF, MIN_BACKOFF, Shared,
    history_source::{HistorySource, VpaOwners},
    storage_loader::{POLL_INTERVAL, StorageLoader},
};

/// Loads the history of new VPAs from Prometheus.
pub(super) struct HistoryLoader {
    source: Arc<HistorySource>,
    checkpoints: Arc<StorageLoader>,
    reads: Vec<HistoryRead>,
    /// Gaps of histories that were loaded from checkpoints, to be read.
    gaps: HashMap<ObjectKey, Gap>,
}

impl HistoryLoader {
    pub fn new(source: Arc<HistorySource>, checkpoints: Arc<StorageLoader>) -> Self {
        Self { source, checkpoints, reads: Vec::new(), gaps: HashMap::new() }
    }

    /// Reads the history of each new VPA. Failed reads are retried, and resume where they stopped.
    pub async fn run(mut self) {
        let mut pause = MIN_BACKOFF;
        loop {
            let result = self.advance_reads().await;
            self.source.shared.state.lock().history_unreadable = result.is_err();
            let wait = match result {
                Ok(()) => {
                    pause = MIN_BACKOFF;
                    POLL_INTERVAL
                }
                Err(error) => {
                    tracing::error!(%error, "failed to read history; will retry");
                    self.continue_without_prometheus().await;
                    let wait = pause;
                    pause = (pause * 2).min(MAX_BACKOFF);
                    wait
                }
            };
            tokio::select! {
                // Do not wake early for a failing server: wait for the backoff.
                () = self.source.shared.state.signals.history_wanted.notified(), if wait == POLL_INTERVAL => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Starts new reads and advances the running ones. Returns the first error after trying all.
    async fn advance_reads(&mut self) -> Result<(), Error> {
        let wanted = self.vpas_to_read();
        let mut failure = None;
        if !wanted.is_empty() {
            match self.start_read(wanted).await {
                Ok(read) => self.reads.push(read),
                Err(error) => failure = Some(error),
            }
        }
        if failure.is_none() && !self.gaps.is_empty() {
            match self.start_gap_read().await {
                Ok(read) => {
                    self.gaps.clear();
                    self.reads.push(read);
                }
                Err(error) => failure = Some(error),
            }
        }
        let storage = self.checkpoints.storage.name();
        for read in &mut self.reads {
            if let Err(error) = read.advance(&self.source, storage).await {
                failure.get_or_insert(error);
            }
        }
        self.reads.retain(|read| !read.is_done());
        failure.map_or(Ok(()), Err)
    }

    /// The VPAs whose history is missing and not being read yet.
    fn vpas_to_read(&self) -> VpaOwners {
        let mut wanted = self.checkpoints.targets.vpas_without_history(true);
        let state = self.source.shared.state.lock();
        wanted.retain(|key, _| {
            let generation = state.vpa_registry.load_generation(key);
            !self.reads.iter().any(|read| read.load_generation(key) == generation)
        });
        wanted
    }

    fn load_generations(&self, wanted: &VpaOwners) -> HashMap<ObjectKey, u64> {
        let state = self.source.shared.state.lock();
        let generation =
            |key: &ObjectKey| Some((key.clone(), state.vpa_registry.load_generation(key)?));
        wanted.keys().filter_map(generation).collect()
    }

    async fn start_read(&self, wanted: VpaOwners) -> Result<HistoryRead, Error> {
        let Shared { config, clock, state, .. } = &*self.source.shared;
        let now = clock.now();
        let generations = self.load_generations(&wanted);
        let pods = self.source.pods_of(&wanted, None).await?;
        let mut bootstrap = HistoryBootstrap::new(&state.lock().vpa_registry.settings, now);
        let mut last_alive = HashMap::new();
        if config.prometheus.has_fallback {
            // Data older than the history length is in no series any more.
            let begin = now.earlier(config.prometheus.history_length);
            let mut sink = CheckpointSink::new(state, &mut bootstrap, now, begin);
            self.checkpoints.storage.load(&LoadRequest::Vpas(wanted.clone()), &mut sink).await?;
            last_alive = sink.into_last_alive();
        }
        let no_gaps = HashMap::new();
        let loadings = self.start_loads(pods.known(), wanted, &last_alive, &no_gaps, now).await?;
        Ok(HistoryRead::begin(state, loadings, bootstrap, generations, no_gaps, clock.now()))
    }

    async fn start_gap_read(&self) -> Result<HistoryRead, Error> {
        let Shared { clock, state, .. } = &*self.source.shared;
        let now = clock.now();
        let (owners, bootstrap) = {
            let state = state.lock();
            let is_current = |(key, gap): &(&ObjectKey, &Gap)| {
                state.vpa_registry.load_generation(key) == Some(gap.load_generation)
            };
            let owner = |(key, _): (&ObjectKey, &Gap)| {
                let owner = state.vpa_registry.get(key).and_then(|vpa| vpa.owner());
                (key.clone(), owner.map(Into::into))
            };
            let owners: VpaOwners = self.gaps.iter().filter(is_current).map(owner).collect();
            (owners, HistoryBootstrap::new(&state.vpa_registry.settings, now))
        };
        let generations = self.load_generations(&owners);
        let pods = self.source.pods_of(&owners, None).await?;
        let after = self.gaps.iter().map(|(key, gap)| (key.clone(), gap.after)).collect();
        let loadings = self.start_loads(pods.known(), owners, &after, &self.gaps, now).await?;
        let gaps = self.gaps.clone();
        Ok(HistoryRead::begin(state, loadings, bootstrap, generations, gaps, clock.now()))
    }

    /// Starts to load the samples of these VPAs: after these times, where they have one, and before the end of their gap.
    async fn start_loads(
        &self,
        pods: KnownPods<'_>,
        owners: VpaOwners,
        after: &HashMap<ObjectKey, Time>,
        gaps: &HashMap<ObjectKey, Gap>,
        now: Time,
    ) -> Result<Vec<HistoryLoad>, Error> {
        let (partial, missing): (VpaOwners, VpaOwners) =
            owners.into_iter().partition(|(key, _)| after.contains_key(key));
        let partial = partial.into_iter().map(|(key, owner)| (after[&key], (key, owner)));
        let mut groups = vec![(None, None, missing)];
        groups.extend(group_similar(partial, now).map(|group| {
            let after = group.iter().map(|(after, _)| *after).min();
            let gaps = group.iter().filter_map(|(_, (key, _))| gaps.get(key));
            let before = gaps.map(|gap| gap.before).max();
            (after, before, group.into_iter().map(|(_, owner)| owner).collect())
        }));
        let mut loads = Vec::new();
        for (after, before, owners) in groups.into_iter().filter(|(.., owners)| !owners.is_empty())
        {
            let history = &self.source.history;
            let started = history.start_load_with_pods(&owners, after, before, pods).await;
            let (load, skipped) = started.map_err(|error| self.source.unavailable_error(&error))?;
            for SkippedRecord { record, reason } in &skipped {
                tracing::warn!(record, reason, "failed to read history");
            }
            loads.push(load);
        }
        Ok(loads)
    }

    /// Continues without Prometheus: loads checkpoints if there are any, or starts without history if that is
    /// allowed.
    async fn continue_without_prometheus(&mut self) {
        if self.source.shared.config.prometheus.has_fallback
            && let Err(error) = self.load_checkpoints().await
        {
            tracing::error!(%error, "failed to read fallback checkpoints");
        }
        if self.source.shared.config.history_optional {
            let unread = self.checkpoints.targets.vpas_without_history(false);
            self.source.shared.state.lock().continue_without_history(unread.keys());
        }
    }

    /// Loads checkpoints of VPAs without history. Their gaps are read once the server is available again.
    async fn load_checkpoints(&mut self) -> Result<(), Error> {
        let wanted = self.checkpoints.targets.vpas_without_history(true);
        if wanted.is_empty() {
            return Ok(());
        }
        let generations = self.load_generations(&wanted);
        let restored = self.checkpoints.restore(&wanted).await?;
        if restored.is_empty() {
            return Ok(());
        }
        let now = self.source.shared.clock.now();
        let mut state = self.source.shared.state.lock();
        for (key, after) in &restored {
            let Some(&load_generation) = generations.get(key) else { continue };
            let before = state.vpa_registry.first_seen(key).unwrap_or(now);
            state.vpa_registry.mark_loaded(key, load_generation);
            state.vpa_registry.saves().mark_stored(key, now);
            self.gaps.insert(key.clone(), Gap { load_generation, after: *after, before });
        }
        drop(state);
        // Discard their partial reads: the gap is read again.
        self.reads.retain_mut(|read| read.remove(|key| restored.contains_key(key)));
        tracing::warn!(
            vpas = restored.len(),
            "Prometheus is unavailable; using checkpoints until newer history can be read"
        );
        self.source.shared.state.signals.history_loaded.notify_one();
        Ok(())
    }
}
