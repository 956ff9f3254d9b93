//! Sources of usage, the pods that it belongs to, and when bounds are written again.

use k8s_openapi::api::apps::v1::Deployment;
use plimsoll_core::types::Time;
use serde_json::json;

use super::fixture::{Fixture, MEBIBYTE, SteppedRecommender, target, target_for_usage};
use crate::support::clock::wall_now;
use crate::support::metrics_server::UsageValue;
use crate::support::{manifests, wait};

pub async fn a_native_sidecar_gets_a_recommendation_unless_its_gate_is_disabled(fixture: &Fixture) {
    for (flags, has_sidecar) in [(&[][..], true), (&["--feature-gates=NativeSidecar=false"], false)]
    {
        let namespace = fixture.bed.namespace("sidecar").await;
        let web = "
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers:
      - {name: setup, image: example/setup}
      - {name: mesh, image: example/mesh, restartPolicy: Always}
      containers:
      - {name: main, image: example/web}
";
        manifests::create::<Deployment>(fixture.client(), &namespace, web).await;
        let pod = fixture.pod(&namespace, "web-").await;
        fixture.create_vpa(&namespace, "web", "web").await;
        for container in ["main", "mesh", "setup"] {
            let used = UsageValue { cpu: 0.1, memory: 700 * MEBIBYTE };
            fixture.usage.set(&namespace, &pod, container, used);
        }
        let recommender = fixture.start_recommender(&namespace, flags).await;
        let samples = recommender.step(fixture).await.samples;
        assert_eq!(samples, if has_sidecar { 4 } else { 2 }, "of CPU and memory");
        fixture.wait_for_target(&namespace, "web", "main", "memory", &target_for_usage(700)).await;
        let vpa = fixture.vpa(&namespace, "web").await;
        let of_sidecar = target(&vpa, "mesh", "memory");
        assert_eq!(of_sidecar, has_sidecar.then(|| target_for_usage(700)));
        assert_eq!(target(&vpa, "setup", "memory"), None, "init containers have no recommendation");
        recommender.stop().await;
    }
}

pub async fn external_metrics_are_used_even_for_a_single_resource(fixture: &Fixture) {
    let cpu = "--external-metrics-cpu-metric=used_cores";
    let memory = "--external-metrics-memory-metric=used_bytes";
    for (flags, samples) in [(&[cpu, memory][..], 2), (&[memory], 1)] {
        let namespace = fixture.bed.namespace("external").await;
        let pod = fixture.deploy(&namespace, "web").await;
        fixture.create_vpa(&namespace, "web", "web").await;
        let labels = [("app", "web"), ("pod", &*pod), ("name", "main")];
        fixture.usage.set_external(&namespace, "used_cores", &labels, 2.0);
        let bytes = (700 * MEBIBYTE) as f64;
        fixture.usage.set_external(&namespace, "used_bytes", &labels, bytes);
        let mut all = vec!["--use-external-metrics"];
        all.extend(flags);
        let recommender = fixture.start_recommender(&namespace, &all).await;
        let summary = recommender.step(fixture).await;
        assert_eq!((summary.pods, summary.samples), (1, samples));
        fixture.wait_for_target(&namespace, "web", "main", "memory", &target_for_usage(700)).await;
        // 2 cores fall into the bucket up to 2.093; a missing metric is not zero usage.
        let (of_cpu, count) = if samples == 2 { ("2406m", 2) } else { ("25m", 0) };
        fixture.wait_for_target(&namespace, "web", "main", "cpu", of_cpu).await;
        wait::until("checkpoints are saved", || async {
            let found = fixture.checkpoint(&namespace, "web-main").await;
            let counted = found["status"]["totalSamplesCount"].as_u64().unwrap_or(0);
            (found["status"]["version"] == "v3" && counted == count).then_some(())
        })
        .await;
        recommender.stop().await;
    }
}

pub async fn drifting_bounds_are_written_only_in_upstreams_mode(fixture: &Fixture) {
    let namespace = fixture.bed.namespace("drift").await;
    fixture.deploy(&namespace, "web").await;
    fixture.set_usage(&namespace, "web-", 1.0, 4 * 1024);
    let start: Time = wall_now().into();
    for name in ["ours", "theirs"] {
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
        let spec = json!({ "targetRef": target, "recommenders": [{ "name": name }] });
        fixture.create_vpa_with(&namespace, name, &spec).await;
        fixture.write_checkpoint(&namespace, name, start.as_secs()).await;
    }
    let only = format!("--vpa-object-namespace={namespace}");
    for (name, compat) in [("ours", "plimsoll"), ("theirs", "upstream")] {
        let (name_flag, mode) =
            (format!("--recommender-name={name}"), format!("--compat={compat}"));
        let recommender = fixture.start_recommender_at(start, &[&only, &name_flag, &mode]).await;
        recommender.step(fixture).await;
        let upper = |vpa: &serde_json::Value| {
            vpa["status"]["recommendation"]["containerRecommendations"][0]["upperBound"].to_string()
        };
        let first = written_vpa(fixture, &recommender, &namespace, name).await;
        let mut changed = 0;
        for _ in 0..15 {
            changed += recommender.step(fixture).await.changed;
            // A status has the values of the moment it is written: a pending one would include the next minute.
            written_vpa(fixture, &recommender, &namespace, name).await;
        }
        let last = written_vpa(fixture, &recommender, &namespace, name).await;
        let version = |vpa: &serde_json::Value| vpa["metadata"]["resourceVersion"].clone();
        if compat == "plimsoll" {
            assert_eq!(changed, 0, "only the bounds have changed");
            assert_eq!(version(&first), version(&last), "nothing was written");
        } else {
            assert_eq!(changed, 15, "the upper bound changes every minute");
            assert_ne!(upper(&first), upper(&last));
        }
        recommender.stop().await;
    }
}

/// Returns the VPA once it has no pending status.
async fn written_vpa(
    fixture: &Fixture,
    recommender: &SteppedRecommender,
    namespace: &str,
    name: &str,
) -> serde_json::Value {
    wait::until("everything is written", || async {
        if recommender.running.pending_statuses() > 0 {
            return None;
        }
        let vpa = fixture.vpa(namespace, name).await;
        target(&vpa, "main", "memory").map(|_| vpa)
    })
    .await
}
