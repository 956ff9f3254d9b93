//! Scales of well-known kinds come from watches: nobody is asked while nothing changes, and nothing is written by them.

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

/// A stage whose role goes through a proxy, on which no watch of Deployments begins while `deaf` is set.
async fn stage(name: &str, deaf: &Arc<AtomicBool>, flags: &[&str]) -> Option<(Fixture, ApiProxy)> {
    let all: Vec<&str> = flags.iter().copied().chain([ALONE]).collect();
    let stage = Fixture::new(name, &all).await?;
    let deaf = Arc::clone(deaf);
    let proxy = ApiProxy::start(stage.bed.client(), move |method, path| {
        let is_watch = method == Method::GET && path.ends_with("/deployments");
        if is_watch && deaf.load(Ordering::Acquire) { hang() } else { pass_through() }
    })
    .await;
    Some((stage.restart_as(proxy.client.clone(), &all).await, proxy))
}

fn scale_requests(proxy: &ApiProxy) -> usize {
    proxy.arrival_times(&Method::GET, "web/scale").len()
}

/// Lets periods go by until one in which the scale was not asked for.
async fn watched(stage: &Fixture, proxy: &ApiProxy) {
    wait::until("the scale is watched", || async {
        let before = scale_requests(proxy);
        stage.advance_period().await;
        (scale_requests(proxy) == before).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scale_of_a_deployment_is_asked_for_only_before_it_is_written() {
    let Some((stage, proxy)) = stage("watched", &Arc::default(), &[]).await else { return };
    stage.deployment("web", 2).await;
    stage.metric("web", 75.0);
    stage.create(&object("web", json!({}))).await;
    watched(&stage, &proxy).await;
    let before = scale_requests(&proxy);
    stage.advance_seconds(600).await;
    assert_eq!(scale_requests(&proxy), before);
    let text = stage.series("plimsoll_feed_synced", &["feed=\"deployments\""]).await;
    assert_eq!(text, [1.0], "its watch is shown");
    stage.metric("web", 180.0);
    stage.advance_period().await;
    stage.wait_until_scaled("web", 4).await;
    assert_eq!(scale_requests(&proxy), before + 1);
    assert_eq!(proxy.arrival_times(&Method::PUT, "web/scale").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_behind_neither_undoes_nor_doubles_what_others_and_this_process_did() {
    let deaf = Arc::<AtomicBool>::default();
    let Some((stage, proxy)) = stage("behind", &deaf, &[]).await else { return };
    stage.deployment("web", 2).await;
    stage.metric("web", 75.0);
    let windows = json!({"upscaleForbiddenWindowSeconds": 1, "downscaleForbiddenWindowSeconds": 1});
    stage.create(&object("web", windows)).await;
    watched(&stage, &proxy).await;
    deaf.store(true, Ordering::Release);
    proxy.cut_responses();
    let api = Api::<Deployment>::namespaced(stage.bed.client(), &stage.namespace);
    let eight = Patch::Merge(json!({"spec": {"replicas": 8}}));
    api.patch("web", &PatchParams::default(), &eight).await.expect("scaled by hand");
    stage.wait_for_ready_pods("web", 8).await;
    // To the watch there are two, of which 130 would make three.
    stage.metric("web", 130.0);
    stage.advance_period().await;
    stage.wait_until_scaled("web", 11).await;
    // The watch still tells of two, and nothing may come of that any more.
    stage.metric("web", 75.0);
    for _ in 0..4 {
        stage.advance_period().await;
        let status = stage.status("web").await;
        assert_eq!(
            (&status["desiredReplicas"], &status["currentReplicas"]),
            (&json!(11), &json!(11))
        );
    }
    assert_eq!(stage.replicas("web").await, 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_wants_upstreams_ways_has_the_scale_asked_for_at_each_look() {
    let upstream = ["--compat=upstream"];
    let Some((stage, proxy)) = stage("asked", &Arc::default(), &upstream).await else { return };
    stage.deployment("web", 2).await;
    stage.metric("web", 75.0);
    stage.create(&object("web", json!({}))).await;
    let before = scale_requests(&proxy);
    stage.advance_seconds(60).await;
    assert!(scale_requests(&proxy) >= before + 4);
    assert!(proxy.arrival_times(&Method::GET, "/deployments").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_was_made_although_the_answer_was_an_error_is_not_made_again() {
    let Some(stage) = Fixture::new("late", &[ALONE]).await else { return };
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
    let proxy = ApiProxy::start_with_response_interceptor(stage.bed.client(), before, after).await;
    let stage = stage.restart_as(proxy.client.clone(), &[ALONE]).await;
    stage.deployment("web", 2).await;
    stage.metric("web", 10_000.0);
    let windows =
        json!({"upscaleForbiddenWindowSeconds": 3600, "downscaleForbiddenWindowSeconds": 3600});
    stage.create(&object("web", windows)).await;
    assert!(!late.load(Ordering::Acquire), "it is changed, whatever the answer");
    let able = async || stage.condition("web", "AbleToScale").await.expect("said");
    assert_eq!(able().await, ("False".to_owned(), "ScaleUnanswered".to_owned()));
    stage.advance_seconds(600).await;
    assert_ne!(able().await.1, "ScaleUnanswered", "by now it is known");
    assert_eq!(proxy.arrival_times(&Method::PUT, "web/scale").len(), 1, "its window is used up");
    assert_eq!(stage.replicas("web").await, 4);
    let status = stage.status("web").await;
    assert_eq!((&status["desiredReplicas"], &status["scalingEventsCount"]), (&json!(4), &json!(1)));

    // One that is never made is tried again and again, and everybody can see that it fails.
    broken.store(true, Ordering::Release);
    stage.advance_seconds(3600).await;
    assert_eq!(stage.replicas("web").await, 4);
    assert!(proxy.arrival_times(&Method::PUT, "web/scale").len() > 10);
    assert_eq!(able().await, ("False".to_owned(), "ScaleUnanswered".to_owned()));
    let told = stage.series("wpa_controller_conditions", &["condition=\"able_to_scale\""]).await;
    assert_eq!(told, [0.0]);
    let effective = stage.series("wpa_controller_replicas_scaling_effective", &[]).await;
    assert_eq!(effective, [4.0], "what was not made is not what there is");
    let events = stage.events("web").await;
    assert_eq!(events.iter().filter(|one| *one == "FailedScale").count(), 2, "{events:?}");
    // Nor does silence leave anybody in the dark.
    let why = async || {
        let status = stage.get("web").await.status.expect("one");
        let unsure = status.conditions.into_iter().find(|one| one.reason == "ScaleUnanswered");
        unsure.expect("said").message
    };
    let before = why().await;
    stuck.store(true, Ordering::Release);
    stage.advance_period().await;
    assert_ne!(why().await, before);
    stuck.store(false, Ordering::Release);
    broken.store(false, Ordering::Release);
    stage.advance_seconds(30).await;
    assert_eq!(stage.replicas("web").await, 8, "no window was used up by what was not made");
}
