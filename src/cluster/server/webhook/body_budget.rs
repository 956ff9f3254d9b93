//! Memory budget for request bodies: one budget for all connections, and a share of it per client address. A request
//! reserves memory as its body arrives, and releases it when the review is done.

use std::sync::Arc;

use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::{Instant, sleep_until},
};

use super::WebhookLimits;

#[derive(Debug)]
pub struct BodyBudget {
    free: Semaphore,
    limits: WebhookLimits,
    /// Number of requests waiting for memory.
    waiting: watch::Sender<usize>,
}

impl BodyBudget {
    pub(super) fn new(limits: WebhookLimits) -> Arc<Self> {
        Arc::new(Self {
            free: Semaphore::new(limits.body_memory),
            limits,
            waiting: watch::Sender::new(0),
        })
    }

    pub fn in_use(&self) -> usize {
        self.limits.body_memory.saturating_sub(self.free.available_permits())
    }

    pub(super) fn peer_budget(self: &Arc<Self>) -> PeerBudget {
        let free = Arc::new(Semaphore::new(self.limits.body_memory_per_peer));
        PeerBudget { budget: Arc::clone(self), free }
    }

    async fn take<'a>(&self, from: &'a Semaphore, bytes: u32) -> SemaphorePermit<'a> {
        if let Ok(permit) = from.try_acquire_many(bytes) {
            return permit;
        }
        let _guard = WaitGuard::new(&self.waiting);
        match from.acquire_many(bytes).await {
            Ok(permit) => permit,
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Counts a waiting request until it is dropped.
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

/// The share of one client address.
#[derive(Clone, Debug)]
pub(super) struct PeerBudget {
    budget: Arc<BodyBudget>,
    free: Arc<Semaphore>,
}

impl PeerBudget {
    pub fn reserve(&self) -> BodyReservation {
        let (now, limits) = (Instant::now(), self.budget.limits);
        BodyReservation {
            peer_budget: self.clone(),
            bytes: 0,
            slow_from: now + limits.slow_body_after,
            deadline: now + limits.body_timeout,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    TooLarge,
    /// No memory was free in time, or the body was slow and other requests needed its memory.
    NoMemory,
    Slow,
}

/// Memory reserved for one body, released on drop.
#[derive(Debug)]
pub(super) struct BodyReservation {
    peer_budget: PeerBudget,
    bytes: usize,
    slow_from: Instant,
    deadline: Instant,
}

impl BodyReservation {
    /// Grows the reservation to `bytes`. A body that already holds memory waits only briefly: other requests wait for
    /// it.
    pub async fn grow(&mut self, bytes: usize) -> Result<(), BodyError> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let missing = u32::try_from(more).map_err(|_| BodyError::NoMemory)?;
        let PeerBudget { budget, free } = &self.peer_budget;
        let acquired = async {
            let from_peer = budget.take(free, missing).await;
            let from_total = budget.take(&budget.free, missing).await;
            from_peer.forget();
            from_total.forget();
        };
        let wait_deadline =
            if self.bytes == 0 { self.deadline } else { self.slow_from.min(self.deadline) };
        tokio::select! {
            biased;
            () = acquired => {}
            () = sleep_until(wait_deadline) => return Err(BodyError::NoMemory),
        }
        if self.bytes == 0 {
            self.slow_from = Instant::now() + budget.limits.slow_body_after;
        }
        self.bytes = bytes;
        Ok(())
    }

    pub fn shrink(&mut self, bytes: usize) {
        let released = self.bytes.saturating_sub(bytes);
        self.peer_budget.budget.free.add_permits(released);
        self.peer_budget.free.add_permits(released);
        self.bytes -= released;
    }

    /// Waits for the next part of a body, until the deadline, or until the body is slow and another request needs
    /// memory.
    pub async fn within_deadline<T>(&self, next: impl Future<Output = T>) -> Result<T, BodyError> {
        tokio::select! {
            biased;
            next = next => Ok(next),
            timeout = self.timed_out() => Err(timeout),
        }
    }

    async fn timed_out(&self) -> BodyError {
        sleep_until(self.slow_from.min(self.deadline)).await;
        let mut waiting = self.peer_budget.budget.waiting.subscribe();
        tokio::select! {
            biased;
            // The sender lives as long as the budget.
            _ = waiting.wait_for(|count| *count > 0) => BodyError::NoMemory,
            () = sleep_until(self.deadline) => BodyError::Slow,
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
    use std::{future::pending, time::Duration};

    use super::*;

    const SLOW: Duration = Duration::from_secs(1);
    const TIMEOUT: Duration = Duration::from_secs(10);

    fn budget(body_memory: usize, body_memory_per_peer: usize) -> Arc<BodyBudget> {
        BodyBudget::new(WebhookLimits {
            body_memory,
            body_memory_per_peer,
            slow_body_after: SLOW,
            body_timeout: TIMEOUT,
            ..WebhookLimits::default()
        })
    }

    #[tokio::test]
    async fn reserved_memory_is_counted_and_released() {
        let budget = budget(100, 60);
        let (one, other) = (budget.peer_budget(), budget.peer_budget());
        let mut lease = one.reserve();
        lease.grow(50).await.expect("memory is free");
        lease.grow(40).await.expect("it already holds more");
        let mut second = other.reserve();
        second.grow(50).await.expect("memory is free");
        assert_eq!(budget.in_use(), 100);
        lease.shrink(20);
        assert_eq!(budget.in_use(), 70);
        lease.grow(50).await.expect("shrinking released the peer's share too");
        drop((lease, second));
        assert_eq!(budget.in_use(), 0);
        assert_eq!((one.free.available_permits(), other.free.available_permits()), (60, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_is_limited_to_its_share_however_much_is_free() {
        let budget = budget(100, 60);
        let (one, other) = (budget.peer_budget(), budget.peer_budget());
        let mut first = one.reserve();
        first.grow(60).await.expect("memory is free");
        let begun = Instant::now();
        let mut second = one.reserve();
        assert_eq!(second.grow(1).await, Err(BodyError::NoMemory));
        assert_eq!(begun.elapsed(), TIMEOUT, "an empty reservation waits until its deadline");
        let mut third = other.reserve();
        third.grow(40).await.expect("memory for other addresses is free");
        drop(first);
        one.reserve().grow(60).await.expect("memory is free");
        assert_eq!(*budget.waiting.borrow(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_dropped_only_when_others_wait() {
        let budget = budget(100, 100);
        let (one, other) = (budget.peer_budget(), budget.peer_budget());
        let slow = || async {
            let mut slow = one.reserve();
            slow.grow(90).await.expect("memory is free");
            slow.within_deadline(pending::<()>()).await
        };
        let begun = Instant::now();
        assert_eq!(slow().await, Err(BodyError::Slow));
        assert_eq!(begun.elapsed(), TIMEOUT, "no other request needs its memory");
        let begun = Instant::now();
        let mut quick = other.reserve();
        let (late, grown) = tokio::join!(slow(), quick.grow(50));
        assert_eq!((late, grown), (Err(BodyError::NoMemory), Ok(())));
        assert_eq!(begun.elapsed(), SLOW, "it keeps its memory until it is slow");
        // A body that waits for more memory gives way as well: other requests wait for what it holds.
        let mut next = one.reserve();
        let refused = async {
            let refused = quick.grow(101).await;
            drop(quick);
            refused
        };
        let (refused, grown) = tokio::join!(refused, next.grow(60));
        assert_eq!((refused, grown), (Err(BodyError::NoMemory), Ok(())));
    }
}
