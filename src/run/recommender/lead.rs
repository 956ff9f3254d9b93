//! Leading: the election, what a new leader reads before it writes, and the heartbeat that others see.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use plimsoll_core::types::VpaKey;

use super::{FIRST_PAUSE, LONGEST_PAUSE, Role, Stop, Tasks};
use crate::{
    act::{Beat, Election, ElectionState, Heartbeat, lease},
    metrics::HistoryState as Progress,
    run::liveness,
};
use plimsoll_core::{recommender::HistoryState, types::compat::Compat};

/// A VPA about whose pods nothing was heard for so long is worked out from old numbers.
const STALE: Duration = Duration::from_mins(15);

impl Role {
    /// Whether this process may write, and has read what it would write over.
    pub(super) fn may_write(&self) -> bool {
        let term = self.permit.fence().term();
        term.is_some() && *self.caught_up.borrow() == term
    }

    pub(super) fn start_election(
        self: &Arc<Self>,
        stop: &Stop,
        tasks: &mut Tasks,
    ) -> Option<ElectionState> {
        let wanted = &self.config.election;
        if !wanted.on {
            return None;
        }
        let options = wanted.options(match self.config.scope.shard {
            Some(shard) => format!("{}-{}-of-{}", wanted.name, shard.index, shard.count),
            None => wanted.name.clone(),
        });
        let fence = self.permit.fence().clone();
        let (condition, compat) = (self.condition.clone(), self.config.compat);
        let election = Election::new(self.liveness.client(), options, fence)
            .with_stats(Arc::clone(&self.stats))
            .saying(move || condition.annotation(compat));
        let state = election.state();
        tasks.spawn_on(election.run(stop.stopped()), self.liveness.runtime());
        Some(state)
    }

    /// Notes how it is after a pass, for whoever looks from outside.
    pub(super) fn note_condition(&self) {
        let now = self.clock.now();
        let (objects, stale) = {
            let core = self.state.lock();
            let stale = core
                .fleet
                .watched()
                .filter(|watched| watched.last_sample().is_some_and(|at| now > at.later(STALE)));
            (core.fleet.len(), stale.count())
        };
        let history = self.progress().as_str().to_owned();
        let mut vitals = self.condition.lock();
        (vitals.objects, vitals.stale) = (objects as u64, stale as u64);
        (vitals.last_pass, vitals.history) = (Some(now), Some(history));
    }

    /// Whenever this process comes to lead: takes over what others stored, before it writes anything.
    pub(super) async fn keep_leading(self: Arc<Self>, stop: Stop) {
        loop {
            let term = tokio::select! {
                () = stop.stopped() => return,
                term = self.permit.fence().held() => term,
            };
            if self.config.election.on {
                tracing::info!("leading");
                tokio::select! {
                    () = stop.stopped() => return,
                    // What was read is old once somebody else may have led.
                    () = self.permit.fence().lost(term) => continue,
                    () = self.catch_up() => {}
                }
            }
            self.caught_up.send_replace(Some(term));
            self.publish_all();
            self.saver.wake();
            tokio::select! {
                // What is still to be written at the end is written under the same lead.
                () = stop.stopped() => return,
                () = self.permit.fence().lost(term) => {}
            }
            self.caught_up.send_replace(None);
            tracing::warn!("no longer leading; watching and sampling as a standby");
        }
    }

    /// Takes over what others stored, however often it has to be tried.
    async fn catch_up(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let keys: Vec<VpaKey> = {
                let core = self.state.lock();
                let known = |key: &&VpaKey| {
                    let watched = core.fleet.get(key);
                    watched.is_some_and(|it| it.state() == HistoryState::Loaded)
                };
                core.fleet.keys_after(None).filter(known).cloned().collect()
            };
            if keys.is_empty() {
                return;
            }
            let Err(error) = self.adopt(&keys).await else { return };
            tracing::warn!(%error, "what others stored cannot be read; nothing is written before");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Has every status looked at: whoever led before may have left some behind.
    fn publish_all(&self) {
        let keys: Vec<VpaKey> = self.state.lock().fleet.keys_after(None).cloned().collect();
        for key in keys {
            self.outbox.push(key, None);
        }
    }

    /// Says after each pass that recommendations are fresh, for the updater.
    pub(super) async fn keep_beating(self: Arc<Self>, stop: Stop) {
        if self.config.compat == Compat::Upstream {
            return;
        }
        let shard = self.config.scope.shard.map(|it| format!("{}/{}", it.index, it.count));
        let (client, permit) = (self.liveness.client(), liveness::unlimited(&self.permit));
        let heartbeat = Heartbeat::new(
            client,
            &self.config.election.namespace,
            &lease::identity(),
            &self.config.name,
            shard.as_deref(),
            self.config.interval,
        )
        .with_stats(Arc::clone(&self.stats));
        let mut passes = self.passes.subscribe();
        loop {
            tokio::select! {
                () = stop.stopped() => return,
                _ = passes.changed() => {}
            }
            if !self.may_write() {
                continue;
            }
            // As the pass left it: this thread must not wait for the lock of all histories.
            let (vpas, history) = {
                let vitals = self.condition.lock();
                (vitals.objects as usize, vitals.history.clone().unwrap_or_default())
            };
            let beaten = tokio::select! {
                () = stop.stopped() => return,
                beaten = heartbeat.beat(&permit, vpas, &history) => beaten,
            };
            match beaten {
                Ok(Beat::Off) => return,
                Ok(Beat::Unsure | Beat::Renewed | Beat::Created) => {}
                Err(error) => tracing::warn!(%error, "the heartbeat failed"),
            }
        }
    }

    /// How far the stored history is, all in all: the worst that is true of any VPA, and `Absent` when there is
    /// none of any.
    pub(super) fn progress(&self) -> Progress {
        let core = self.state.lock();
        let (mut waiting, mut missing, mut stored) = (false, false, core.fleet.is_empty());
        for watched in core.fleet.watched() {
            waiting |= watched.state() == HistoryState::Waiting;
            missing |= watched.state() == HistoryState::Missing;
            stored |= watched.is_stored();
        }
        match (waiting, missing) {
            (_, true) => Progress::Failed,
            (true, false) if self.unreadable.load(Ordering::Acquire) => Progress::Failed,
            (true, false) => Progress::Loading,
            (false, false) if stored => Progress::Loaded,
            (false, false) => Progress::Absent,
        }
    }
}
