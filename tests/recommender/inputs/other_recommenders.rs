//! Several recommenders side by side, and objects that a recommender must not touch.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;

use super::fixture::{Fixture, target_for_usage};
use crate::support::captured_log;
use crate::support::clock::wall_now;
use crate::support::wait;

/// Collects orphans every minute.
const OFTEN: &str = "--checkpoints-gc-interval=1m";

pub async fn recommenders_of_two_names_never_touch_each_others_objects(fixture: &Fixture) {
    let namespace = fixture.bed.namespace("names").await;
    fixture.deploy(&namespace, "web").await;
    fixture.set_usage(&namespace, "web-", 0.1, 700);
    fixture.create_vpa(&namespace, "one", "web").await;
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let spec = json!({ "targetRef": target, "recommenders": [{ "name": "two" }] });
    fixture.create_vpa_with(&namespace, "two", &spec).await;
    fixture.write_checkpoint(&namespace, "nobody", wall_now().as_second()).await;
    let (only, now) = (format!("--vpa-object-namespace={namespace}"), wall_now().into());
    let one = fixture.start_recommender_at(now, &[&only, OFTEN]).await;
    for _ in 0..4 {
        one.step(fixture).await;
    }
    fixture.wait_for_samples(&namespace, "one-main", 5).await;
    let two = fixture.start_recommender_at(now, &[&only, OFTEN, "--recommender-name=two"]).await;
    let samples = fixture.wait_for_samples(&namespace, "two-main", 1).await;
    assert!(
        samples < 5,
        "the other recommender's samples of the same pods are not inherited: {samples}"
    );
    for _ in 0..6 {
        for recommender in [&one, &two] {
            assert_eq!(recommender.step(fixture).await.vpas, 1, "its own VPA");
        }
    }
    wait::until("the orphan is collected", || async {
        for recommender in [&one, &two] {
            recommender.step(fixture).await;
        }
        fixture.checkpoint(&namespace, "nobody-main").await.is_null().then_some(())
    })
    .await;
    for name in ["one", "two"] {
        fixture.wait_for_samples(&namespace, &format!("{name}-main"), 3).await;
        fixture.wait_for_target(&namespace, name, "main", "memory", &target_for_usage(700)).await;
    }
    let collected = "verticalpodautoscalercheckpoints/nobody-main";
    for (name, recommender) in [("one", &one), ("two", &two)] {
        // The recommender that started first has collected the orphans.
        let written: Vec<_> =
            recommender.writes().into_iter().filter(|it| it != collected).collect();
        let own = [
            format!("verticalpodautoscalercheckpoints/{name}-main"),
            format!("verticalpodautoscalers/{name}"),
        ];
        assert_eq!(written, own);
    }
    one.stop().await;
    two.stop().await;
}

pub async fn orphans_are_collected_but_not_in_ignored_namespaces(fixture: &Fixture) {
    let (ours, ignored) =
        (fixture.bed.namespace("orphans").await, fixture.bed.namespace("ignored").await);
    let now = wall_now();
    for namespace in [&ours, &ignored] {
        fixture.write_checkpoint(namespace, "gone", now.as_second()).await;
        fixture.write_checkpoint(namespace, "here", now.as_second()).await;
        fixture.create_vpa(namespace, "here", "nothing").await;
    }
    let flag = format!("--ignored-vpa-object-namespaces={ignored}");
    let recommender = fixture.start_recommender_at(now.into(), &[&flag, OFTEN]).await;
    wait::until("the orphan is collected", || async {
        recommender.step(fixture).await;
        fixture.checkpoint(&ours, "gone-main").await.is_null().then_some(())
    })
    .await;
    // Three more, so that every namespace is covered.
    for _ in 0..3 {
        recommender.step(fixture).await;
    }
    recommender.wait_for_metric_line("plimsoll_checkpoints_total{outcome=\"collected\"} 1").await;
    assert_eq!(fixture.checkpoints(&ours).await, ["here-main"]);
    assert_eq!(fixture.checkpoints(&ignored).await, ["gone-main", "here-main"]);
    recommender.stop().await;
}

