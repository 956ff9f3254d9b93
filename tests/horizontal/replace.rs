//! The horizontal controller in place of that of kube-controller-manager, which is on, off, and on again. It has no more rights
//! than the overlay grants.

use std::{collections::BTreeMap, time::Duration};

use http::{Method, StatusCode};
use k8s_openapi::api::{
    apps::v1::Deployment,
    autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus},
    core::v1::Event,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use plimsoll_core::hpa::{HpaRecord, record::RECORD_ANNOTATION, sentinel::SENTINEL_NAME};

use serde_json::Value;

use super::{MEBIBYTE, MEMORY, VALUE, exported_series, hpa, start_with};
use crate::{
    deploy::rendered_manifests::kustomize,
    recommender::upstream_rbac::grant,
    storage::checkpoint_objects::create_definitions,
    support::{
        MetricsServer, Testbed,
        api_proxy::{ApiProxy, pass_through},
        captured_log::capture,
        hollow_nodes::is_ready,
        manifests,
        metrics_server::UsageValue,
        skipped::report_skipped,
        wait,
    },
};

/// Metrics of the types that only the HPA controller reads itself, as YAML.
const PODS: &str =
    "{type: Pods, pods: {metric: {name: rps}, target: {type: AverageValue, averageValue: '10'}}}";
pub const OBJECT: &str = "{type: Object, object: {describedObject: {apiVersion: apps/v1, kind: Deployment, name: object}, \
                      metric: {name: backlog}, target: {type: Value, value: '10'}}}";
const UNKNOWN: &str = "{type: Pods, pods: {metric: {name: unknown}, target: {type: AverageValue, averageValue: '1'}}}";

/// A workload of each of these names with two pods, its metrics, and the replicas that it gets.
const WORKLOADS: [(&str, &[&str], i32); 5] = [
    ("memory", &[MEMORY], 6),
    ("pods", &[PODS], 4),
    ("object", &[OBJECT], 6),
    ("external", &[VALUE], 6),
    ("unknown", &[UNKNOWN], 2),
];
/// The HPA controller of the testbed has a period of a second.
const FLAGS: [&str; 5] = [
    "--mode=replace",
    "--horizontal-pod-autoscaler-sync-period=1s",
    "--builtin-sync-period=1s",
    "--sentinel-proof=2s",
    "--sentinel-rearm=1s",
];

async fn create(bed: &Testbed, namespace: &str, name: &str, metrics: &[&str]) {
    let workload = manifests::deployment(name, 2, "100m", "256Mi");
    manifests::create::<Deployment>(bed.client(), namespace, &workload).await;
    bed.nodes().pods(namespace, &format!("{name}-"), 2, "are ready", is_ready).await;
    let hpa = hpa(name, metrics, "null", "{}");
    manifests::create::<HorizontalPodAutoscaler>(bed.client(), namespace, &hpa).await;
}

fn load_memory(usage: &MetricsServer, namespace: &str, mebibytes: u64) {
    let used = UsageValue { cpu: 0.1, memory: mebibytes * MEBIBYTE };
    usage.set_all(namespace, "memory-", "main", used);
}

/// The objects that a process may write before it is certain that it is alone.
fn is_of_its_own(path: &str) -> bool {
    path.ends_with(&format!("/horizontalpodautoscalers/{SENTINEL_NAME}"))
        || path.ends_with("/leases/plimsoll-horizontal")
        || path.contains("authorization")
}

#[tokio::test]
async fn while_the_hpa_controller_is_active_nothing_but_the_sentinel_is_written() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else {
        return report_skipped("a whole control plane");
    };
    let namespace = bed.namespace("refused").await;
    let usage = MetricsServer::shared(&bed, &namespace).await;
    load_memory(&usage, &namespace, 1024);
    create(&bed, &namespace, "memory", &[MEMORY]).await;
    let (log, _guard) = capture();
    let proxy = ApiProxy::start(bed.client(), |_, _| pass_through()).await;
    let role = start_with(&proxy, &namespace, &FLAGS).await;
    let line = format!(
        "the HPA controller of kube-controller-manager is active (it wrote the status of {namespace}/{SENTINEL_NAME} after "
    );
    // It is found again each time that the sentinel was created again.
    wait::until_ok("it finds the HPA controller three times", || async {
        if log.lines(&[&line]).len() >= 3 { Ok(()) } else { Err(log.tail()) }
    })
    .await;
    log.assert_line(&[
        "); nothing is changed. Start it with --controllers=*,-horizontal-pod-autoscaler-controller, or use --mode=shadow",
    ]);
    let active = exported_series(&role, "plimsoll_hpa_builtin_active", "").await;
    assert_eq!(active, BTreeMap::from([(String::new(), 1.0)]));
    let written = proxy.written_objects("/");
    let others: Vec<_> = written.iter().filter(|path| !is_of_its_own(path)).collect();
    assert_eq!(others, [""; 0]);
    assert_eq!(role.reconciles(), 0);
    tokio::time::timeout(Duration::from_mins(1), role.stop()).await.expect("it stops");
}

