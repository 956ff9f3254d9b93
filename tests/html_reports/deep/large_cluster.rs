//! The cluster: Deployments with pods, VPAs, HPAs and WPAs, and a day of history of a part of them.

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, PostParams};
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};
use serde_json::{Value, json};

use crate::{
    prometheus::{
        label_flavors::OPERATOR,
        recommend::states::{HASH, WorkloadStates},
    },
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed,
        bulk_objects::{self, ApiWrite, collection, create_namespace},
        clock::wall_now,
        plimsoll_process::PlimsollProcesses,
        prometheus_server::{History, PrometheusRelease, PrometheusServer},
        wait,
    },
};

/// Workloads, each with a VPA.
pub const VPAS: usize = 1_000;
/// Of these, the first ones have history.
pub const WITH_HISTORY: usize = 200;
/// HPAs and WPAs: of each this many workloads, one has an HPA and the next one a WPA.
const EVERY: usize = 5;
/// Workloads in one namespace.
const PER_NAMESPACE: usize = 20;
/// Every this many VPAs are held back.
const HELD_BACK: usize = 7;
const NAMES: [&str; 5] = ["checkout", "search", "cart", "invoices", "mail"];
const SUFFIXES: [&str; 2] = ["x2x4z", "b7k9q"];
const MEBIBYTE: f64 = 1_048_576.0;
const AUTOSCALING: &str = "autoscaling.k8s.io/v1";
const DATADOG: &str = "datadoghq.com/v1alpha1";

/// The cluster and its Prometheus.
pub struct LargeCluster {
    pub bed: Testbed,
    pub prometheus: PrometheusServer,
    folder: tempfile::TempDir,
}

impl LargeCluster {
    /// Creates everything except the recommendations; `None` if something to run is not available.
    pub async fn start() -> Option<Self> {
        let bed = Testbed::api_server_only().await?;
        create_definitions(&bed).await;
        create_objects(&bed).await;
        let end = Timestamp::from_second(wall_now().as_second() / 60 * 60).expect("a minute");
        let release = PrometheusRelease::V3;
        let prometheus = PrometheusServer::with_query_log(release, history(end)).await?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cluster = Self { bed, prometheus, folder };
        let prices = "cpuCoreHour: 0.031\nmemoryGiBHour: 0.0042\ncurrency: EUR\n";
        std::fs::write(cluster.prices(), prices).expect("a writable folder");
        Some(cluster)
    }

    /// The file of prices.
    pub fn prices(&self) -> PathBuf {
        self.folder.path().join("prices.yaml")
    }

    /// Lets a recommender write all statuses, and adds what other controllers would have written.
    pub async fn recommend(&self, processes: &PlimsollProcesses) {
        let address = format!("--prometheus-address={}", self.prometheus.url());
        let flags = ["--storage=prometheus", &*address, "--recommender-interval=20s"];
        processes.start("recommender", &flags);
        let api = Api::<VerticalPodAutoscaler>::all(self.bed.client());
        let vpas = wait::within(wait::PATIENCE * 2, "all recommendations are written", || async {
            processes.assert_running("recommender");
            let vpas = api.list(&ListParams::default()).await.ok()?.items;
            let is_recommended = |vpa: &&VerticalPodAutoscaler| {
                let status = vpa.status.as_ref();
                status.is_some_and(|status| status.recommendation.is_some())
            };
            let recommended = vpas.iter().filter(is_recommended).count();
            (recommended == VPAS).then_some(vpas)
        })
        .await;
        let held = vpas.iter().step_by(HELD_BACK).enumerate().map(|(place, vpa)| hold(place, vpa));
        bulk_objects::send(&self.bed.client(), held).await;
    }
}

/// The name of a workload and all its autoscalers.
pub fn name(index: usize) -> String {
    format!("{}-{index:03}", NAMES[index % NAMES.len()])
}

pub fn namespace(index: usize) -> String {
    format!("team-{:02}", index / PER_NAMESPACE)
}

fn pods(index: usize) -> Vec<String> {
    let count = if index < WITH_HISTORY { SUFFIXES.len() } else { 1 };
    SUFFIXES[..count].iter().map(|suffix| format!("{}-{HASH}-{suffix}", name(index))).collect()
}

/// Cores and bytes.
fn requests(index: usize) -> [f64; 2] {
    let cores = [0.1, 0.25, 0.5, 1.0][index % 4];
    [cores, [128.0, 256.0, 512.0][index % 3] * MEBIBYTE]
}

/// Bytes.
fn memory_limit(index: usize) -> Option<f64> {
    index.is_multiple_of(2).then(|| requests(index)[1] * 2.0)
}

