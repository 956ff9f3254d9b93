//! A workload whose pods are called otherwise than usual has its history by the names of the pods that are there; one without any
//! series, beside others that have some, is reported.

use k8s_openapi::api::core::v1::Pod;

use super::stage::{BYTES, CORES, Stage, cores, has, lived, said};
use crate::recommender::start::written;
use crate::support::nodes::is_ready;
use crate::support::usage::Use;
use crate::support::{log, objects};

const CONDITION: &str = "HistoryNotFound";

#[tokio::test]
async fn live_pods_have_a_history_whatever_they_are_called_and_a_missing_one_is_reported_once() {
    let more = |past, namespace: &str, end| lived(past, namespace, "front", CORES, end);
    let Some(stage) = Stage::ahead(20, more).await else { return };
    for name in ["odd", "silent"] {
        stage.run(name).await;
        stage.autoscale(name).await;
    }
    let yaml = objects::pod("front", "Always", "100m", "64Mi");
    let yaml = yaml.replacen("{name: front}", "{name: front, labels: {app: odd}}", 1);
    objects::create::<Pod>(stage.bed.client(), &stage.namespace, &yaml).await;
    stage.bed.nodes().pods(&stage.namespace, "front", 1, "is ready", is_ready).await;
    let used = Use { cpu: CORES, memory: BYTES };
    stage.usage.set_all(&stage.namespace, "front", "main", used);

    let (log, _guard) = log::keep();
    let running = stage.start(&["--bounds-dead-band=0"]).await;
    stage.remembers(&running).await;
    written(&running).await;
    let vpa = stage.vpa("odd", "has a recommendation", |vpa| said(vpa).is_some()).await;
    let bounds = cores(said(&vpa).expect("it has"));
    assert!(bounds[0] > bounds[1] * 0.98, "four days make it sure: {bounds:?}");
    assert!(!has(&vpa, CONDITION));
    assert!(!has(&stage.vpa("web", "exists", |_| true).await, CONDITION));
    stage.vpa("silent", "says so", |vpa| has(vpa, CONDITION)).await;
    let lines = log.lines(&["no history found"]);
    let [line] = &lines[..] else { panic!("one line: {lines:?}") };
    assert!(line.contains("vpas=1") && line.contains("/silent"), "{line}");
    running.stop().await;
}
