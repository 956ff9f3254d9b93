//! A target that breaks and heals.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use plimsoll::cluster::clock::Clock;
use plimsoll::controllers::recommender::RecommenderHandle;
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;

use super::fixture::{Fixture, MINUTE, metric, targets};
use crate::support::captured_log;
use crate::support::wait;

const NAMES: &[&str] = &["front", "worker"];

fn is_unsupported(vpa: &VerticalPodAutoscaler) -> bool {
    let conditions = vpa.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|one| one.kind == "ConfigUnsupported" && one.status == "True")
}

/// Lives on until the VPA `front` says that its target is broken, or that it is not.
async fn wait_until_unsupported(
    stage: &Fixture,
    running: &RecommenderHandle,
    clock: &Clock,
    broken: bool,
) {
    let api = Api::<VerticalPodAutoscaler>::namespaced(stage.client(), &stage.namespace);
    wait::until("the condition tells of the target", || async {
        stage.advance(running, clock, 1, MINUTE).await;
        let vpa = api.get("front").await.ok()?;
        (is_unsupported(&vpa) == broken).then_some(())
    })
    .await;
    let unsupported = ["unsupported_config=\"true\""];
    let count = metric(running.address(), "vpa_recommender_vpa_objects_count", &unsupported).await;
    assert_eq!(count, f64::from(u8::from(broken)));
}

/// What tells the checkpoint of a workload from any other, and how much it holds.
async fn stored_samples(stage: &Fixture) -> (String, u64) {
    let all = stage.checkpoints().await;
    let of_it = all.into_iter().find(|one| one.metadata.name.as_deref() == Some("front-main"));
    let uid = of_it.and_then(|one| one.metadata.uid).expect("it is stored");
    (uid, stage.samples().await["front"])
}

#[tokio::test]
async fn a_target_that_breaks_and_heals_costs_neither_the_recommendation_nor_the_history() {
    let (log, _guard) = captured_log::capture();
    let Some(stage) = Fixture::new(NAMES).await else { return };
    stage.set_constant_usage(0.5, 700);
    let clock = stage.clock();
    // Orphans are collected all the time: this one is none.
    let flags = ["--checkpoint-interval=0s", "--checkpoints-gc-interval=1m"];
    let running = stage.start(&clock, &flags).await;
    stage.advance(&running, &clock, 8, MINUTE).await;
    wait::until("all is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let before = stage.recommendations().await;
    let (uid, samples) = stored_samples(&stage).await;

    let deployments = Api::<Deployment>::namespaced(stage.client(), &stage.namespace);
    let pods = Api::<Pod>::namespaced(stage.client(), &stage.namespace);
    let background = DeleteParams::background();
    deployments.delete("front", &background).await.expect("it is there");
    wait_until_unsupported(&stage, &running, &clock, true).await;
    log.assert_line(&["the workload cannot be found", "front", "does not exist"]);
    wait::until("its pods are gone", || async {
        let list = pods.list(&ListParams::default().labels("app=front")).await.ok()?;
        list.items.is_empty().then_some(())
    })
    .await;
    stage.advance(&running, &clock, 3, MINUTE).await;
    assert_eq!(targets(&stage.recommendations().await), targets(&before), "broken");
    assert!(stored_samples(&stage).await.1 >= samples);

    stage.deploy("front").await;
    stage.pods("front").await;
    wait_until_unsupported(&stage, &running, &clock, false).await;
    log.assert_line(&["the workload was found", "front"]);
    wait::until("its new pods are sampled", || async {
        let summary = stage.advance(&running, &clock, 1, MINUTE).await;
        (summary.samples == 8).then_some(())
    })
    .await;
    assert_eq!(targets(&stage.recommendations().await), targets(&before), "healed");
    wait::until("all is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let (same, more) = stored_samples(&stage).await;
    assert!(same == uid && more > samples, "{more} samples after {samples}");

    // The same by an edit of the VPA.
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(stage.client(), &stage.namespace);
    for (name, broken) in [("nowhere", true), ("front", false)] {
        let edit = json!({ "spec": { "targetRef": { "name": name } } });
        vpas.patch("front", &PatchParams::default(), &Patch::Merge(edit)).await.expect("edited");
        wait_until_unsupported(&stage, &running, &clock, broken).await;
        stage.advance(&running, &clock, 2, MINUTE).await;
        assert_eq!(targets(&stage.recommendations().await), targets(&before), "{name}");
    }
    wait::until("all is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let (same, most) = stored_samples(&stage).await;
    assert!(same == uid && most >= more, "{most} samples after {more}");

    // A restart while it is broken: what is stored is not written over by what is poorer.
    let edit = json!({ "spec": { "targetRef": { "name": "nowhere" } } });
    vpas.patch("front", &PatchParams::default(), &Patch::Merge(edit)).await.expect("edited");
    wait_until_unsupported(&stage, &running, &clock, true).await;
    running.stop().await;
    let running = stage.start(&clock, &flags).await;
    stage.advance(&running, &clock, 3, MINUTE).await;
    assert_eq!(targets(&stage.recommendations().await), targets(&before), "restarted while broken");
    let edit = json!({ "spec": { "targetRef": { "name": "front" } } });
    vpas.patch("front", &PatchParams::default(), &Patch::Merge(edit)).await.expect("edited");
    wait_until_unsupported(&stage, &running, &clock, false).await;
    stage.advance(&running, &clock, 2, MINUTE).await;
    assert_eq!(targets(&stage.recommendations().await), targets(&before), "healed after a restart");
    running.stop().await;
    let (same, end) = stored_samples(&stage).await;
    assert!(same == uid && end >= most, "{end} samples after {most}");
}
