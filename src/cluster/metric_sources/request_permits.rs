//! Limits how many requests are in flight. Those that are known to be slow share a part of them, so that they do not delay the
//! others.

use std::{collections::HashSet, hash::Hash};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Slow requests together may use at most one of this many parts of the requests in flight.
const SLOW_SHARE: usize = 4;

#[derive(Debug)]
pub struct RequestPermits<K> {
    permits: Semaphore,
    /// Permits of slow requests. `None` if there is only one for all.
    slow_permits: Option<Semaphore>,
    slow: Mutex<HashSet<K>>,
}

impl<K: Eq + Hash> RequestPermits<K> {
    /// Permits for this many requests at the same time, at least one.
    pub fn new(max_in_flight: usize) -> Self {
        let max_in_flight = max_in_flight.max(1);
        let slow_permits = (max_in_flight / SLOW_SHARE).max(1).min(max_in_flight - 1);
        Self {
            permits: Semaphore::new(max_in_flight - slow_permits),
            slow_permits: (slow_permits > 0).then(|| Semaphore::new(slow_permits)),
            slow: Mutex::default(),
        }
    }

    /// Waits until the request for a key may be sent. The permit is for as long as it is in flight.
    pub async fn acquire(&self, key: &K) -> Option<SemaphorePermit<'_>> {
        let is_slow = self.slow.lock().contains(key);
        let slow_permits = self.slow_permits.as_ref().filter(|_| is_slow);
        // The semaphore is never closed.
        slow_permits.unwrap_or(&self.permits).acquire().await.ok()
    }

    /// Sets whether the next request for a key is taken as slow.
    pub fn set_slow(&self, key: K, is_slow: bool) {
        let mut slow = self.slow.lock();
        if is_slow {
            slow.insert(key);
        } else {
            slow.remove(&key);
        }
    }
}
