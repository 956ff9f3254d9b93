//! The status queue on a real API server: conflicts, order, slow and failing servers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use plimsoll::cluster::write::stats::{WriteKind, WriteOutcome, WriteStats};
use plimsoll::cluster::{
    leader::Fence,
    write::{
        Permit, RateLimiter, StatusPatch, StatusQueue, StatusSource, UpdateError, VpaWriteResult,
        WriteError, vpa_status::RECOMMENDER_FIELD_MANAGER,
    },
};
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::types::{ObjectKey, Time};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{MINUTE, bed_with_definitions, count, read, vpa};
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::{Testbed, wait};

/// A status source that sets a condition of ours on each VPA and keeps all others.
#[derive(Default)]
struct TestStatusSource {
    known: Mutex<HashMap<ObjectKey, VerticalPodAutoscaler>>,
    outcomes: Mutex<Vec<(ObjectKey, &'static str)>>,
}

const OWN_CONDITION: &str = "RecommendationProvided";

impl TestStatusSource {
    async fn for_vpas(bed: &Testbed, namespace: &str, names: &[String]) -> Arc<Self> {
        let decisions = Self::default();
        for name in names {
            let object = vpa(bed, namespace, name).await;
            let key = ObjectKey::new(namespace, name.as_str());
            decisions.known.lock().expect("no panic").insert(key, object);
        }
        Arc::new(decisions)
    }

    /// Names in the order in which they had this outcome.
    fn names_with_outcome(&self, outcome: &str) -> Vec<String> {
        let outcomes = self.outcomes.lock().expect("no panic");
        let fits = outcomes.iter().filter(|(_, is)| *is == outcome);
        fits.map(|(key, _)| key.name.to_string()).collect()
    }

    fn keys(&self) -> Vec<ObjectKey> {
        let mut keys: Vec<_> = self.known.lock().expect("no panic").keys().cloned().collect();
        keys.sort();
        keys
    }
}

impl StatusSource for TestStatusSource {
    fn next_patch(&self, key: &ObjectKey) -> Option<StatusPatch> {
        let known = self.known.lock().expect("no panic");
        let object = known.get(key)?;
        let status = object.status.clone().unwrap_or_default();
        let mut conditions = status.conditions;
        conditions.retain(|condition| condition.kind != OWN_CONDITION);
        let mut conditions = serde_json::to_value(conditions).expect("JSON");
        let ours = json!({"type": OWN_CONDITION, "status": "True"});
        conditions.as_array_mut().expect("a list").push(ours);
        Some(StatusPatch {
            key: key.clone(),
            resource_version: object.metadata.resource_version.clone()?.into(),
            body: json!({"status": {"conditions": conditions}}),
            field_manager: RECOMMENDER_FIELD_MANAGER,
        })
    }

    fn on_result(&self, key: &ObjectKey, result: &VpaWriteResult) {
        let mut known = self.known.lock().expect("no panic");
        let word = match result {
            Ok(resource_version) => {
                if let Some(object) = known.get_mut(key) {
                    object.metadata.resource_version = Some(resource_version.to_string());
                }
                "written"
            }
            Err(UpdateError::Conflict(object)) => {
                known.insert(key.clone(), (**object).clone());
                "conflict"
            }
            Err(UpdateError::Failed(WriteError::Conflict(_))) => "conflict",
            Err(UpdateError::Failed(WriteError::NotFound)) => {
                known.remove(key);
                "gone"
            }
            Err(UpdateError::Failed(WriteError::NotLeader)) => "fenced",
            Err(UpdateError::Failed(_)) => "failed",
        };
        self.outcomes.lock().expect("no panic").push((key.clone(), word));
    }
}

fn unlimited(fence: Fence) -> Permit {
    Permit::new(fence, RateLimiter::new(-1.0, 1))
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("vpa-{number:03}")).collect()
}

/// Runs a queue until the returned sender is used; the task ends when the queue has stopped.
fn run(outbox: &Arc<StatusQueue>) -> (oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let outbox = outbox.clone();
    let task = tokio::spawn(async move {
        outbox
            .run(async {
                let _ = stopped.await;
            })
            .await;
    });
    (stop, task)
}

async fn wait_until_empty(outbox: &Arc<StatusQueue>) {
    assert_eq!(outbox.drain(Instant::now() + MINUTE).await, 0, "everything is written");
}

