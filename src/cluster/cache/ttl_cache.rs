//! Owns answers of the API that are kept for a while: asked once by whoever needs them at the same time, asked
//! anew before they are too old, so that nobody waits.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moka::future::Cache;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// An answer nobody asked for in that time is forgotten.
const IDLE_TTL: Duration = Duration::from_hours(1);
/// The part of its lifetime after which an answer is asked for anew when somebody needs it.
const REFRESH_AFTER: f64 = 0.7;
/// So many questions are asked ahead of time at once, and so many more wait for it. The others are asked when their turn comes
/// up again.
const MAX_CONCURRENT_REFRESHES: usize = 10;
const MAX_QUEUED_REFRESHES: usize = 1_000;
/// A doubt about an answer that has always been the same is looked into at least this often.
const MAX_REVALIDATE_INTERVAL: Duration = Duration::from_mins(20);

/// Answers by what was asked.
pub struct TtlCache<K, V> {
    entries: Cache<K, Arc<Entry<V>>>,
    jitter: RandomState,
    refreshing: Arc<Semaphore>,
    queued: Arc<Semaphore>,
    max_lifetime_factor: u32,
}

/// Why a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchReason {
    /// Somebody waits for the answer.
    Missing,
    /// There is an answer, which may be out of date.
    Refresh,
}

/// What asking gave.
#[derive(Clone, Debug)]
pub struct Cached<V> {
    /// The answer.
    pub value: V,
    /// How long it is good for.
    pub lifetime: Duration,
    /// False when nobody knows: an older answer is then better than this one.
    pub is_definite: bool,
}

#[derive(Debug)]
struct Entry<V> {
    answer: Cached<V>,
    fetched_at: Instant,
    fresh_until: Instant,
    good_until: Instant,
    /// How often the answer was asked for again and stayed the same.
    unchanged_count: u32,
    is_refreshing: AtomicBool,
}

// === impl Answers ===

impl<K, V> fmt::Debug for TtlCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}

impl<K, V> Clone for TtlCache<K, V> {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
            jitter: self.jitter.clone(),
            refreshing: Arc::clone(&self.refreshing),
            queued: Arc::clone(&self.queued),
            max_lifetime_factor: self.max_lifetime_factor,
        }
    }
}

impl<K, V> TtlCache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + PartialEq + Send + Sync + 'static,
{
    /// Keeps at most that many.
    pub fn new(capacity: u64) -> Self {
        let kept = Cache::builder().max_capacity(capacity).time_to_idle(IDLE_TTL).build();
        let [ahead, waiting] = [MAX_CONCURRENT_REFRESHES, MAX_QUEUED_REFRESHES]
            .map(|most| Arc::new(Semaphore::new(most)));
        Self {
            entries: kept,
            jitter: RandomState::new(),
            refreshing: ahead,
            queued: waiting,
            max_lifetime_factor: 1,
        }
    }

    /// Has the lifetime of an answer grow, up to so many times, each time that it stays the same.
    #[must_use]
    pub fn with_lifetime_growth(mut self, times: u32) -> Self {
        self.max_lifetime_factor = times.max(1);
        self
    }

    /// The answer that is kept, if it is still good; else asks, once for all who need it.
    pub async fn get<F, A>(&self, key: &K, ask: F) -> V
    where
        F: FnOnce(FetchReason) -> A + Send + 'static,
        A: Future<Output = Cached<V>> + Send + 'static,
    {
        let now = Instant::now();
        let kept = self.entries.get(key).await;
        let Some(kept) = kept.filter(|kept| now < kept.good_until) else {
            return self.get_or_fetch(key, ask, |kept| kept.good_until <= now).await;
        };
        if now >= kept.fresh_until {
            self.refresh(key, &kept, ask);
        }
        kept.answer.value.clone()
    }

