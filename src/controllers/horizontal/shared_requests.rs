//! Requests whose response several objects need. Each is a task of its own that all of them share.
//!
//! ```text
//!   reconcile ─▶ prepare ─▶ response of this period ──────────────────────────────▶ decide
//!                   └─▶ request in flight ─▶ response within WAIT ────────────────▶ decide
//!                                 │      └─▶ none: the reconcile ends ◀─ objects ─┐
//!                                 └─▶ response, or error ─────────────────────────┘
//! ```
//!
//! So a server that does not respond occupies no worker: the objects that need it are reconciled again when the request has
//! ended. Those that have waited for a period are decided without the response, as other metrics may ask for more.

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    hash::Hash,
    mem::take,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use plimsoll_core::types::ObjectKey;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, timeout_at},
};

/// How long after the start of a request reconciles wait for its response. No reconcile waits for a request that took longer
/// the last time.
const WAIT: Duration = Duration::from_millis(250);
/// Objects wait at least this long before they are decided without a response, even if the period is shorter.
const MIN_OVERDUE: Duration = Duration::from_secs(5);
/// A response is removed after this many periods without a newer one.
const KEPT_PERIODS: u32 = 2;
/// A response is used until this part of a period before the end of the period that began with its request: the next
/// reconcile of the same object may be a little earlier within its period than this one, and is to have a newer response.
const REUSE_DIVISOR: u32 = 16;
/// A response that arrived late is used for this part of a period.
const LATE_REUSE_DIVISOR: u32 = 2;

/// The objects that can be decided since their requests have ended.
#[derive(Debug, Default)]
pub(super) struct ReadyObjects {
    objects: Mutex<BTreeSet<ObjectKey>>,
    changed: Notify,
}

impl ReadyObjects {
    /// The next objects. For one caller at a time.
    pub async fn next(&self) -> BTreeSet<ObjectKey> {
        loop {
            let objects = take(&mut *self.objects.lock());
            if !objects.is_empty() {
                return objects;
            }
            self.changed.notified().await;
        }
    }

    fn add(&self, objects: BTreeSet<ObjectKey>) {
        self.objects.lock().extend(objects);
        self.changed.notify_one();
    }
}

/// The newest response for each key, which is requested once per period.
pub(super) struct SharedRequests<K, T>(Arc<Shared<K, T>>);

struct Shared<K, T> {
    period: Duration,
    ready: Arc<ReadyObjects>,
    slots: Mutex<Slots<K, T>>,
}

struct Slots<K, T> {
    by_key: HashMap<K, Slot<T>>,
    swept_at: Instant,
}

struct Slot<T> {
    received: Option<Received<T>>,
    in_flight: Option<InFlight>,
    /// Whether the last request took longer than [`WAIT`].
    is_slow: bool,
}

type Response<T> = Result<Arc<T>, String>;

struct Received<T> {
    response: Response<T>,
    /// Until then no other request is sent.
    fresh_until: Instant,
    kept_until: Instant,
}

struct InFlight {
    since: Instant,
    /// Closed when the request has ended.
    ended: watch::Receiver<()>,
    /// The objects that are reconciled again when it has ended.
    objects: BTreeSet<ObjectKey>,
    /// Aborts the request if it is dropped before.
    _task: JoinSet<()>,
}

impl<K, T> SharedRequests<K, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    /// Responses that are requested again after a period. Objects that waited for one are added to `ready`.
    pub fn new(period: Duration, ready: Arc<ReadyObjects>) -> Self {
        let slots = Slots { by_key: HashMap::new(), swept_at: Instant::now() };
        Self(Arc::new(Shared { period, ready, slots: Mutex::new(slots) }))
    }

    /// Sends the request unless a response of this period is there or a request is in flight, and waits a short time for the
    /// response. Returns whether the object can be decided with [`Self::response`]; if not, it is among the ready objects
    /// when the request has ended.
    pub async fn prepare<F>(&self, key: &K, object: &ObjectKey, request: impl FnOnce() -> F) -> bool
    where
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        let (mut ended, wait_until) = {
            let mut slots = self.0.slots.lock();
            let slot = slots.by_key.entry(key.clone()).or_default();
            if slot.is_fresh() {
                return true;
            }
            // A task that has ended without a result has panicked.
            slot.in_flight.take_if(|request| request.ended.has_changed().is_err());
            let in_flight = slot.in_flight.get_or_insert_with(|| self.0.start(key, request()));
            let wait = if slot.is_slow { Duration::ZERO } else { WAIT };
            (in_flight.ended.clone(), in_flight.since + wait)
        };
        if wait_until > Instant::now() {
            // Without a response in time, the object is reconciled again.
            let _ = timeout_at(wait_until, ended.changed()).await;
        }
        self.0.is_decidable(key, object)
    }

    /// The last response, or why there is none.
    pub fn response(&self, key: &K) -> Response<T> {
        let slots = self.0.slots.lock();
        let Some(slot) = slots.by_key.get(key) else { return Err("it was not requested".into()) };
        if slot.is_overdue(self.0.overdue_after()) {
            return Err(format!("no response within {:?}", self.0.overdue_after()));
        }
        match &slot.received {
            Some(received) if received.response.is_err() || slot.is_kept() => {
                received.response.clone()
            }
            _ => Err("there is no response yet".into()),
        }
    }
}

