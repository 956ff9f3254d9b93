//! `plimsoll explain hpa` on a real cluster: its decision is that of kube-controller-manager.

mod report;

use std::process::Output;

use k8s_openapi::api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler};
use kube::Api;
use plimsoll::report::explain::HpaReport;
use plimsoll_core::api::VerticalPodAutoscaler;

use super::{MEBIBYTE, plimsoll, refused};
use crate::{
    schema::{faults, schema},
    storage::checkpoint_objects::create_definitions,
    support::{
        MetricsServer, Testbed, hollow_nodes::is_ready, manifests, metrics_server::UsageValue,
        skipped::report_skipped, wait,
    },
};

/// Memory is 80 % of the request at the target: its usage counts from the start, unlike that of CPU.
const HPA: &str = "
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 4
  metrics:
  - {type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 80}}}
";

fn explain(bed: &Testbed, namespace: &str, more: &[&str]) -> Output {
    let config = format!("--kubeconfig={}", bed.kubeconfig_path().display());
    let name = format!("{namespace}/web");
    let arguments = [&["explain", "hpa", &*config, &*name], more].concat();
    plimsoll(&arguments).output().expect("it starts")
}

/// The report in JSON, if it follows its schema.
fn report(bed: &Testbed, namespace: &str) -> Option<HpaReport> {
    let output = explain(bed, namespace, &["-o=json"]);
    let value = serde_json::from_slice(&output.stdout).ok()?;
    assert_eq!(faults(&schema("explain-hpa.v1.json"), &value), Vec::<String>::new());
    Some(serde_json::from_value(value).expect("a report"))
}

fn codes(report: &HpaReport) -> Vec<&str> {
    report.findings.iter().map(|finding| &*finding.code).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_explained_decision_is_that_of_the_hpa_controller() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else {
        report_skipped("a whole control plane");
        return;
    };
    create_definitions(&bed).await;
    let namespace = bed.namespace("explain-hpa").await;
    let usage = MetricsServer::shared(&bed, &namespace).await;
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.1, memory: 512 * MEBIBYTE });
    let web = manifests::deployment("web", 2, "100m", "256Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    bed.nodes().pods(&namespace, "web-", 2, "are ready", is_ready).await;
    assert!(refused(&explain(&bed, &namespace, &[]), 1).contains("HorizontalPodAutoscaler"));
    manifests::create::<HorizontalPodAutoscaler>(bed.client(), &namespace, HPA).await;

    // Twice the request is 2.5 times the target: 2 pods become 5, or 4 with the maximum, and these 4 ask for 10.
    let at_max = wait::until("the explanation of the scaled workload", || async {
        report(&bed, &namespace).filter(|report| {
            let metric = report.metrics.first();
            metric.and_then(|metric| metric.proposal) == Some(10)
                && report.desired_by_controller == 4
        })
    })
    .await;
    assert_eq!((at_max.replicas, at_max.desired), (Some(4), Some(4)));
    assert_eq!(at_max.restrictions, ["max"]);
    assert_eq!(codes(&at_max), ["at_max"]);
    let metric = &at_max.metrics[0];
    assert_eq!(metric.value.as_deref(), Some("200%, 512Mi per pod"));
    assert_eq!((metric.ratio, &*metric.target), (Some(2.5), "80%"));
    let pods = metric.pods.as_ref().expect("a metric of pods");
    assert_eq!((pods.counted, pods.unready.len(), pods.missing.len()), (4, 0, 0));

    // What kube-controller-manager wrote is what our decision would write.
    let api = Api::<HorizontalPodAutoscaler>::namespaced(bed.client(), &namespace);
    let status = api.get("web").await.expect("the HPA").status.expect("a status");
    let limited = status.conditions.iter().flatten().find(|one| one.type_ == "ScalingLimited");
    assert_eq!(limited.and_then(|one| one.reason.as_deref()), Some("TooManyReplicas"));

    // A VPA of the same workload, and a second HPA, with which both stop.
    let vpa = "{metadata: {name: web}, spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}";
    manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, vpa).await;
    let second = HPA.replace("{name: web}\nspec", "{name: again}\nspec");
    manifests::create::<HorizontalPodAutoscaler>(bed.client(), &namespace, &second).await;
    let ambiguous = wait::until("both HPAs have stopped", || async {
        report(&bed, &namespace).filter(|report| report.failing_since.is_some())
    })
    .await;
    assert_eq!(
        (ambiguous.desired, &ambiguous.restrictions[..]),
        (None, &["ambiguous_selector".to_owned()][..])
    );
    assert_eq!(codes(&ambiguous), ["selector", "vpa_same_resource"]);
    let ours = ambiguous.error.as_deref().expect("an error");
    let theirs = ambiguous.conditions.iter().find(|one| one.type_ == "ScalingActive");
    let theirs = theirs.and_then(|one| one.message.as_deref()).expect("a message");
    let sorted = |message: &str| {
        let mut words: Vec<_> = message.split([' ', '[', ']']).map(str::to_owned).collect();
        words.sort();
        words
    };
    assert_eq!(sorted(ours), sorted(theirs), "the order of names is random");
}
