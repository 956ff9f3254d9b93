//! Scales of well-known kinds come from watches: there are no reads while nothing changes, and no writes to them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::fixture::{Fixture, object};
use crate::support::{
    api_proxy::{ApiProxy, hang, pass_through, respond_with},
    wait,
};

const ALONE: &str = "--enable-leader-election=false";

/// A fixture whose role is behind a proxy that rejects watches of Deployments while `deaf` is set.
async fn fixture(
    name: &str,
    deaf: &Arc<AtomicBool>,
    flags: &[&str],
) -> Option<(Fixture, ApiProxy)> {
    let flags: Vec<&str> = flags.iter().copied().chain([ALONE]).collect();
    let fixture = Fixture::new(name, &flags).await?;
    let deaf = Arc::clone(deaf);
    let proxy = ApiProxy::start(fixture.bed.client(), move |method, path| {
        let is_watch = method == Method::GET && path.ends_with("/deployments");
        if is_watch && deaf.load(Ordering::Acquire) { hang() } else { pass_through() }
    })
    .await;
    Some((fixture.restart_as(proxy.client.clone(), &flags).await, proxy))
}

fn scale_requests(proxy: &ApiProxy) -> usize {
    proxy.arrival_times(&Method::GET, "web/scale").len()
}

/// Advances periods until one in which the scale was not read.
async fn watched(fixture: &Fixture, proxy: &ApiProxy) {
    wait::until("the scale is watched", || async {
        let before = scale_requests(proxy);
        fixture.advance_period().await;
        (scale_requests(proxy) == before).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scale_of_a_deployment_is_read_only_before_it_is_written() {
    let Some((fixture, proxy)) = fixture("watched", &Arc::default(), &[]).await else { return };
    fixture.deployment("web", 2).await;
    fixture.metric("web", 75.0);
    fixture.create(&object("web", json!({}))).await;
    watched(&fixture, &proxy).await;
    let before = scale_requests(&proxy);
    fixture.advance_seconds(600).await;
    assert_eq!(scale_requests(&proxy), before);
    let text = fixture.series("plimsoll_feed_synced", &["feed=\"deployments\""]).await;
    assert_eq!(text, [1.0], "its watch is exported");
    fixture.metric("web", 180.0);
    fixture.advance_period().await;
    fixture.wait_until_scaled("web", 4).await;
    assert_eq!(scale_requests(&proxy), before + 1);
    assert_eq!(proxy.arrival_times(&Method::PUT, "web/scale").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_watch_neither_reverts_nor_repeats_a_scale() {
    let deaf = Arc::<AtomicBool>::default();
    let Some((fixture, proxy)) = fixture("behind", &deaf, &[]).await else { return };
    fixture.deployment("web", 2).await;
    fixture.metric("web", 75.0);
    let windows = json!({"upscaleForbiddenWindowSeconds": 1, "downscaleForbiddenWindowSeconds": 1});
    fixture.create(&object("web", windows)).await;
    watched(&fixture, &proxy).await;
    deaf.store(true, Ordering::Release);
    proxy.cut_responses();
    let api = Api::<Deployment>::namespaced(fixture.bed.client(), &fixture.namespace);
    let eight = Patch::Merge(json!({"spec": {"replicas": 8}}));
    api.patch("web", &PatchParams::default(), &eight).await.expect("scaled manually");
    fixture.wait_for_ready_pods("web", 8).await;
    // The watch reports two replicas, for which 130 would require three.
    fixture.metric("web", 130.0);
    fixture.advance_period().await;
    fixture.wait_until_scaled("web", 11).await;
    // The watch still reports two replicas, which must not be used any more.
    fixture.metric("web", 75.0);
    for _ in 0..4 {
        fixture.advance_period().await;
        let status = fixture.status("web").await;
        assert_eq!(
            (&status["desiredReplicas"], &status["currentReplicas"]),
            (&json!(11), &json!(11))
        );
    }
    assert_eq!(fixture.replicas("web").await, 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_upstreams_mode_the_scale_is_read_in_each_reconcile() {
    let upstream = ["--compat=upstream"];
    let Some((fixture, proxy)) = fixture("asked", &Arc::default(), &upstream).await else { return };
    fixture.deployment("web", 2).await;
    fixture.metric("web", 75.0);
    fixture.create(&object("web", json!({}))).await;
    let before = scale_requests(&proxy);
    fixture.advance_seconds(60).await;
    assert!(scale_requests(&proxy) >= before + 4);
    assert!(proxy.arrival_times(&Method::GET, "/deployments").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_with_an_error_response_that_took_effect_is_not_repeated() {
    let Some(fixture) = Fixture::new("late", &[ALONE]).await else { return };
    let (late, broken) = (Arc::new(AtomicBool::new(true)), Arc::<AtomicBool>::default());
    let stuck = Arc::<AtomicBool>::default();
    let is_change = |method: &Method, path: &str| method == Method::PUT && path.ends_with("/scale");
    let before = {
        let (broken, stuck) = (Arc::clone(&broken), Arc::clone(&stuck));
        move |method: &Method, path: &str| {
            if is_change(method, path) && stuck.load(Ordering::Acquire) {
                return hang();
            }
            let fails = is_change(method, path) && broken.load(Ordering::Acquire);
            if fails { respond_with(504, None) } else { pass_through() }
        }
    };
    let after = {
        let late = Arc::clone(&late);
        move |method: &Method, path: &str| {
            let is_late = is_change(method, path) && late.swap(false, Ordering::AcqRel);
            if is_late { respond_with(504, None) } else { pass_through() }
        }
    };
    let proxy =
        ApiProxy::start_with_response_interceptor(fixture.bed.client(), before, after).await;
    let fixture = fixture.restart_as(proxy.client.clone(), &[ALONE]).await;
    fixture.deployment("web", 2).await;
    fixture.metric("web", 10_000.0);
    let windows =
        json!({"upscaleForbiddenWindowSeconds": 3600, "downscaleForbiddenWindowSeconds": 3600});
    fixture.create(&object("web", windows)).await;
    assert!(!late.load(Ordering::Acquire), "it is changed, whatever the response");
    let able = async || fixture.condition("web", "AbleToScale").await.expect("condition is set");
    assert_eq!(able().await, ("False".to_owned(), "ScaleUnanswered".to_owned()));
    fixture.advance_seconds(600).await;
    assert_ne!(able().await.1, "ScaleUnanswered", "by now it is known");
    assert_eq!(proxy.arrival_times(&Method::PUT, "web/scale").len(), 1, "its cooldown has started");
    assert_eq!(fixture.replicas("web").await, 4);
    let status = fixture.status("web").await;
    assert_eq!((&status["desiredReplicas"], &status["scalingEventsCount"]), (&json!(4), &json!(1)));

    // A scale update that always fails is retried, and its failure is visible.
    broken.store(true, Ordering::Release);
    fixture.advance_seconds(3600).await;
    assert_eq!(fixture.replicas("web").await, 4);
    assert!(proxy.arrival_times(&Method::PUT, "web/scale").len() > 10);
    assert_eq!(able().await, ("False".to_owned(), "ScaleUnanswered".to_owned()));
    let values =
        fixture.series("wpa_controller_conditions", &["condition=\"able_to_scale\""]).await;
    assert_eq!(values, [0.0]);
    let effective = fixture.series("wpa_controller_replicas_scaling_effective", &[]).await;
    assert_eq!(effective, [4.0], "a failed scale update does not change replicas");
    let events = fixture.events("web").await;
    assert_eq!(events.iter().filter(|reason| *reason == "FailedScale").count(), 2, "{events:?}");
    // A request without a response is visible too.
    let why = async || {
        let status = fixture.get("web").await.status.expect("has a status");
        let unsure =
            status.conditions.into_iter().find(|condition| condition.reason == "ScaleUnanswered");
        unsure.expect("condition is set").message
    };
    let before = why().await;
    stuck.store(true, Ordering::Release);
    fixture.advance_period().await;
    assert_ne!(why().await, before);
    stuck.store(false, Ordering::Release);
    broken.store(false, Ordering::Release);
    fixture.advance_seconds(30).await;
    assert_eq!(fixture.replicas("web").await, 8, "a failed scale update starts no cooldown");
}
