//! A Prometheus that scrapes a recommender as configured by our PodMonitor.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::ResourceExt as _;
use plimsoll::cluster::clock::Clock;
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::Value;
use xtask::test_programs::PrometheusRelease;

use super::in_process::{start, wait_for_passes};
use crate::deploy::monitor;
use crate::storage::checkpoint_objects::create_definitions;
use crate::support::clock::wall_now;
use crate::support::hollow_nodes::is_ready;
use crate::support::http_get::http_get;
use crate::support::prometheus_server::{PrometheusServer, ScrapeTarget};
use crate::support::{Testbed, manifests, wait};

/// Target labels that the operator's monitors set for the scraped pod.
const TARGET_LABELS: [(&str, &str); 4] = [
    ("namespace", "kube-system"),
    ("pod", "plimsoll-recommender-0"),
    ("container", "recommender"),
    ("endpoint", "prometheus"),
];

/// Needs no metrics API: an OOM kill makes a history as well.
#[tokio::test]
async fn exported_series_keep_the_labels_of_their_object_when_scraped() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    let namespace = bed.namespace("scraped").await;
    let web = manifests::deployment("web", 1, "10m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    let vpa = "
metadata: {name: web}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
";
    manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, vpa).await;
    let pods = bed.nodes().pods(&namespace, "web-", 1, "is ready", is_ready).await;
    bed.nodes().oom_kill(&namespace, &pods[0].name_any(), "main").await;
    let only = format!("--vpa-object-namespace={namespace}");
    let clock = Clock::fake(wall_now().into());
    let running = start(&bed, &clock, &[&only]).await;
    wait_for_passes(&running, 1).await;

    let ours = monitor().spec.pod_metrics_endpoints.remove(0).honor_labels;
    let target = |job: &str, honor_labels| ScrapeTarget {
        job: job.to_owned(),
        scheme: "http",
        address: running.address().to_string(),
        path: "/metrics".to_owned(),
        labels: TARGET_LABELS.map(|(name, value)| (name, value.to_owned())).into(),
        honor_labels,
    };
    let targets = [target("ours", ours), target("other", !ours)];
    let Some(server) = PrometheusServer::start(PrometheusRelease::V3, None, &targets).await else {
        return;
    };
    let labels = async |job: &str| {
        let expression = format!("plimsoll_target{{kind='vpa', resource='memory', job='{job}'}}");
        wait::until(&expression, || async {
            let found = server.query(&expression, wall_now()).await;
            Some(found.as_array()?.first()?["metric"].clone())
        })
        .await
    };
    let wanted = [
        ("ours", [("namespace", &*namespace), ("container", "main")], &[][..]),
        (
            "other",
            [("namespace", "kube-system"), ("container", "recommender")],
            &[("exported_namespace", &*namespace), ("exported_container", "main")],
        ),
    ];
    for (job, own, exported) in wanted {
        let labels = labels(job).await;
        for (name, value) in own.iter().chain(exported) {
            assert_eq!(labels[*name], *value, "{job}: {name} of {labels}");
        }
        assert_eq!(labels["name"], "web", "{job}: {labels}");
        assert_eq!(labels["pod"], "plimsoll-recommender-0", "{job}: {labels}");
        assert_eq!(is_renamed(&labels), !exported.is_empty(), "{job}: {labels}");
    }
    running.stop().await;
}

fn is_renamed(labels: &Value) -> bool {
    labels.as_object().expect("labels").keys().any(|name| name.starts_with("exported_"))
}

/// An extra pod for the Deployment `web`, with the labels that the VPA selects.
fn extra_pod(name: &str, requests: &str) -> String {
    format!(
        "
metadata: {{name: {name}, labels: {{app: web}}}}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: example/{name}
    resources: {{requests: {requests}}}
"
    )
}

#[tokio::test]
async fn requests_of_different_pods_are_exported_as_largest_smallest_and_sum() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    let namespace = bed.namespace("mixed").await;
    let client = || bed.client();
    let web = manifests::deployment("web", 3, "10m", "64Mi");
    manifests::create::<Deployment>(client(), &namespace, &web).await;
    let vpa = "
metadata: {name: web}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
";
    manifests::create::<VerticalPodAutoscaler>(client(), &namespace, vpa).await;
    // The first pod is resized and requests no memory. The second requests more than all others and has completed.
    manifests::create::<Pod>(client(), &namespace, &extra_pod("raised", "{cpu: 100m}")).await;
    let ended = extra_pod("ended", "{cpu: 400m, memory: 1Gi}");
    manifests::create::<Pod>(client(), &namespace, &ended).await;
    let nodes = bed.nodes();
    let pods = nodes.pods(&namespace, "web-", 3, "are ready", is_ready).await;
    for name in ["raised", "ended"] {
        nodes.pod(&namespace, name, "is ready", is_ready).await;
    }
    nodes.end_container(&namespace, "ended", "main", 0, "Completed").await;
    let has_ended =
        |pod: &Pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Succeeded"));
    nodes.pod(&namespace, "ended", "has ended", has_ended).await;
    nodes.oom_kill(&namespace, &pods[0].name_any(), "main").await;
    let only = format!("--vpa-object-namespace={namespace}");
    let running = start(&bed, &Clock::fake(wall_now().into()), &[&only]).await;
    wait_for_passes(&running, 1).await;

    let page = http_get(&format!("http://{}/metrics", running.address())).await.expect("served");
    let page = String::from_utf8_lossy(&page).into_owned();
    let value = |family: &str, resource: &str| {
        let start = format!("{family}{{");
        let mut lines = page.lines().filter(|line| line.starts_with(&start));
        let line = lines.find(|line| line.contains(resource))?;
        line.rsplit_once(' ')?.1.parse::<f64>().ok()
    };
    let values = |resource: &str| {
        ["plimsoll_request", "plimsoll_request_min", "plimsoll_request_all_pods"]
            .map(|family| value(family, &format!("resource=\"{resource}\"")))
    };
    let memory = f64::from(64 << 20);
    assert_eq!(value("plimsoll_replicas", ""), Some(4.0), "{page}");
    assert_eq!(values("cpu"), [Some(0.1), Some(0.01), Some(0.13)], "{page}");
    assert_eq!(values("memory"), [Some(memory), Some(0.0), Some(3.0 * memory)], "{page}");
    running.stop().await;
}
