//! The rate limit: how many writes a second leave this process, and in which order they wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Mutex;
use tokio::time::Instant;

/// What client-go takes for a rate and a burst of zero.
const DEFAULT_QPS: f32 = 5.0;
const DEFAULT_BURST: u32 = 10;
/// How often what can be put off looks whether there is room for it.
const LOW_PRIORITY_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A token bucket that all writers of a process share. Clones are the same bucket.
///
/// Whoever asked first goes first: a thousand statuses that wait delay a checkpoint by their number of
/// workers, not by a thousand.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// tokio's mutex hands itself on in the order in which it was asked for.
    bucket: Mutex<Bucket>,
    waiting: AtomicUsize,
}

impl RateLimiter {
    /// One of `qps` writes a second on average, of which `burst` may go at once. As with client-go, zero
    /// stands for its defaults (5 and 10), and a negative rate for no limit.
    pub fn new(qps: f32, burst: u32) -> Self {
        let bucket = Mutex::new(Bucket::new(qps, burst, Instant::now()));
        Self { inner: Arc::new(Inner { bucket, waiting: AtomicUsize::new(0) }) }
    }

    /// Waits for its turn, then until one more write may go out. A wait that is given up costs nothing.
    pub async fn acquire(&self) {
        let _waits = WaitGuard::begin(&self.inner.waiting);
        let mut bucket = self.inner.bucket.lock().await;
        while let Err(wait) = bucket.take(Instant::now()) {
            tokio::time::sleep(wait).await;
        }
    }

    /// Whether so much is left that what can be put off takes nothing from what cannot: nobody waits, and half a burst
    /// may still go at once.
    pub fn has_spare_capacity(&self) -> bool {
        self.waiting() == 0
            && self.inner.bucket.try_lock().is_ok_and(|mut bucket| {
                bucket.refill(Instant::now());
                bucket.rate.is_none() || bucket.tokens >= bucket.burst / 2.0
            })
    }

    /// Waits until there is room to spare, and takes one token: for what can be put off. It waits in nobody's way: whoever
    /// calls [`Self::acquire`] meanwhile goes first, and finds half a burst.
    pub async fn acquire_low_priority(&self) {
        while !self.try_take_spare_token() {
            tokio::time::sleep(LOW_PRIORITY_POLL_INTERVAL).await;
        }
    }

    fn try_take_spare_token(&self) -> bool {
        self.waiting() == 0
            && self.inner.bucket.try_lock().is_ok_and(|mut bucket| {
                bucket.refill(Instant::now());
                let least = (bucket.burst / 2.0).max(1.0);
                (bucket.rate.is_none() || bucket.tokens >= least)
                    && bucket.take(Instant::now()).is_ok()
            })
    }

    /// How many wait right now.
    pub fn waiting(&self) -> usize {
        self.inner.waiting.load(Ordering::Relaxed)
    }
}

/// Counts one that waits for as long as it lives.
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

/// The arithmetic, without waiting.
#[derive(Debug)]
struct Bucket {
    /// Tokens a second; `None` for no limit.
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

    /// Takes a token, or says how long there will be none.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let Some(rate) = self.rate else { return Ok(()) };
        self.refill(now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        // At least a tick, so that rounding never makes the wait spin; at most a day, so that it is a Duration.
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
        /// However the asking is spread: no window of time sees more than its rate and one burst.
        #[test]
        fn never_more_than_the_rate_and_one_burst(
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

        /// Who waits as long as it was told gets a token then: the rate is used up, not only kept.
        #[test]
        fn a_wait_as_told_is_enough(qps in 0.01_f32..500.0, burst in 1_u32..20) {
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
    fn zero_means_the_default_and_less_means_no_limit() {
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
    async fn what_can_be_put_off_leaves_half_a_burst_to_what_cannot() {
        let limiter = RateLimiter::new(0.001, 4);
        for spare in [true, true, true, false] {
            assert_eq!(limiter.has_spare_capacity(), spare);
            limiter.acquire().await;
        }
        assert!(
            RateLimiter::new(f32::INFINITY, 1).has_spare_capacity(),
            "without a limit there is always some"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_be_put_off_takes_only_what_nobody_else_needs() {
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
        assert_eq!(longest, Duration::ZERO, "a write never waits for it");
        assert!(limiter.waiting() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asked_first_goes_first() {
        let limiter = RateLimiter::new(500.0, 1);
        limiter.acquire().await;
        let order = Arc::new(Shared::new(Vec::new()));
        let asks = (0..40).map(|number| {
            let (limiter, order) = (limiter.clone(), Arc::clone(&order));
            async move {
                limiter.acquire().await;
                order.lock().expect("no panic").push(number);
            }
        });
        futures::future::join_all(asks).await;
        assert!(order.lock().expect("no panic").is_sorted());
        assert_eq!(limiter.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_lapsed_takes_nothing_and_holds_nobody_up() {
        let limiter = RateLimiter::new(2.0, 1);
        limiter.acquire().await;
        let mut lapsed = 0;
        for _ in 0..40 {
            let gives_up = tokio::time::timeout(Duration::from_millis(1), limiter.acquire());
            lapsed += usize::from(gives_up.await.is_err());
        }
        assert_eq!(lapsed, 40, "each was given up");
        assert_eq!(limiter.waiting(), 0);
        // Twenty lost tokens would be ten seconds.
        let start = Instant::now();
        limiter.acquire().await;
        // What is left of half a second after the forty milliseconds, and the ticks of two timers.
        assert!(start.elapsed() < Duration::from_millis(463), "{:?}", start.elapsed());
    }
}
