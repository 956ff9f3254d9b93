//! The permit to write: the fence and the rate limit combined.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use plimsoll_storage::{NotLeader, WritePermit};

use crate::cluster::{leader::Fence, write::RateLimiter};

/// The permit to write. Clones share fence and rate limit.
#[derive(Clone, Debug)]
pub struct Permit {
    pub fence: Fence,
    pub limiter: RateLimiter,
}

impl Permit {
    pub fn new(fence: Fence, limiter: RateLimiter) -> Self {
        Self { fence, limiter }
    }
}

#[async_trait]
impl WritePermit for Permit {
    async fn acquire(&self) -> Result<(), NotLeader> {
        self.fence.check()?;
        self.limiter.acquire().await;
        // The lease may have been lost while this waited.
        self.fence.check()
    }
}

/// A permit whose first tokens are already taken from the rate limit.
#[derive(Debug)]
pub struct PrepaidPermit {
    permit: Permit,
    tokens: AtomicUsize,
}

impl PrepaidPermit {
    pub fn new(permit: Permit, tokens: usize) -> Self {
        Self { permit, tokens: AtomicUsize::new(tokens) }
    }
}

#[async_trait]
impl WritePermit for PrepaidPermit {
    async fn acquire(&self) -> Result<(), NotLeader> {
        let take = |tokens: usize| tokens.checked_sub(1);
        if self.tokens.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_ok() {
            return self.permit.fence.check();
        }
        self.permit.acquire().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_lost_while_a_write_waits_stops_that_write() {
        let fence = Fence::open();
        let permit = Permit::new(fence.clone(), RateLimiter::new(20.0, 1));
        permit.acquire().await.expect("the fence is open");
        fence.grant_until(Instant::now() + Duration::from_millis(10));
        permit.acquire().await.expect_err("the wait is 50 ms long");
    }

    #[tokio::test]
    async fn a_closed_fence_uses_no_token() {
        let permit = Permit::new(Fence::closed(), RateLimiter::new(0.001, 1));
        permit.acquire().await.expect_err("closed");
        permit.limiter.acquire().await;
    }
}