pub async fn only_the_configured_namespace_is_watched(fixture: &Fixture) {
    let (ours, other) = (fixture.bed.namespace("ours").await, fixture.bed.namespace("other").await);
    for namespace in [&ours, &other] {
        fixture.deploy(namespace, "web").await;
        fixture.set_usage(namespace, "web-", 0.1, 700);
        fixture.create_vpa(namespace, "web", "web").await;
    }
    let recommender = fixture.start_recommender(&ours, &["--memory-saver"]).await;
    let summary = recommender.step(fixture).await;
    assert_eq!((summary.vpas, summary.pods, summary.samples), (1, 1, 2));
    fixture.wait_for_target(&ours, "web", "main", "memory", &target_for_usage(700)).await;
    fixture.wait_for_samples(&ours, "web-main", 1).await;
    assert!(fixture.vpa(&other, "web").await["status"]["conditions"].is_null(), "not written");
    assert_eq!(fixture.checkpoints(&other).await, [""; 0]);
    recommender.stop().await;
}

pub async fn a_malformed_vpa_is_skipped_and_reported_and_keeps_its_checkpoint(fixture: &Fixture) {
    let namespace = fixture.bed.namespace("malformed").await;
    fixture.deploy(&namespace, "web").await;
    fixture.set_usage(&namespace, "web-", 0.1, 700);
    fixture.create_vpa(&namespace, "web", "web").await;
    let now = wall_now();
    for name in ["bad", "gone"] {
        fixture.write_checkpoint(&namespace, name, now.as_second()).await;
    }
    remove_schema(fixture).await;
    let kind = ApiResource::erase::<VerticalPodAutoscaler>(&());
    let vpas: Api<DynamicObject> = Api::namespaced_with(fixture.client(), &namespace, &kind);
    let bad = DynamicObject::new("bad", &kind).data(json!({ "spec": { "targetRef": 5 } }));
    wait::until("the schema is no longer enforced", || async {
        vpas.create(&PostParams::default(), &bad).await.ok()
    })
    .await;
    let (words, _guard) = captured_log::capture();
    let recommender = fixture.start_recommender(&namespace, &[OFTEN]).await;
    wait::until("the orphan is collected", || async {
        recommender.step(fixture).await;
        fixture.checkpoint(&namespace, "gone-main").await.is_null().then_some(())
    })
    .await;
    for _ in 0..3 {
        assert_eq!(recommender.step(fixture).await.vpas, 1, "the other VPA");
    }
    fixture.wait_for_target(&namespace, "web", "main", "memory", &target_for_usage(700)).await;
    recommender
        .wait_for_metric_line("plimsoll_feed_malformed_total{feed=\"verticalpodautoscalers\"} 1")
        .await;
    let lines = words.lines(&["verticalpodautoscalers", "bad", "invalid type: integer `5`"]);
    assert_eq!(lines.len(), 1, "logged once: {lines:?}");
    assert!(!fixture.checkpoint(&namespace, "bad-main").await.is_null(), "for any recommender");
    recommender.stop().await;
}

async fn remove_schema(fixture: &Fixture) {
    let definitions = Api::<CustomResourceDefinition>::all(fixture.client());
    let name = "verticalpodautoscalers.autoscaling.k8s.io";
    let mut definition = definitions.get(name).await.expect("defined");
    for version in &mut definition.spec.versions {
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let schema = version.schema.get_or_insert_default();
        schema.open_api_v3_schema = serde_json::from_value(anything).expect("schema detected");
        // The printer columns refer to fields that the schema no longer describes.
        version.additional_printer_columns = None;
    }
    let change = json!({ "spec": { "versions": definition.spec.versions } });
    let plain = PatchParams::default();
    definitions.patch(name, &plain, &Patch::Merge(change)).await.expect("changed");
}
