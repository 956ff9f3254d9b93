//! Owns a referee: it follows the pods of a workload version by version, and knows how many were up at the worst moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use tokio::task::JoinHandle;

use super::fixture::cpu;
use crate::support::{hollow_nodes::is_ready, wait};

/// Follows pods until it is dropped.
pub struct AvailabilityWatch {
    told: Arc<Mutex<ObservedPods>>,
    task: JoinHandle<()>,
}

/// What the watch has told.
#[derive(Default)]
struct ObservedPods {
    /// Whether each pod that is there is up, by uid.
    pods: BTreeMap<String, bool>,
    /// The CPU that each pod requested, one value after the other, of all that ever were.
    lives: BTreeMap<String, Vec<String>>,
    listed: BTreeSet<String>,
    least: Option<usize>,
}

impl ObservedPods {
    fn apply(&mut self, event: Event<Pod>) {
        let mut is_whole = true;
        match event {
            Event::Init => {
                self.listed.clear();
                is_whole = false;
            }
            Event::InitApply(pod) => {
                self.listed.insert(pod.uid().expect("set by the server"));
                self.put(&pod);
                is_whole = false;
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.pods.retain(|uid, _| listed.contains(uid));
            }
            Event::Apply(pod) => self.put(&pod),
            Event::Delete(pod) => {
                self.pods.remove(&pod.uid().expect("set by the server"));
            }
        }
        if is_whole {
            let up = self.up();
            self.least = Some(self.least.map_or(up, |least| least.min(up)));
        }
    }

    fn put(&mut self, pod: &Pod) {
        let uid = pod.uid().expect("set by the server");
        self.pods.insert(uid.clone(), is_ready(pod));
        let life = self.lives.entry(uid).or_default();
        let now = cpu(pod).unwrap_or_default();
        if life.last().map(String::as_str) != Some(now) {
            life.push(now.to_owned());
        }
    }

    fn up(&self) -> usize {
        self.pods.values().filter(|up| **up).count()
    }
}

impl AvailabilityWatch {
    /// Begins to follow the pods of this workload, which are all up.
    pub async fn watch(client: Client, namespace: &str, name: &str) -> Self {
        let pods = Api::<Pod>::namespaced(client, namespace);
        let of = watcher::Config::default().labels(&format!("app={name}"));
        let told: Arc<Mutex<ObservedPods>> = Arc::default();
        let task = tokio::spawn({
            let told = Arc::clone(&told);
            async move {
                let mut events = pin!(watcher(pods, of).default_backoff());
                loop {
                    // Errors are those of a server that a test has taken away: the watch goes on by itself.
                    if let Ok(event) = events.try_next().await {
                        let Some(event) = event else { return };
                        told.lock().expect("no panic").apply(event);
                    }
                }
            }
        });
        let referee = Self { told, task };
        wait::until("the referee sees the pods", || async { referee.lock().least }).await;
        referee
    }

    fn lock(&self) -> MutexGuard<'_, ObservedPods> {
        self.told.lock().expect("no panic")
    }

    /// How many are up now.
    pub fn up(&self) -> usize {
        self.lock().up()
    }

    /// How many were up when the fewest were.
    pub fn min_available(&self) -> usize {
        self.lock().least.unwrap_or_default()
    }

    /// How many pods there ever were.
    pub fn total_pods(&self) -> usize {
        self.lock().lives.len()
    }

    /// The CPU that each pod that ever was requested, one value after the other.
    pub fn requests_over_time(&self) -> BTreeMap<String, Vec<String>> {
        self.lock().lives.clone()
    }

    /// How many of those that are there request so much.
    pub fn count_with_cpu(&self, cpu: &str) -> usize {
        let told = self.lock();
        let has = |uid: &&String| told.lives[*uid].last().is_some_and(|last| last == cpu);
        told.pods.keys().filter(has).count()
    }

    /// Waits until so many are up, and no other one is there.
    pub async fn wait_until_available(&self, count: usize) {
        let what = format!("{count} pods are up, and there are no others");
        wait::until_ok(&what, || async {
            let told = self.lock();
            let is_so = told.up() == count && told.pods.len() == count;
            if is_so { Ok(()) } else { Err(format!("{:?}", told.pods)) }
        })
        .await;
    }

    /// Waits until so many that are there request so much.
    pub async fn wait_for_cpu(&self, count: usize, cpu: &str) {
        let what = format!("{count} pods have {cpu}");
        wait::until_ok(&what, || async {
            if self.count_with_cpu(cpu) == count {
                Ok(())
            } else {
                Err(format!("{:?}", self.requests_over_time()))
            }
        })
        .await;
    }
}

impl Drop for AvailabilityWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
