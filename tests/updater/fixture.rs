//! Owns an updater in this process, on one namespace of a bed, and the workloads that it looks after.

use std::collections::BTreeSet;

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
        Testbed, clock::wall_now, hollow_nodes::is_ready, http_get::http_get, manifests, wait,
    },
};

/// The shared bed, with the definitions and a namespace of the test's own.
pub async fn testbed_and_namespace(name: &str) -> Option<(Testbed, String)> {
    let bed = Testbed::shared().await.filter(Testbed::has_controllers)?;
    create_definitions(&bed).await;
    let namespace = bed.namespace(name).await;
    Some((bed, namespace))
}

/// What every updater of a test needs: it sees one namespace, has its Leases there, and asks for no webhook.
pub fn flags(namespace: &str, more: &[&str]) -> Vec<String> {
    let mut flags = vec![
        "--address=127.0.0.1:0".to_owned(),
        "--updater-interval=500ms".to_owned(),
        "--use-admission-controller-status=false".to_owned(),
        format!("--vpa-object-namespace={namespace}"),
        format!("--leader-elect-resource-namespace={namespace}"),
        format!("--recommender-heartbeat-namespace={namespace}"),
    ];
    flags.extend(more.iter().map(ToString::to_string));
    flags
}

/// Starts one.
pub async fn start(client: Client, namespace: &str, more: &[&str]) -> UpdaterHandle {
    start_with(client, namespace, more, Clock::wall(), |_| {}).await
}

/// The same on another clock, and with a configuration that is adjusted.
pub async fn start_with(
    client: Client,
    namespace: &str,
    more: &[&str],
    clock: Clock,
    adjust: impl FnOnce(&mut UpdaterConfig),
) -> UpdaterHandle {
    let flags = flags(namespace, more);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut config = updater_config(&flags, |_| String::new()).expect("flags that make sense");
    adjust(&mut config);
    controllers::start(config, client, clock).await.expect("starts")
}

/// A Deployment whose pods are ready.
pub async fn deployment(bed: &Testbed, namespace: &str, name: &str, replicas: u32) {
    let yaml = manifests::deployment(name, replicas, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), namespace, &yaml).await;
    wait_for_ready_pods(bed, namespace, name, replicas as usize).await;
}

/// Waits until a workload has so many ready pods, and answers them.
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

/// Waits until the pods of a workload are older than so many seconds. Pods that are younger than what clocks may differ
/// by cannot be told from those that a change has made.
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

/// The pods of a workload.
pub async fn pods(client: &Client, namespace: &str, name: &str) -> Vec<Pod> {
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    let of = ListParams::default().labels(&format!("app={name}"));
    api.list(&of).await.expect("a list").items
}

pub fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(ResourceExt::uid).collect()
}

/// A VPA of a Deployment, with this mode and a recommendation of so much CPU.
pub async fn vpa(bed: &Testbed, namespace: &str, name: &str, mode: &str, cpu: &str) {
    vpa_with(bed, namespace, name, json!({"updatePolicy": {"updateMode": mode}}), cpu).await;
}

/// The same with more in its spec.
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

/// Recommends so much CPU.
pub async fn recommend(bed: &Testbed, namespace: &str, name: &str, cpu: &str) {
    let amounts = |cpu: &str| json!({"cpu": cpu, "memory": "64Mi"});
    let said = json!([{
        "containerName": "main", "target": amounts(cpu),
        "lowerBound": amounts(cpu), "upperBound": {"cpu": "4", "memory": "1Gi"},
    }]);
    let status = json!({"status": {"recommendation": {"containerRecommendations": said}}});
    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let patch = Patch::Merge(&status);
    api.patch_status(name, &PatchParams::default(), &patch).await.expect("a status");
}

/// Changes the mode of a VPA.
pub async fn set_mode(bed: &Testbed, namespace: &str, name: &str, mode: &str) {
    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let spec = json!({"spec": {"updatePolicy": {"updateMode": mode}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&spec)).await.expect("a mode");
}

/// The VPA as it is.
pub async fn read(bed: &Testbed, namespace: &str, name: &str) -> VerticalPodAutoscaler {
    let api = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    api.get(name).await.expect("it is there")
}

/// Status and reason of the condition that tells what holds updates back.
pub fn blocked_condition(vpa: &VerticalPodAutoscaler) -> Option<(String, String)> {
    let conditions = &vpa.status.as_ref()?.conditions;
    let found = conditions.iter().find(|one| one.kind == "UpdatesHeldBack")?;
    Some((found.status.clone(), found.reason.clone()))
}

/// Waits until updates are held back for this reason.
pub async fn wait_until_blocked_by(bed: &Testbed, namespace: &str, name: &str, reason: &str) {
    wait::until("updates are held back", || async {
        let held = blocked_condition(&read(bed, namespace, name).await);
        held.filter(|(status, found)| status == "True" && found == reason)
    })
    .await;
}

/// Waits for so many more passes.
pub async fn wait_for_passes(running: &UpdaterHandle, more: u64) {
    let mut passes = running.passes();
    let from = passes.borrow().0;
    let waited = passes.wait_for(|(count, _)| *count >= from + more);
    let waited = tokio::time::timeout(wait::PATIENCE, waited).await;
    waited.expect("not within patience: passes are made").expect("it runs");
}

/// All that it tells to Prometheus.
pub async fn metrics(running: &UpdaterHandle) -> String {
    let page = http_get(&format!("http://{}/metrics", running.address())).await.expect("is served");
    String::from_utf8_lossy(&page).into_owned()
}

/// The sum of the series of a metric with all of these labels.
pub fn metric_sum(page: &str, name: &str, labels: &[&str]) -> f64 {
    let of_name = page.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let fits = of_name.filter(|line| labels.iter().all(|label| line.contains(label)));
    fits.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// The Lease of the updaters of a namespace.
pub async fn lease(bed: &Testbed, namespace: &str) -> Lease {
    let leases = Api::<Lease>::namespaced(bed.client(), namespace);
    leases.get("vpa-updater").await.expect("it is there")
}

/// Changes of late in a namespace, as the Lease of its updaters tells.
pub async fn recorded_disruptions(bed: &Testbed, namespace: &str, charge: BudgetKind) -> u32 {
    let annotations = lease(bed, namespace).await.metadata.annotations.unwrap_or_default();
    let ledger = annotations
        .get(disruption_budget::ANNOTATION)
        .map(|text| DisruptionBudget::read(text).expect("is read"));
    let now = Clock::wall().now();
    ledger.map_or(0, |ledger| ledger.in_namespace(namespace, charge, now))
}

/// Amount of CPU that a pod asks for.
pub fn cpu(pod: &Pod) -> Option<&str> {
    let container = pod.spec.as_ref()?.containers.first()?;
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    requests.get("cpu").map(|amount| &*amount.0)
}
