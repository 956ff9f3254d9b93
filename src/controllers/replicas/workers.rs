//! The workers: they reconcile objects that are due, and park slow reconciles to continue with other objects.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use plimsoll_core::types::{ObjectKey, Time};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{
    NextItem, ObjectState, ReplicaAutoscaler, ReplicaController, Requeue, autoscaler,
    current_term::CurrentTerm, next_reconcile, workloads::INITIAL_LIST_TIMEOUT,
};
use plimsoll_core::types::compat::Compat;

/// How often a process that does not lead checks whether it has become the leader.
const LEADER_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait of an idle worker before it ticks the watchdog.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A reconcile that takes longer is parked, and its worker continues with the next object.
const PARK_AFTER: Duration = Duration::from_secs(1);
const PARKED_PER_WORKER: usize = 4;

type ReconcileFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
type ParkedReconciles = FuturesUnordered<ReconcileFuture>;

/// Waits until a parked reconcile finishes; forever if there is none.
async fn next_finished(parked: &mut ParkedReconciles) {
    if parked.next().await.is_none() {
        pending::<()>().await;
    }
}

pub(super) struct Workers<A: ReplicaAutoscaler> {
    controller: Arc<ReplicaController<A>>,
    term: CurrentTerm,
    /// Permits of slow reconciles that are parked while their worker continues with other objects.
    parked_permits: Arc<Semaphore>,
}

impl<A: ReplicaAutoscaler> Workers<A> {
    pub fn new(controller: Arc<ReplicaController<A>>) -> Arc<Self> {
        // Upstream's workers wait for each reconcile.
        let max_parked = match controller.settings.compat {
            Compat::Upstream => 0,
            Compat::Plimsoll => controller.settings.workers.max(1) * PARKED_PER_WORKER,
        };
        let parked_permits = Arc::new(Semaphore::new(max_parked));
        Arc::new(Self { controller, term: CurrentTerm::default(), parked_permits })
    }

    /// Runs a worker, which reconciles due objects one after the other until `stop` is cancelled.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let synced = async {
            self.controller.watches.wait_until_synced().await;
            self.controller.workloads.wait_for_initial_lists().await;
            // After a timeout, replicas are only added.
            let known = self.controller.autoscaler.wait_until_known();
            let _ = tokio::time::timeout(INITIAL_LIST_TIMEOUT, known).await;
        };
        if stop.run_until_cancelled(synced).await.is_none() {
            return;
        }
        let mut parked = ParkedReconciles::new();
        self.process_queue(&stop, &mut parked).await;
        // Finish parked reconciles: an aborted one may have recorded a pending scale that it did not write.
        while parked.next().await.is_some() {}
    }

    async fn process_queue(
        self: &Arc<Self>,
        stop: &CancellationToken,
        parked: &mut ParkedReconciles,
    ) {
        let mut wakeups = self.controller.queue.wakeups();
        loop {
            self.controller.health.loop_watchdog.tick();
            if stop.is_cancelled() {
                return;
            }
            let Some(term) = self.controller.permit.fence.term() else {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = next_finished(parked) => {}
                    () = sleep(LEADER_POLL_INTERVAL) => {}
                }
                continue;
            };
            self.term.begin(term, || {
                self.controller.status.writes.clear();
                // Due times from before this process became the leader are meaningless.
                self.controller.queue.requeue_all(self.controller.clock.now());
            });
            wakeups.borrow_and_update();
            let next_due = match self.controller.queue.pop_due(self.controller.clock.now()) {
                NextItem::Due(key, state, due) => {
                    let mut reconcile: ReconcileFuture =
                        Box::pin(Arc::clone(self).process_item(key, state, due));
                    if let Some(permit) = self.run_or_park(&mut reconcile, parked).await {
                        parked.push(Box::pin(async move {
                            reconcile.await;
                            drop(permit);
                        }));
                    }
                    continue;
                }
                NextItem::NoneUntil(next_due) => next_due,
            };
            let due = async {
                match next_due {
                    Some(next_due) => self.controller.clock.sleep_until(next_due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = due => {}
                () = next_finished(parked) => {}
                _ = wakeups.changed() => {}
                () = sleep(LONGEST_WAIT) => {}
            }
        }
    }

    /// Waits until a reconcile finishes, or until there is a permit to park it.
    async fn run_or_park(
        &self,
        reconcile: &mut ReconcileFuture,
        parked: &mut ParkedReconciles,
    ) -> Option<OwnedSemaphorePermit> {
        let mut park_timer = std::pin::pin!(sleep(PARK_AFTER));
        loop {
            tokio::select! {
                biased;
                () = &mut *reconcile => return None,
                () = next_finished(parked) => {}
                () = &mut park_timer => {
                    self.controller.health.loop_watchdog.tick();
                    if let Ok(permit) = Arc::clone(&self.parked_permits).try_acquire_owned() {
                        return Some(permit);
                    }
                    park_timer.set(sleep(PARK_AFTER));
                }
            }
        }
    }

    /// Reconciles an object that was due, and requeues it.
    async fn process_item(
        self: Arc<Self>,
        key: ObjectKey,
        mut state: Box<ObjectState<A>>,
        due: Time,
    ) {
        let began = Instant::now();
        let lag = self.controller.clock.now().nanos_since(due).max(0).unsigned_abs();
        self.controller.autoscaler.begin_reconcile(Duration::from_nanos(lag));
        let span = A::log_span(&state.object);
        let scale = self.controller.status.writes.expect_scale();
        let (outcome, next) =
            A::reconcile(&self.controller, &key, &mut state).instrument(span).await;
        drop(scale);
        self.controller.autoscaler.end_reconcile((outcome, next), began.elapsed());
        self.controller.health.reconciles.fetch_add(1, Ordering::AcqRel);
        let now = self.controller.clock.now();
        if outcome != autoscaler::ERROR {
            self.controller.health.loop_metrics.set_last_success(now);
        }
        let next = self.next_due(&key, next, due, now);
        self.controller.queue.requeue(&key, state, next, now);
    }

    fn next_due(&self, key: &ObjectKey, next: Requeue, due: Time, now: Time) -> Option<Time> {
        let period = self.controller.settings.period;
        match next {
            Requeue::OnChange => None,
            Requeue::After(pause) => Some(now.later(pause)),
            // Upstream counts from the end of a reconcile.
            Requeue::Periodic if self.controller.settings.compat == Compat::Upstream => {
                Some(now.later(period))
            }
            Requeue::Periodic => Some(next_reconcile(key, now.max(due), period)),
        }
    }
}
