//! The workers: whoever has a turn is looked at, and who has to wait for somebody makes room for the next.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use plimsoll_core::types::{Time, VpaKey};
use tokio::time::Instant;
use tokio::{sync::OwnedSemaphorePermit, time::sleep};

use super::{
    super::tasks::Stop, Role, book::Turn, config::WatermarkConfig, look::Next, seat::Seat,
    turns::next_turn,
};
use plimsoll_core::types::compat::Compat;

/// Between two looks whether this process leads by now.
const LEADS: Duration = Duration::from_millis(100);
/// Nobody has a turn for so long: time to see whether the process lives.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A look that takes longer waits for somebody, and its worker goes on with the next.
const IMPATIENCE: Duration = Duration::from_secs(1);
/// How many looks of each worker may wait at once.
const ASIDE: usize = 4;

/// A look that was begun.
type Look = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Looks that wait for somebody.
type Aside = FuturesUnordered<Look>;

/// How many looks may wait while their workers go on. Upstream's wait for each.
pub(super) fn room(config: &WatermarkConfig) -> usize {
    if config.compat == Compat::Upstream { 0 } else { config.workers.max(1) * ASIDE }
}

/// What comes of looks that wait; nothing ever while there are none.
async fn one_of(aside: &mut Aside) {
    if aside.next().await.is_none() {
        pending::<()>().await;
    }
}

impl Role {
    /// A worker: takes whoever has a turn, one after the other.
    pub(super) async fn work(self: Arc<Self>, worker: usize, stop: Stop) {
        tokio::select! {
            () = stop.stopped() => return,
            () = async {
                self.feeds.synced().await;
                self.workloads.first_scales().await;
            } => {}
        }
        let mut aside = Aside::new();
        self.take_turns(worker, &stop, &mut aside).await;
        // What was begun is ended: a look that is cut off may have booked what it did not do.
        while aside.next().await.is_some() {}
    }

    async fn take_turns(self: &Arc<Self>, worker: usize, stop: &Stop, aside: &mut Aside) {
        let mut news = self.book.news();
        let mut led = false;
        loop {
            self.pulse.beat();
            if stop.is_told() {
                return;
            }
            if !self.may_act() {
                led = false;
                tokio::select! {
                    () = stop.stopped() => return,
                    () = one_of(aside) => {}
                    () = sleep(LEADS) => {}
                }
                continue;
            }
            // Turns of a time when somebody else led have no order that anybody relies on.
            if !std::mem::replace(&mut led, true) && worker == 0 {
                self.book.all_due(self.clock.now());
            }
            news.borrow_and_update();
            let until = match self.book.take(self.clock.now()) {
                Turn::Of(key, seat, due) => {
                    let mut look: Look = Box::pin(Arc::clone(self).turn(key, seat, due));
                    if let Some(room) = self.wait_for(&mut look, aside).await {
                        aside.push(Box::pin(async move {
                            look.await;
                            drop(room);
                        }));
                    }
                    continue;
                }
                Turn::At(until) => until,
            };
            let woken = async {
                match until {
                    Some(until) => self.clock.sleep_until(until).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = stop.stopped() => return,
                () = woken => {}
                () = one_of(aside) => {}
                _ = news.changed() => {}
                () = sleep(LONGEST_WAIT) => {}
            }
        }
    }

    /// Waits for the end of a look, or for room to let it wait by itself.
    async fn wait_for(&self, look: &mut Look, aside: &mut Aside) -> Option<OwnedSemaphorePermit> {
        let mut patience = std::pin::pin!(sleep(IMPATIENCE));
        loop {
            tokio::select! {
                biased;
                () = &mut *look => return None,
                () = one_of(aside) => {}
                () = &mut patience => {
                    self.pulse.beat();
                    if let Ok(room) = Arc::clone(&self.aside).try_acquire_owned() {
                        return Some(room);
                    }
                    patience.set(sleep(IMPATIENCE));
                }
            }
        }
    }

    /// One turn of an object, from when it was due to when it is due again.
    async fn turn(self: Arc<Self>, key: VpaKey, mut seat: Box<Seat>, due: Time) {
        let began = Instant::now();
        let late = self.clock.now().nanos_since(due).max(0).unsigned_abs();
        self.metrics.begin_reconcile(Duration::from_nanos(late));
        let (outcome, next) = self.look(&key, &mut seat).await;
        let returned = Self::returned(outcome, next);
        self.metrics.end_reconcile(outcome, returned, began.elapsed());
        self.looks.fetch_add(1, Ordering::AcqRel);
        let now = self.clock.now();
        if outcome != "error" {
            self.pace.succeeded(now);
        }
        let next = self.next(&key, next, due, now);
        self.book.give_back(&key, seat, next, now);
    }

    fn next(&self, key: &VpaKey, next: Next, due: Time, now: Time) -> Option<Time> {
        let period = self.config.period;
        match next {
            Next::Change => None,
            Next::After(pause) => Some(now.later(pause)),
            // Upstream counts from the end of a look.
            Next::Period if self.config.compat == Compat::Upstream => Some(now.later(period)),
            Next::Period => Some(next_turn(key, now.max(due), period)),
        }
    }
}
