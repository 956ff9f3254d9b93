//! The agent of the hollow nodes: keeps track of pods and reports their status to the API server.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{NodeStatus, Pod, PodStatus};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use tokio::sync::Semaphore;

use super::behaviour::{Behaviour, ContainerMode, StopBehaviour};
use super::in_place_resize;
use super::pod_lifecycle::{self, StepContext};
use super::pod_processes::PodProcesses;
use super::resource_amounts::ResourceAmounts;
use crate::support::clock::Clock;
use crate::support::control_plane::ControlPlane;

/// Concurrent requests; more would only queue up in the API server.
const AT_ONCE: usize = 16;

/// Maximum attempts if the server is busy, with a pause in between.
const MAX_ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

type Key = (String, String);

/// The state of the nodes.
pub struct Agent {
    client: Client,
    clock: Clock,
    processes: PodProcesses,
    known: Mutex<AgentState>,
    requests: Semaphore,
    addresses: AtomicU32,
}

#[derive(Default)]
struct AgentState {
    pods: BTreeMap<Key, Arc<Pod>>,
    nodes: HashMap<String, ResourceAmounts>,
    rules: Vec<(String, String, Behaviour)>,
    /// Pods that a task is syncing, and whether to sync them again afterwards.
    syncing: HashMap<Key, bool>,
    /// Pods seen during a relist of the watch.
    listed: HashSet<Key>,
}

// === impl Agent ===

impl Agent {
    pub fn new(plane: Weak<ControlPlane>, client: Client, clock: Clock) -> Self {
        Self {
            processes: PodProcesses::new(plane, client.clone()),
            client,
            clock,
            known: Mutex::default(),
            requests: Semaphore::new(AT_ONCE),
            addresses: AtomicU32::new(1),
        }
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn add_node(&self, name: &str, status: &NodeStatus) {
        self.lock().nodes.insert(name.to_owned(), ResourceAmounts::of(status.allocatable.as_ref()));
    }

    pub fn add_rule(self: &Arc<Self>, namespace: &str, prefix: &str, behaviour: Behaviour) {
        let mut known = self.lock();
        known.rules.retain(|(of, with, _)| (of.as_str(), with.as_str()) != (namespace, prefix));
        known.rules.push((namespace.to_owned(), prefix.to_owned(), behaviour));
        let keys: Vec<_> = known.pods.keys().filter(|(of, _)| of == namespace).cloned().collect();
        drop(known);
        for key in keys {
            self.schedule_sync(key);
        }
    }

    pub fn find_pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.lock().pods.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub fn pods_with_prefix(&self, namespace: &str, prefix: &str) -> Vec<Pod> {
        let known = self.lock();
        let wanted =
            known.pods.iter().filter(|((of, name), _)| of == namespace && name.starts_with(prefix));
        wanted.map(|(_, pod)| Pod::clone(pod)).collect()
    }

    pub fn all(&self) -> Vec<Pod> {
        self.lock().pods.values().map(|pod| Pod::clone(pod)).collect()
    }

    pub fn log(&self, pod: &Pod, container: &str) -> String {
        self.processes.log(pod, container)
    }

    pub fn port(&self, pod: &Pod, container: &str, variable: &str) -> Option<u16> {
        self.processes.port(pod, container, variable)
    }

    /// Follows all pods that are bound to a node, as long as the testbed exists.
    pub async fn watch(self: Arc<Self>) {
        let bound = watcher::Config::default().fields("spec.nodeName!=");
        let mut events =
            std::pin::pin!(watcher(Api::<Pod>::all(self.client()), bound).default_backoff());
        loop {
            // A test may have stopped the API server: the watch retries automatically.
            if let Ok(event) = events.try_next().await {
                let Some(event) = event else { return };
                self.observe(event);
            }
        }
    }

    fn observe(self: &Arc<Self>, event: Event<Pod>) {
        let mut changed = Vec::new();
        let mut known = self.lock();
        match event {
            Event::Init => known.listed.clear(),
            Event::InitApply(pod) => {
                known.listed.insert(key(&pod));
                changed.push(key(&pod));
                known.pods.insert(key(&pod), Arc::new(pod));
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut known.listed);
                known.pods.retain(|key, _| listed.contains(key));
            }
            Event::Apply(pod) => {
                changed.push(key(&pod));
                known.pods.insert(key(&pod), Arc::new(pod));
            }
            Event::Delete(pod) => {
                known.pods.remove(&key(&pod));
                // Its resources are free now, so a deferred resize may fit. Checking all other pods would be
                // quadratic in a storm.
                let node = node(&pod);
                let waits =
                    |other: &Pod| self::node(other) == node && in_place_resize::is_pending(other);
                let neighbours = known.pods.iter().filter(|(_, other)| waits(other));
                changed.extend(neighbours.map(|(key, _)| key.clone()));
            }
        }
        drop(known);
        for key in changed {
            self.schedule_sync(key);
        }
    }