/// Writes the condition of the updater.
fn hold(place: usize, vpa: &VerticalPodAutoscaler) -> ApiWrite {
    let (reason, message) = [
        ("cool_down", "updates are paused for 50 minutes after the last one"),
        ("disruption_budget", "PodDisruptionBudget web allows no eviction"),
        ("quota_exceeded", "ResourceQuota compute allows no more than 4Gi of memory"),
    ][place % 3];
    let since = wall_now() - SignedDuration::from_mins(place as i64);
    let mut conditions =
        serde_json::to_value(vpa.status.as_ref().map(|status| &status.conditions)).expect("JSON");
    let condition = json!({
        "type": "UpdatesHeldBack", "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    match conditions.as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => conditions = json!([condition]),
    }
    let metadata = &vpa.metadata;
    let [namespace, name] = [&metadata.namespace, &metadata.name].map(|text| text.as_deref());
    let all = collection(AUTOSCALING, namespace.expect("set"), "verticalpodautoscalers");
    let path = format!("{all}/{}/status", name.expect("set"));
    ApiWrite::patch(path, &json!({"status": {"conditions": conditions}}))
}

async fn create_objects(bed: &Testbed) {
    for index in (0..VPAS).step_by(PER_NAMESPACE) {
        create_namespace(bed, &namespace(index)).await;
    }
    let node = json!({
        "metadata": {"name": "node-1"},
        "status": {"allocatable": {"cpu": "640", "memory": "2Ti", "pods": "5000"}},
    });
    let node: Node = serde_json::from_value(node).expect("a node");
    let nodes = Api::<Node>::all(bed.client());
    nodes.create(&PostParams::default(), &node).await.expect("a new node");
    let quotas = (0..VPAS).step_by(PER_NAMESPACE * 5).map(|index| {
        let hard = json!({"requests.cpu": "40", "requests.memory": "16Gi"});
        let object = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "compute"},
            "spec": {"hard": hard},
        });
        ApiWrite::create(collection("v1", &namespace(index), "resourcequotas"), &object)
    });
    bulk_objects::send(&bed.client(), (0..VPAS).flat_map(workload)).await;
    let running = (0..VPAS).flat_map(|index| {
        let namespace = namespace(index);
        pods(index).into_iter().map(move |pod| running(&namespace, &pod))
    });
    bulk_objects::send(&bed.client(), running).await;
    // After the pods: nothing computes the status of a quota here, without which no pod is admitted.
    bulk_objects::send(&bed.client(), quotas).await;
    bulk_objects::send(&bed.client(), (0..VPAS).flat_map(autoscalers)).await;
    bulk_objects::send(&bed.client(), (0..VPAS).filter_map(replica_status)).await;
}

/// A Deployment, its ReplicaSet and its pods.
fn workload(index: usize) -> Vec<ApiWrite> {
    let (namespace, name, pods) = (namespace(index), name(index), pods(index));
    let set = format!("{name}-{HASH}");
    let [cores, bytes] = requests(index);
    let mut resources = json!({"requests": {
        "cpu": format!("{}m", (cores * 1000.0) as u64), "memory": format!("{bytes}"),
    }});
    if let Some(limit) = memory_limit(index) {
        resources["limits"] = json!({"memory": format!("{limit}")});
    }
    let spec = json!({
        "containers": [{"name": "main", "image": "example/any", "resources": resources}],
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
    });
    let labels =
        json!({"app": NAMES[index % NAMES.len()], "name": name, "pod-template-hash": HASH});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let owner = |kind: &str, name: &str| {
        json!([{
            "apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true,
            "uid": format!("uid-of-{name}"),
        }])
    };
    let scalable = |kind: &str, own: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": own, "namespace": namespace, "labels": labels},
            "spec": {
                "replicas": pods.len(), "selector": {"matchLabels": {"name": name}},
                "template": template,
            },
        })
    };
    let mut replica_set = scalable("ReplicaSet", &set);
    replica_set["metadata"]["ownerReferences"] = owner("Deployment", &name);
    let all = |plural| collection("apps/v1", &namespace, plural);
    let mut writes = vec![
        ApiWrite::create(all("deployments"), &scalable("Deployment", &name)),
        ApiWrite::create(all("replicasets"), &replica_set),
    ];
    writes.extend(pods.iter().map(|pod| {
        let mut spec = spec.clone();
        // No agent runs this node: the test writes the status itself.
        spec["nodeName"] = "node-1".into();
        let metadata = json!({
            "name": pod, "namespace": namespace, "labels": labels,
            "ownerReferences": owner("ReplicaSet", &set),
        });
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        ApiWrite::create(collection("v1", &namespace, "pods"), &object)
    }));
    writes
}