fn conditions(object: &VerticalPodAutoscaler) -> Vec<String> {
    let status = object.status.clone().unwrap_or_default();
    let mut kinds: Vec<_> = status.conditions.into_iter().map(|condition| condition.kind).collect();
    kinds.sort();
    kinds
}

/// Another controller adds its own condition correctly: it keeps the existing ones.
async fn foreign_write(client: Client, key: ObjectKey, kind: String) {
    let api = Api::<VerticalPodAutoscaler>::namespaced(client, &key.namespace);
    let object = api.get(&key.name).await.expect("it exists");
    let mut conditions =
        serde_json::to_value(object.status.unwrap_or_default().conditions).expect("JSON");
    conditions.as_array_mut().expect("a list").push(json!({"type": kind, "status": "True"}));
    let body: Value = json!({
        "metadata": {"resourceVersion": object.metadata.resource_version},
        "status": {"conditions": conditions},
    });
    api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(body))
        .await
        .expect("written");
}

#[tokio::test]
async fn conditions_of_others_survive_concurrent_writes() {
    let Some(bed) = bed_with_definitions().await else { return };
    let namespace = bed.namespace("conflicts").await;
    let decisions = TestStatusSource::for_vpas(&bed, &namespace, &names(12)).await;
    let (writes, direct, within) = (Arc::new(AtomicUsize::new(0)), bed.client(), namespace.clone());
    let proxy = ApiProxy::start(bed.client(), move |method, path| {
        let write = writes.fetch_add(usize::from(method == Method::PATCH), Ordering::Relaxed);
        if method != Method::PATCH || write % 2 == 1 {
            return api_proxy::pass_through();
        }
        let name = path.trim_end_matches("/status").rsplit('/').next().expect("a name");
        let key = ObjectKey::new(within.as_str(), name);
        let foreign = foreign_write(direct.clone(), key, format!("Foreign{write}"));
        Box::pin(async move {
            foreign.await;
            None
        })
    })
    .await;
    let stats = Arc::<WriteStats>::default();
    let outbox = StatusQueue::new(
        proxy.client.clone(),
        unlimited(Fence::open()),
        4,
        decisions.clone(),
        Arc::clone(&stats),
    );
    let (stop, task) = run(&outbox);
    for key in decisions.keys() {
        outbox.push(key, None);
    }
    wait_until_empty(&outbox).await;
    let conflicts = decisions.names_with_outcome("conflict").len();
    assert!(conflicts >= 6, "only {conflicts} conflicts");
    assert_eq!(decisions.names_with_outcome("written").len(), 12);
    let mut foreign = 0;
    for key in decisions.keys() {
        let kinds = conditions(&read(&bed, &key).await);
        assert!(kinds.iter().any(|kind| kind == OWN_CONDITION), "{key}: {kinds:?}");
        foreign += kinds.len() - 1;
    }
    assert_eq!(foreign, conflicts, "each foreign condition is still there");
    assert_eq!(count(&stats, WriteKind::Status, WriteOutcome::Code(200)), 12);
    assert_eq!(count(&stats, WriteKind::Status, WriteOutcome::Code(409)), conflicts as u64);
    stop.send(()).expect("it runs");
    task.await.expect("no panic");
}

#[tokio::test]
async fn the_stalest_status_is_written_first_and_deleted_objects_are_dropped() {
    let Some(bed) = bed_with_definitions().await else { return };
    let namespace = bed.namespace("stalest").await;
    let decisions = TestStatusSource::for_vpas(&bed, &namespace, &names(6)).await;
    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), &namespace);
    api.delete("vpa-003", &DeleteParams::default()).await.expect("deleted");
    let outbox = StatusQueue::new(
        bed.client(),
        unlimited(Fence::open()),
        1,
        decisions.clone(),
        Arc::default(),
    );
    for (key, written) in decisions.keys().into_iter().zip([50, 40, 60, 10, 30, 20]) {
        outbox.push(key.clone(), Some(Time::from_secs(written)));
        outbox.push(key, None);
    }
    outbox.push(ObjectKey::new(namespace.as_str(), "nothing-to-write"), None);
    assert_eq!(outbox.len(), 7);
    let (stop, task) = run(&outbox);
    wait_until_empty(&outbox).await;
    assert_eq!(decisions.names_with_outcome("gone"), ["vpa-003"]);
    assert_eq!(
        decisions.names_with_outcome("written"),
        ["vpa-005", "vpa-004", "vpa-001", "vpa-000", "vpa-002"]
    );
    stop.send(()).expect("it runs");
    task.await.expect("no panic");
}

