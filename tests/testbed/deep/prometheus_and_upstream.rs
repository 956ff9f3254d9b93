//! The peers are real: Prometheus of both releases, and upstream's autoscaler.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::json;

use crate::support::clock::wall_now;
use crate::support::hollow_nodes::is_ready;
use crate::support::http_get::http_get;
use crate::support::metrics_server::UsageValue;
use crate::support::prometheus_server::{
    History, PrometheusRelease, PrometheusServer, ScrapeTarget,
};
use crate::support::upstream_process::{Role, UpstreamProcesses};
use crate::support::{MetricsServer, Testbed, manifests, wait};

const DAY: SignedDuration = SignedDuration::from_hours(24);
const MEBIBYTE: u64 = 1 << 20;

#[tokio::test]
async fn prometheus_2_answers_queries_about_days_written_as_blocks() {
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("a time");
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V2, eight_days(end)).await
    else {
        return;
    };
    answers_for_eight_days(&server, end).await;
    // This release includes both ends of a range.
    assert_eq!(server.value("count_over_time(memory[10m])", end - DAY).await, Some(11.0));
    assert_eq!(server.value("rate(seconds_total[1m])", end - DAY).await, Some(0.5));
}

#[tokio::test]
async fn prometheus_3_answers_queries_about_days_written_as_blocks() {
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("a time");
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, eight_days(end)).await
    else {
        return;
    };
    answers_for_eight_days(&server, end).await;
    // Ranges are open on the left in this release, so a minute of a series that is scraped each minute has one sample
    // and no rate.
    assert_eq!(server.value("count_over_time(memory[10m])", end - DAY).await, Some(10.0));
    assert_eq!(server.value("rate(seconds_total[1m])", end - DAY).await, None);
}

fn eight_days(end: Timestamp) -> History {
    let start = end - DAY * 8;
    let since = move |now: Timestamp| now.duration_since(start).as_secs_f64();
    History::new(start, end, SignedDuration::from_mins(1))
        .series("seconds_total", &[("container", "main")], move |now| Some(since(now) / 2.0))
        .series("memory", &[("container", "main")], move |now| {
            Some((since(now) / 86_400.0).floor())
        })
}

async fn answers_for_eight_days(server: &PrometheusServer, end: Timestamp) {
    for day in 0..8 {
        let noon = end - DAY * (8 - day) + SignedDuration::from_hours(12);
        let memory = server.value("memory{container='main'}", noon).await;
        assert_eq!(memory, Some(f64::from(day)), "on day {day}");
        let rate = server.value("rate(seconds_total[5m])", noon).await.expect("a rate");
        assert!((rate - 0.5).abs() < 1e-9, "{rate} on day {day}");
    }
}

#[tokio::test]
async fn prometheus_scrapes_the_pods_of_a_testbed() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    bed.nodes().add("node", "8", "16Gi").await;
    let usage = MetricsServer::serve(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = manifests::deployment("web", 1, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 2.0, memory: 300 * MEBIBYTE });
    let targets = ScrapeTarget::for_usage(&usage, "cadvisor");
    let Some(server) = PrometheusServer::start(PrometheusRelease::V3, None, &targets).await else {
        return;
    };

    for (expression, expected) in [
        ("container_memory_working_set_bytes{container='main'}", 300.0 * MEBIBYTE as f64),
        ("kube_pod_container_resource_requests{resource='cpu',container='main'}", 0.1),
        ("kube_pod_labels{label_app='web'}", 1.0),
        ("round(rate(container_cpu_usage_seconds_total{container='main'}[5s]), 0.1)", 2.0),
    ] {
        wait::until(expression, || async {
            (server.value(expression, wall_now()).await == Some(expected)).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn upstreams_updater_and_webhook_run_on_a_testbed() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    let Some(upstream) = UpstreamProcesses::new(&bed).await else { return };
    let port = upstream.start(Role::AdmissionController, &[]);
    let leases = Api::<Lease>::namespaced(bed.client(), "kube-system");
    wait::until("the webhook renews its lease", || async {
        upstream.assert_running("admission-controller");
        leases.get_opt("vpa-admission-controller").await.ok()?
    })
    .await;
    wait::until("the webhook listens", || async {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
    })
    .await;
    let port = upstream.start(Role::Updater, &["--updater-interval=200ms"]);
    wait::until("the updater has made a pass", || async {
        upstream.assert_running("updater");
        let metrics = http_get(&format!("http://127.0.0.1:{port}/metrics")).await?;
        String::from_utf8_lossy(&metrics)
            .contains("vpa_updater_execution_latency_seconds_count")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn upstreams_recommender_simulates_a_day_in_seconds() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    let Some(upstream) = UpstreamProcesses::new(&bed).await else { return };
    bed.nodes().add("node", "8", "16Gi").await;
    let usage = MetricsServer::serve(&bed).await;
    let namespace = bed.namespace("web").await;
    let vpa = GroupVersionKind::gvk("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler");
    let vpas = Api::<DynamicObject>::namespaced_with(
        bed.client(),
        &namespace,
        &ApiResource::from_gvk(&vpa),
    );
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "name": "web" }, "spec": { "targetRef": target },
    }))
    .expect("an object");
    vpas.create(&PostParams::default(), &object).await.expect("created");
    let web = manifests::deployment("web", 1, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.3, memory: 500 * MEBIBYTE });

    let start = wall_now() - DAY * 8;
    usage.at(start);
    upstream.start(Role::Recommender, &["--recommender-interval=200ms"]);
    for step in 1..=12 {
        usage.read_by("recommender").await;
        upstream.assert_running("recommender");
        usage.at(start + SignedDuration::from_hours(2 * step));
    }

    let recommended = wait::within(Duration::from_secs(90), "a recommendation", || async {
        let status = vpas.get("web").await.ok()?.data["status"].take();
        let of_main = &status["recommendation"]["containerRecommendations"][0];
        (of_main["containerName"] == "main").then(|| of_main.clone())
    })
    .await;
    let cores = |bound: &str| {
        let text = recommended[bound]["cpu"].as_str().expect("a quantity");
        text.parse::<plimsoll_core::types::quantity::Quantity>().expect("a quantity").as_f64()
    };
    assert!((0.3..0.45).contains(&cores("target")), "{recommended}");
    assert!(cores("lowerBound") <= cores("target") && cores("target") < cores("upperBound"));
}
