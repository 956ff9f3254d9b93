//! Runs an updater in this process on one namespace of a testbed, and creates its workloads.

use std::{collections::BTreeSet, path::Path};

use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use plimsoll::controllers;
use plimsoll::{
    cli::updater_config,
    cluster::clock::Clock,
    controllers::{UpdaterConfig, updater::UpdaterHandle},
};
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    updater::{
        DisruptionBudget,
        guard::{BudgetKind, disruption_budget},
    },
};
use serde_json::{Value, json};

use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed, clock::wall_now, hollow_nodes::is_ready, http_get::http_get, manifests,
        role_process::RoleProcess, wait,
    },
};

pub use crate::support::http_get::metric_sum;

/// The shortest passes possible, for workloads without a cooldown.
pub const FAST_FLAGS: &[&str] = &[
    "--updater-interval=300ms",
    "--cool-down=0",
    "--canary-watch=0",
    // A disruption that was recorded but never made would delay the others for 15 minutes.
    "--max-unproven-evictions=0",
];

/// Returns the shared testbed with the CRDs, and a namespace for this test.
pub async fn testbed_and_namespace(name: &str) -> Option<(Testbed, String)> {
    let bed = Testbed::shared().await.filter(Testbed::has_controllers)?;
    create_definitions(&bed).await;
    let namespace = bed.namespace(name).await;
    Some((bed, namespace))
}

/// Flags that every updater of a test needs: it watches one namespace, has its Leases there, and requires no webhook.
pub fn flags(namespace: &str, more: &[&str]) -> Vec<String> {
    let mut flags = vec![
        "--address=127.0.0.1:0".to_owned(),
        "--updater-interval=500ms".to_owned(),
        "--use-admission-controller-status=false".to_owned(),
        format!("--vpa-object-namespace={namespace}"),
        format!("--leader-elect-resource-namespace={namespace}"),
        format!("--recommender-heartbeat-namespace={namespace}"),
        format!("--horizontal-lease-namespace={namespace}"),
    ];
    flags.extend(more.iter().map(ToString::to_string));
    flags
}

/// Starts an updater.
pub async fn start(client: Client, namespace: &str, more: &[&str]) -> UpdaterHandle {
    start_with(client, namespace, more, Clock::wall(), |_| {}).await
}

/// Like [`start`], with another clock and an adjusted configuration.
pub async fn start_with(
    client: Client,
    namespace: &str,
    more: &[&str],
    clock: Clock,
    adjust: impl FnOnce(&mut UpdaterConfig),
) -> UpdaterHandle {
    let flags = flags(namespace, more);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut config = updater_config(&flags, |_| String::new()).expect("valid flags");
    adjust(&mut config);
    controllers::start(config, client, clock).await.expect("starts")
}

/// Starts an updater as a process, with a name that is unique on that testbed.
pub fn start_process(
    bed: &Testbed,
    name: &str,
    namespace: &str,
    kubeconfig: &Path,
    more: &[&str],
) -> RoleProcess {
    RoleProcess::start(bed, &format!("{name}-of-{namespace}"), &[], |port| {
        let mut arguments = vec!["updater".to_owned()];
        arguments.extend(flags(namespace, more));
        // The last value counts.
        arguments.push(format!("--address=127.0.0.1:{port}"));
        arguments.push(format!("--kubeconfig={}", kubeconfig.display()));
        arguments
    })
}

/// Waits until a process has made this many more passes; only the leader makes passes.
pub async fn wait_for_passes_of(process: &RoleProcess, more: u32) {
    let passes = "vpa_updater_execution_latency_seconds_count";
    process.wait_for_increase(passes, &["step=\"total\""], more).await;
}

/// Creates a Deployment and waits until its pods are ready.
pub async fn deployment(bed: &Testbed, namespace: &str, name: &str, replicas: u32) {
    let yaml = manifests::deployment(name, replicas, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), namespace, &yaml).await;
    wait_for_ready_pods(bed, namespace, name, replicas as usize).await;
}

/// Waits until a workload has this many ready pods, and returns them.
pub async fn wait_for_ready_pods(
    bed: &Testbed,
    namespace: &str,
    name: &str,
    replicas: usize,
) -> Vec<Pod> {
    wait::until("its pods are ready", || async {
        let pods = pods(&bed.client(), namespace, name).await;
        let is_up = |pod: &&Pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none();
        (pods.iter().filter(is_up).count() == replicas).then_some(pods)
    })
    .await
}

/// Waits until the pods of a workload are older than this many seconds. Pods younger than the tolerated clock skew cannot be
/// distinguished from replacement pods.
pub async fn wait_for_age(bed: &Testbed, namespace: &str, name: &str, seconds: i64) {
    wait::until("its pods are old enough", || async {
        let pods = pods(&bed.client(), namespace, name).await;
        let created = |pod: &Pod| Some(pod.metadata.creation_timestamp.as_ref()?.0);
        let age = |pod: &Pod| Some(wall_now().duration_since(created(pod)?).as_secs());
        let is_old = |pod: &Pod| age(pod).is_some_and(|age| age > seconds);
        pods.iter().all(is_old).then_some(())
    })
    .await;
}