impl<K, T> Shared<K, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    fn start(
        self: &Arc<Self>,
        key: &K,
        request: impl Future<Output = Result<T, String>> + Send + 'static,
    ) -> InFlight {
        // If the requests are dropped, no caller is left to respond to.
        let (shared, key) = (Arc::downgrade(self), key.clone());
        let (sender, ended) = watch::channel(());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let response = request.await;
            if let Some(shared) = shared.upgrade() {
                shared.finish(&key, response);
            }
            drop(sender);
        });
        InFlight { since: Instant::now(), ended, objects: BTreeSet::new(), _task: task }
    }

    fn finish(&self, key: &K, response: Result<T, String>) {
        let mut slots = self.slots.lock();
        let (now, period) = (Instant::now(), self.period);
        let slot = slots.by_key.entry(key.clone()).or_default();
        let ended = slot.in_flight.take();
        let since = ended.as_ref().map_or(now, |request| request.since);
        slot.is_slow = now - since > WAIT;
        slot.received = Some(Received {
            response: response.map(Arc::new),
            fresh_until: (since + period - period / REUSE_DIVISOR)
                .max(now + period / LATE_REUSE_DIVISOR),
            kept_until: now + period * KEPT_PERIODS,
        });
        if now - slots.swept_at >= period {
            slots.swept_at = now;
            slots.by_key.retain(|_, slot| slot.in_flight.is_some() || slot.is_kept());
        }
        drop(slots);
        if let Some(request) = ended {
            self.ready.add(request.objects);
        }
    }

    /// After this, objects do not wait for a response any longer.
    fn overdue_after(&self) -> Duration {
        self.period.max(MIN_OVERDUE)
    }

    fn is_decidable(&self, key: &K, object: &ObjectKey) -> bool {
        let mut slots = self.slots.lock();
        let Some(slot) = slots.by_key.get_mut(key) else { return true };
        let is_overdue = slot.is_overdue(self.overdue_after());
        let has_failed = slot.received.as_ref().is_some_and(|last| last.response.is_err());
        let Some(request) = &mut slot.in_flight else { return true };
        request.objects.insert(object.clone());
        is_overdue || has_failed
    }
}

impl<T> Slot<T> {
    /// Whether the last response is of this period.
    fn is_fresh(&self) -> bool {
        self.received.as_ref().is_some_and(|last| Instant::now() < last.fresh_until)
    }

    fn is_kept(&self) -> bool {
        self.received.as_ref().is_some_and(|last| Instant::now() < last.kept_until)
    }

