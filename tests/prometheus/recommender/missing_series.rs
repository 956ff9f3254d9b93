//! A workload whose pods are called otherwise than usual has its history by the names of the pods that are there; one without any
//! series, beside others that have some, is reported.

use k8s_openapi::api::core::v1::Pod;

use super::fixture::{BYTES, CORES, Fixture, cores, has_condition, recommendation, with_usage};
use crate::recommender::in_process::wait_until_written;
use crate::support::hollow_nodes::is_ready;
use crate::support::metrics_server::UsageValue;
use crate::support::{captured_log, manifests};

const CONDITION: &str = "HistoryNotFound";

#[tokio::test]
async fn live_pods_have_a_history_whatever_they_are_called_and_a_missing_one_is_reported_once() {
    let more = |past, namespace: &str, end| with_usage(past, namespace, "front", CORES, end);
    let Some(stage) = Fixture::ending_later(20, more).await else { return };
    for name in ["odd", "silent"] {
        stage.deploy(name).await;
        stage.create_vpa(name).await;
    }
    let yaml = manifests::pod("front", "Always", "100m", "64Mi");
    let yaml = yaml.replacen("{name: front}", "{name: front, labels: {app: odd}}", 1);
    manifests::create::<Pod>(stage.bed.client(), &stage.namespace, &yaml).await;
    stage.bed.nodes().pods(&stage.namespace, "front", 1, "is ready", is_ready).await;
    let used = UsageValue { cpu: CORES, memory: BYTES };
    stage.usage.set_all(&stage.namespace, "front", "main", used);

    let (log, _guard) = captured_log::capture();
    let running = stage.start(&["--bounds-dead-band=0"]).await;
    stage.wait_for_history(&running).await;
    wait_until_written(&running).await;
    let vpa = stage.vpa("odd", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    let bounds = cores(recommendation(&vpa).expect("it has"));
    assert!(bounds[0] > bounds[1] * 0.98, "four days make it sure: {bounds:?}");
    assert!(!has_condition(&vpa, CONDITION));
    assert!(!has_condition(&stage.vpa("web", "exists", |_| true).await, CONDITION));
    stage.vpa("silent", "says so", |vpa| has_condition(vpa, CONDITION)).await;
    let lines = log.lines(&["no history found"]);
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    assert!(line.contains("vpas=1") && line.contains("/silent"), "{line}");
    running.stop().await;
}
