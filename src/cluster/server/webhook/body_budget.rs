//! Memory for the bodies of requests: one budget for all connections, and a share of it for each address that they come
//! from. A body takes memory as its data arrive, and gives it back when its review is over.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::{Instant, sleep_until},
};

/// The memory for all bodies.
#[derive(Debug)]
pub struct BodyBudget {
    free: Semaphore,
    bytes: usize,
    bytes_per_peer: usize,
    peak: AtomicUsize,
    /// How many requests wait for memory.
    waiting: watch::Sender<usize>,
}

impl BodyBudget {
    /// So many bytes, and so many of them for one address.
    pub(super) fn new(bytes: usize, bytes_per_peer: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Semaphore::new(bytes),
            bytes,
            bytes_per_peer,
            peak: AtomicUsize::new(0),
            waiting: watch::Sender::new(0),
        })
    }

    /// How many bytes are taken.
    pub fn in_use(&self) -> usize {
        self.bytes.saturating_sub(self.free.available_permits())
    }

    /// The most that were ever taken at once.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// The share of an address that has none yet.
    pub(super) fn peer_budget(self: &Arc<Self>) -> PeerBudget {
        PeerBudget { budget: Arc::clone(self), free: Arc::new(Semaphore::new(self.bytes_per_peer)) }
    }

    /// Takes bytes, from the share or from all, as soon as they are free.
    async fn take<'a>(&self, from: &'a Semaphore, bytes: u32) -> SemaphorePermit<'a> {
        if let Ok(taken) = from.try_acquire_many(bytes) {
            return taken;
        }
        let _waits = WaitGuard::new(&self.waiting);
        match from.acquire_many(bytes).await {
            Ok(taken) => taken,
            // Nobody closes it.
            Err(_) => std::future::pending().await,
        }
    }
}

/// A request that waits for memory, until this is dropped.
struct WaitGuard<'a>(&'a watch::Sender<usize>);

impl<'a> WaitGuard<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// What bodies from one address may take of the budget.
#[derive(Clone, Debug)]
pub(super) struct PeerBudget {
    budget: Arc<BodyBudget>,
    free: Arc<Semaphore>,
}

impl PeerBudget {
    /// The memory for one body, which is none yet, and the times that it keeps to.
    pub fn reserve(&self, times: BodyTimeouts) -> BodyReservation {
        let now = Instant::now();
        let (slow_from, until) = (now + times.slow_after, now + times.timeout);
        BodyReservation {
            peer_budget: self.clone(),
            bytes: 0,
            slow_after: times.slow_after,
            slow_from,
            deadline: until,
        }
    }
}

/// How long a body may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyTimeouts {
    /// After that, if others wait for memory, it gives way.
    pub slow_after: Duration,
    /// After that it is given up.
    pub timeout: Duration,
}

/// Why a body is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyTimeout {
    /// There was no memory for it in time, or it was slow and others needed what it had.
    NoMemory,
    /// It did not arrive in time.
    Slow,
}

/// The memory for one body. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct BodyReservation {
    peer_budget: PeerBudget,
    bytes: usize,
    slow_after: Duration,
    slow_from: Instant,
    deadline: Instant,
}