#[tokio::test]
async fn a_slow_write_does_not_block_others_and_a_hanging_server_blocks_none_forever() {
    let Some(bed) = bed_with_definitions().await else { return };
    let namespace = bed.namespace("slow").await;
    let decisions = TestStatusSource::for_vpas(&bed, &namespace, &names(100)).await;
    let hangs = Arc::new(AtomicBool::new(true));
    let deaf = Arc::clone(&hangs);
    let proxy = ApiProxy::start(bed.client(), move |_, path| {
        let slow = path.ends_with("/vpa-000/status") && deaf.load(Ordering::Relaxed);
        if slow { api_proxy::hang() } else { api_proxy::pass_through() }
    })
    .await;
    let stats = Arc::<WriteStats>::default();
    let outbox = StatusQueue::new(
        proxy.client.clone(),
        unlimited(Fence::open()),
        2,
        decisions.clone(),
        Arc::clone(&stats),
    );
    let (stop, task) = run(&outbox);
    for key in decisions.keys() {
        outbox.push(key, None);
    }
    wait::until("all others are written", || async { (outbox.len() == 1).then_some(()) }).await;
    assert_eq!(decisions.names_with_outcome("written").len(), 99);
    assert_eq!(decisions.names_with_outcome("failed").len(), 0, "the slow one is still under way");
    hangs.store(false, Ordering::Relaxed);
    wait_until_empty(&outbox).await;
    assert_eq!(decisions.names_with_outcome("failed"), ["vpa-000"]);
    assert_eq!(count(&stats, WriteKind::Status, WriteOutcome::NoResponse), 1);
    stop.send(()).expect("it runs");
    task.await.expect("no panic");
}

#[tokio::test]
async fn retry_after_pauses_all_workers() {
    let Some(bed) = bed_with_definitions().await else { return };
    let namespace = bed.namespace("busy").await;
    let decisions = TestStatusSource::for_vpas(&bed, &namespace, &names(5)).await;
    let refusals = Arc::new(AtomicUsize::new(0));
    let refused = Arc::clone(&refusals);
    let proxy = ApiProxy::start(bed.client(), move |method, _| {
        let first = method == Method::PATCH && refused.fetch_add(1, Ordering::Relaxed) == 0;
        if first { api_proxy::respond_with(429, Some(2)) } else { api_proxy::pass_through() }
    })
    .await;
    let outbox = StatusQueue::new(
        proxy.client.clone(),
        unlimited(Fence::open()),
        1,
        decisions.clone(),
        Arc::default(),
    );
    for key in decisions.keys() {
        outbox.push(key, None);
    }
    let (stop, task) = run(&outbox);
    wait_until_empty(&outbox).await;
    assert_eq!(decisions.names_with_outcome("written").len(), 5);
    let arrivals = proxy.arrival_times(&Method::PATCH, "/status");
    assert_eq!(arrivals.len(), 6);
    let pause = arrivals[1] - arrivals[0];
    assert!(pause >= Duration::from_millis(1900), "only {pause:?}");
    stop.send(()).expect("it runs");
    task.await.expect("no panic");
}

#[tokio::test]
async fn a_standby_writes_nothing_and_writes_its_queue_once_it_leads() {
    let Some(bed) = bed_with_definitions().await else { return };
    let namespace = bed.namespace("standby").await;
    let decisions = TestStatusSource::for_vpas(&bed, &namespace, &names(10)).await;
    let proxy = ApiProxy::start(bed.client(), |_, _| api_proxy::pass_through()).await;
    let fence = Fence::closed();
    let outbox = StatusQueue::new(
        proxy.client.clone(),
        unlimited(fence.clone()),
        3,
        decisions.clone(),
        Arc::default(),
    );
    let (stop, task) = run(&outbox);
    for key in decisions.keys() {
        outbox.push(key, None);
    }
    let remaining = outbox.drain(Instant::now() + Duration::from_millis(200)).await;
    assert_eq!((remaining, proxy.arrival_times(&Method::PATCH, "/status").len()), (10, 0));
    fence.grant_until(Instant::now() + MINUTE);
    wait_until_empty(&outbox).await;
    assert_eq!(decisions.names_with_outcome("written").len(), 10);
    assert_eq!(proxy.arrival_times(&Method::PATCH, "/status").len(), 10);
    stop.send(()).expect("it runs");
    task.await.expect("no panic");
}