/// The namespace of the controller in the overlay.
const OWN: &str = "kube-system";

/// Grants what the overlay grants, and returns a client of its account; `None` without kustomize.
async fn account_of_overlay(bed: &Testbed) -> Option<Client> {
    let build = tokio::task::spawn_blocking(|| kustomize("overlays/horizontal-replace"));
    let objects = build.await.expect("no panic")?;
    let is_granted = |object: &&Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        kind == "ServiceAccount" || kind == "Lease" || kind.contains("Role")
    };
    let granted: Vec<_> = objects.iter().filter(is_granted).map(Value::to_string).collect();
    let bindings = grant(&bed.client(), &granted.join("\n---\n")).await;
    assert_eq!(
        bindings.len(),
        4,
        "for pods and objects, for replicas, for the Lease, for the sentinel"
    );
    Some(bed.service_account(OWN, "plimsoll-horizontal").await.client)
}

/// A cluster without the HPA controller.
struct Replaced {
    bed: Testbed,
    namespace: String,
    usage: MetricsServer,
    /// A client of the controller's account.
    account: Client,
}

impl Replaced {
    async fn new() -> Option<Self> {
        let bed = Testbed::private().await.filter(Testbed::has_controllers)?;
        // RBAC can name VPAs only if their definition exists.
        create_definitions(&bed).await;
        let account = account_of_overlay(&bed).await?;
        bed.control_plane().stop_hpa_controller().await;
        bed.nodes().add("node", "64", "256Gi").await;
        let usage = MetricsServer::serve(&bed).await;
        let namespace = bed.namespace("replaced").await;
        usage.set_external(&namespace, "jobs", &[("queue", "a")], 20.0);
        usage.set_custom(&namespace, "deployments.apps", "object", "backlog", 20.0);
        load_memory(&usage, &namespace, 400);
        let replaced = Self { bed, namespace, usage, account };
        for (name, metrics, _) in WORKLOADS {
            create(&replaced.bed, &replaced.namespace, name, metrics).await;
        }
        for pod in
            replaced.bed.nodes().pods(&replaced.namespace, "pods-", 2, "exist", |_| true).await
        {
            replaced.usage.set_custom(&replaced.namespace, "pods", &pod.name_any(), "rps", 20.0);
        }
        Some(replaced)
    }

    async fn replicas(&self) -> BTreeMap<String, i32> {
        let api = Api::<Deployment>::namespaced(self.bed.client(), &self.namespace);
        let found = api.list(&ListParams::default()).await.expect("a list");
        let replicas = |one: &Deployment| one.spec.as_ref().and_then(|spec| spec.replicas);
        found.iter().map(|one| (one.name_any(), replicas(one).unwrap_or(1))).collect()
    }

    async fn objects(&self) -> BTreeMap<String, HorizontalPodAutoscaler> {
        let api = Api::<HorizontalPodAutoscaler>::namespaced(self.bed.client(), &self.namespace);
        let found = api.list(&ListParams::default()).await.expect("a list");
        found.into_iter().map(|object| (object.name_any(), object)).collect()
    }

    /// Waits until each workload has its replicas, each of them is ready, and each status says so.
    async fn wait_until_scaled(&self) -> BTreeMap<String, HorizontalPodAutoscaler> {
        for (name, _, replicas) in WORKLOADS {
            let (prefix, count) = (format!("{name}-"), usize::try_from(replicas).expect("few"));
            self.bed.nodes().pods(&self.namespace, &prefix, count, "are ready", is_ready).await;
        }
        wait::until_ok("each object has its status", || async {
            let objects = self.objects().await;
            let found = objects.iter().map(|(name, object)| (name.clone(), summary(object)));
            let found: BTreeMap<_, _> = found.collect();
            if found == expected_summaries() { Ok(objects) } else { Err(format!("{found:#?}")) }
        })
        .await
    }
}

