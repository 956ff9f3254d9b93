//! Recommenders beside each other, and objects that are none of one's business.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;

use super::fixture::{Fixture, target_for_usage};
use crate::support::captured_log;
use crate::support::clock::wall_now;
use crate::support::wait;

/// Orphans are looked for in every minute.
const OFTEN: &str = "--checkpoints-gc-interval=1m";

pub async fn recommenders_of_two_names_never_touch_each_others_objects(stage: &Fixture) {
    let namespace = stage.bed.namespace("names").await;
    stage.deploy(&namespace, "web").await;
    stage.set_usage(&namespace, "web-", 0.1, 700);
    stage.create_vpa(&namespace, "one", "web").await;
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let spec = json!({ "targetRef": target, "recommenders": [{ "name": "two" }] });
    stage.create_vpa_with(&namespace, "two", &spec).await;
    stage.write_checkpoint(&namespace, "nobody", wall_now().as_second()).await;
    let (only, now) = (format!("--vpa-object-namespace={namespace}"), wall_now().into());
    let one = stage.start_recommender_at(now, &[&only, OFTEN]).await;
    for _ in 0..4 {
        one.step(stage).await;
    }
    stage.wait_for_samples(&namespace, "one-main", 5).await;
    let two = stage.start_recommender_at(now, &[&only, OFTEN, "--recommender-name=two"]).await;
    let begun = stage.wait_for_samples(&namespace, "two-main", 1).await;
    assert!(begun < 5, "what the other one saw of the same pods is not inherited: {begun}");
    for _ in 0..6 {
        for play in [&one, &two] {
            assert_eq!(play.step(stage).await.vpas, 1, "its own");
        }
    }
    wait::until("the checkpoint of nobody is collected", || async {
        for play in [&one, &two] {
            play.step(stage).await;
        }
        stage.checkpoint(&namespace, "nobody-main").await.is_null().then_some(())
    })
    .await;
    for name in ["one", "two"] {
        stage.wait_for_samples(&namespace, &format!("{name}-main"), 3).await;
        stage.wait_for_target(&namespace, name, "main", "memory", &target_for_usage(700)).await;
    }
    let collected = "verticalpodautoscalercheckpoints/nobody-main";
    for (name, play) in [("one", &one), ("two", &two)] {
        // Whoever was first has collected what is nobody's.
        let written: Vec<_> = play.writes().into_iter().filter(|it| it != collected).collect();
        let own = [
            format!("verticalpodautoscalercheckpoints/{name}-main"),
            format!("verticalpodautoscalers/{name}"),
        ];
        assert_eq!(written, own);
    }
    one.stop().await;
    two.stop().await;
}

pub async fn orphans_are_collected_but_not_in_ignored_namespaces(stage: &Fixture) {
    let (ours, ignored) =
        (stage.bed.namespace("orphans").await, stage.bed.namespace("ignored").await);
    let now = wall_now();
    for namespace in [&ours, &ignored] {
        stage.write_checkpoint(namespace, "gone", now.as_second()).await;
        stage.write_checkpoint(namespace, "here", now.as_second()).await;
        stage.create_vpa(namespace, "here", "nothing").await;
    }
    let flag = format!("--ignored-vpa-object-namespaces={ignored}");
    let play = stage.start_recommender_at(now.into(), &[&flag, OFTEN]).await;
    wait::until("the orphan is collected", || async {
        play.step(stage).await;
        stage.checkpoint(&ours, "gone-main").await.is_null().then_some(())
    })
    .await;
    // Once more, so that every namespace has had its turn.
    for _ in 0..3 {
        play.step(stage).await;
    }
    play.wait_for_metric_line("plimsoll_checkpoints_total{outcome=\"collected\"} 1").await;
    assert_eq!(stage.checkpoints(&ours).await, ["here-main"]);
    assert_eq!(stage.checkpoints(&ignored).await, ["gone-main", "here-main"]);
    play.stop().await;
}

pub async fn one_namespace_alone_is_looked_after(stage: &Fixture) {
    let (ours, other) = (stage.bed.namespace("ours").await, stage.bed.namespace("other").await);
    for namespace in [&ours, &other] {
        stage.deploy(namespace, "web").await;
        stage.set_usage(namespace, "web-", 0.1, 700);
        stage.create_vpa(namespace, "web", "web").await;
    }
    let play = stage.start_recommender(&ours, &["--memory-saver"]).await;
    let summary = play.step(stage).await;
    assert_eq!((summary.vpas, summary.pods, summary.samples), (1, 1, 2));
    stage.wait_for_target(&ours, "web", "main", "memory", &target_for_usage(700)).await;
    stage.wait_for_samples(&ours, "web-main", 1).await;
    assert!(stage.vpa(&other, "web").await["status"]["conditions"].is_null(), "not written");
    assert_eq!(stage.checkpoints(&other).await, [""; 0]);
    play.stop().await;
}

pub async fn a_malformed_vpa_is_skipped_counted_and_named_and_keeps_its_checkpoint(
    stage: &Fixture,
) {
    let namespace = stage.bed.namespace("malformed").await;
    stage.deploy(&namespace, "web").await;
    stage.set_usage(&namespace, "web-", 0.1, 700);
    stage.create_vpa(&namespace, "web", "web").await;
    let now = wall_now();
    for name in ["bad", "gone"] {
        stage.write_checkpoint(&namespace, name, now.as_second()).await;
    }
    take_schema_away(stage).await;
    let kind = ApiResource::erase::<VerticalPodAutoscaler>(&());
    let vpas: Api<DynamicObject> = Api::namespaced_with(stage.client(), &namespace, &kind);
    let bad = DynamicObject::new("bad", &kind).data(json!({ "spec": { "targetRef": 5 } }));
    wait::until("the server takes anything", || async {
        vpas.create(&PostParams::default(), &bad).await.ok()
    })
    .await;
    let (words, _guard) = captured_log::capture();
    let play = stage.start_recommender(&namespace, &[OFTEN]).await;
    wait::until("the orphan is collected", || async {
        play.step(stage).await;
        stage.checkpoint(&namespace, "gone-main").await.is_null().then_some(())
    })
    .await;
    for _ in 0..3 {
        assert_eq!(play.step(stage).await.vpas, 1, "the other one");
    }
    stage.wait_for_target(&namespace, "web", "main", "memory", &target_for_usage(700)).await;
    play.wait_for_metric_line("plimsoll_feed_malformed_total{feed=\"verticalpodautoscalers\"} 1")
        .await;
    let said = words.lines(&["verticalpodautoscalers", "bad", "invalid type: integer `5`"]);
    assert_eq!(said.len(), 1, "named once: {said:?}");
    assert!(!stage.checkpoint(&namespace, "bad-main").await.is_null(), "whoever it is for");
    play.stop().await;
}

async fn take_schema_away(stage: &Fixture) {
    let definitions = Api::<CustomResourceDefinition>::all(stage.client());
    let name = "verticalpodautoscalers.autoscaling.k8s.io";
    let mut definition = definitions.get(name).await.expect("defined");
    for version in &mut definition.spec.versions {
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let schema = version.schema.get_or_insert_default();
        schema.open_api_v3_schema = serde_json::from_value(anything).expect("a schema");
        // The columns look into what is no longer described.
        version.additional_printer_columns = None;
    }
    let change = json!({ "spec": { "versions": definition.spec.versions } });
    let plain = PatchParams::default();
    definitions.patch(name, &plain, &Patch::Merge(change)).await.expect("changed");
}
