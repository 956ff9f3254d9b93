//! Kills for lack of memory, wherever they are told.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use super::fixture::{Fixture, MEBIBYTE, REQUEST, target_after_oom_kill};
use crate::support::{manifests, wait};

pub async fn a_kill_before_the_first_list_counts_once_also_after_a_restart(stage: &Fixture) {
    let namespace = stage.namespace("first").await;
    stage.create_vpa(&namespace, "web", "web").await;
    let pod = stage.deploy(&namespace, "web").await;
    stage.set_usage(&namespace, "web-", 0.1, 100);
    stage.bed.nodes().oom_kill(&namespace, &pod, "main").await;
    shows_kill(stage, &namespace, &pod).await;

    let play = stage.start_recommender(&namespace, &[]).await;
    assert_eq!(play.last_summary().kills, 1, "found in the first list");
    stage
        .wait_for_target(&namespace, "web", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    for _ in 0..3 {
        assert_eq!(play.step(stage).await.kills, 0);
    }
    play.wait_for_metric_line(
        "plimsoll_oom_kills_total{outcome=\"counted\",source=\"pod_first_sight\"} 1",
    )
    .await;
    let of_container = format!(
        "plimsoll_container_oom_kills_total{{container=\"main\",kind=\"vpa\",name=\"web\",\
         namespace=\"{namespace}\",resource=\"memory\"}}"
    );
    play.wait_for_metric_line(&format!("{of_container} 1")).await;
    let now = play.now();
    play.stop().await;

    let only = format!("--vpa-object-namespace={namespace}");
    let play = stage.start_recommender_at(now, &[&only]).await;
    assert_eq!(play.last_summary().kills, 0, "it is part of the history that was loaded");
    assert_eq!(play.step(stage).await.kills, 0);
    stage
        .wait_for_target(&namespace, "web", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    play.wait_for_metric_line(&format!("{of_container} 0")).await;
    play.stop().await;

    // Upstream does not see what happened before it began.
    stage
        .create_vpa_with(
            &namespace,
            "up",
            &json!({
                "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
                "recommenders": [{ "name": "up" }],
            }),
        )
        .await;
    let play =
        stage.start_recommender(&namespace, &["--recommender-name=up", "--compat=upstream"]).await;
    assert_eq!(play.last_summary().kills, 0);
    play.stop().await;
}

pub async fn a_kill_before_any_sample_is_recommended_for(stage: &Fixture) {
    let namespace = stage.namespace("quick").await;
    stage.create_vpa(&namespace, "web", "web").await;
    let pod = stage.deploy(&namespace, "web").await;
    let play = stage.start_recommender(&namespace, &[]).await;
    assert_eq!(play.step(stage).await.samples, 0, "nobody knows what it uses");
    stage.bed.nodes().oom_kill(&namespace, &pod, "main").await;
    play.step_until_oom_kills(stage, 1).await;
    stage
        .wait_for_target(&namespace, "web", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    play.stop().await;
}

pub async fn an_eviction_counts_what_was_used(stage: &Fixture) {
    let namespace = stage.namespace("evicted").await;
    stage.create_vpa(&namespace, "web", "web").await;
    let pod = stage.deploy(&namespace, "web").await;
    let play = stage.start_recommender(&namespace, &[]).await;
    let event: Event = serde_json::from_value(json!({
        "metadata": { "name": "evicted", "annotations": {
            "offending_containers": "main", "offending_containers_usage": "1Gi", "starved_resource": "memory",
        } },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod },
        "reason": "Evicted", "message": "a test", "type": "Warning",
    }))
    .expect("an event");
    let events = Api::namespaced(stage.client(), &namespace);
    events.create(&PostParams::default(), &event).await.expect("created");
    play.step_until_oom_kills(stage, 1).await;
    stage
        .wait_for_target(
            &namespace,
            "web",
            "main",
            "memory",
            &target_after_oom_kill(1024 * MEBIBYTE),
        )
        .await;
    let now = play.now();
    play.stop().await;

    // The server tells of the last hour again.
    let only = format!("--vpa-object-namespace={namespace}");
    let play = stage.start_recommender_at(now, &[&only]).await;
    play.wait_for_metric_line("plimsoll_feed_synced{feed=\"evictions\"} 1").await;
    for _ in 0..3 {
        assert_eq!(play.step(stage).await.kills, 0, "it is known");
    }
    stage
        .wait_for_target(
            &namespace,
            "web",
            "main",
            "memory",
            &target_after_oom_kill(1024 * MEBIBYTE),
        )
        .await;
    play.stop().await;
}

pub async fn a_job_that_ends_before_its_first_sample_keeps_its_bump(stage: &Fixture) {
    let namespace = stage.namespace("job").await;
    let target = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "once" });
    stage.create_vpa_with(&namespace, "once", &json!({ "targetRef": target })).await;
    let play = stage.start_recommender(&namespace, &[]).await;
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
    manifests::create::<Job>(stage.client(), &namespace, job).await;
    let pod = stage.pod(&namespace, "once-").await;
    stage.bed.nodes().oom_kill(&namespace, &pod, "main").await;
    play.step_until_oom_kills(stage, 1).await;
    stage
        .wait_for_target(&namespace, "once", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    let pods = Api::<Pod>::namespaced(stage.client(), &namespace);
    pods.delete(&pod, &DeleteParams::default().grace_period(0)).await.expect("it ended");
    play.wait_for_metric_line("plimsoll_feed_objects{feed=\"pods\"} 0").await;
    // What has expired is looked for once an hour.
    for _ in 0..6 {
        play.step_by(stage, Duration::from_hours(4)).await;
    }
    wait::until("it is known that there are no pods", || async {
        let vpa = stage.vpa(&namespace, "once").await;
        vpa["status"].to_string().contains("NoPodsMatched").then_some(())
    })
    .await;
    stage
        .wait_for_target(&namespace, "once", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    let now = play.now();
    play.stop().await;

    let only = format!("--vpa-object-namespace={namespace}");
    let play = stage.start_recommender_at(now, &[&only]).await;
    play.step(stage).await;
    play.step(stage).await;
    stage
        .wait_for_target(&namespace, "once", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    play.stop().await;
}

pub async fn a_local_storage_remembers_a_kill_over_a_restart(stage: &Fixture) {
    let namespace = stage.namespace("local").await;
    stage.create_vpa(&namespace, "web", "web").await;
    let pod = stage.deploy(&namespace, "web").await;
    stage.set_usage(&namespace, "web-", 0.1, 100);
    stage.bed.nodes().oom_kill(&namespace, &pod, "main").await;
    shows_kill(stage, &namespace, &pod).await;
    let folder = tempfile::tempdir().expect("a folder");
    let storage = format!("--storage=local:{}", folder.path().display());
    let play = stage.start_recommender(&namespace, &[&storage]).await;
    assert_eq!(play.last_summary().kills, 1);
    play.step(stage).await;
    let now = play.now();
    play.stop().await;

    let only = format!("--vpa-object-namespace={namespace}");
    let play = stage.start_recommender_at(now, &[&only, &storage]).await;
    assert_eq!(play.last_summary().kills, 0, "it is part of the history that was loaded");
    play.step(stage).await;
    stage
        .wait_for_target(&namespace, "web", "main", "memory", &target_after_oom_kill(REQUEST))
        .await;
    play.stop().await;
    assert_eq!(stage.checkpoints(&namespace).await, [""; 0], "history is elsewhere");
}

/// Waits until the API server shows that the pod's container was killed and runs again.
async fn shows_kill(stage: &Fixture, namespace: &str, pod: &str) {
    let what = "was killed and runs again";
    stage
        .bed
        .nodes()
        .pod(namespace, pod, what, |pod| {
            let statuses = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
            statuses.into_iter().any(|status| status.restart_count == 1 && status.ready)
        })
        .await;
}