    /// Schedules a sync of the pod; never two at once for the same pod.
    fn schedule_sync(self: &Arc<Self>, key: Key) {
        // Checked and inserted under one lock, or two concurrent callers would both start a task.
        match self.lock().syncing.entry(key.clone()) {
            Entry::Occupied(mut busy) => {
                busy.insert(true);
                return;
            }
            Entry::Vacant(free) => free.insert(false),
        };
        let agent = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                agent.sync_pod(&key).await;
                let mut known = agent.lock();
                match known.syncing.get_mut(&key) {
                    Some(again) if *again => *again = false,
                    _ => {
                        known.syncing.remove(&key);
                        return;
                    }
                }
            }
        });
    }

    async fn sync_pod(self: &Arc<Self>, key: &Key) {
        let Some((pod, context)) = self.step_context(key) else { return };
        if pod.metadata.deletion_timestamp.is_some() {
            if context.behaviour.stop == StopBehaviour::AtOnce {
                self.processes.stop(&pod).await;
                self.remove(&pod).await;
            }
            return;
        }
        let Some((status, begun)) = pod_lifecycle::next_status(&pod, &context) else { return };
        if !self.write(&pod, status).await {
            return;
        }
        if let ContainerMode::Process { entry_point, environment } = &context.behaviour.run {
            for (container, run) in begun {
                self.processes.start(&pod, &container, run, entry_point, environment).await;
                tokio::spawn(Arc::clone(self).end_with_process(Arc::clone(&pod), container, run));
            }
        }
    }

    fn step_context(&self, key: &Key) -> Option<(Arc<Pod>, StepContext)> {
        let known = self.lock();
        let pod = known.pods.get(key)?;
        let room = *known.nodes.get(node(pod)?)?;
        let others = known.pods.iter().filter(|(other, _)| *other != key).map(|(_, other)| other);
        let taken = others
            .filter(|other| node(other) == node(pod) && !is_terminal(other))
            .map(|other| ResourceAmounts::allocated(other))
            .fold(ResourceAmounts::default(), std::ops::Add::add);
        let rule = known
            .rules
            .iter()
            .rev()
            .find(|(of, prefix, _)| *of == key.0 && key.1.starts_with(prefix));
        let behaviour = rule.map(|(_, _, behaviour)| behaviour.clone()).unwrap_or_default();
        let number = self.addresses.fetch_add(1, Ordering::Relaxed);
        let address = behaviour
            .address
            .clone()
            .unwrap_or_else(|| format!("10.244.{}.{}", number / 250 % 250, number % 250 + 1));
        let now = self.clock.now();
        Some((
            Arc::clone(pod),
            StepContext { behaviour, allocatable: room, free: room - taken, address, now },
        ))
    }

    /// Writes the status; returns whether it was accepted. A conflict is fine: the watch will deliver the newer pod.
    async fn write(&self, pod: &Pod, status: PodStatus) -> bool {
        let _permit = self.requests.acquire().await.expect("never closed");
        let api = Api::<Pod>::namespaced(self.client(), &pod.namespace().unwrap_or_default());
        let changed = Pod { status: Some(status), ..pod.clone() };
        let (name, plain) = (pod.name_any(), PostParams::default());
        let stored = retry_while_busy(|| api.replace_status(&name, &plain, &changed)).await;
        let Some(stored) = stored else { return false };
        // Stored at once, so that the next sync does not start from the old status. The watch may have been faster.
        let mut known = self.lock();
        if let Some(found) = known.pods.get_mut(&key(&stored))
            && found.metadata.resource_version == pod.metadata.resource_version
        {
            *found = Arc::new(stored);
        }
        true
    }

    async fn remove(&self, pod: &Pod) {
        let _permit = self.requests.acquire().await.expect("never closed");
        let api = Api::<Pod>::namespaced(self.client(), &pod.namespace().unwrap_or_default());
        let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
        let at_once = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        // The pod is already gone.
        let name = pod.name_any();
        retry_while_busy(|| api.delete(&name, &at_once)).await;
    }

    pub async fn end(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        exit_code: i32,
        reason: &str,
    ) {
        let api = Api::<Pod>::namespaced(self.client(), namespace);
        super::wait::until(
            &format!("container {container} of pod {pod} runs and is ended"),
            || async {
                let pod = api.get(pod).await.ok()?;
                self.end_run(&pod, container, None, exit_code, reason).await.then_some(())
            },
        )
        .await;
    }

    /// Reports how a process ended, when it ends.
    async fn end_with_process(self: Arc<Self>, pod: Arc<Pod>, container: String, run: i32) {
        let Some(exit_code) = self.processes.exit_code(&pod, &container, run).await else { return };
        let reason = if exit_code == 0 { "Completed" } else { "Error" };
        let api = Api::<Pod>::namespaced(self.client(), &pod.namespace().unwrap_or_default());
        super::wait::until("the end of a process is reported", || async {
            match api.get_opt(&pod.name_any()).await {
                Ok(Some(now)) if now.uid() == pod.uid() => {
                    self.end_run(&now, &container, Some(run), exit_code, reason).await.then_some(())
                }
                Ok(_) => Some(()),
                Err(_) => None,
            }
        })
        .await;
    }

    async fn end_run(
        &self,
        pod: &Pod,
        container: &str,
        run: Option<i32>,
        exit_code: i32,
        reason: &str,
    ) -> bool {
        let mut status = pod.status.clone().unwrap_or_default();
        let statuses =
            status.init_container_statuses.iter_mut().chain(&mut status.container_statuses);
        let found = statuses.flatten().find(|found| {
            found.name == container && run.is_none_or(|run| run == found.restart_count)
        });
        let ended = found
            .is_some_and(|found| pod_lifecycle::end(found, exit_code, reason, self.clock.now()));
        ended && self.write(pod, status).await
    }

    fn lock(&self) -> MutexGuard<'_, AgentState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").finish_non_exhaustive()
    }
}

/// Retries while the server is busy, as a kubelet does. Returns `None` if the request is rejected or the server stays
/// away.
async fn retry_while_busy<T, F: Future<Output = kube::Result<T>>>(
    ask: impl Fn() -> F,
) -> Option<T> {
    for _ in 0..MAX_ATTEMPTS {
        match ask().await {
            Ok(done) => return Some(done),
            Err(kube::Error::Api(refusal)) if (400..429).contains(&refusal.code) => return None,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    None
}

fn key(pod: &Pod) -> Key {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
