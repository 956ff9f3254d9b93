//! Objects as other controllers left them: with finalizers, missing fields or mistakes; and how they are created and
//! deleted.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::fixture::{Fixture, object};
use crate::support::{
    api_proxy::{ApiProxy, pass_through, respond_with},
    wait,
};

const DEFINITION: &str = "watermarkpodautoscalers.datadoghq.com";
const FINALIZER: &str = "finalizer.watermarkpodautoscaler.datadoghq.com";

#[tokio::test(flavor = "multi_thread")]
async fn datadogs_finalizer_is_removed_so_that_deletion_does_not_hang() {
    let Some(fixture) = Fixture::new("finalizers", &[]).await else { return };
    fixture.deployment("web", 2).await;
    fixture.metric("web", 75.0);
    let mut with = object("web", json!({}));
    with["metadata"]["finalizers"] = json!([FINALIZER, "other.example.com/stays"]);
    fixture.create(&with).await;
    let finalizers = fixture.get("web").await.metadata.finalizers;
    assert_eq!(finalizers, Some(vec!["other.example.com/stays".to_owned()]));
    // The finalizer of an invalid object is removed as well.
    let mut invalid = object("bad", json!({"maxReplicas": 1, "minReplicas": 5}));
    invalid["metadata"]["finalizers"] = json!([FINALIZER]);
    fixture.create(&invalid).await;
    fixture.api().delete("bad", &DeleteParams::default()).await.expect("deleted");
    wait::until("it is gone", || async {
        fixture.api().get_opt("bad").await.ok()?.is_none().then_some(())
    })
    .await;
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    fixture.api().patch("web", &PatchParams::default(), &none).await.expect("changed");
    fixture.api().delete("web", &DeleteParams::default()).await.expect("deleted");
    wait::until("its series are gone", || async {
        fixture.series("wpa_controller_min_replicas", &[]).await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_whose_finalizer_cannot_be_removed_is_reconciled_anyway() {
    let alone = "--enable-leader-election=false";
    let Some(fixture) = Fixture::new("kept", &[alone]).await else { return };
    let is_change = |method: &Method, path: &str| method == Method::PATCH && path.ends_with("/web");
    let proxy = ApiProxy::start(fixture.bed.client(), move |method, path| {
        if is_change(method, path) { respond_with(403, None) } else { pass_through() }
    })
    .await;
    let fixture = fixture.restart_as(proxy.client.clone(), &[alone]).await;
    fixture.deployment("web", 2).await;
    fixture.metric("web", 150.0);
    let mut with = object("web", json!({}));
    with["metadata"]["finalizers"] = json!([FINALIZER]);
    fixture.create(&with).await;
    fixture.wait_until_scaled("web", 3).await;
    fixture.advance_seconds(300).await;
    assert_eq!(fixture.get("web").await.metadata.finalizers, Some(vec![FINALIZER.to_owned()]));
    assert_eq!(proxy.arrival_times(&Method::PATCH, "/web").len(), 1, "not read each time");
    fixture.advance_seconds(600).await;
    assert_eq!(proxy.arrival_times(&Method::PATCH, "/web").len(), 2, "but occasionally");
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_are_applied_in_memory_and_written_to_the_object_only_in_upstreams_mode() {
    for (flags, written) in [(&[][..], false), (&["--compat=upstream"][..], true)] {
        let Some(fixture) = Fixture::new("gaps", flags).await else { return };
        fixture.deployment("web", 2).await;
        fixture.metric("web", 75.0);
        let mut bare = object("web", json!({}));
        let spec = bare["spec"].as_object_mut().expect("an object");
        spec.retain(|key, _| ["scaleTargetRef", "maxReplicas", "metrics"].contains(&&**key));
        fixture.create(&bare).await;
        fixture.advance_period().await;
        wait::until("it is reconciled", || async {
            let active = fixture.condition("web", "ScalingActive").await?;
            (active.0 == "True").then_some(())
        })
        .await;
        let spec = fixture.get("web").await.spec;
        assert_eq!(spec.tolerance.is_some(), written);
        assert_eq!(spec.min_replicas.is_some(), written);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_object_is_reported_once_and_reconciled_as_soon_as_it_is_valid() {
    let Some(fixture) = Fixture::new("invalid", &[]).await else { return };
    fixture.deployment("web", 2).await;
    fixture.metric("web", 250.0);
    fixture.create(&object("web", json!({"maxReplicas": 1, "minReplicas": 5}))).await;
    fixture.advance_seconds(120).await;
    let able = fixture.condition("web", "AbleToScale").await;
    assert_eq!(able, Some(("False".to_owned(), "FailedSpecCheck".to_owned())));
    assert_eq!(fixture.replicas("web").await, 2);
    fixture
        .patch_and_reconcile("web", json!({"spec": {"maxReplicas": 10, "minReplicas": 1}}))
        .await;
    fixture.wait_until_scaled("web", 4).await;
    assert_eq!(fixture.events("web").await, ["FailedSpecCheck", "Scaling"]);
    // A missing target is retried, and its object followed once the target exists.
    fixture.create(&object("late", json!({}))).await;
    let able = fixture.condition("late", "AbleToScale").await.expect("condition is set");
    assert_eq!((&*able.0, &*able.1), ("False", "FailedProcessWPA"));
    fixture.metric("late", 75.0);
    fixture.deployment("late", 2).await;
    fixture.advance_seconds(30).await;
    let able = fixture.condition("late", "AbleToScale").await.expect("condition is set");
    assert_eq!((&*able.0, &*able.1), ("True", "SucceededGetScale"));
}

/// Vectors F3 to F5 of upstream's reconciler.
#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_object_is_not_reconciled_again_before_it_changes() {
    let Some(fixture) = Fixture::new("refused", &["--compat=upstream"]).await else { return };
    let metrics = |marks: serde_json::Value| {
        let mut external = json!({
            "metricName": "deadbeef", "metricSelector": {"matchLabels": {"label": "value"}},
        });
        external
            .as_object_mut()
            .expect("an object")
            .extend(marks.as_object().cloned().expect("an object"));
        json!({"metrics": [{"type": "External", "external": external}]})
    };
    let marks =
        format!("watermarks are not set correctly, removing the WPA {}/f3", fixture.namespace);
    for (name, fields, text) in [
        ("f3", metrics(json!({})), format!("{marks} from the Reconciler")),
        (
            "f4",
            json!({"minReplicas": 5, "maxReplicas": 3}),
            "watermark pod autoscaler requires the minimum number of replicas to be configured and inferior to the \
             maximum"
                .to_owned(),
        ),
        (
            "f5",
            metrics(json!({"highWatermark": "3", "lowWatermark": "4"})),
            "low WaterMark of External metric deadbeef{map[label:value]} has to be strictly inferior to the High \
             Watermark"
                .to_owned(),
        ),
    ] {
        fixture.create(&object(name, fields)).await;
        let first = fixture.status(name).await["conditions"][0].clone();
        assert_eq!((&first["type"], &first["reason"]), (&json!("AbleToScale"), &json!("FailedSpecCheck")));
        assert_eq!(first["message"], format!("Invalid WPA specification: {text}"), "{name}");
        // An event is sent after the reconcile.
        wait::until_ok("it is reported", || async {
            let events = fixture.events(name).await;
            if events == ["FailedSpecCheck"] { Ok(()) } else { Err(format!("{name}: {events:?}")) }
        })
        .await;
    }
    let reconciles = fixture.role.reconciles();
    fixture.advance_seconds(1_200).await;
    assert_eq!(fixture.role.reconciles(), reconciles);
    for name in ["f3", "f4", "f5"] {
        assert_eq!(fixture.events(name).await, ["FailedSpecCheck"], "{name}: once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_reports_everything_and_changes_nothing() {
    let Some(fixture) = Fixture::new("dry", &[]).await else { return };
    fixture.deployment("web", 2).await;
    fixture.metric("web", 500.0);
    fixture.create(&object("web", json!({"dryRun": true}))).await;
    fixture.advance_seconds(120).await;
    assert_eq!(fixture.replicas("web").await, 2);
    let status = fixture.status("web").await;
    assert_eq!(status["lastScaleTime"], json!(null), "no cooldown starts: {status:#}");
    assert_eq!(fixture.series("wpa_controller_replicas_scaling_effective", &[]).await, [4.0]);
    let of = ["kind=\"wpa\"", "reason=\"dry_run\""];
    assert_eq!(fixture.series("plimsoll_restricted_scaling", &of).await, [1.0]);
    fixture.patch_and_reconcile("web", json!({"spec": {"dryRun": false}})).await;
    fixture.wait_until_scaled("web", 4).await;
    assert_eq!(fixture.series("wpa_controller_dry_run", &[]).await, [0.0], "one series, not two");

    // Switching to dry run does not undo an earlier scale update.
    fixture.patch_and_reconcile("web", json!({"spec": {"dryRun": true}})).await;
    let before = fixture.status("web").await;
    assert_eq!(before["scalingEventsCount"], 1, "{before:#}");
    fixture.advance_seconds(600).await;
    let after = fixture.status("web").await;
    for field in ["scalingEventsCount", "lastScaleTime"] {
        assert_eq!(after[field], before[field], "{after:#}");
    }
    assert_eq!(after["desiredReplicas"], 8, "the computed replicas: {after:#}");
    let before = fixture.get("web").await;
    fixture.advance_seconds(600).await;
    let after = fixture.get("web").await;
    let versions = (&before.metadata.resource_version, &after.metadata.resource_version);
    assert_eq!(versions.0, versions.1, "no change: {:#?} {:#?}", before.status, after.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_the_whole_role_exports_decisions_and_writes_nothing() {
    let Some(fixture) = Fixture::new("looking", &["--dry-run"]).await else { return };
    fixture.deployment("web", 2).await;
    fixture.metric("web", 500.0);
    fixture.create(&object("web", json!({}))).await;
    let before = fixture.get("web").await;
    fixture.advance_seconds(120).await;
    assert_eq!(fixture.replicas("web").await, 2);
    let after = fixture.get("web").await;
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(after.status, None);
    assert!(fixture.events("web").await.is_empty());
    assert_eq!(fixture.series("wpa_controller_replicas_scaling_effective", &[]).await, [4.0]);
    assert_eq!(fixture.series("wpa_controller_dry_run", &[]).await, [1.0]);
    let left = ["transition=\"downscale\""];
    let left = fixture.series("wpa_controller_transition_countdown", &left).await;
    assert!(left[0] > 0.0, "cooldowns start as if it had scaled: {left:?}");
    let leases = Api::<Lease>::namespaced(fixture.bed.client(), &fixture.namespace);
    let leases = leases.list(&ListParams::default()).await.expect("valid leases").items;
    let ours = leases.iter().any(|lease| lease.name_any() == "watermarkpodautoscaler-lock");
    assert!(!ours, "it does not take the Lease");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_metric_value_alone_is_written_at_most_once_a_minute() {
    let Some(fixture) = Fixture::new("values", &[]).await else { return };
    fixture.deployment("web", 3).await;
    fixture.metric("web", 75.0);
    // Invalid enough for a warning with every reconcile, which is no reason to write a status either.
    let annotations = json!({"plimsoll.dev/monitor": "(none)"});
    let mut doubtful = object("web", json!({"convergeTowardsWatermark": "up"}));
    doubtful["metadata"]["annotations"] = annotations;
    fixture.create(&doubtful).await;
    fixture.advance_seconds(60).await;
    let condition = fixture.condition("web", "SpecDoubtful").await;
    assert_eq!(condition, Some(("True".to_owned(), "LooksWrong".to_owned())));
    let mut versions = Vec::new();
    let mut values = Vec::new();
    for pass in 0..40 {
        fixture.metric("web", 60.0 + f64::from(pass));
        fixture.advance_period().await;
        versions.push(fixture.get("web").await.metadata.resource_version);
        let status = fixture.status("web").await;
        values.push(status["currentMetrics"][0]["external"]["currentValue"].to_string());
    }
    versions.dedup();
    values.dedup();
    assert!((9..=11).contains(&versions.len()), "ten minutes: {versions:?}");
    assert_eq!(values.len(), versions.len(), "each time for a value: {values:?}");

    // Above the watermark during a cooldown: the proposed replicas change all the time.
    let windows =
        json!({"spec": {"upscaleForbiddenWindowSeconds": 3600, "scaleUpLimitFactor": "200"}});
    fixture.metric("web", 120.0);
    fixture.patch_and_reconcile("web", windows).await;
    fixture.wait_until_scaled("web", 4).await;
    fixture.metric("web", 150.0);
    fixture.advance_seconds(120).await;
    let mut versions = Vec::new();
    for pass in 0..40 {
        fixture.metric("web", 150.0 + 25.0 * f64::from(pass % 4));
        fixture.advance_period().await;
        versions.push(fixture.get("web").await.metadata.resource_version);
    }
    assert_eq!(fixture.replicas("web").await, 4);
    versions.dedup();
    assert!(versions.len() <= 11, "ten minutes: {versions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_spec_is_reported_as_soon_as_the_status_can_be_written() {
    let alone = "--enable-leader-election=false";
    let Some(fixture) = Fixture::new("unsaid", &[alone]).await else { return };
    let busy = Arc::new(AtomicBool::new(false));
    let proxy = ApiProxy::start(fixture.bed.client(), {
        let busy = Arc::clone(&busy);
        move |method, path| {
            let is_status = method == Method::PATCH && path.ends_with("/status");
            if is_status && busy.load(Ordering::Acquire) {
                respond_with(503, None)
            } else {
                pass_through()
            }
        }
    })
    .await;
    let fixture = fixture.restart_as(proxy.client.clone(), &[alone]).await;
    fixture.deployment("web", 2).await;
    fixture.metric("web", 150.0);
    fixture.create(&object("web", json!({}))).await;
    fixture.wait_until_scaled("web", 3).await;
    let held = async |family: &str| fixture.series(family, &[]).await;
    let capped = async || {
        held("wpa_controller_restricted_scaling")
            .await
            .iter()
            .filter(|value| **value == 1.0)
            .count()
    };
    fixture.metric("web", 75.0);
    fixture.advance_period().await;
    assert_eq!(capped().await, 1, "within bounds");
    assert_eq!(held("wpa_controller_transition_countdown").await.len(), 2);

    busy.store(true, Ordering::Release);
    fixture.patch_and_reconcile("web", json!({"spec": {"maxReplicas": 1, "minReplicas": 5}})).await;
    fixture.advance_seconds(60).await;
    let able = async || fixture.condition("web", "AbleToScale").await.expect("condition is set").1;
    assert_ne!(able().await, "FailedSpecCheck");
    assert_eq!(capped().await, 0, "it is not reconciled any more");
    assert_eq!(held("wpa_controller_transition_countdown").await, [0.0; 0]);
    busy.store(false, Ordering::Release);
    fixture.advance_seconds(60).await;
    assert_eq!(able().await, "FailedSpecCheck");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_crd_that_drops_decisions_no_status_is_written_for_them() {
    let Some(fixture) = Fixture::private("dropped", &[]).await else { return };
    let definitions = Api::<CustomResourceDefinition>::all(fixture.bed.client());
    let mut definition =
        serde_json::to_value(definitions.get(DEFINITION).await.expect("defined")).expect("JSON");
    let status = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        ["status"]["properties"];
    assert!(status.as_object_mut().expect("fields").remove("decision").is_some());
    let original = definitions.get(DEFINITION).await.expect("defined").spec;
    let definition: CustomResourceDefinition =
        serde_json::from_value(definition).expect("valid definition");
    definitions.replace(DEFINITION, &PostParams::default(), &definition).await.expect("replaced");
    fixture.deployment("web", 2).await;
    fixture.metric("web", 75.0);
    fixture.create(&object("web", json!({}))).await;
    // The server applies the new definition a moment later.
    wait::until("a status has no decision", || async {
        fixture.advance_period().await;
        fixture.get("web").await.status.filter(|status| status.decision.is_none()).map(drop)
    })
    .await;
    fixture.advance_seconds(60).await;
    let before = fixture.get("web").await.metadata.resource_version;
    fixture.advance_seconds(600).await;
    assert_eq!(fixture.get("web").await.metadata.resource_version, before, "nothing changed");

    // The definition is replaced, as the log message recommends.
    let original = Patch::Merge(json!({ "spec": original }));
    definitions.patch(DEFINITION, &PatchParams::default(), &original).await.expect("replaced");
    wait::until("decisions are stored again", || async {
        fixture.advance_seconds(300).await;
        fixture.get("web").await.status.filter(|status| status.decision.is_some()).map(drop)
    })
    .await;
}
