//! Scrapes upstream's programs after everything has happened once.

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::json;

use plimsoll::cluster::server::certificate::CaBundle;

use super::{
    ADMISSION, ADMISSION_ONLY, EXCLUDED_FAMILIES, RECOMMENDER_ONLY, admission_differences,
    is_of_recommender, page, recommender_differences,
};
use crate::metrics::{Exposition, registry, scrape};
use crate::support::{
    MetricsServer, Testbed,
    clock::wall_now,
    hollow_nodes::is_ready,
    http_get::http_get,
    manifests,
    metrics_server::UsageValue,
    ports::Port,
    prometheus_server::{PrometheusRelease, PrometheusServer},
    upstream_process::{Role, UpstreamProcesses},
    wait,
};
use crate::webhook::webhook_client::WebhookClient;

#[tokio::test]
async fn upstreams_admission_controller_exports_the_recorded_families() {
    let Some(bed) = Testbed::private().await else { return };
    let Some(upstream) = UpstreamProcesses::new(&bed).await else { return };
    let port = Port::claim();
    let address = format!("--address=127.0.0.1:{port}");
    let webhook = upstream.start(Role::AdmissionController, &[&address]);
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let object =
        json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"containers": []}});
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let review = json!({"request": {
        "uid": "u", "resource": resource, "requestKind": kind, "kind": kind, "object": object,
    }});
    let authority = bed.process_guard().folder().join("admission-controller/ca.crt");
    let trusts = CaBundle::parse(&std::fs::read(authority).expect("written"));
    wait::until("upstream responds to a review", || async {
        upstream.assert_running("admission-controller");
        let mut caller = WebhookClient::http1_as("localhost", webhook, &trusts).await.ok()?;
        let (status, _) = caller.post(review.to_string().into_bytes()).await.ok()?;
        status.is_success().then_some(())
    })
    .await;
    let address = format!("http://127.0.0.1:{port}/metrics");
    let theirs = wait::until("upstream responds to a scrape", || http_get(&address)).await;
    let theirs = Exposition::parse(std::str::from_utf8(&theirs).expect("UTF-8"));
    let shown = page(&theirs, theirs.names().filter(|name| name.starts_with(ADMISSION)));
    assert_eq!(admission_differences(&shown), Vec::<String>::new());
    ADMISSION_ONLY.write_or_compare(&shown);
}

#[tokio::test]
async fn upstreams_recommender_exports_the_recorded_families() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    let Some(upstream) = UpstreamProcesses::new(&bed).await else { return };
    let Some(prometheus) = PrometheusServer::start(PrometheusRelease::V3, None, &[]).await else {
        return;
    };
    bed.nodes().add("node", "8", "16Gi").await;
    let usage = MetricsServer::serve(&bed).await;
    let namespace = bed.namespace("web").await;
    create_vpa(&bed, &namespace).await;
    let web = manifests::deployment("web", 1, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.3, memory: 500 << 20 });

    let start = wall_now() - SignedDuration::from_hours(24 * 8);
    usage.at(start);
    let history = format!("--prometheus-address={}", prometheus.url());
    let flags = ["--recommender-interval=1s", "--storage=prometheus", &history];
    let port = upstream.start(Role::Recommender, &flags);
    let address = format!("http://127.0.0.1:{port}/metrics");
    let ours = Exposition::parse(&scrape(registry()));
    let wanted: Vec<_> = ours.names().filter(|name| is_of_recommender(name)).collect();
    let mut hours = 0;
    // The quality families need samples before and after the first recommendation, and a second recommendation.
    let theirs = loop {
        usage.read_by("recommender").await;
        upstream.assert_running("recommender");
        hours += 2;
        usage.at(start + SignedDuration::from_hours(hours));
        let theirs = wait::until("upstream responds to a scrape", || http_get(&address)).await;
        let theirs = Exposition::parse(std::str::from_utf8(&theirs).expect("UTF-8"));
        let missing: Vec<_> =
            wanted.iter().filter(|wanted| !theirs.names().any(|name| name == **wanted)).collect();
        if missing.is_empty() {
            break theirs;
        }
        assert!(hours < 100, "upstream never exports {missing:?}");
    };

    let is_left_out = |name: &str| EXCLUDED_FAMILIES.iter().any(|out| name.starts_with(out));
    let shown = page(&theirs, theirs.names().filter(|name| !is_left_out(name)));
    assert_eq!(recommender_differences(&shown), Vec::<String>::new());
    RECOMMENDER_ONLY.write_or_compare(&shown);
}

async fn create_vpa(bed: &Testbed, namespace: &str) {
    let vpa = GroupVersionKind::gvk("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler");
    let vpas = Api::<DynamicObject>::namespaced_with(
        bed.client(),
        namespace,
        &ApiResource::from_gvk(&vpa),
    );
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "name": "web" },
        "spec": { "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } },
    }))
    .expect("an object");
    vpas.create(&PostParams::default(), &object).await.expect("created");
}