    /// The same, of an answer that is at most so old.
    pub async fn get_with_max_age<F, A>(&self, key: &K, age: Duration, ask: F) -> V
    where
        F: FnOnce(FetchReason) -> A + Send + 'static,
        A: Future<Output = Cached<V>> + Send + 'static,
    {
        let now = Instant::now();
        self.get_or_fetch(key, ask, |kept| {
            kept.good_until <= now || now.saturating_duration_since(kept.fetched_at) > age
        })
        .await
    }

    async fn get_or_fetch<F, A>(
        &self,
        key: &K,
        ask: F,
        is_old: impl FnMut(&Arc<Entry<V>>) -> bool + Send,
    ) -> V
    where
        F: FnOnce(FetchReason) -> A + Send + 'static,
        A: Future<Output = Cached<V>> + Send + 'static,
    {
        let older = self.entries.get(key).await;
        let fill = async { self.new_entry(key, ask(FetchReason::Missing).await, older.as_deref()) };
        let entry = self.entries.entry_by_ref(key).or_insert_with_if(fill, is_old).await;
        entry.value().answer.value.clone()
    }

    /// Asks anew although the answer is good, unless it was asked for less than `youth` ago. That time doubles whenever the
    /// answer stays the same. The answer comes later, for who asks then.
    pub async fn revalidate<F, A>(&self, key: &K, youth: Duration, ask: F)
    where
        F: FnOnce(FetchReason) -> A + Send + 'static,
        A: Future<Output = Cached<V>> + Send + 'static,
    {
        let Some(kept) = self.entries.get(key).await else { return };
        let grown = youth.saturating_mul(1 << kept.unchanged_count.min(10));
        if kept.fetched_at.elapsed() >= grown.min(MAX_REVALIDATE_INTERVAL.max(youth)) {
            self.refresh(key, &kept, ask);
        }
    }

    fn refresh<F, A>(&self, key: &K, older: &Arc<Entry<V>>, ask: F)
    where
        F: FnOnce(FetchReason) -> A + Send + 'static,
        A: Future<Output = Cached<V>> + Send + 'static,
    {
        if older.is_refreshing.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(place) = Arc::clone(&self.queued).try_acquire_owned() else {
            older.is_refreshing.store(false, Ordering::Relaxed);
            return;
        };
        let (this, key, older) = (self.clone(), key.clone(), Arc::clone(older));
        tokio::spawn(async move {
            // Both are given back when the answer is there; nobody closes them.
            let (_place, _turn) = (place, this.refreshing.acquire().await);
            let answer = ask(FetchReason::Refresh).await;
            let kept = if answer.is_definite {
                this.new_entry(&key, answer, Some(&*older))
            } else {
                // The older one stays until its own end, and is asked for again when this one would have been.
                let now = Instant::now();
                Arc::new(Entry {
                    answer: older.answer.clone(),
                    fetched_at: now,
                    fresh_until: now + answer.lifetime,
                    good_until: older.good_until,
                    unchanged_count: older.unchanged_count,
                    is_refreshing: AtomicBool::new(false),
                })
            };
            this.entries.insert(key, kept).await;
        });
    }

    /// Lifetimes are spread by half, so that what was asked for at once is not asked for at once again.
    fn new_entry(&self, key: &K, answer: Cached<V>, older: Option<&Entry<V>>) -> Arc<Entry<V>> {
        let asked = Instant::now();
        let part = self.jitter.hash_one((key, asked)) as f64 / u64::MAX as f64;
        let same = older.filter(|older| answer.is_definite && older.answer.value == answer.value);
        let repeated = same.map_or(0, |older| older.unchanged_count.saturating_add(1));
        let times = repeated.saturating_add(1).min(self.max_lifetime_factor);
        let lifetime = answer.lifetime.saturating_mul(times).mul_f64(1.0 - part / 2.0);
        Arc::new(Entry {
            fetched_at: asked,
            fresh_until: asked + lifetime.mul_f64(REFRESH_AFTER),
            good_until: asked + lifetime,
            unchanged_count: repeated,
            is_refreshing: AtomicBool::new(false),
            answer,
        })
    }
}
