//! The age of written objects, as observed by a watch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use tokio::task::JoinHandle;

/// The API server omits everything else.
type Metadata = PartialObjectMeta<DynamicObject>;

/// Watches one kind of object until it is dropped.
#[derive(Debug)]
pub struct WriteAges {
    begun: Instant,
    known: Arc<Mutex<Known>>,
    watch: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Known {
    objects: HashMap<String, WriteTimes>,
    awaited: HashMap<String, Option<Instant>>,
    since: Option<Instant>,
    writes: u64,
    is_complete: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct WriteTimes {
    first: Option<Instant>,
    last: Option<Instant>,
    /// Longest time between two writes.
    longest: Duration,
}

/// A summary of the observations.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Number of objects that were never written.
    pub never: usize,
    /// When the last object was written for the first time.
    pub first: Duration,
    /// Maximum age of all objects after their first write.
    pub oldest: Duration,
    /// Median of the objects' maximum ages.
    pub usual: Duration,
    /// Share of the objects that are younger than a minute at the end.
    pub fresh: f64,
    pub writes: u64,
    /// The slowest of the awaited writes; `None` if one is missing.
    pub awaited: Option<Duration>,
}

// === impl WriteAges ===

impl WriteAges {
    /// Starts watching once the initial list is complete.
    pub async fn watch(client: Client, kind: &str, expected: impl Iterator<Item = String>) -> Self {
        let known = Arc::new(Mutex::new(Known {
            objects: expected.map(|name| (name, WriteTimes::default())).collect(),
            ..Known::default()
        }));
        let kind = GroupVersionKind::gvk("autoscaling.k8s.io", "v1", kind);
        let api = Api::<Metadata>::all_with(client, &ApiResource::from_gvk(&kind));
        let watch = tokio::spawn(follow(api, Arc::clone(&known)));
        while !lock(&known).is_complete {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Self { begun: Instant::now(), known, watch }
    }

    /// From now on, waits for the next write of each of these.
    pub fn await_writes(&self, names: &[String]) {
        let mut known = lock(&self.known);
        known.awaited = names.iter().map(|name| (name.clone(), None)).collect();
        known.since = Some(Instant::now());
    }

    /// A summary so far.
    pub fn summary(&self) -> Summary {
        let known = lock(&self.known);
        let now = Instant::now();
        let written = || known.objects.values().filter(|object| object.last.is_some());
        let mut ages: Vec<_> = written()
            .map(|object| object.longest.max(object.last.map_or(Duration::ZERO, |last| now - last)))
            .collect();
        ages.sort_unstable();
        let fresh = |object: &&WriteTimes| {
            object.last.is_some_and(|last| now - last <= Duration::from_mins(1))
        };
        let delay = |at: &Option<Instant>| Some((*at)? - known.since?);
        let slowest = known.awaited.values().map(delay).collect::<Option<Vec<_>>>();
        Summary {
            never: known.objects.len() - ages.len(),
            first: written()
                .filter_map(|object| object.first)
                .max()
                .map_or(Duration::ZERO, |first| first - self.begun),
            oldest: ages.last().copied().unwrap_or_default(),
            usual: ages.get(ages.len() / 2).copied().unwrap_or_default(),
            fresh: written().filter(fresh).count() as f64 / known.objects.len().max(1) as f64,
            writes: known.writes,
            awaited: slowest.and_then(|delays| delays.into_iter().max()),
        }
    }
}

impl Drop for WriteAges {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

async fn follow(api: Api<Metadata>, known: Arc<Mutex<Known>>) {
    let mut events = std::pin::pin!(watcher(api, Config::default()).default_backoff());
    loop {
        match events.try_next().await {
            Ok(Some(Event::Apply(object))) => {
                let name =
                    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
                lock(&known).note(&name, Instant::now());
            }
            Ok(Some(Event::InitDone)) => lock(&known).is_complete = true,
            Ok(None) => return,
            // The watch retries automatically.
            Ok(Some(_)) | Err(_) => {}
        }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Known ===

impl Known {
    fn note(&mut self, name: &str, now: Instant) {
        self.writes += 1;
        if let Some(awaited) = self.awaited.get_mut(name) {
            awaited.get_or_insert(now);
        }
        let Some(object) = self.objects.get_mut(name) else { return };
        object.first.get_or_insert(now);
        if let Some(last) = object.last.replace(now) {
            object.longest = object.longest.max(now - last);
        }
    }
}