impl BodyReservation {
    /// Takes more, until it has so many bytes. Who has some already does not wait for long: others wait for these.
    pub async fn grow(&mut self, bytes: usize) -> Result<(), BodyTimeout> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let count = u32::try_from(more).map_err(|_| BodyTimeout::NoMemory)?;
        let PeerBudget { budget, free } = &self.peer_budget;
        let taken = async {
            let of_share = budget.take(free, count).await;
            let of_all = budget.take(&budget.free, count).await;
            of_share.forget();
            of_all.forget();
        };
        let waits_until =
            if self.bytes == 0 { self.deadline } else { self.slow_from.min(self.deadline) };
        tokio::select! {
            biased;
            () = taken => {}
            () = sleep_until(waits_until) => return Err(BodyTimeout::NoMemory),
        }
        if self.bytes == 0 {
            self.slow_from = Instant::now() + self.slow_after;
        }
        self.bytes = bytes;
        budget.peak.fetch_max(budget.in_use(), Ordering::Relaxed);
        Ok(())
    }

    /// Gives back what is not needed.
    pub fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.peer_budget.budget.free.add_permits(less);
        self.peer_budget.free.add_permits(less);
        self.bytes -= less;
    }

    /// Waits for the next part of a body: until its time is over, or it is slow and somebody else needs the memory.
    pub async fn within_deadline<T>(
        &self,
        next: impl Future<Output = T>,
    ) -> Result<T, BodyTimeout> {
        tokio::select! {
            biased;
            next = next => Ok(next),
            late = self.timed_out() => Err(late),
        }
    }

    async fn timed_out(&self) -> BodyTimeout {
        sleep_until(self.slow_from.min(self.deadline)).await;
        let mut waiting = self.peer_budget.budget.waiting.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as the budget.
            _ = waiting.wait_for(|count| *count > 0) => BodyTimeout::NoMemory,
            () = sleep_until(self.deadline) => BodyTimeout::Slow,
        }
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const SLOW: Duration = Duration::from_secs(1);
    const TIMES: BodyTimeouts = BodyTimeouts { slow_after: SLOW, timeout: Duration::from_secs(10) };

    #[tokio::test]
    async fn what_is_taken_is_counted_and_given_back() {
        let budget = BodyBudget::new(100, 60);
        let (one, other) = (budget.peer_budget(), budget.peer_budget());
        let mut lease = one.reserve(TIMES);
        lease.grow(50).await.expect("there is room");
        lease.grow(40).await.expect("it has more already");
        let mut second = other.reserve(TIMES);
        second.grow(50).await.expect("there is room");
        assert_eq!((budget.in_use(), budget.peak()), (100, 100));
        lease.shrink(20);
        assert_eq!(budget.in_use(), 70);
        lease.grow(50).await.expect("it was given back to its share too");
        drop((lease, second));
        assert_eq!((budget.in_use(), budget.peak()), (0, 100));
        assert_eq!((one.free.available_permits(), other.free.available_permits()), (60, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_has_no_more_than_its_share_however_much_is_free() {
        let budget = BodyBudget::new(100, 60);
        let (one, other) = (budget.peer_budget(), budget.peer_budget());
        let mut first = one.reserve(TIMES);
        first.grow(60).await.expect("there is room");
        let begun = Instant::now();
        let mut second = one.reserve(TIMES);
        assert_eq!(second.grow(1).await, Err(BodyTimeout::NoMemory));
        assert_eq!(begun.elapsed(), TIMES.timeout, "who has nothing waits for as long as it may");
        let mut third = other.reserve(TIMES);
        third.grow(40).await.expect("the rest is for others");
        drop(first);
        one.reserve(TIMES).grow(60).await.expect("there is room");
        assert_eq!(*budget.waiting.borrow(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_slow_gives_way_once_others_wait_and_not_before() {
        let budget = BodyBudget::new(100, 100);
        let (one, other) = (budget.peer_budget(), budget.peer_budget());
        let slow = || async {
            let mut slow = one.reserve(TIMES);
            slow.grow(90).await.expect("there is room");
            slow.within_deadline(pending::<()>()).await
        };
        let begun = Instant::now();
        assert_eq!(slow().await, Err(BodyTimeout::Slow));
        assert_eq!(begun.elapsed(), TIMES.timeout, "nobody needs what it has");
        let begun = Instant::now();
        let mut quick = other.reserve(TIMES);
        let (late, grown) = tokio::join!(slow(), quick.grow(50));
        assert_eq!((late, grown), (Err(BodyTimeout::NoMemory), Ok(())));
        assert_eq!(begun.elapsed(), SLOW, "it has its time");
        // Who waits for more gives way as well: others wait for what it has.
        let mut next = one.reserve(TIMES);
        let refused = async {
            let refused = quick.grow(101).await;
            drop(quick);
            refused
        };
        let (refused, grown) = tokio::join!(refused, next.grow(60));
        assert_eq!((refused, grown), (Err(BodyTimeout::NoMemory), Ok(())));
    }
}