/// Returns the pods of a workload.
pub async fn pods(client: &Client, namespace: &str, name: &str) -> Vec<Pod> {
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    let of = ListParams::default().labels(&format!("app={name}"));
    api.list(&of).await.expect("a list").items
}

pub fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(ResourceExt::uid).collect()
}

/// Creates a VPA of a Deployment, with this mode and a recommendation of this much CPU.
pub async fn vpa(bed: &Testbed, namespace: &str, name: &str, mode: &str, cpu: &str) {
    vpa_with(bed, namespace, name, json!({"updatePolicy": {"updateMode": mode}}), cpu).await;
}

/// Like [`vpa`], with a given spec.
pub async fn vpa_with(bed: &Testbed, namespace: &str, name: &str, spec: Value, cpu: &str) {
    let mut object = json!({
        "metadata": {"name": name},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
    });
    let fields = spec.as_object().expect("fields").clone();
    object["spec"].as_object_mut().expect("fields").extend(fields);
    let yaml = serde_json::to_string(&object).expect("JSON is YAML");
    manifests::create::<VerticalPodAutoscaler>(bed.client(), namespace, &yaml).await;
    recommend(bed, namespace, name, cpu).await;
}

/// Sets the recommendation to this much CPU.
pub async fn recommend(bed: &Testbed, namespace: &str, name: &str, cpu: &str) {
    let amounts = |cpu: &str| json!({"cpu": cpu, "memory": "64Mi"});
    let recommendations = json!([{
        "containerName": "main", "target": amounts(cpu),
        "lowerBound": amounts(cpu), "upperBound": {"cpu": "4", "memory": "1Gi"},
    }]);
    let status =
        json!({"status": {"recommendation": {"containerRecommendations": recommendations}}});
    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let patch = Patch::Merge(&status);
    api.patch_status(name, &PatchParams::default(), &patch).await.expect("valid status");
}

/// Changes the mode of a VPA.
pub async fn set_mode(bed: &Testbed, namespace: &str, name: &str, mode: &str) {
    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let spec = json!({"spec": {"updatePolicy": {"updateMode": mode}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&spec)).await.expect("valid mode");
}

/// Reads the VPA.
pub async fn read(bed: &Testbed, namespace: &str, name: &str) -> VerticalPodAutoscaler {
    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    api.get(name).await.expect("exists")
}

/// Returns status and reason of the condition that reports paused updates.
pub fn blocked_condition(vpa: &VerticalPodAutoscaler) -> Option<(String, String)> {
    let conditions = &vpa.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.kind == "UpdatesHeldBack")?;
    Some((found.status.clone(), found.reason.clone()))
}

/// Waits until updates are paused for this reason.
pub async fn wait_until_blocked_by(bed: &Testbed, namespace: &str, name: &str, reason: &str) {
    wait::until("updates are paused", || async {
        let held = blocked_condition(&read(bed, namespace, name).await);
        held.filter(|(status, found)| status == "True" && found == reason)
    })
    .await;
}

/// Waits for this many more passes.
pub async fn wait_for_passes(running: &UpdaterHandle, more: u64) {
    let mut passes = running.passes();
    let from = passes.borrow().0;
    let waited = passes.wait_for(|(count, _)| *count >= from + more);
    let waited = tokio::time::timeout(wait::PATIENCE, waited).await;
    waited.expect("passes finish in time").expect("running");
}

/// Returns its metrics page.
pub async fn metrics(running: &UpdaterHandle) -> String {
    let page = http_get(&format!("http://{}/metrics", running.address())).await.expect("served");
    String::from_utf8_lossy(&page).into_owned()
}

/// Returns the Lease of the updaters of a namespace.
pub async fn lease(bed: &Testbed, namespace: &str) -> Lease {
    let leases = Api::<Lease>::namespaced(bed.client(), namespace);
    leases.get("vpa-updater").await.expect("exists")
}

/// Returns the recent disruptions in a namespace that the updaters' Lease records.
pub async fn recorded_disruptions(bed: &Testbed, namespace: &str, charge: BudgetKind) -> u32 {
    let annotations = lease(bed, namespace).await.metadata.annotations.unwrap_or_default();
    let ledger = annotations
        .get(disruption_budget::ANNOTATION)
        .map(|text| DisruptionBudget::read(text).expect("read"));
    let now = Clock::wall().now();
    ledger.map_or(0, |ledger| ledger.changes(charge).in_namespace(namespace, now))
}

/// Returns the CPU request of a pod.
pub fn cpu(pod: &Pod) -> Option<&str> {
    let container = pod.spec.as_ref()?.containers.first()?;
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    requests.get("cpu").map(|amount| &*amount.0)
}
