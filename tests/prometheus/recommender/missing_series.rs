//! A workload with irregular pod names gets its history by the names of its running pods; one without any series, next
//! to others that have some, is reported.

use k8s_openapi::api::core::v1::Pod;

use super::fixture::{BYTES, CORES, Fixture, cores, has_condition, recommendation, with_usage};
use crate::recommender::in_process::wait_until_written;
use crate::support::hollow_nodes::is_ready;
use crate::support::metrics_server::UsageValue;
use crate::support::{captured_log, manifests};

const CONDITION: &str = "HistoryNotFound";

#[tokio::test]
async fn running_pods_have_a_history_and_a_missing_one_is_reported_once() {
    let more = |past, namespace: &str, end| with_usage(past, namespace, "front", CORES, end);
    let Some(fixture) = Fixture::ending_later(20, more).await else { return };
    for name in ["odd", "silent"] {
        fixture.deploy(name).await;
        fixture.create_vpa(name).await;
    }
    let yaml = manifests::pod("front", "Always", "100m", "64Mi");
    let yaml = yaml.replacen("{name: front}", "{name: front, labels: {app: odd}}", 1);
    manifests::create::<Pod>(fixture.bed.client(), &fixture.namespace, &yaml).await;
    fixture.bed.nodes().pods(&fixture.namespace, "front", 1, "is ready", is_ready).await;
    let used = UsageValue { cpu: CORES, memory: BYTES };
    fixture.usage.set_all(&fixture.namespace, "front", "main", used);

    let (log, _guard) = captured_log::capture();
    let running = fixture.start(&["--bounds-dead-band=0"]).await;
    fixture.wait_for_history(&running).await;
    wait_until_written(&running).await;
    let vpa = fixture.vpa("odd", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    let bounds = cores(recommendation(&vpa).expect("is present"));
    assert!(bounds[0] > bounds[1] * 0.98, "four days narrow the bounds: {bounds:?}");
    assert!(!has_condition(&vpa, CONDITION));
    assert!(!has_condition(&fixture.vpa("web", "exists", |_| true).await, CONDITION));
    fixture.vpa("silent", "says so", |vpa| has_condition(vpa, CONDITION)).await;
    let lines = log.lines(&["no history found"]);
    let [line] = &lines[..] else { panic!("expected one line: {lines:?}") };
    assert!(line.contains("vpas=1") && line.contains("/silent"), "{line}");
    running.stop().await;
}
