//! Leader election, taking over stored history as a new leader, and the heartbeat.

use std::{collections::HashSet, sync::Arc, time::Duration};

use plimsoll_core::{
    recommender::HistoryState,
    types::{ObjectKey, Time, compat::Compat},
};
use tokio::sync::watch;

use super::{
    MAX_BACKOFF, MIN_BACKOFF, Shared, checkpoint_saver::CheckpointSaver, pass::PassSummary,
    state::RecommenderState, storage_loader::StorageLoader,
};
use crate::{
    cluster::{
        leader::{Election, Heartbeat, HeartbeatResult, Term, election_rules},
        write::{Permit, StatusQueue, WriteStats},
    },
    controllers::runtime::{
        config::new_election,
        liveness_thread::{self, Liveness},
        role_health::HealthReporter,
    },
    telemetry::HistoryState as Progress,
};

/// A VPA without samples for this long counts as stale.
const STALE_AFTER: Duration = Duration::from_mins(15);

/// Whether this process may write, and the Leases that tell others.
pub(super) struct Leadership {
    pub shared: Arc<Shared>,
    pub liveness: Liveness,
    pub permit: Permit,
    pub write_stats: Arc<WriteStats>,
    pub health_reporter: HealthReporter,
    /// The leader term in which the data stored by the previous leader was taken over.
    pub takeover_term: watch::Sender<Option<Term>>,
}

impl Leadership {
    /// Whether this process is the leader and has taken over the stored history.
    pub fn may_write(&self) -> bool {
        let term = self.permit.fence.term();
        term.is_some() && *self.takeover_term.borrow() == term
    }

    /// The leader election of the shard; `None` if it is disabled.
    pub fn election(&self) -> Option<Election> {
        let config = &self.shared.config;
        let name = &config.election.name;
        let lease = match config.scope.shard {
            Some(shard) => format!("{name}-{}-of-{}", shard.index, shard.count),
            None => name.clone(),
        };
        let stats = Arc::clone(&self.write_stats);
        let health = (&self.health_reporter, config.compat);
        new_election(&config.election, lease, &self.liveness, &self.permit, stats, health)
    }

    /// Updates the reported health after a pass.
    pub fn update_health(&self) {
        let now = self.shared.clock.now();
        let (objects, stale, history) = {
            let state = self.shared.state.lock();
            let is_stale = |at: Time| now > at.later(STALE_AFTER);
            let last_samples = state.vpa_registry.states().map(|vpa| vpa.last_sample);
            let outdated = last_samples.filter(|at| at.is_some_and(is_stale)).count();
            (state.vpa_registry.len(), outdated, history_progress(&state).as_str().to_owned())
        };
        let mut health = self.health_reporter.lock();
        (health.objects, health.stale) = (objects as u64, stale as u64);
        (health.last_pass, health.history) = (Some(now), Some(history));
    }

    /// On every leader term, takes over stored history before this process writes anything.
    pub async fn run_takeover_loop(
        self: Arc<Self>,
        saver: Arc<CheckpointSaver>,
        status_queue: Arc<StatusQueue>,
    ) {
        loop {
            let term = self.permit.fence.acquired().await;
            if self.shared.config.election.enabled {
                tracing::info!(
                    "started leading; taking over stored history before the first write"
                );
                tokio::select! {
                    // What was read is outdated once another process may have been the leader.
                    () = self.permit.fence.revoked(term) => continue,
                    () = take_over_stored_histories(&saver.loader) => {}
                }
            }
            self.takeover_term.send_replace(Some(term));
            // The previous leader may have left some unwritten.
            let keys: Vec<ObjectKey> =
                self.shared.state.lock().vpa_registry.keys_after(None).cloned().collect();
            for key in keys {
                status_queue.push(key, None);
            }
            saver.trigger.notify_one();
            // Shutdown ends this task here, because the last writes belong to the same term.
            self.permit.fence.revoked(term).await;
            self.takeover_term.send_replace(None);
            tracing::warn!("no longer leading; continuing as a standby");
        }
    }

    /// Renews the heartbeat after each pass, so that the updater knows that recommendations are current.
    pub async fn run_heartbeat_loop(
        self: Arc<Self>,
        mut passes: watch::Receiver<(u64, PassSummary)>,
    ) {
        let config = &self.shared.config;
        if config.compat == Compat::Upstream {
            return;
        }
        let shard = config.scope.shard.map(|shard| format!("{}/{}", shard.index, shard.count));
        let (client, permit) =
            (self.liveness.client(), liveness_thread::without_rate_limit(&self.permit));
        let heartbeat = Heartbeat::new(
            client,
            &config.election.namespace,
            &election_rules::identity(),
            &config.name,
            shard.as_deref(),
            config.interval,
            Arc::clone(&self.write_stats),
        );
        loop {
            if passes.changed().await.is_err() {
                return;
            }
            if !self.may_write() {
                continue;
            }
            // As recorded by the last pass: this thread must not wait for the lock of the state.
            let (vpas, history) = {
                let health = self.health_reporter.lock();
                (health.objects as usize, health.history.clone().unwrap_or_default())
            };
            match heartbeat.renew(&permit, vpas, &history).await {
                Ok(HeartbeatResult::Forbidden) => return,
                Ok(_) => {}
                Err(error) => {
                    let lease = &heartbeat.lease.name;
                    tracing::warn!(lease, %error, "failed to renew heartbeat");
                }
            }
        }
    }
}

/// Takes over stored history, retrying until it succeeds.
async fn take_over_stored_histories(loader: &StorageLoader) {
    let mut pause = MIN_BACKOFF;
    loop {
        let keys: HashSet<ObjectKey> = {
            let state = loader.shared.state.lock();
            let is_loaded = |key: &&ObjectKey| {
                let vpa = state.vpa_registry.get(key);
                vpa.is_some_and(|vpa| vpa.state == HistoryState::Loaded)
            };
            state.vpa_registry.keys_after(None).filter(is_loaded).cloned().collect()
        };
        if keys.is_empty() {
            return;
        }
        let Err(error) = loader.adopt_stored_records(&keys).await else { return };
        tracing::warn!(%error, "failed to take over stored history; writes are paused until it succeeds");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_BACKOFF);
    }
}

/// Progress of loading history, over all VPAs: the worst state of any VPA, or `Absent` if none has stored
/// history.
pub(super) fn history_progress(state: &RecommenderState) -> Progress {
    let (mut waiting, mut missing, mut stored) = (false, false, state.vpa_registry.is_empty());
    for vpa in state.vpa_registry.states() {
        waiting |= vpa.state == HistoryState::Waiting;
        missing |= vpa.state == HistoryState::Missing;
        stored |= vpa.is_stored();
    }
    match (waiting, missing) {
        (_, true) => Progress::Failed,
        (true, false) if state.history_unreadable => Progress::Failed,
        (true, false) => Progress::Loading,
        (false, false) if stored => Progress::Loaded,
        (false, false) => Progress::Absent,
    }
}
