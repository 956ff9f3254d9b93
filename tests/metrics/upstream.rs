//! Our families beside those of upstream's own program: the same names, types, labels and buckets.

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::json;

use plimsoll::certificate::Bundle;

use super::{Exposition, registry, scrape};
use crate::support::{
    Bed, Usage,
    clock::wall_now,
    fetch::fetch,
    nodes::is_ready,
    objects,
    ports::Port,
    prometheus::{Prometheus, Release},
    upstream::{Role, Upstream},
    usage::Use,
    wait,
};
use crate::webhook::caller::Caller;

/// What upstream has and we have not: figures of Go's runtime, of its HTTP handler, and of the process that no
/// dashboard for the autoscaler uses.
const LEFT_OUT: [&str; 5] = [
    "go_",
    "promhttp_",
    "process_network_receive_bytes_total",
    "process_network_transmit_bytes_total",
    "process_virtual_memory_max_bytes",
];

/// What begins so is of the other role.
const ADMISSION: &str = "vpa_admission_controller_";

/// And this of the third one: upstream's tells most of it only when it has happened.
const UPDATER: &str = "vpa_updater_";

#[tokio::test]
async fn every_family_of_upstreams_admission_controller_has_our_twin() {
    let Some(bed) = Bed::bare().await else { return };
    let Some(upstream) = Upstream::on(&bed).await else { return };
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
    let authority = bed.keeper().folder().join("admission-controller/ca.crt");
    let trusts = Bundle::read(&std::fs::read(authority).expect("it was written"));
    wait::until("upstream answers a review", || async {
        upstream.assert_running("admission-controller");
        let mut caller = Caller::one_as("localhost", webhook, &trusts).await.ok()?;
        let (status, _) = caller.post(review.to_string().into_bytes()).await.ok()?;
        status.is_success().then_some(())
    })
    .await;
    let address = format!("http://127.0.0.1:{port}/metrics");
    let ours = Exposition::parse(&scrape(registry()));
    let theirs = wait::until("upstream answers a scrape", || fetch(&address)).await;
    let theirs = Exposition::parse(std::str::from_utf8(&theirs).expect("UTF-8"));
    let wanted: Vec<_> = ours.names().filter(|name| name.starts_with(ADMISSION)).collect();
    let found: Vec<_> = theirs.names().filter(|name| name.starts_with(ADMISSION)).collect();
    assert_eq!(found, wanted);
    for name in wanted {
        let (of_ours, of_theirs) = (ours.family(name), theirs.family(name));
        assert_eq!(of_ours.kind, of_theirs.kind, "{name}");
        assert_eq!(of_ours.labels, of_theirs.labels, "{name}");
        assert_eq!(of_ours.buckets, of_theirs.buckets, "{name}");
    }
}

#[tokio::test]
async fn every_family_of_upstreams_recommender_has_our_twin() {
    let Some(bed) = Bed::private().await.filter(Bed::is_complete) else { return };
    let Some(upstream) = Upstream::on(&bed).await else { return };
    let Some(prometheus) = Prometheus::start(Release::Three, None, &[]).await else { return };
    bed.nodes().add("node", "8", "16Gi").await;
    let usage = Usage::serve(&bed).await;
    let namespace = bed.namespace("web").await;
    create_vpa(&bed, &namespace).await;
    let web = objects::deployment("web", 1, "100m", "64Mi");
    objects::create::<Deployment>(bed.client(), &namespace, &web).await;
    bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", Use { cpu: 0.3, memory: 500 << 20 });

    let start = wall_now() - SignedDuration::from_hours(24 * 8);
    usage.at(start);
    let history = format!("--prometheus-address={}", prometheus.url());
    let flags = ["--recommender-interval=1s", "--storage=prometheus", &history];
    let port = upstream.start(Role::Recommender, &flags);
    let address = format!("http://127.0.0.1:{port}/metrics");
    let ours = Exposition::parse(&scrape(registry()));
    let others = [ADMISSION, UPDATER];
    let is_wanted = |name: &&str| {
        name.starts_with("vpa_") && !others.iter().any(|other| name.starts_with(other))
    };
    let wanted: Vec<_> = ours.names().filter(is_wanted).collect();
    let mut hours = 0;
    // The families of quality need samples before and after the first recommendation, and a second one.
    let theirs = loop {
        usage.read_by("recommender").await;
        upstream.assert_running("recommender");
        hours += 2;
        usage.at(start + SignedDuration::from_hours(hours));
        let theirs = wait::until("upstream answers a scrape", || fetch(&address)).await;
        let theirs = Exposition::parse(std::str::from_utf8(&theirs).expect("UTF-8"));
        let missing: Vec<_> =
            wanted.iter().filter(|wanted| !theirs.names().any(|name| name == **wanted)).collect();
        if missing.is_empty() {
            break theirs;
        }
        assert!(hours < 100, "upstream never shows {missing:?}");
    };

    for name in theirs.names().filter(|name| !LEFT_OUT.iter().any(|out| name.starts_with(out))) {
        let (of_ours, of_theirs) = (ours.family(name), theirs.family(name));
        assert_eq!(of_ours.kind, of_theirs.kind, "{name}");
        assert_eq!(of_ours.labels, of_theirs.labels, "{name}");
        assert_eq!(of_ours.buckets, of_theirs.buckets, "{name}");
    }
    let counts = "vpa_recommender_vpa_objects_count";
    assert_eq!(ours.family(counts).series, theirs.family(counts).series);
    assert_eq!(ours.family(counts).series.len(), 144);
}

async fn create_vpa(bed: &Bed, namespace: &str) {
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
