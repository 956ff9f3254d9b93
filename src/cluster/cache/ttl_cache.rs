//! Caches responses of the API server. Concurrent lookups of a key share one request, and entries are refreshed before
//! they expire, so that callers rarely wait.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use moka::future::Cache;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Entries that are not read for this long are removed.
const IDLE_TTL: Duration = Duration::from_hours(1);
/// The fraction of an entry's lifetime after which the next read refreshes it.
const REFRESH_AFTER: f64 = 0.7;
/// Limits refreshes ahead of time: this many run at once, and this many more wait. Beyond that a refresh is skipped until
/// the next read.
const MAX_CONCURRENT_REFRESHES: usize = 10;
const MAX_QUEUED_REFRESHES: usize = 1_000;
/// Upper bound of the minimum age of an entry that a revalidation refetches, however often it was unchanged.
const MAX_REVALIDATE_INTERVAL: Duration = Duration::from_mins(20);

pub struct TtlCache<K, V> {
    entries: Cache<K, Arc<Entry<V>>>,
    jitter: RandomState,
    refreshing: Arc<Semaphore>,
    queued: Arc<Semaphore>,
    max_lifetime_factor: u32,
}

/// Fetches the value of one key.
pub type Fetch<V> = Box<dyn FnOnce(FetchReason) -> BoxFuture<'static, Cached<V>> + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchReason {
    /// There is no valid entry; a caller waits for the value.
    Missing,
    /// There is an entry, which may be out of date.
    Refresh,
}

#[derive(Clone, Debug)]
pub struct Cached<V> {
    pub value: V,
    /// How long it stays valid.
    pub lifetime: Duration,
    /// False if the request failed: an older value is then preferred to this one.
    pub is_definite: bool,
}

#[derive(Debug)]
struct Entry<V> {
    answer: Cached<V>,
    fetched_at: Instant,
    fresh_until: Instant,
    good_until: Instant,
    /// How often the value was refetched without a change.
    unchanged_count: u32,
    is_refreshing: AtomicBool,
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
    /// A cache of at most `capacity` entries. The lifetime of an entry grows, up to `max_lifetime_factor` times, each time
    /// that a refetch returns the same value.
    pub fn new(capacity: u64, max_lifetime_factor: u32) -> Self {
        let entries = Cache::builder().max_capacity(capacity).time_to_idle(IDLE_TTL).build();
        let [refreshing, queued] = [MAX_CONCURRENT_REFRESHES, MAX_QUEUED_REFRESHES]
            .map(|permits| Arc::new(Semaphore::new(permits)));
        Self { entries, jitter: RandomState::new(), refreshing, queued, max_lifetime_factor }
    }

    /// The cached value, if it is still valid; otherwise fetches it, once for all concurrent callers.
    pub async fn get(&self, key: &K, fetch: Fetch<V>) -> V {
        let now = Instant::now();
        let entry = self.entries.get(key).await;
        let Some(entry) = entry.filter(|entry| now < entry.good_until) else {
            return self.get_or_fetch(key, fetch, |entry| entry.good_until <= now).await;
        };
        if now >= entry.fresh_until {
            self.refresh(key, &entry, fetch);
        }
        entry.answer.value.clone()
    }

    /// Like [`Self::get`], for an entry that is at most `age` old.
    pub async fn get_with_max_age(&self, key: &K, age: Duration, fetch: Fetch<V>) -> V {
        let now = Instant::now();
        self.get_or_fetch(key, fetch, |entry| {
            entry.good_until <= now || now.saturating_duration_since(entry.fetched_at) > age
        })
        .await
    }

    async fn get_or_fetch(
        &self,
        key: &K,
        fetch: Fetch<V>,
        is_old: impl FnMut(&Arc<Entry<V>>) -> bool + Send,
    ) -> V {
        let older = self.entries.get(key).await;
        let fill =
            async { self.new_entry(key, fetch(FetchReason::Missing).await, older.as_deref()) };
        let entry = self.entries.entry_by_ref(key).or_insert_with_if(fill, is_old).await;
        entry.value().answer.value.clone()
    }

    /// Refetches a valid entry in the background, unless it was fetched less than `min_age` ago. That time doubles whenever
    /// the value is unchanged. Later reads get the new value.
    pub async fn revalidate(&self, key: &K, min_age: Duration, fetch: Fetch<V>) {
        let Some(entry) = self.entries.get(key).await else { return };
        let backed_off = min_age.saturating_mul(1 << entry.unchanged_count.min(10));
        if entry.fetched_at.elapsed() >= backed_off.min(MAX_REVALIDATE_INTERVAL.max(min_age)) {
            self.refresh(key, &entry, fetch);
        }
    }

    fn refresh(&self, key: &K, older: &Arc<Entry<V>>, fetch: Fetch<V>) {
        if older.is_refreshing.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(queue_slot) = Arc::clone(&self.queued).try_acquire_owned() else {
            older.is_refreshing.store(false, Ordering::Relaxed);
            return;
        };
        let (this, key, older) = (self.clone(), key.clone(), Arc::clone(older));
        tokio::spawn(async move {
            // Both are released when the response has arrived; the semaphores are never closed.
            let (_queue_slot, _permit) = (queue_slot, this.refreshing.acquire().await);
            let fetched = fetch(FetchReason::Refresh).await;
            let entry = if fetched.is_definite {
                this.new_entry(&key, fetched, Some(&*older))
            } else {
                // Keep the older value until it expires; refetch when this one would have expired.
                let now = Instant::now();
                Arc::new(Entry {
                    answer: older.answer.clone(),
                    fetched_at: now,
                    fresh_until: now + fetched.lifetime,
                    good_until: older.good_until,
                    unchanged_count: older.unchanged_count,
                    is_refreshing: AtomicBool::new(false),
                })
            };
            this.entries.insert(key, entry).await;
        });
    }

    /// Spreads lifetimes by up to half, so that entries fetched together are not refetched together.
    fn new_entry(&self, key: &K, answer: Cached<V>, older: Option<&Entry<V>>) -> Arc<Entry<V>> {
        let now = Instant::now();
        let part = self.jitter.hash_one((key, now)) as f64 / u64::MAX as f64;
        let same = older.filter(|older| answer.is_definite && older.answer.value == answer.value);
        let repeated = same.map_or(0, |older| older.unchanged_count.saturating_add(1));
        let times = repeated.saturating_add(1).min(self.max_lifetime_factor.max(1));
        let lifetime = answer.lifetime.saturating_mul(times).mul_f64(1.0 - part / 2.0);
        Arc::new(Entry {
            fetched_at: now,
            fresh_until: now + lifetime.mul_f64(REFRESH_AFTER),
            good_until: now + lifetime,
            unchanged_count: repeated,
            is_refreshing: AtomicBool::new(false),
            answer,
        })
    }
}