    /// Whether the request in flight has taken for as long as `age`.
    fn is_overdue(&self, age: Duration) -> bool {
        self.in_flight.as_ref().is_some_and(|request| request.since.elapsed() >= age)
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { received: None, in_flight: None, is_slow: false }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use tokio::time::{advance, sleep, timeout};

    use super::*;

    const PERIOD: Duration = Duration::from_secs(15);

    fn object(number: usize) -> ObjectKey {
        ObjectKey::new("shop", format!("web-{number}"))
    }

    fn requests() -> (SharedRequests<&'static str, u32>, Arc<ReadyObjects>) {
        let ready = Arc::<ReadyObjects>::default();
        (SharedRequests::new(PERIOD, Arc::clone(&ready)), ready)
    }

    async fn responds_after(seconds: u64, response: Result<u32, &str>) -> Result<u32, String> {
        let response = response.map_err(str::to_owned);
        sleep(Duration::from_secs(seconds)).await;
        response
    }

    #[tokio::test(start_paused = true)]
    async fn objects_of_a_namespace_that_hangs_wait_for_one_request_and_only_once() {
        let (requests, ready) = requests();
        let (sent, began) = (AtomicUsize::new(0), Instant::now());
        // As one worker does it.
        for number in 0..1000 {
            let request = || {
                sent.fetch_add(1, Ordering::Relaxed);
                responds_after(30, Err("timeout"))
            };
            assert!(!requests.prepare(&"shop", &object(number), request).await);
        }
        assert_eq!((sent.load(Ordering::Relaxed), began.elapsed()), (1, WAIT));
        assert!(requests.prepare(&"api", &object(0), || responds_after(0, Ok(7))).await);
        assert_eq!(requests.response(&"api"), Ok(Arc::new(7)), "another namespace does not wait");

        // After a period they are decided without it.
        advance(PERIOD).await;
        let unsent = || async { unreachable!("a request is in flight") };
        assert!(requests.prepare(&"shop", &object(0), unsent).await);
        assert_eq!(requests.response(&"shop"), Err("no response within 15s".to_owned()));
        let waited = ready.next().await;
        assert_eq!((waited.len(), began.elapsed().as_secs()), (1000, 30));
        assert_eq!(requests.response(&"shop"), Err("timeout".to_owned()));
        timeout(PERIOD, ready.next()).await.expect_err("each is ready once");

        // The next request does not hold back a decision, as the last one failed. No reconcile waits for it.
        let before = Instant::now();
        assert!(requests.prepare(&"shop", &object(1), || responds_after(30, Ok(1))).await);
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert_eq!(requests.response(&"shop"), Err("timeout".to_owned()));
        assert_eq!(ready.next().await, BTreeSet::from([object(1)]), "it has recovered");
        assert_eq!(requests.response(&"shop"), Ok(Arc::new(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_is_used_for_a_period_and_never_after_a_later_request_hangs() {
        let (requests, ready) = requests();
        let unsent = || async { unreachable!("the response is of this period") };
        assert!(requests.prepare(&"shop", &object(0), || async { Ok(1) }).await);
        advance(Duration::from_secs(14)).await;
        assert!(requests.prepare(&"shop", &object(1), unsent).await);
        assert_eq!(requests.response(&"shop"), Ok(Arc::new(1)));
        advance(Duration::from_secs(1)).await;
        let requester = Arc::new(());
        let held = Arc::clone(&requester);
        let hangs = async move {
            let response = pending().await;
            drop(held);
            response
        };
        assert!(!requests.prepare(&"shop", &object(1), || hangs).await);
        advance(PERIOD).await;
        let unsent = || async { unreachable!("a request is in flight") };
        assert!(requests.prepare(&"shop", &object(1), unsent).await);
        assert_eq!(requests.response(&"shop"), Err("no response within 15s".to_owned()));
        assert_eq!(Arc::strong_count(&requester), 2);
        drop(requests);
        while Arc::strong_count(&requester) > 1 {
            tokio::task::yield_now().await;
        }
        assert!(ready.objects.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn each_reconcile_of_an_object_has_a_newer_response_although_it_is_not_a_period_later_to_the_millisecond()
     {
        let (requests, _) = requests();
        for (number, pause) in [14_990, 15_020, 14_995].into_iter().enumerate() {
            let number = u32::try_from(number).expect("a few");
            let respond = || async move {
                sleep(Duration::from_millis(100)).await;
                Ok(number)
            };
            assert!(requests.prepare(&"shop", &object(0), respond).await);
            assert_eq!(requests.response(&"shop"), Ok(Arc::new(number)));
            advance(Duration::from_millis(pause - 100)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_takes_more_than_a_period_is_used_when_it_arrives() {
        let (requests, ready) = requests();
        assert!(!requests.prepare(&"shop", &object(0), || responds_after(20, Ok(1))).await);
        ready.next().await;
        let unsent = || async { unreachable!("there is a response") };
        assert!(requests.prepare(&"shop", &object(0), unsent).await);
        assert_eq!(requests.response(&"shop"), Ok(Arc::new(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_namespace_is_decided_when_its_response_arrives() {
        let (requests, ready) = requests();
        for number in 0..4 {
            let began = Instant::now();
            let respond = || responds_after(5, Ok(number));
            assert!(!requests.prepare(&"shop", &object(0), respond).await);
            // It is known to be slow after the first one.
            assert_eq!(began.elapsed(), if number == 0 { WAIT } else { Duration::ZERO });
            assert_eq!(ready.next().await, BTreeSet::from([object(0)]));
            assert_eq!(began.elapsed(), Duration::from_secs(5));
            assert_eq!(requests.response(&"shop"), Ok(Arc::new(number)));
            advance(PERIOD).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn responses_of_namespaces_without_objects_are_removed() {
        let (requests, _) = requests();
        for namespace in ["a", "b", "c"] {
            assert!(requests.prepare(&namespace, &object(0), || async { Ok(1) }).await);
        }
        advance(PERIOD * KEPT_PERIODS).await;
        assert!(requests.prepare(&"c", &object(0), || async { Ok(2) }).await);
        assert_eq!(requests.0.slots.lock().by_key.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_panics_is_sent_again() {
        let (requests, _) = requests();
        let panics = || async { panic!("of the client") };
        assert!(!requests.prepare(&"shop", &object(0), panics).await);
        assert!(requests.prepare(&"shop", &object(0), || async { Ok(3) }).await);
        assert_eq!(requests.response(&"shop"), Ok(Arc::new(3)));
    }
}
