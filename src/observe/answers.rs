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
const IDLE: Duration = Duration::from_hours(1);
/// The part of its lifetime after which an answer is asked for anew when somebody needs it.
const FRESH: f64 = 0.7;
/// So many questions are asked ahead of time at once, and so many more wait for it. The others are asked when their turn comes
/// up again.
const AHEAD: usize = 10;
const WAITING: usize = 1_000;
/// A doubt about an answer that has always been the same is looked into at least this often.
const LONGEST_YOUTH: Duration = Duration::from_mins(20);

/// Answers by what was asked.
pub struct Answers<K, V> {
    kept: Cache<K, Arc<Kept<V>>>,
    spread: RandomState,
    ahead: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    growth: u32,
}

/// Why a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Somebody waits for the answer.
    Now,
    /// There is an answer, which may be out of date.
    Ahead,
}

/// What asking gave.
#[derive(Clone, Debug)]
pub struct Answer<V> {
    /// The answer.
    pub value: V,
    /// How long it is good for.
    pub lifetime: Duration,
    /// False when nobody knows: an older answer is then better than this one.
    pub definite: bool,
}

#[derive(Debug)]
struct Kept<V> {
    answer: Answer<V>,
    asked: Instant,
    fresh_until: Instant,
    good_until: Instant,
    /// How often the answer was asked for again and stayed the same.
    repeated: u32,
    asking: AtomicBool,
}

// === impl Answers ===

impl<K, V> fmt::Debug for Answers<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}

impl<K, V> Clone for Answers<K, V> {
    fn clone(&self) -> Self {
        Self {
            kept: self.kept.clone(),
            spread: self.spread.clone(),
            ahead: Arc::clone(&self.ahead),
            waiting: Arc::clone(&self.waiting),
            growth: self.growth,
        }
    }
}

impl<K, V> Answers<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + PartialEq + Send + Sync + 'static,
{
    /// Keeps at most that many.
    pub fn new(capacity: u64) -> Self {
        let kept = Cache::builder().max_capacity(capacity).time_to_idle(IDLE).build();
        let [ahead, waiting] = [AHEAD, WAITING].map(|most| Arc::new(Semaphore::new(most)));
        Self { kept, spread: RandomState::new(), ahead, waiting, growth: 1 }
    }

    /// Has the lifetime of an answer grow, up to so many times, each time that it stays the same.
    #[must_use]
    pub fn growing(mut self, times: u32) -> Self {
        self.growth = times.max(1);
        self
    }

    /// The answer that is kept, if it is still good; else asks, once for all who need it.
    pub async fn get<F, A>(&self, key: &K, ask: F) -> V
    where
        F: FnOnce(Asks) -> A + Send + 'static,
        A: Future<Output = Answer<V>> + Send + 'static,
    {
        let now = Instant::now();
        let kept = self.kept.get(key).await;
        let Some(kept) = kept.filter(|kept| now < kept.good_until) else {
            return self.wait_for(key, ask, |kept| kept.good_until <= now).await;
        };
        if now >= kept.fresh_until {
            self.ask_anew(key, &kept, ask);
        }
        kept.answer.value.clone()
    }

    /// The same, of an answer that is at most so old.
    pub async fn get_younger<F, A>(&self, key: &K, age: Duration, ask: F) -> V
    where
        F: FnOnce(Asks) -> A + Send + 'static,
        A: Future<Output = Answer<V>> + Send + 'static,
    {
        let now = Instant::now();
        self.wait_for(key, ask, |kept| {
            kept.good_until <= now || now.saturating_duration_since(kept.asked) > age
        })
        .await
    }

    async fn wait_for<F, A>(
        &self,
        key: &K,
        ask: F,
        is_old: impl FnMut(&Arc<Kept<V>>) -> bool + Send,
    ) -> V
    where
        F: FnOnce(Asks) -> A + Send + 'static,
        A: Future<Output = Answer<V>> + Send + 'static,
    {
        let older = self.kept.get(key).await;
        let fill = async { self.keep(key, ask(Asks::Now).await, older.as_deref()) };
        let entry = self.kept.entry_by_ref(key).or_insert_with_if(fill, is_old).await;
        entry.value().answer.value.clone()
    }

    /// Asks anew although the answer is good, unless it was asked for less than `youth` ago. That time doubles whenever the
    /// answer stays the same. The answer comes later, for who asks then.
    pub async fn doubt<F, A>(&self, key: &K, youth: Duration, ask: F)
    where
        F: FnOnce(Asks) -> A + Send + 'static,
        A: Future<Output = Answer<V>> + Send + 'static,
    {
        let Some(kept) = self.kept.get(key).await else { return };
        let grown = youth.saturating_mul(1 << kept.repeated.min(10));
        if kept.asked.elapsed() >= grown.min(LONGEST_YOUTH.max(youth)) {
            self.ask_anew(key, &kept, ask);
        }
    }

    fn ask_anew<F, A>(&self, key: &K, older: &Arc<Kept<V>>, ask: F)
    where
        F: FnOnce(Asks) -> A + Send + 'static,
        A: Future<Output = Answer<V>> + Send + 'static,
    {
        if older.asking.swap(true, Ordering::Relaxed) {
            return;
        }
        let Ok(place) = Arc::clone(&self.waiting).try_acquire_owned() else {
            older.asking.store(false, Ordering::Relaxed);
            return;
        };
        let (this, key, older) = (self.clone(), key.clone(), Arc::clone(older));
        tokio::spawn(async move {
            // Both are given back when the answer is there; nobody closes them.
            let (_place, _turn) = (place, this.ahead.acquire().await);
            let answer = ask(Asks::Ahead).await;
            let kept = if answer.definite {
                this.keep(&key, answer, Some(&*older))
            } else {
                // The older one stays until its own end, and is asked for again when this one would have been.
                let now = Instant::now();
                Arc::new(Kept {
                    answer: older.answer.clone(),
                    asked: now,
                    fresh_until: now + answer.lifetime,
                    good_until: older.good_until,
                    repeated: older.repeated,
                    asking: AtomicBool::new(false),
                })
            };
            this.kept.insert(key, kept).await;
        });
    }

    /// Lifetimes are spread by half, so that what was asked for at once is not asked for at once again.
    fn keep(&self, key: &K, answer: Answer<V>, older: Option<&Kept<V>>) -> Arc<Kept<V>> {
        let asked = Instant::now();
        let part = self.spread.hash_one((key, asked)) as f64 / u64::MAX as f64;
        let same = older.filter(|older| answer.definite && older.answer.value == answer.value);
        let repeated = same.map_or(0, |older| older.repeated.saturating_add(1));
        let times = repeated.saturating_add(1).min(self.growth);
        let lifetime = answer.lifetime.saturating_mul(times).mul_f64(1.0 - part / 2.0);
        Arc::new(Kept {
            asked,
            fresh_until: asked + lifetime.mul_f64(FRESH),
            good_until: asked + lifetime,
            repeated,
            asking: AtomicBool::new(false),
            answer,
        })
    }
}
