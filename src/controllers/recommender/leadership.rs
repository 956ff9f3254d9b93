//! Leader election, taking over stored history as a new leader, and the heartbeat.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use plimsoll_core::types::ObjectKey;

use super::{MAX_BACKOFF, MIN_BACKOFF, Recommender};
use crate::{
    cluster::leader::{Election, Heartbeat, HeartbeatResult, election_rules},
    controllers::runtime::liveness_thread,
    telemetry::HistoryState as Progress,
};
use plimsoll_core::{recommender::HistoryState, types::compat::Compat};

/// A VPA without samples for this long counts as stale.
const STALE_AFTER: Duration = Duration::from_mins(15);

impl Recommender {
    /// Whether this process is the leader and has taken over the stored history.
    pub(super) fn may_write(&self) -> bool {
        let term = self.permit.fence().term();
        term.is_some() && *self.takeover_term.borrow() == term
    }

    pub(super) fn shard_election(&self) -> Option<Election> {
        let config = &self.config.election;
        if !config.enabled {
            return None;
        }
        let options = config.options(match self.config.scope.shard {
            Some(shard) => format!("{}-{}-of-{}", config.name, shard.index, shard.count),
            None => config.name.clone(),
        });
        let (health, compat) = (self.health_reporter.clone(), self.config.compat);
        let election = Election::new(
            self.liveness.client(),
            options,
            self.permit.fence().clone(),
            Arc::clone(&self.write_stats),
        )
        .with_lease_annotation(move || health.annotation(compat));
        Some(election)
    }

    /// Updates the reported health after a pass.
    pub(super) fn update_health(&self) {
        let now = self.clock.now();
        let (objects, stale) = {
            let shared = self.state.lock();
            let stale = shared
                .vpa_registry
                .states()
                .filter(|vpa| vpa.last_sample().is_some_and(|at| now > at.later(STALE_AFTER)));
            (shared.vpa_registry.len(), stale.count())
        };
        let history = self.history_progress().as_str().to_owned();
        let mut health = self.health_reporter.lock();
        (health.objects, health.stale) = (objects as u64, stale as u64);
        (health.last_pass, health.history) = (Some(now), Some(history));
    }

    /// On every leader term, takes over stored history before this process writes anything.
    pub(super) async fn run_takeover_loop(self: Arc<Self>) {
        loop {
            let term = self.permit.fence().acquired().await;
            if self.config.election.enabled {
                tracing::info!(
                    "started leading; taking over stored history before the first write"
                );
                tokio::select! {
                    // What was read is outdated once another process may have been the leader.
                    () = self.permit.fence().revoked(term) => continue,
                    () = self.take_over_stored_histories() => {}
                }
            }
            self.takeover_term.send_replace(Some(term));
            self.enqueue_all_statuses();
            self.save_trigger.notify_one();
            // Shutdown ends this task here, because the last writes belong to the same term.
            self.permit.fence().revoked(term).await;
            self.takeover_term.send_replace(None);
            tracing::warn!("no longer leading; continuing as a standby");
        }
    }

    /// Takes over stored history, retrying until it succeeds.
    async fn take_over_stored_histories(&self) {
        let mut pause = MIN_BACKOFF;
        loop {
            let keys: Vec<ObjectKey> = {
                let state = self.state.lock();
                let is_loaded = |key: &&ObjectKey| {
                    let vpa = state.vpa_registry.get(key);
                    vpa.is_some_and(|vpa| vpa.state() == HistoryState::Loaded)
                };
                state.vpa_registry.keys_after(None).filter(is_loaded).cloned().collect()
            };
            if keys.is_empty() {
                return;
            }
            let Err(error) = self.adopt_stored_records(&keys).await else { return };
            tracing::warn!(%error, "failed to take over stored history; writes are paused until it succeeds");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }

    /// Queues all statuses: the previous leader may have left some unwritten.
    fn enqueue_all_statuses(&self) {
        let keys: Vec<ObjectKey> =
            self.state.lock().vpa_registry.keys_after(None).cloned().collect();
        for key in keys {
            self.status_queue.push(key, None);
        }
    }

    /// Renews the heartbeat after each pass, so that the updater knows that recommendations are current.
    pub(super) async fn run_heartbeat_loop(self: Arc<Self>) {
        if self.config.compat == Compat::Upstream {
            return;
        }
        let shard = self.config.scope.shard.map(|shard| format!("{}/{}", shard.index, shard.count));
        let (client, permit) =
            (self.liveness.client(), liveness_thread::without_rate_limit(&self.permit));
        let heartbeat = Heartbeat::new(
            client,
            &self.config.election.namespace,
            &election_rules::identity(),
            &self.config.name,
            shard.as_deref(),
            self.config.interval,
            Arc::clone(&self.write_stats),
        );
        let mut passes = self.passes.subscribe();
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
                Ok(
                    HeartbeatResult::AccessUnknown
                    | HeartbeatResult::Renewed
                    | HeartbeatResult::Created,
                ) => {}
                Err(error) => {
                    let lease = heartbeat.lease_name();
                    tracing::warn!(lease, %error, "failed to renew heartbeat");
                }
            }
        }
    }

    /// Progress of loading history, over all VPAs: the worst state of any VPA, or `Absent` if none has stored
    /// history.
    pub(super) fn history_progress(&self) -> Progress {
        let state = self.state.lock();
        let (mut waiting, mut missing, mut stored) = (false, false, state.vpa_registry.is_empty());
        for vpa in state.vpa_registry.states() {
            waiting |= vpa.state() == HistoryState::Waiting;
            missing |= vpa.state() == HistoryState::Missing;
            stored |= vpa.is_stored();
        }
        match (waiting, missing) {
            (_, true) => Progress::Failed,
            (true, false) if self.history_unreadable.load(Ordering::Acquire) => Progress::Failed,
            (true, false) => Progress::Loading,
            (false, false) if stored => Progress::Loaded,
            (false, false) => Progress::Absent,
        }
    }
}
