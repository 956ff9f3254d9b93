//! Leading: the election, what a new leader reads before it writes, and the heartbeat that others see.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use plimsoll_core::types::ObjectKey;

use super::{MAX_BACKOFF, MIN_BACKOFF, Recommender, ShutdownToken};
use crate::{
    cluster::leader::{Election, Heartbeat, HeartbeatResult, lease},
    controllers::runtime::liveness,
    telemetry::HistoryState as Progress,
};
use plimsoll_core::{recommender::HistoryState, types::compat::Compat};

/// A VPA about whose pods nothing was heard for so long is worked out from old numbers.
const STALE_AFTER: Duration = Duration::from_mins(15);

impl Recommender {
    /// Whether this process may write, and has read what it would write over.
    pub(super) fn may_write(&self) -> bool {
        let term = self.permit.fence().term();
        term.is_some() && *self.takeover_term.borrow() == term
    }

    /// The election of this shard.
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
        let election = Election::new(self.liveness.client(), options, self.permit.fence().clone())
            .with_stats(Arc::clone(&self.write_stats))
            .with_lease_annotation(move || health.annotation(compat));
        Some(election)
    }

    /// Notes how it is after a pass, for whoever looks from outside.
    pub(super) fn update_health(&self) {
        let now = self.clock.now();
        let (objects, stale) = {
            let core = self.state.lock();
            let stale = core.vpa_registry.states().filter(|watched| {
                watched.last_sample().is_some_and(|at| now > at.later(STALE_AFTER))
            });
            (core.vpa_registry.len(), stale.count())
        };
        let history = self.history_progress().as_str().to_owned();
        let mut vitals = self.health_reporter.lock();
        (vitals.objects, vitals.stale) = (objects as u64, stale as u64);
        (vitals.last_pass, vitals.history) = (Some(now), Some(history));
    }

    /// Whenever this process comes to lead: takes over what others stored, before it writes anything.
    pub(super) async fn run_takeover_loop(self: Arc<Self>, stop: ShutdownToken) {
        loop {
            let term = tokio::select! {
                () = stop.cancelled() => return,
                term = self.permit.fence().acquired() => term,
            };
            if self.config.election.enabled {
                tracing::info!("leading");
                tokio::select! {
                    () = stop.cancelled() => return,
                    // What was read is old once somebody else may have led.
                    () = self.permit.fence().revoked(term) => continue,
                    () = self.take_over_stored_histories() => {}
                }
            }
            self.takeover_term.send_replace(Some(term));
            self.enqueue_all_statuses();
            self.save_trigger.wake();
            tokio::select! {
                // What is still to be written at the end is written under the same lead.
                () = stop.cancelled() => return,
                () = self.permit.fence().revoked(term) => {}
            }
            self.takeover_term.send_replace(None);
            tracing::warn!("no longer leading; watching and sampling as a standby");
        }
    }

    /// Takes over what others stored, however often it has to be tried.
    async fn take_over_stored_histories(&self) {
        let mut pause = MIN_BACKOFF;
        loop {
            let keys: Vec<ObjectKey> = {
                let core = self.state.lock();
                let known = |key: &&ObjectKey| {
                    let watched = core.vpa_registry.get(key);
                    watched.is_some_and(|it| it.state() == HistoryState::Loaded)
                };
                core.vpa_registry.keys_after(None).filter(known).cloned().collect()
            };
            if keys.is_empty() {
                return;
            }
            let Err(error) = self.adopt_stored_records(&keys).await else { return };
            tracing::warn!(%error, "what others stored cannot be read; nothing is written before");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }

    /// Has every status looked at: whoever led before may have left some behind.
    fn enqueue_all_statuses(&self) {
        let keys: Vec<ObjectKey> =
            self.state.lock().vpa_registry.keys_after(None).cloned().collect();
        for key in keys {
            self.status_queue.push(key, None);
        }
    }

    /// Says after each pass that recommendations are fresh, for the updater.
    pub(super) async fn run_heartbeat_loop(self: Arc<Self>, stop: ShutdownToken) {
        if self.config.compat == Compat::Upstream {
            return;
        }
        let shard = self.config.scope.shard.map(|it| format!("{}/{}", it.index, it.count));
        let (client, permit) = (self.liveness.client(), liveness::without_rate_limit(&self.permit));
        let heartbeat = Heartbeat::new(
            client,
            &self.config.election.namespace,
            &lease::identity(),
            &self.config.name,
            shard.as_deref(),
            self.config.interval,
        )
        .with_stats(Arc::clone(&self.write_stats));
        let mut passes = self.passes.subscribe();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = passes.changed() => {}
            }
            if !self.may_write() {
                continue;
            }
            // As the pass left it: this thread must not wait for the lock of all histories.
            let (vpas, history) = {
                let vitals = self.health_reporter.lock();
                (vitals.objects as usize, vitals.history.clone().unwrap_or_default())
            };
            let beaten = tokio::select! {
                () = stop.cancelled() => return,
                beaten = heartbeat.renew(&permit, vpas, &history) => beaten,
            };
            match beaten {
                Ok(HeartbeatResult::Forbidden) => return,
                Ok(
                    HeartbeatResult::AccessUnknown
                    | HeartbeatResult::Renewed
                    | HeartbeatResult::Created,
                ) => {}
                Err(error) => tracing::warn!(%error, "the heartbeat failed"),
            }
        }
    }

    /// How far the stored history is, all in all: the worst that is true of any VPA, and `Absent` when there is
    /// none of any.
    pub(super) fn history_progress(&self) -> Progress {
        let core = self.state.lock();
        let (mut waiting, mut missing, mut stored) = (false, false, core.vpa_registry.is_empty());
        for watched in core.vpa_registry.states() {
            waiting |= watched.state() == HistoryState::Waiting;
            missing |= watched.state() == HistoryState::Missing;
            stored |= watched.is_stored();
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