fn running(namespace: &str, pod: &str) -> ApiWrite {
    let path = format!("{}/{pod}/status", collection("v1", namespace, "pods"));
    let status = json!({"phase": "Running", "startTime": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "main", "image": "example/any", "imageID": "example/any", "ready": true,
            "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }],
    });
    ApiWrite::patch(path, &json!({"status": status}))
}

/// The VPA of a workload, and its HPA or WPA.
fn autoscalers(index: usize) -> Vec<ApiWrite> {
    let (namespace, name) = (namespace(index), name(index));
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    let metadata = json!({"name": name, "namespace": namespace});
    let mode = ["Recreate", "Off", "InPlaceOrRecreate", "Initial"][index % 4];
    let vpa = json!({
        "apiVersion": AUTOSCALING, "kind": "VerticalPodAutoscaler", "metadata": metadata,
        "spec": {"targetRef": target, "updatePolicy": {"updateMode": mode}},
    });
    let all = collection(AUTOSCALING, &namespace, "verticalpodautoscalers");
    let mut writes = vec![ApiWrite::create(all, &vpa)];
    if index.is_multiple_of(EVERY) {
        let metric = json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60},
        }});
        let hpa = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": metadata,
            "spec": {
                "scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 8, "metrics": [metric],
            },
        });
        let all = collection("autoscaling/v2", &namespace, "horizontalpodautoscalers");
        writes.push(ApiWrite::create(all, &hpa));
    } else if index % EVERY == 1 {
        let metric = json!({"type": "External", "external": {
            "metricName": "requests", "metricSelector": {"matchLabels": {"app": name}},
            "lowWatermark": "400", "highWatermark": "900",
        }});
        let wpa = json!({
            "apiVersion": DATADOG, "kind": "WatermarkPodAutoscaler", "metadata": metadata,
            "spec": {
                "scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 8,
                "algorithm": "absolute", "metrics": [metric],
            },
        });
        let all = collection(DATADOG, &namespace, "watermarkpodautoscalers");
        writes.push(ApiWrite::create(all, &wpa));
    }
    writes
}

/// The status of an HPA or WPA, as its controller would have written it.
fn replica_status(index: usize) -> Option<ApiWrite> {
    let (namespace, name) = (namespace(index), name(index));
    let at = wall_now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": at,
        })
    };
    let able = condition("AbleToScale", "True", "ReadyForNewScale", "ready for a new scale");
    let desired = 2 + index % 7;
    let is_limited = desired == 8;
    let (version, plural, status): (_, _, Value) = match index % EVERY {
        0 => {
            let limited = if is_limited { "True" } else { "False" };
            let value = json!({"averageUtilization": 30 + index % 60, "averageValue": "80m"});
            let conditions = json!([
                able,
                condition("ScalingLimited", limited, "TooManyReplicas", "more than allowed"),
            ]);
            let metric = json!({"type": "Resource", "resource": {"name": "cpu", "current": value}});
            let status = json!({
                "currentReplicas": 2, "desiredReplicas": desired, "lastScaleTime": at,
                "currentMetrics": [metric], "conditions": conditions,
            });
            ("autoscaling/v2", "horizontalpodautoscalers", status)
        }
        1 => {
            let source = json!({
                "name": format!("requests{{app: {name}}}"), "value": "1200", "low": "400",
                "high": "900", "position": "above", "proposal": desired + 1, "chosen": true,
            });
            let restrictions = if is_limited { vec!["at_max_replicas"] } else { Vec::new() };
            let decision = json!({
                "at": at, "sources": [source], "from": 2, "proposal": desired + 1,
                "limited": desired, "to": desired, "restrictions": restrictions,
            });
            let status = json!({
                "currentReplicas": 2, "desiredReplicas": desired, "lastScaleTime": at,
                "conditions": [able], "decision": decision,
            });
            (DATADOG, "watermarkpodautoscalers", status)
        }
        _ => return None,
    };
    let path = format!("{}/{name}/status", collection(version, &namespace, plural));
    Some(ApiWrite::patch(path, &json!({"status": status})))
}

