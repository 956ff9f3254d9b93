//! A target that becomes invalid and is repaired.

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

/// Runs passes until the condition `ConfigUnsupported` of the VPA `front` has this value.
async fn wait_until_unsupported(
    fixture: &Fixture,
    running: &RecommenderHandle,
    clock: &Clock,
    broken: bool,
) {
    let api = Api::<VerticalPodAutoscaler>::namespaced(fixture.client(), &fixture.namespace);
    wait::until("the condition reports the target", || async {
        fixture.advance(running, clock, 1, MINUTE).await;
        let vpa = api.get("front").await.ok()?;
        (is_unsupported(&vpa) == broken).then_some(())
    })
    .await;
    let unsupported = ["unsupported_config=\"true\""];
    let count = metric(running.address(), "vpa_recommender_vpa_objects_count", &unsupported).await;
    assert_eq!(count, f64::from(u8::from(broken)));
}

/// The UID of the workload's checkpoint and its number of samples.
async fn stored_samples(fixture: &Fixture) -> (String, u64) {
    let all = fixture.checkpoints().await;
    let of_it = all.into_iter().find(|one| one.metadata.name.as_deref() == Some("front-main"));
    let uid = of_it.and_then(|one| one.metadata.uid).expect("stored");
    (uid, fixture.samples().await["front"])
}

#[tokio::test]
async fn a_target_that_breaks_and_recovers_keeps_recommendation_and_history() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    fixture.set_constant_usage(0.5, 700);
    let clock = fixture.clock();
    // Orphans are collected every minute; this checkpoint is not an orphan.
    let flags = ["--checkpoint-interval=0s", "--checkpoints-gc-interval=1m"];
    let running = fixture.start(&clock, &flags).await;
    fixture.advance(&running, &clock, 8, MINUTE).await;
    wait::until("everything is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let before = fixture.recommendations().await;
    let (uid, samples) = stored_samples(&fixture).await;

    let deployments = Api::<Deployment>::namespaced(fixture.client(), &fixture.namespace);
    let pods = Api::<Pod>::namespaced(fixture.client(), &fixture.namespace);
    let background = DeleteParams::background();
    deployments.delete("front", &background).await.expect("exists");
    wait_until_unsupported(&fixture, &running, &clock, true).await;
    log.assert_line(&["failed to resolve target", "front", "does not exist"]);
    wait::until("its pods are gone", || async {
        let list = pods.list(&ListParams::default().labels("app=front")).await.ok()?;
        list.items.is_empty().then_some(())
    })
    .await;
    fixture.advance(&running, &clock, 3, MINUTE).await;
    assert_eq!(targets(&fixture.recommendations().await), targets(&before), "broken");
    assert!(stored_samples(&fixture).await.1 >= samples);

    fixture.deploy("front").await;
    fixture.pods("front").await;
    wait_until_unsupported(&fixture, &running, &clock, false).await;
    log.assert_line(&["resolved target again", "front"]);
    wait::until("its new pods are sampled", || async {
        let summary = fixture.advance(&running, &clock, 1, MINUTE).await;
        (summary.samples == 8).then_some(())
    })
    .await;
    assert_eq!(targets(&fixture.recommendations().await), targets(&before), "healed");
    wait::until("everything is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let (same, more) = stored_samples(&fixture).await;
    assert!(same == uid && more > samples, "{more} samples after {samples}");

    // The same by an edit of the VPA.
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(fixture.client(), &fixture.namespace);
    for (name, broken) in [("nowhere", true), ("front", false)] {
        let edit = json!({ "spec": { "targetRef": { "name": name } } });
        vpas.patch("front", &PatchParams::default(), &Patch::Merge(edit)).await.expect("edited");
        wait_until_unsupported(&fixture, &running, &clock, broken).await;
        fixture.advance(&running, &clock, 2, MINUTE).await;
        assert_eq!(targets(&fixture.recommendations().await), targets(&before), "{name}");
    }
    wait::until("everything is saved", || async { (running.unsaved() == 0).then_some(()) }).await;
    let (same, most) = stored_samples(&fixture).await;
    assert!(same == uid && most >= more, "{most} samples after {more}");

    // A restart while the target is invalid must not overwrite the checkpoint with a shorter history.
    let edit = json!({ "spec": { "targetRef": { "name": "nowhere" } } });
    vpas.patch("front", &PatchParams::default(), &Patch::Merge(edit)).await.expect("edited");
    wait_until_unsupported(&fixture, &running, &clock, true).await;
    running.stop().await;
    let running = fixture.start(&clock, &flags).await;
    fixture.advance(&running, &clock, 3, MINUTE).await;
    assert_eq!(
        targets(&fixture.recommendations().await),
        targets(&before),
        "restarted while broken"
    );
    let edit = json!({ "spec": { "targetRef": { "name": "front" } } });
    vpas.patch("front", &PatchParams::default(), &Patch::Merge(edit)).await.expect("edited");
    wait_until_unsupported(&fixture, &running, &clock, false).await;
    fixture.advance(&running, &clock, 2, MINUTE).await;
    assert_eq!(
        targets(&fixture.recommendations().await),
        targets(&before),
        "repaired after a restart"
    );
    running.stop().await;
    let (same, end) = stored_samples(&fixture).await;
    assert!(same == uid && end >= most, "{end} samples after {most}");
}
