//! CPU usage during a startup boost is not part of the recommendation (W14).

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;

use super::faults::fixture::{
    Fixture, MEBIBYTE, MINUTE, Recommendations, metric, targets, wait_for_metric,
};
use crate::support::hollow_nodes::is_ready;
use crate::support::manifests;
use crate::support::metrics_server::UsageValue;

const NAMES: &[&str] = &["front"];
const SAMPLES: &str = "plimsoll_samples_total";
const BOOSTED: &[&str] = &["outcome=\"boosted\""];

fn cores(recommendations: &Recommendations) -> f64 {
    let target = &recommendations["front"].container_recommendations[0].target;
    target.cpu().expect("CPU is recommended").milli_value() as f64 / 1000.0
}

#[tokio::test]
async fn cpu_usage_during_a_startup_boost_is_excluded() {
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let boost = json!({"cpu": {"type": "Factor", "factor": 4, "durationSeconds": 600}});
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(fixture.client(), &fixture.namespace);
    let patch = Patch::Merge(json!({"spec": {"startupBoost": boost}}));
    vpas.patch("front", &PatchParams::default(), &patch).await.expect("has a boost");
    // The annotation that the webhook would set.
    let pods = Api::<Pod>::namespaced(fixture.client(), &fixture.namespace);
    for pod in fixture.pods("front").await {
        let noted =
            json!({"vpaCpuStartupBoost/main": r#"{"requests":{"cpu":"100m"},"limits":{}}"#});
        let patch = Patch::Merge(json!({"metadata": {"annotations": noted}}));
        pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await.expect("recorded");
    }
    let greedy = UsageValue { cpu: 8.0, memory: 900 * MEBIBYTE };
    fixture.set_usage("front", greedy);

    let clock = fixture.clock();
    let running = fixture.start(&clock, &["--checkpoint-interval=0s"]).await;
    let address = running.address();
    let summary = fixture.advance(&running, &clock, 5, MINUTE).await;
    assert_eq!(summary.samples, 2, "the memory of two pods");
    assert_eq!(metric(address, SAMPLES, BOOSTED).await, 12.0, "CPU samples are dropped");
    let recommendations = fixture.recommendations().await;
    assert!(cores(&recommendations) < 0.1, "CPU is unknown: {:?}", targets(&recommendations));
    let memory = recommendations["front"].container_recommendations[0].target.memory();
    let memory = memory.expect("memory is recommended").to_string();
    assert_ne!(memory, "262144k", "memory counts from the first sample");

    // A pod without boost counts from the start.
    let yaml = manifests::pod("solo", "Always", "100m", "64Mi");
    let yaml = yaml.replacen("{name: solo}", "{name: solo, labels: {app: front}}", 1);
    manifests::create::<Pod>(fixture.client(), &fixture.namespace, &yaml).await;
    fixture.bed.nodes().pods(&fixture.namespace, "solo", 1, "is ready", is_ready).await;
    wait_for_metric(address, "plimsoll_feed_objects", &["feed=\"pods\""], |pods| pods == 3.0).await;
    let modest = UsageValue { cpu: 0.5, memory: 100 * MEBIBYTE };
    fixture.usage.set_all(&fixture.namespace, "solo", "main", modest);
    fixture.advance(&running, &clock, 4, MINUTE).await;
    let amid = cores(&fixture.recommendations().await);
    assert!((0.4..1.0).contains(&amid), "{amid} cores are those of the pod without a boost");

    // Ten minutes after readiness the boost is over, whether or not the annotation was removed.
    fixture.advance(&running, &clock, 30, MINUTE).await;
    let left_out = metric(address, SAMPLES, BOOSTED).await;
    assert!((18.0..=24.0).contains(&left_out), "{left_out} samples of the first ten minutes");
    let after = cores(&fixture.recommendations().await);
    assert!(after > 7.0, "{after} cores are the usage without a boost");
    running.stop().await;
}

/// Without the fix, usage during a boost counts, as upstream does it.
#[tokio::test]
async fn boost_samples_stay_out() {
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let pods = Api::<Pod>::namespaced(fixture.client(), &fixture.namespace);
    for pod in fixture.pods("front").await {
        let patch =
            Patch::Merge(json!({"metadata": {"annotations": {"vpaCpuStartupBoost/main": "{}"}}}));
        pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await.expect("recorded");
    }
    fixture.set_constant_usage(8.0, 900);
    let clock = fixture.clock();
    let running = fixture.start(&clock, &["--disable-fix=boost-samples-stay-out"]).await;
    let summary = fixture.advance(&running, &clock, 3, MINUTE).await;
    assert_eq!(summary.samples, 4);
    assert_eq!(metric(running.address(), SAMPLES, BOOSTED).await, 0.0);
    assert!(cores(&fixture.recommendations().await) > 7.0);
    running.stop().await;
}