/// What the status of an object says: the replicas, the current values, and the reasons of conditions.
type Summary = (Option<i32>, i32, Vec<String>, Vec<String>);

fn summary(object: &HorizontalPodAutoscaler) -> Summary {
    let status = object.status.clone().unwrap_or_default();
    let HorizontalPodAutoscalerStatus { current_replicas, desired_replicas, .. } = status;
    let metrics = status.current_metrics.unwrap_or_default();
    let values = metrics.into_iter().map(|metric| {
        let current = metric
            .resource
            .map(|one| one.current)
            .or(metric.pods.map(|one| one.current))
            .or(metric.object.map(|one| one.current))
            .or(metric.external.map(|one| one.current))
            .unwrap_or_default();
        let text = |value: Option<_>| {
            value.map(|k8s_openapi::apimachinery::pkg::api::resource::Quantity(text)| text)
        };
        text(current.value).or(text(current.average_value)).unwrap_or_default()
    });
    let conditions = status.conditions.unwrap_or_default();
    let reason = |one: k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition| {
        format!("{}={}: {}", one.type_, one.status, one.reason.unwrap_or_default())
    };
    let conditions = conditions.into_iter().map(reason).collect();
    (current_replicas, desired_replicas, values.collect(), conditions)
}

fn expected_summaries() -> BTreeMap<String, Summary> {
    let of = |name: &str, replicas, value: &str, reasons: [&str; 3]| {
        let reasons = reasons.iter().filter(|reason| !reason.is_empty());
        let reasons: Vec<_> = reasons.map(ToString::to_string).collect();
        (name.to_owned(), (Some(replicas), replicas, vec![value.to_owned()], reasons))
    };
    let (able, active) =
        ("AbleToScale=True: ReadyForNewScale", "ScalingActive=True: ValidMetricFound");
    let at_max = "ScalingLimited=True: TooManyReplicas";
    BTreeMap::from([
        of("memory", 6, "400Mi", [able, active, at_max]),
        of("pods", 4, "20", [able, active, "ScalingLimited=False: DesiredWithinRange"]),
        of("object", 6, "20", [able, active, at_max]),
        of("external", 6, "20", [able, active, at_max]),
        (
            "unknown".to_owned(),
            (
                Some(2),
                0,
                vec![String::new()],
                vec![
                    "AbleToScale=True: SucceededGetScale".to_owned(),
                    "ScalingActive=False: FailedGetPodsMetric".to_owned(),
                ],
            ),
        ),
    ])
}

/// The writes that the server has accepted, in their order.
fn writes(proxy: &ApiProxy) -> Vec<(Method, String)> {
    let accepted = proxy.accepted().into_iter();
    let writes = accepted
        .filter(|(method, path, _)| *method != Method::GET && !path.contains("authorization"));
    writes.map(|(method, path, _)| (method, path)).collect()
}

fn is_deletion_of_sentinel((method, path): &(Method, String)) -> bool {
    *method == Method::DELETE && path.ends_with(&format!("/{SENTINEL_NAME}"))
}

fn statuses(
    objects: &BTreeMap<String, HorizontalPodAutoscaler>,
) -> BTreeMap<String, HorizontalPodAutoscalerStatus> {
    let status = |object: &HorizontalPodAutoscaler| object.status.clone().unwrap_or_default();
    objects.iter().map(|(name, object)| (name.clone(), status(object))).collect()
}

