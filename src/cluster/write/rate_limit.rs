//! Client-side rate limit of writes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// client-go's defaults for a rate and a burst of zero.
const DEFAULT_QPS: f32 = 5.0;
const DEFAULT_BURST: u32 = 10;
/// How often low-priority callers check for spare capacity.
const LOW_PRIORITY_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A token bucket that all writers of a process share. Clones share the bucket.
///
/// Callers are served in order: a thousand queued statuses delay a checkpoint by the number of their workers, not by a
/// thousand.
#[derive(Clone, Debug)]
pub struct RateLimiter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// tokio's mutex is fair: it is acquired in the order of the calls.
    bucket: Mutex<Bucket>,
    waiting: AtomicUsize,
}

impl RateLimiter {
    /// A limit of `qps` writes per second on average, with bursts of `burst`. As in client-go, zero means its defaults
    /// (5 and 10), and a negative rate means no limit.
    pub fn new(qps: f32, burst: u32) -> Self {
        let bucket = Mutex::new(Bucket::new(qps, burst, Instant::now()));
        Self(Arc::new(Inner { bucket, waiting: AtomicUsize::new(0) }))
    }

    /// Waits in order until one more write is allowed. A cancelled wait costs no token.
    pub async fn acquire(&self) {
        let _guard = WaitGuard::begin(&self.0.waiting);
        let mut bucket = self.0.bucket.lock().await;
        while let Err(wait) = bucket.take(Instant::now()) {
            tokio::time::sleep(wait).await;
        }
    }

    /// Whether low-priority work would delay nothing: no caller waits, and at least half a burst is left.
    pub fn has_spare_capacity(&self) -> bool {
        self.spare_bucket().is_some()
    }

    /// Waits for spare capacity, and takes one token. Callers of [`Self::acquire`] are served first, and half a burst is
    /// left for them.
    pub async fn acquire_low_priority(&self) {
        while self.spare_bucket().is_none_or(|mut bucket| bucket.take(Instant::now()).is_err()) {
            tokio::time::sleep(LOW_PRIORITY_POLL_INTERVAL).await;
        }
    }

    fn spare_bucket(&self) -> Option<MutexGuard<'_, Bucket>> {
        let mut bucket = (self.waiting() == 0).then(|| self.0.bucket.try_lock().ok())??;
        bucket.refill(Instant::now());
        (bucket.rate.is_none() || bucket.tokens >= bucket.burst / 2.0).then_some(bucket)
    }

    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }
}

/// Counts a waiting caller until dropped.
struct WaitGuard<'a>(&'a AtomicUsize);

impl<'a> WaitGuard<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The token bucket, without waiting.
#[derive(Debug)]
struct Bucket {
    /// Tokens per second; `None` for no limit.
    rate: Option<f64>,
    burst: f64,
    tokens: f64,
    last_refill: Instant,
}

