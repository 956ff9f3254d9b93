//! Watches the pods of a workload, and records the smallest number that was ready at any time.

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

/// Watches pods until it is dropped.
pub struct AvailabilityWatch {
    observed: Arc<Mutex<ObservedPods>>,
    task: JoinHandle<()>,
}

/// What the watch has reported.
#[derive(Default)]
struct ObservedPods {
    /// Whether each existing pod is ready, by uid.
    pods: BTreeMap<String, bool>,
    /// The CPU requests over time of every pod seen so far, by uid.
    requests: BTreeMap<String, Vec<String>>,
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
        let requests = self.requests.entry(uid).or_default();
        let now = cpu(pod).unwrap_or_default();
        if requests.last().map(String::as_str) != Some(now) {
            requests.push(now.to_owned());
        }
    }

    fn up(&self) -> usize {
        self.pods.values().filter(|up| **up).count()
    }
}

impl AvailabilityWatch {
    /// Starts watching the pods of this workload, all of which must be ready.
    pub async fn watch(client: Client, namespace: &str, name: &str) -> Self {
        let pods = Api::<Pod>::namespaced(client, namespace);
        let of = watcher::Config::default().labels(&format!("app={name}"));
        let observed: Arc<Mutex<ObservedPods>> = Arc::default();
        let task = tokio::spawn({
            let observed = Arc::clone(&observed);
            async move {
                let mut events = pin!(watcher(pods, of).default_backoff());
                loop {
                    // Ignore errors from an API server that a test stopped: the watch reconnects automatically.
                    if let Ok(event) = events.try_next().await {
                        let Some(event) = event else { return };
                        observed.lock().expect("no panic").apply(event);
                    }
                }
            }
        });
        let availability = Self { observed, task };
        wait::until("the watch sees the pods", || async { availability.lock().least }).await;
        availability
    }

    fn lock(&self) -> MutexGuard<'_, ObservedPods> {
        self.observed.lock().expect("no panic")
    }

    /// Returns how many pods are ready now.
    pub fn up(&self) -> usize {
        self.lock().up()
    }

    /// Returns the smallest number of ready pods so far.
    pub fn min_available(&self) -> usize {
        self.lock().least.unwrap_or_default()
    }

    /// Returns how many pods existed so far.
    pub fn total_pods(&self) -> usize {
        self.lock().requests.len()
    }

    /// Returns the CPU requests over time of every pod seen so far, by uid.
    pub fn requests_over_time(&self) -> BTreeMap<String, Vec<String>> {
        self.lock().requests.clone()
    }

    /// Returns how many of the existing pods request this much CPU.
    pub fn count_with_cpu(&self, cpu: &str) -> usize {
        let observed = self.lock();
        let has = |uid: &&String| observed.requests[*uid].last().is_some_and(|last| last == cpu);
        observed.pods.keys().filter(has).count()
    }

    /// Waits until exactly this many pods exist, all of them ready.
    pub async fn wait_until_available(&self, count: usize) {
        let description = format!("exactly {count} pods exist, all ready");
        wait::until_ok(&description, || async {
            let observed = self.lock();
            let is_so = observed.up() == count && observed.pods.len() == count;
            if is_so { Ok(()) } else { Err(format!("{:?}", observed.pods)) }
        })
        .await;
    }

    /// Waits until this many existing pods request this much CPU.
    pub async fn wait_for_cpu(&self, count: usize, cpu: &str) {
        let description = format!("{count} pods have {cpu}");
        wait::until_ok(&description, || async {
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