/// The records say what was done, and so do events with the component of the HPA controller.
async fn assert_reported(
    bed: &Testbed,
    namespace: &str,
    objects: &BTreeMap<String, HorizontalPodAutoscaler>,
) {
    for (name, object) in objects {
        let text = object.annotations().get(RECORD_ANNOTATION).expect("a record");
        let record = HpaRecord::parse(text).expect("a record");
        assert_eq!(record.pending, None, "{name}: {record:?}");
        let is_scaled = name != "unknown";
        assert_eq!(record.last_scale.is_some(), is_scaled, "{name}: {record:?}");
        let status = object.status.as_ref().expect("a status");
        assert_eq!(status.last_scale_time.is_some(), is_scaled, "{name}");
    }
    let events = Api::<Event>::namespaced(bed.client(), namespace);
    let events = events.list(&ListParams::default()).await.expect("a list");
    let ours = events
        .iter()
        .filter(|event| event.reporting_component.as_deref() == Some("horizontal-pod-autoscaler"));
    let reasons: Vec<_> = ours
        .filter_map(|event| {
            Some((event.involved_object.name.as_deref()?, event.reason.as_deref()?))
        })
        .collect();
    for expected in [
        ("memory", "SuccessfulRescale"),
        ("pods", "SuccessfulRescale"),
        ("unknown", "FailedGetPodsMetric"),
        ("unknown", "FailedComputeMetricsReplicas"),
    ] {
        assert!(reasons.contains(&expected), "{expected:?} is not in {reasons:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_replaces_the_hpa_controller_until_that_is_back_and_nothing_shrinks_on_the_way() {
    let Some(replaced) = Replaced::new().await else { return };
    let (bed, namespace) = (&replaced.bed, &replaced.namespace);
    let proxy = ApiProxy::start(replaced.account.clone(), |_, _| pass_through()).await;
    let own = format!("--leader-elect-resource-namespace={OWN}");
    let role = start_with(&proxy, namespace, &[&FLAGS[..], &[&own]].concat()).await;
    let objects = replaced.wait_until_scaled().await;
    // First the sentinel, then the Lease, and then the rest.
    let first = writes(&proxy);
    assert!(first[0].1.ends_with("/horizontalpodautoscalers"), "{first:#?}");
    assert!(first[1].1.contains("/leases"), "{first:#?}");
    assert_reported(bed, namespace, &objects).await;
    let modes = exported_series(&role, "plimsoll_object_info", "update_mode").await;
    assert_eq!(modes.keys().collect::<Vec<_>>(), ["replace"]);
    let desired = "horizontal_pod_autoscaler_controller_desired_replicas";
    let desired = exported_series(&role, desired, "hpa_name").await;
    assert_eq!(desired.get("pods"), Some(&4.0), "{desired:?}");

    // A steady status is not written again.
    let before = role.reconciles();
    wait::until("more decisions are made", || async {
        (role.reconciles() >= before + 25).then_some(())
    })
    .await;
    let steady = statuses(&replaced.objects().await);
    assert_eq!(steady, statuses(&objects));

    let count = writes(&proxy).len();
    bed.control_plane().start_hpa_controller();
    wait::until_ok("it finds the HPA controller, and releases the Lease", || async {
        let is_found = writes(&proxy).iter().any(is_deletion_of_sentinel);
        let active = exported_series(&role, "plimsoll_hpa_builtin_active", "").await;
        let leads = exported_series(&role, "plimsoll_leader", "role").await;
        let is_active = active.values().any(|value| *value == 1.0);
        if is_found && is_active && leads.values().all(|leads| *leads == 0.0) {
            Ok(())
        } else {
            Err(format!("{is_found} {active:?} {leads:?}"))
        }
    })
    .await;
    // What the HPA controller removes now, it would remove at once, but it begins with the replicas that it has found.
    load_memory(&replaced.usage, namespace, 10);
    let reads = || replaced.usage.read_count("kube-controller-manager");
    let before = reads();
    wait::until("the HPA controller has read the usage five times", || async {
        (reads() >= before + 5).then_some(())
    })
    .await;
    let since = writes(&proxy).split_off(count);
    let found = since.iter().position(is_deletion_of_sentinel).expect("it was deleted");
    let is_other = |(_, path): &&(Method, String)| {
        !path.contains(SENTINEL_NAME)
            && !path.contains("/leases/")
            && !path.ends_with("/horizontalpodautoscalers")
    };
    let others: Vec<_> = since[found..].iter().filter(is_other).collect();
    assert!(others.is_empty(), "{others:#?}");
    let expected = WORKLOADS.map(|(name, _, replicas)| (name.to_owned(), replicas));
    assert_eq!(replaced.replicas().await, BTreeMap::from(expected), "nothing shrinks");
    // The statuses of objects whose load has not changed are those that the HPA controller would write.
    let after = statuses(&replaced.objects().await);
    for name in ["pods", "object", "external"] {
        assert_eq!(after[name], steady[name], "{name}");
    }
    tokio::time::timeout(Duration::from_mins(1), role.stop()).await.expect("it stops");
    let responses = proxy.responses().into_iter();
    let refused: Vec<_> = responses.filter(|(.., code)| *code == StatusCode::FORBIDDEN).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