/// More than a day of the first workloads, and what Plimsoll exports about the first ones of each kind.
fn history(end: Timestamp) -> History {
    // A workload of less than a day has no recommendation.
    let begin = end - SignedDuration::from_hours(26);
    let mut history = History::new(begin, end, SignedDuration::from_mins(1));
    let hour = move |at: Timestamp| (at.as_second() - begin.as_second()) as f64 / 3600.0;
    for index in 0..WITH_HISTORY {
        let (namespace, name, pods) = (namespace(index), name(index), pods(index));
        let (cores, bytes) = (0.02 + 0.013 * (index % 37) as f64, 60.0 + 9.0 * (index % 41) as f64);
        for pod in &pods {
            let container = [&*namespace, &**pod, "main"];
            // The rate rises and falls with the day; the counter is its integral.
            let used = move |at: Timestamp| {
                let angle = hour(at) * std::f64::consts::TAU / 24.0;
                let wave = hour(at) - (angle.cos() - 1.0) * 12.0 / std::f64::consts::TAU;
                Some(cores * wave * 3600.0)
            };
            history = OPERATOR.usage(history, CPU_METRIC, container, used);
            let held = move |at: Timestamp| {
                let angle = (hour(at) + index as f64) * std::f64::consts::TAU / 6.0;
                Some(((bytes + bytes / 4.0 * angle.sin()) * MEBIBYTE).round())
            };
            history = OPERATOR.usage(history, MEMORY_METRIC, container, held);
        }
        let states = WorkloadStates {
            namespace: &namespace,
            kind: "Deployment",
            name: &name,
            pods: &pods,
            requests: requests(index),
            memory_limit: memory_limit(index),
        };
        history = states.add_to(history);
    }
    let history = with_vpa_metrics(history, hour);
    with_replica_metrics(history, hour)
}

fn with_vpa_metrics(
    mut history: History,
    hour: impl Fn(Timestamp) -> f64 + Send + Copy + 'static,
) -> History {
    let (namespace, name) = (namespace(0), name(0));
    let of_vpa = [("kind", "vpa"), ("namespace", &*namespace), ("name", &*name)];
    for (metric, factor) in
        [("plimsoll_low", 0.7), ("plimsoll_target", 1.0), ("plimsoll_high", 1.6)]
    {
        for (resource, before, after) in
            [("cpu", 0.03, 0.045), ("memory", 70.0 * MEBIBYTE, 92.0 * MEBIBYTE)]
        {
            let more = [("container", "main"), ("resource", resource)];
            let value = move |at| Some(factor * if hour(at) < 14.0 { before } else { after });
            history = history.series(metric, &[&of_vpa[..], &more].concat(), value);
        }
    }
    let after = move |step: f64| move |at| Some(f64::from(u8::from(hour(at) >= step)));
    let kills = [&of_vpa[..], &[("container", "main")]].concat();
    history = history.series("plimsoll_container_oom_kills_total", &kills, after(9.0));
    let of_updates = [("vpa_namespace", &*namespace), ("vpa_name", &*name)];
    history = history.series("vpa_updater_evicted_pods_total", &of_updates, after(14.5));
    history.series("vpa_updater_in_place_updated_pods_total", &of_updates, after(18.0))
}

fn with_replica_metrics(
    mut history: History,
    hour: impl Fn(Timestamp) -> f64 + Send + Copy + 'static,
) -> History {
    let namespace = namespace(0);
    let load = move |at| 650.0 + 420.0 * (hour(at) / 2.7).sin() + 40.0 * (hour(at) * 5.0).cos();
    let proposal = move |at| (load(at) / 130.0).ceil();
    for (kind, index, metric) in [("hpa", 0, "cpu"), ("wpa", 1, "requests")] {
        let name = name(index);
        let of = [("kind", kind), ("namespace", &*namespace), ("name", &*name)];
        let of_metric = [&of[..], &[("metric", metric)]].concat();
        history = history.series("plimsoll_value", &of_metric, move |at| Some(load(at)));
        if kind == "wpa" {
            history = history.series("plimsoll_low", &of_metric, |_| Some(400.0));
            history = history.series("plimsoll_high", &of_metric, |_| Some(900.0));
        } else {
            history = history.series("plimsoll_target", &of_metric, |_| Some(600.0));
        }
        history = history.series("plimsoll_proposal", &of_metric, move |at| Some(proposal(at)));
        let effective = move |at| Some(proposal(at).clamp(2.0, 8.0));
        history = history.series("plimsoll_effective", &of, effective);
        history = history.series("plimsoll_min_replicas", &of, |_| Some(2.0));
        history = history.series("plimsoll_max_replicas", &of, |_| Some(8.0));
        let reason = [&of[..], &[("reason", "at_max_replicas")]].concat();
        let is_limited = move |at| Some(f64::from(u8::from(proposal(at) > 8.0)));
        history = history.series("plimsoll_restricted_scaling", &reason, is_limited);
    }
    history
}
