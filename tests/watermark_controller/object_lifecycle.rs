//! Objects as others left them: with finalizers, with gaps, with mistakes; and how they come and go.

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
async fn a_finalizer_of_the_original_is_taken_away_so_that_no_delete_hangs() {
    let Some(stage) = Fixture::new("finalizers", &[]).await else { return };
    stage.deployment("web", 2).await;
    stage.metric("web", 75.0);
    let mut with = object("web", json!({}));
    with["metadata"]["finalizers"] = json!([FINALIZER, "other.example.com/stays"]);
    stage.create(&with).await;
    let finalizers = stage.get("web").await.metadata.finalizers;
    assert_eq!(finalizers, Some(vec!["other.example.com/stays".to_owned()]));
    // An object that cannot be followed is let go as well.
    let mut invalid = object("bad", json!({"maxReplicas": 1, "minReplicas": 5}));
    invalid["metadata"]["finalizers"] = json!([FINALIZER]);
    stage.create(&invalid).await;
    stage.api().delete("bad", &DeleteParams::default()).await.expect("deleted");
    wait::until("it is gone", || async {
        stage.api().get_opt("bad").await.ok()?.is_none().then_some(())
    })
    .await;
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    stage.api().patch("web", &PatchParams::default(), &none).await.expect("changed");
    stage.api().delete("web", &DeleteParams::default()).await.expect("deleted");
    wait::until("its series are gone", || async {
        stage.series("wpa_controller_min_replicas", &[]).await.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_whose_finalizer_may_not_be_taken_away_is_followed_all_the_same() {
    let alone = "--enable-leader-election=false";
    let Some(stage) = Fixture::new("kept", &[alone]).await else { return };
    let is_change = |method: &Method, path: &str| method == Method::PATCH && path.ends_with("/web");
    let proxy = ApiProxy::start(stage.bed.client(), move |method, path| {
        if is_change(method, path) { respond_with(403, None) } else { pass_through() }
    })
    .await;
    let stage = stage.restart_as(proxy.client.clone(), &[alone]).await;
    stage.deployment("web", 2).await;
    stage.metric("web", 150.0);
    let mut with = object("web", json!({}));
    with["metadata"]["finalizers"] = json!([FINALIZER]);
    stage.create(&with).await;
    stage.wait_until_scaled("web", 3).await;
    stage.advance_seconds(300).await;
    assert_eq!(stage.get("web").await.metadata.finalizers, Some(vec![FINALIZER.to_owned()]));
    assert_eq!(
        proxy.arrival_times(&Method::PATCH, "/web").len(),
        1,
        "it is not asked for each time"
    );
    stage.advance_seconds(600).await;
    assert_eq!(proxy.arrival_times(&Method::PATCH, "/web").len(), 2, "but now and then");
}

#[tokio::test(flavor = "multi_thread")]
async fn gaps_are_filled_in_memory_by_ours_and_in_the_object_by_upstreams_way() {
    for (flags, written) in [(&[][..], false), (&["--compat=upstream"][..], true)] {
        let Some(stage) = Fixture::new("gaps", flags).await else { return };
        stage.deployment("web", 2).await;
        stage.metric("web", 75.0);
        let mut bare = object("web", json!({}));
        let spec = bare["spec"].as_object_mut().expect("an object");
        spec.retain(|key, _| ["scaleTargetRef", "maxReplicas", "metrics"].contains(&&**key));
        stage.create(&bare).await;
        stage.advance_period().await;
        wait::until("it is followed", || async {
            let active = stage.condition("web", "ScalingActive").await?;
            (active.0 == "True").then_some(())
        })
        .await;
        let spec = stage.get("web").await.spec;
        assert_eq!(spec.tolerance.is_some(), written);
        assert_eq!(spec.min_replicas.is_some(), written);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_said_once_and_followed_as_soon_as_it_does() {
    let Some(stage) = Fixture::new("invalid", &[]).await else { return };
    stage.deployment("web", 2).await;
    stage.metric("web", 250.0);
    stage.create(&object("web", json!({"maxReplicas": 1, "minReplicas": 5}))).await;
    stage.advance_seconds(120).await;
    let able = stage.condition("web", "AbleToScale").await;
    assert_eq!(able, Some(("False".to_owned(), "FailedSpecCheck".to_owned())));
    assert_eq!(stage.replicas("web").await, 2);
    stage.patch_and_reconcile("web", json!({"spec": {"maxReplicas": 10, "minReplicas": 1}})).await;
    stage.wait_until_scaled("web", 4).await;
    assert_eq!(stage.events("web").await, ["FailedSpecCheck", "Scaling"]);
    // A target that is not there is looked for again, and followed when it comes.
    stage.create(&object("late", json!({}))).await;
    let able = stage.condition("late", "AbleToScale").await.expect("said");
    assert_eq!((&*able.0, &*able.1), ("False", "FailedProcessWPA"));
    stage.metric("late", 75.0);
    stage.deployment("late", 2).await;
    stage.advance_seconds(30).await;
    let able = stage.condition("late", "AbleToScale").await.expect("said");
    assert_eq!((&*able.0, &*able.1), ("True", "SucceededGetScale"));
}

/// Vectors F3 to F5 of the original's reconciler.
#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_not_looked_at_again_before_it_changes() {
    let Some(stage) = Fixture::new("refused", &["--compat=upstream"]).await else { return };
    let metrics = |marks: serde_json::Value| {
        let mut external = json!({
            "metricName": "deadbeef", "metricSelector": {"matchLabels": {"label": "value"}},
        });
        external
            .as_object_mut()
            .expect("an object")
            .extend(marks.as_object().cloned().expect("marks"));
        json!({"metrics": [{"type": "External", "external": external}]})
    };
    let marks =
        format!("watermarks are not set correctly, removing the WPA {}/f3", stage.namespace);
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
        stage.create(&object(name, fields)).await;
        let first = stage.status(name).await["conditions"][0].clone();
        assert_eq!((&first["type"], &first["reason"]), (&json!("AbleToScale"), &json!("FailedSpecCheck")));
        assert_eq!(first["message"], format!("Invalid WPA specification: {text}"), "{name}");
        // An event is sent after the look.
        wait::until_ok("it is told", || async {
            let events = stage.events(name).await;
            if events == ["FailedSpecCheck"] { Ok(()) } else { Err(format!("{name}: {events:?}")) }
        })
        .await;
    }
    let looks = stage.role.reconciles();
    stage.advance_seconds(1_200).await;
    assert_eq!(stage.role.reconciles(), looks);
    for name in ["f3", "f4", "f5"] {
        assert_eq!(stage.events(name).await, ["FailedSpecCheck"], "{name}: once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_shows_everything_and_changes_nothing() {
    let Some(stage) = Fixture::new("dry", &[]).await else { return };
    stage.deployment("web", 2).await;
    stage.metric("web", 500.0);
    stage.create(&object("web", json!({"dryRun": true}))).await;
    stage.advance_seconds(120).await;
    assert_eq!(stage.replicas("web").await, 2);
    let status = stage.status("web").await;
    assert_eq!(status["lastScaleTime"], json!(null), "no window is used up: {status:#}");
    assert_eq!(stage.series("wpa_controller_replicas_scaling_effective", &[]).await, [4.0]);
    let of = ["kind=\"wpa\"", "reason=\"dry_run\""];
    assert_eq!(stage.series("plimsoll_restricted_scaling", &of).await, [1.0]);
    stage.patch_and_reconcile("web", json!({"spec": {"dryRun": false}})).await;
    stage.wait_until_scaled("web", 4).await;
    assert_eq!(stage.series("wpa_controller_dry_run", &[]).await, [0.0], "one series, not two");

    // What was changed before is not taken back by what is only looked at since.
    stage.patch_and_reconcile("web", json!({"spec": {"dryRun": true}})).await;
    let before = stage.status("web").await;
    assert_eq!(before["scalingEventsCount"], 1, "{before:#}");
    stage.advance_seconds(600).await;
    let after = stage.status("web").await;
    for field in ["scalingEventsCount", "lastScaleTime"] {
        assert_eq!(after[field], before[field], "{after:#}");
    }
    assert_eq!(after["desiredReplicas"], 8, "what it would be: {after:#}");
    let before = stage.get("web").await;
    stage.advance_seconds(600).await;
    let after = stage.get("web").await;
    let versions = (&before.metadata.resource_version, &after.metadata.resource_version);
    assert_eq!(versions.0, versions.1, "no news: {:#?} {:#?}", before.status, after.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_the_whole_role_decides_says_so_and_writes_nothing() {
    let Some(stage) = Fixture::new("looking", &["--dry-run"]).await else { return };
    stage.deployment("web", 2).await;
    stage.metric("web", 500.0);
    stage.create(&object("web", json!({}))).await;
    let before = stage.get("web").await;
    stage.advance_seconds(120).await;
    assert_eq!(stage.replicas("web").await, 2);
    let after = stage.get("web").await;
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    assert_eq!(after.status, None);
    assert!(stage.events("web").await.is_empty());
    assert_eq!(stage.series("wpa_controller_replicas_scaling_effective", &[]).await, [4.0]);
    assert_eq!(stage.series("wpa_controller_dry_run", &[]).await, [1.0]);
    let left = ["transition=\"downscale\""];
    let left = stage.series("wpa_controller_transition_countdown", &left).await;
    assert!(left[0] > 0.0, "windows are used up as if it had acted: {left:?}");
    let leases = Api::<Lease>::namespaced(stage.bed.client(), &stage.namespace);
    let leases = leases.list(&ListParams::default()).await.expect("leases").items;
    let ours = leases.iter().any(|one| one.name_any() == "watermarkpodautoscaler-lock");
    assert!(!ours, "nobody is kept from leading");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mere_value_is_written_once_a_minute_at_most() {
    let Some(stage) = Fixture::new("values", &[]).await else { return };
    stage.deployment("web", 3).await;
    stage.metric("web", 75.0);
    // Odd enough to be said so with every look, which is no reason to write either.
    let annotations = json!({"plimsoll.dev/monitor": "(none)"});
    let mut odd = object("web", json!({"convergeTowardsWatermark": "up"}));
    odd["metadata"]["annotations"] = annotations;
    stage.create(&odd).await;
    stage.advance_seconds(60).await;
    let said = stage.condition("web", "SpecDoubtful").await;
    assert_eq!(said, Some(("True".to_owned(), "LooksWrong".to_owned())));
    let mut versions = Vec::new();
    let mut values = Vec::new();
    for look in 0..40 {
        stage.metric("web", 60.0 + f64::from(look));
        stage.advance_period().await;
        versions.push(stage.get("web").await.metadata.resource_version);
        let status = stage.status("web").await;
        values.push(status["currentMetrics"][0]["external"]["currentValue"].to_string());
    }
    versions.dedup();
    values.dedup();
    assert!((9..=11).contains(&versions.len()), "ten minutes: {versions:?}");
    assert_eq!(values.len(), versions.len(), "each time for a value: {values:?}");

    // Above the mark, while a window keeps replicas as they are: what they would be goes up and down all the time.
    let windows =
        json!({"spec": {"upscaleForbiddenWindowSeconds": 3600, "scaleUpLimitFactor": "200"}});
    stage.metric("web", 120.0);
    stage.patch_and_reconcile("web", windows).await;
    stage.wait_until_scaled("web", 4).await;
    stage.metric("web", 150.0);
    stage.advance_seconds(120).await;
    let mut versions = Vec::new();
    for look in 0..40 {
        stage.metric("web", 150.0 + 25.0 * f64::from(look % 4));
        stage.advance_period().await;
        versions.push(stage.get("web").await.metadata.resource_version);
    }
    assert_eq!(stage.replicas("web").await, 4);
    versions.dedup();
    assert!(versions.len() <= 11, "ten minutes: {versions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_an_object_is_said_as_soon_as_it_can_be_written() {
    let alone = "--enable-leader-election=false";
    let Some(stage) = Fixture::new("unsaid", &[alone]).await else { return };
    let busy = Arc::new(AtomicBool::new(false));
    let proxy = ApiProxy::start(stage.bed.client(), {
        let busy = Arc::clone(&busy);
        move |method, path| {
            let is_said = method == Method::PATCH && path.ends_with("/status");
            if is_said && busy.load(Ordering::Acquire) {
                respond_with(503, None)
            } else {
                pass_through()
            }
        }
    })
    .await;
    let stage = stage.restart_as(proxy.client.clone(), &[alone]).await;
    stage.deployment("web", 2).await;
    stage.metric("web", 150.0);
    stage.create(&object("web", json!({}))).await;
    stage.wait_until_scaled("web", 3).await;
    let held = async |family: &str| stage.series(family, &[]).await;
    let capped = async || {
        held("wpa_controller_restricted_scaling").await.iter().filter(|one| **one == 1.0).count()
    };
    stage.metric("web", 75.0);
    stage.advance_period().await;
    assert_eq!(capped().await, 1, "within bounds");
    assert_eq!(held("wpa_controller_transition_countdown").await.len(), 2);

    busy.store(true, Ordering::Release);
    stage.patch_and_reconcile("web", json!({"spec": {"maxReplicas": 1, "minReplicas": 5}})).await;
    stage.advance_seconds(60).await;
    let able = async || stage.condition("web", "AbleToScale").await.expect("said").1;
    assert_ne!(able().await, "FailedSpecCheck");
    assert_eq!(capped().await, 0, "nobody follows it any more");
    assert_eq!(held("wpa_controller_transition_countdown").await, [0.0; 0]);
    busy.store(false, Ordering::Release);
    stage.advance_seconds(60).await;
    assert_eq!(able().await, "FailedSpecCheck");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_definition_that_drops_decisions_no_status_is_written_for_them() {
    let Some(stage) = Fixture::private("dropped", &[]).await else { return };
    let definitions = Api::<CustomResourceDefinition>::all(stage.bed.client());
    let mut definition =
        serde_json::to_value(definitions.get(DEFINITION).await.expect("defined")).expect("JSON");
    let status = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        ["status"]["properties"];
    assert!(status.as_object_mut().expect("fields").remove("decision").is_some());
    let whole = definitions.get(DEFINITION).await.expect("defined").spec;
    let definition: CustomResourceDefinition = serde_json::from_value(definition).expect("one");
    definitions.replace(DEFINITION, &PostParams::default(), &definition).await.expect("replaced");
    stage.deployment("web", 2).await;
    stage.metric("web", 75.0);
    stage.create(&object("web", json!({}))).await;
    // The server takes the new definition on a moment later.
    wait::until("a status lacks the decision", || async {
        stage.advance_period().await;
        stage.get("web").await.status.filter(|status| status.decision.is_none()).map(drop)
    })
    .await;
    stage.advance_seconds(60).await;
    let before = stage.get("web").await.metadata.resource_version;
    stage.advance_seconds(600).await;
    assert_eq!(stage.get("web").await.metadata.resource_version, before, "nothing is news");

    // The definition is replaced, as the log advises.
    let whole = Patch::Merge(json!({ "spec": whole }));
    definitions.patch(DEFINITION, &PatchParams::default(), &whole).await.expect("replaced");
    wait::until("decisions are kept again", || async {
        stage.advance_seconds(300).await;
        stage.get("web").await.status.filter(|status| status.decision.is_some()).map(drop)
    })
    .await;
}