impl Bucket {
    fn new(qps: f32, burst: u32, now: Instant) -> Self {
        let qps = if qps == 0.0 || qps.is_nan() { DEFAULT_QPS } else { qps };
        let burst = f64::from(if burst == 0 { DEFAULT_BURST } else { burst });
        let rate = (qps > 0.0 && qps.is_finite()).then_some(f64::from(qps));
        Self { rate, burst, tokens: burst, last_refill: now }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.last_refill).as_secs_f64();
        self.last_refill = now.max(self.last_refill);
        self.tokens = (self.tokens + passed * self.rate.unwrap_or_default()).min(self.burst);
    }

    /// Takes a token, or returns how long to wait for one.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let Some(rate) = self.rate else { return Ok(()) };
        self.refill(now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        // At least a tick, so that rounding never makes the wait spin; at most a day, so that it fits a Duration.
        let wait = ((1.0 - self.tokens) / rate).clamp(1e-4, 86_400.0);
        Err(Duration::from_secs_f64(wait))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Shared;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However the calls are spread: no time window gets more than its rate and one burst.
        #[test]
        fn any_time_window_gets_at_most_its_rate_and_one_burst(
            qps in 0.1_f32..500.0,
            burst in 1_u32..50,
            gaps in prop::collection::vec(0_u64..400, 1..300),
        ) {
            let start = Instant::now();
            let mut bucket = Bucket::new(qps, burst, start);
            let (mut now, mut taken) = (start, Vec::new());
            for gap in gaps {
                now += Duration::from_millis(gap);
                if bucket.take(now).is_ok() {
                    taken.push(now);
                }
            }
            for (first, from) in taken.iter().enumerate() {
                for (last, to) in taken.iter().enumerate().skip(first) {
                    let count = (last - first + 1) as f64;
                    let most = (*to - *from).as_secs_f64() * f64::from(qps) + f64::from(burst);
                    prop_assert!(count <= most + 1e-6, "{count} in {:?}, at most {most}", *to - *from);
                }
            }
        }

        /// A caller that waits for the returned time gets a token: the rate is used fully, not only respected.
        #[test]
        fn waiting_for_the_returned_time_is_enough_for_a_token(qps in 0.01_f32..500.0, burst in 1_u32..20) {
            let mut now = Instant::now();
            let mut bucket = Bucket::new(qps, burst, now);
            for _ in 0..burst {
                prop_assert_eq!(bucket.take(now), Ok(()));
            }
            for _ in 0..20 {
                let wait = bucket.take(now).expect_err("empty");
                let most = Duration::from_secs_f64(1.0 / f64::from(qps) + 1e-3);
                prop_assert!(wait <= most, "{wait:?} instead of {most:?}");
                now += wait + Duration::from_nanos(100);
                prop_assert_eq!(bucket.take(now), Ok(()));
            }
        }
    }

    #[test]
    fn zero_means_the_default_and_a_negative_rate_no_limit() {
        let now = Instant::now();
        let at_once = |qps, burst| {
            let mut bucket = Bucket::new(qps, burst, now);
            (0..1000).filter(|_| bucket.take(now).is_ok()).count()
        };
        for (qps, burst, expected) in
            [(0.0, 0, 10), (f32::NAN, 3, 3), (5.0, 1, 1), (-1.0, 1, 1000), (f32::INFINITY, 1, 1000)]
        {
            assert_eq!(at_once(qps, burst), expected, "{qps} {burst}");
        }
    }

    #[tokio::test]
    async fn low_priority_callers_leave_half_a_burst_to_others() {
        let limiter = RateLimiter::new(0.001, 4);
        for spare in [true, true, true, false] {
            assert_eq!(limiter.has_spare_capacity(), spare);
            limiter.acquire().await;
        }
        assert!(
            RateLimiter::new(f32::INFINITY, 1).has_spare_capacity(),
            "there is always spare capacity without a limit"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn low_priority_callers_use_only_spare_capacity() {
        let limiter = RateLimiter::new(10.0, 8);
        let spare = {
            let limiter = limiter.clone();
            async move {
                for _ in 0..100 {
                    limiter.acquire_low_priority().await;
                }
            }
        };
        let spare = tokio::spawn(spare);
        let mut longest = Duration::ZERO;
        while !spare.is_finished() {
            let start = Instant::now();
            limiter.acquire().await;
            longest = longest.max(start.elapsed());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(longest, Duration::ZERO, "a write never waits for low-priority work");
        assert!(limiter.waiting() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_get_tokens_in_order() {
        let limiter = RateLimiter::new(500.0, 1);
        limiter.acquire().await;
        let order = Arc::new(Shared::new(Vec::new()));
        let waiters = (0..40).map(|number| {
            let (limiter, order) = (limiter.clone(), Arc::clone(&order));
            async move {
                limiter.acquire().await;
                order.lock().expect("no panic").push(number);
            }
        });
        futures::future::join_all(waiters).await;
        assert!(order.lock().expect("no panic").is_sorted());
        assert_eq!(limiter.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_uses_no_token_and_delays_no_other() {
        let limiter = RateLimiter::new(2.0, 1);
        limiter.acquire().await;
        let mut lapsed = 0;
        for _ in 0..40 {
            let gives_up = tokio::time::timeout(Duration::from_millis(1), limiter.acquire());
            lapsed += usize::from(gives_up.await.is_err());
        }
        assert_eq!(lapsed, 40, "each was cancelled");
        assert_eq!(limiter.waiting(), 0);
        // Twenty lost tokens would be ten seconds.
        let start = Instant::now();
        limiter.acquire().await;
        // The rest of half a second after forty milliseconds, and the ticks of two timers.
        assert!(start.elapsed() < Duration::from_millis(463), "{:?}", start.elapsed());
    }
}
