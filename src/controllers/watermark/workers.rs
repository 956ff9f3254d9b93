//! The workers: whoever has a turn is looked at, and who has to wait for somebody makes room for the next.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use plimsoll_core::types::{ObjectKey, Time};
use tokio::time::Instant;
use tokio::{sync::OwnedSemaphorePermit, time::sleep};

use super::{
    WatermarkController, config::WatermarkConfig, object_state::ObjectState, reconcile::Requeue,
    reconcile_queue::NextItem, schedule::next_reconcile,
};
use crate::controllers::runtime::shutdown::ShutdownToken;
use plimsoll_core::types::compat::Compat;

/// Between two looks whether this process leads by now.
const LEADER_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Nobody has a turn for so long: time to see whether the process lives.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A look that takes longer waits for somebody, and its worker goes on with the next.
const PARK_AFTER: Duration = Duration::from_secs(1);
/// How many looks of each worker may wait at once.
const PARKED_PER_WORKER: usize = 4;

/// A look that was begun.
type ReconcileFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Looks that wait for somebody.
type ParkedReconciles = FuturesUnordered<ReconcileFuture>;

/// How many looks may wait while their workers go on. Upstream's wait for each.
pub(super) fn max_parked(config: &WatermarkConfig) -> usize {
    if config.compat == Compat::Upstream { 0 } else { config.workers.max(1) * PARKED_PER_WORKER }
}

/// What comes of looks that wait; nothing ever while there are none.
async fn next_finished(aside: &mut ParkedReconciles) {
    if aside.next().await.is_none() {
        pending::<()>().await;
    }
}

impl WatermarkController {
    /// A worker: takes whoever has a turn, one after the other.
    pub(super) async fn run_worker(self: Arc<Self>, worker: usize, stop: ShutdownToken) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = async {
                self.watches.wait_for_sync().await;
                self.workloads.wait_for_initial_lists().await;
            } => {}
        }
        let mut aside = ParkedReconciles::new();
        self.process_queue(worker, &stop, &mut aside).await;
        // What was begun is ended: a look that is cut off may have booked what it did not do.
        while aside.next().await.is_some() {}
    }

    async fn process_queue(
        self: &Arc<Self>,
        worker: usize,
        stop: &ShutdownToken,
        aside: &mut ParkedReconciles,
    ) {
        let mut news = self.queue.wakeups();
        let mut led = false;
        loop {
            self.loop_watchdog.tick();
            if stop.is_cancelled() {
                return;
            }
            if !self.may_act() {
                led = false;
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = next_finished(aside) => {}
                    () = sleep(LEADER_POLL_INTERVAL) => {}
                }
                continue;
            }
            // Turns of a time when somebody else led have no order that anybody relies on.
            if !std::mem::replace(&mut led, true) && worker == 0 {
                self.queue.requeue_all(self.clock.now());
            }
            news.borrow_and_update();
            let until = match self.queue.pop_due(self.clock.now()) {
                NextItem::Due(key, seat, due) => {
                    let mut look: ReconcileFuture =
                        Box::pin(Arc::clone(self).process_item(key, seat, due));
                    if let Some(room) = self.run_or_park(&mut look, aside).await {
                        aside.push(Box::pin(async move {
                            look.await;
                            drop(room);
                        }));
                    }
                    continue;
                }
                NextItem::NoneUntil(until) => until,
            };
            let woken = async {
                match until {
                    Some(until) => self.clock.sleep_until(until).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = woken => {}
                () = next_finished(aside) => {}
                _ = news.changed() => {}
                () = sleep(LONGEST_WAIT) => {}
            }
        }
    }

    /// Waits for the end of a look, or for room to let it wait by itself.
    async fn run_or_park(
        &self,
        look: &mut ReconcileFuture,
        aside: &mut ParkedReconciles,
    ) -> Option<OwnedSemaphorePermit> {
        let mut patience = std::pin::pin!(sleep(PARK_AFTER));
        loop {
            tokio::select! {
                biased;
                () = &mut *look => return None,
                () = next_finished(aside) => {}
                () = &mut patience => {
                    self.loop_watchdog.tick();
                    if let Ok(room) = Arc::clone(&self.parked_permits).try_acquire_owned() {
                        return Some(room);
                    }
                    patience.set(sleep(PARK_AFTER));
                }
            }
        }
    }

    /// One turn of an object, from when it was due to when it is due again.
    async fn process_item(self: Arc<Self>, key: ObjectKey, mut seat: Box<ObjectState>, due: Time) {
        let began = Instant::now();
        let late = self.clock.now().nanos_since(due).max(0).unsigned_abs();
        self.metrics.begin_reconcile(Duration::from_nanos(late));
        let (outcome, next) = self.reconcile(&key, &mut seat).await;
        let returned = Self::reconcile_return(outcome, next);
        self.metrics.end_reconcile(outcome, returned, began.elapsed());
        self.reconciles.fetch_add(1, Ordering::AcqRel);
        let now = self.clock.now();
        if outcome != "error" {
            self.loop_metrics.set_last_success(now);
        }
        let next = self.next_due(&key, next, due, now);
        self.queue.requeue(&key, seat, next, now);
    }

    fn next_due(&self, key: &ObjectKey, next: Requeue, due: Time, now: Time) -> Option<Time> {
        let period = self.config.period;
        match next {
            Requeue::OnChange => None,
            Requeue::After(pause) => Some(now.later(pause)),
            // Upstream counts from the end of a look.
            Requeue::Periodic if self.config.compat == Compat::Upstream => Some(now.later(period)),
            Requeue::Periodic => Some(next_reconcile(key, now.max(due), period)),
        }
    }
}
