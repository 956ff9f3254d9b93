//! OOM kills, from every source that reports them.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use super::fixture::{Fixture, MEBIBYTE, REQUEST, target_after_oom_kill};
use crate::support::{manifests, wait};

pub async fn an_oom_kill_before_the_first_list_counts_once_across_a_restart(fixture: &Fixture) {
    let namespace = fixture.namespace("first").await;
    fixture.create_vpa(&namespace, "web", "web").await;
    let pod = fixture.deploy(&namespace, "web").await;
    fixture.set_usage(&namespace, "web-", 0.1, 100);
    fixture.bed.nodes().oom_kill(&namespace, &pod, "main").await;
    wait_for_kill(fixture, &namespace, &pod).await;

    let recommender = fixture.start_recommender(&namespace, &[]).await;
    assert_eq!(recommender.last_summary().kills, 1, "found in the first list");
    fixture
        .wait_for_target(&namespace, "web", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    for _ in 0..3 {
        assert_eq!(recommender.step(fixture).await.kills, 0);
    }
    recommender
        .wait_for_metric_line(
            "plimsoll_oom_kills_total{outcome=\"counted\",source=\"pod_first_sight\"} 1",
        )
        .await;
    let of_container = format!(
        "plimsoll_container_oom_kills_total{{container=\"main\",kind=\"vpa\",name=\"web\",\
         namespace=\"{namespace}\",resource=\"memory\"}}"
    );
    recommender.wait_for_metric_line(&format!("{of_container} 1")).await;
    let now = recommender.now();
    recommender.stop().await;

    let only = format!("--vpa-object-namespace={namespace}");
    let recommender = fixture.start_recommender_at(now, &[&only]).await;
    assert_eq!(recommender.last_summary().kills, 0, "already part of the loaded history");
    assert_eq!(recommender.step(fixture).await.kills, 0);
    fixture
        .wait_for_target(&namespace, "web", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    recommender.wait_for_metric_line(&format!("{of_container} 0")).await;
    recommender.stop().await;

    // Upstream ignores kills from before its start.
    fixture
        .create_vpa_with(
            &namespace,
            "up",
            &json!({
                "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "recommenders": [{ "name": "up" }],
            }),
        )
        .await;
    let recommender = fixture
        .start_recommender(&namespace, &["--recommender-name=up", "--compat=upstream"])
        .await;
    assert_eq!(recommender.last_summary().kills, 0);
    recommender.stop().await;
}

pub async fn an_oom_kill_before_any_sample_gives_a_recommendation(fixture: &Fixture) {
    let namespace = fixture.namespace("quick").await;
    fixture.create_vpa(&namespace, "web", "web").await;
    let pod = fixture.deploy(&namespace, "web").await;
    let recommender = fixture.start_recommender(&namespace, &[]).await;
    assert_eq!(recommender.step(fixture).await.samples, 0, "usage is unknown");
    fixture.bed.nodes().oom_kill(&namespace, &pod, "main").await;
    recommender.step_until_oom_kills(fixture, 1).await;
    fixture
        .wait_for_target(&namespace, "web", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    recommender.stop().await;
}

pub async fn an_eviction_counts_the_usage_of_its_event(fixture: &Fixture) {
    let namespace = fixture.namespace("evicted").await;
    fixture.create_vpa(&namespace, "web", "web").await;
    let pod = fixture.deploy(&namespace, "web").await;
    let recommender = fixture.start_recommender(&namespace, &[]).await;
    let event: Event = serde_json::from_value(json!({
        "metadata": { "name": "evicted", "annotations": {
            "offending_containers": "main", "offending_containers_usage": "1Gi", "starved_resource": "memory",
        } },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod },
        "reason": "Evicted", "message": "a test", "type": "Warning",
    }))
    .expect("an event");
    let events = Api::namespaced(fixture.client(), &namespace);
    events.create(&PostParams::default(), &event).await.expect("created");
    recommender.step_until_oom_kills(fixture, 1).await;
    fixture
        .wait_for_target(
            &namespace,
            "web",
            "main",
            "memory",
            &target_after_oom_kill(1024 * MEBIBYTE),
        )
        .await;
    let now = recommender.now();
    recommender.stop().await;

    // The API server lists the events of the last hour again.
    let only = format!("--vpa-object-namespace={namespace}");
    let recommender = fixture.start_recommender_at(now, &[&only]).await;
    recommender.wait_for_metric_line("plimsoll_feed_synced{feed=\"evictions\"} 1").await;
    for _ in 0..3 {
        assert_eq!(recommender.step(fixture).await.kills, 0, "it is known");
    }
    fixture
        .wait_for_target(
            &namespace,
            "web",
            "main",
            "memory",
            &target_after_oom_kill(1024 * MEBIBYTE),
        )
        .await;
    recommender.stop().await;
}

pub async fn a_job_that_ends_before_its_first_sample_keeps_its_bump(fixture: &Fixture) {
    let namespace = fixture.namespace("job").await;
    let target = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "once" });
    fixture.create_vpa_with(&namespace, "once", &json!({ "targetRef": target })).await;
    let recommender = fixture.start_recommender(&namespace, &[]).await;
    let job = "
metadata: {name: once}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: example/once, resources: {requests: {memory: 512Mi}}}
";
    manifests::create::<Job>(fixture.client(), &namespace, job).await;
    let pod = fixture.pod(&namespace, "once-").await;
    fixture.bed.nodes().oom_kill(&namespace, &pod, "main").await;
    recommender.step_until_oom_kills(fixture, 1).await;
    fixture
        .wait_for_target(&namespace, "once", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    let pods = Api::<Pod>::namespaced(fixture.client(), &namespace);
    pods.delete(&pod, &DeleteParams::default().grace_period(0)).await.expect("ended");
    recommender.wait_for_metric_line("plimsoll_feed_objects{feed=\"pods\"} 0").await;
    // Expired state is removed once an hour.
    for _ in 0..6 {
        recommender.step_by(fixture, Duration::from_hours(4)).await;
    }
    wait::until("the pods are observed to be gone", || async {
        let vpa = fixture.vpa(&namespace, "once").await;
        vpa["status"].to_string().contains("NoPodsMatched").then_some(())
    })
    .await;
    fixture
        .wait_for_target(&namespace, "once", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    let now = recommender.now();
    recommender.stop().await;

    let only = format!("--vpa-object-namespace={namespace}");
    let recommender = fixture.start_recommender_at(now, &[&only]).await;
    recommender.step(fixture).await;
    recommender.step(fixture).await;
    fixture
        .wait_for_target(&namespace, "once", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    recommender.stop().await;
}

pub async fn local_storage_keeps_an_oom_kill_across_a_restart(fixture: &Fixture) {
    let namespace = fixture.namespace("local").await;
    fixture.create_vpa(&namespace, "web", "web").await;
    let pod = fixture.deploy(&namespace, "web").await;
    fixture.set_usage(&namespace, "web-", 0.1, 100);
    fixture.bed.nodes().oom_kill(&namespace, &pod, "main").await;
    wait_for_kill(fixture, &namespace, &pod).await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let storage = format!("--storage=local:{}", folder.path().display());
    let recommender = fixture.start_recommender(&namespace, &[&storage]).await;
    assert_eq!(recommender.last_summary().kills, 1);
    recommender.step(fixture).await;
    let now = recommender.now();
    recommender.stop().await;

    let only = format!("--vpa-object-namespace={namespace}");
    let recommender = fixture.start_recommender_at(now, &[&only, &storage]).await;
    assert_eq!(recommender.last_summary().kills, 0, "already part of the loaded history");
    recommender.step(fixture).await;
    fixture
        .wait_for_target(&namespace, "web", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    recommender.stop().await;
    assert_eq!(fixture.checkpoints(&namespace).await, [""; 0], "history is elsewhere");
}

/// Waits until the API server shows that the pod's container was OOM-killed and runs again.
async fn wait_for_kill(fixture: &Fixture, namespace: &str, pod: &str) {
    let what = "was killed and runs again";
    fixture
        .bed
        .nodes()
        .pod(namespace, pod, what, |pod| {
            let statuses = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
            statuses.into_iter().any(|status| status.restart_count == 1 && status.ready)
        })
        .await;
}
