//! Usage is served through the real API server, faults can be injected, and Prometheus can scrape it.

use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use serde_json::Value;

use crate::support::hollow_nodes::is_ready;
use crate::support::metrics_server::{Fault, MetricsApi, UsageCurve, UsageValue};
use crate::support::{MetricsServer, Testbed, manifests, wait};

const MEBIBYTE: u64 = 1 << 20;

#[tokio::test]
async fn usage_of_pods_is_served_through_the_api_server() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    bed.nodes().add("node", "8", "16Gi").await;
    let usage = MetricsServer::serve(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = manifests::deployment("web", 2, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    let pods = bed.nodes().pods(&namespace, "web-", 2, "are ready", is_ready).await;

    let start: Timestamp = "2026-03-01T00:00:00Z".parse().expect("a time");
    let noon: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a time");
    let curve = UsageCurve::new(move |now| UsageValue {
        cpu: now.duration_since(start).as_hours() as f64 / 4.0,
        memory: 100 * MEBIBYTE,
    });
    usage.set_all(&namespace, "web-", "main", curve);
    usage.set(&namespace, "ghost", "main", UsageValue { cpu: 0.25, memory: MEBIBYTE });
    usage.at(noon);

    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let list = get(bed.client(), &path).await.expect("answered");
    let items = list["items"].as_array().expect("items");
    assert_eq!(items.len(), 3);
    let of =
        |name: &str| items.iter().find(|item| item["metadata"]["name"] == name).expect("listed");
    let web = of(pods[0].metadata.name.as_deref().expect("named"));
    assert_eq!(web["timestamp"], "2026-03-01T12:00:00Z");
    assert_eq!(web["containers"][0]["usage"]["cpu"], "3000000000n");
    assert_eq!(web["metadata"]["labels"]["app"], "web");
    assert_eq!(of("ghost")["containers"][0]["usage"]["memory"], MEBIBYTE.to_string());

    let selected =
        get(bed.client(), &format!("{path}?labelSelector=app%3Dweb")).await.expect("answered");
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(usage.readers().values().sum::<usize>(), 2);

    assert_external_and_custom_metrics(&bed, &usage, &namespace).await;
    assert_faults_come_and_go(&bed, &usage, &path).await;
}

async fn assert_external_and_custom_metrics(bed: &Testbed, usage: &MetricsServer, namespace: &str) {
    usage.set_external(namespace, "queue_length", &[("queue", "mail")], 42.5);
    usage.set_external(namespace, "queue_length", &[("queue", "print")], 7.0);
    let path = format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/queue_length");
    let list =
        get(bed.client(), &format!("{path}?labelSelector=queue%3Dmail")).await.expect("answered");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["items"][0]["value"], "42500m");

    usage.set_custom(namespace, "pods", "ghost", "requests_per_second", 12.0);
    let path = format!(
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/*/requests_per_second"
    );
    let list = get(bed.client(), &path).await.expect("answered");
    assert_eq!(list["items"][0]["describedObject"]["name"], "ghost");
    assert_eq!(list["items"][0]["value"], "12000m");
}

async fn assert_faults_come_and_go(bed: &Testbed, usage: &MetricsServer, path: &str) {
    let broken = |fault| usage.set_fault(MetricsApi::Resource, Some(fault));
    broken(Fault::Status(503));
    get(bed.client(), path).await.expect_err("refused");
    broken(Fault::Malformed);
    get(bed.client(), path).await.expect_err("no JSON");
    broken(Fault::Truncated);
    get(bed.client(), path).await.expect_err("cut");
    broken(Fault::Hang);
    assert_hang(bed, usage, path).await;
    broken(Fault::Partial);
    let list = get(bed.client(), path).await.expect("answered");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "of three");
    broken(Fault::NotANumber);
    let list = get(bed.client(), path).await.expect("answered");
    assert_eq!(list["items"][0]["containers"][0]["usage"]["cpu"], "NaN");
    usage.set_fault(MetricsApi::Resource, None);
    get(bed.client(), path).await.expect("the fault is over");
}

async fn assert_hang(bed: &Testbed, usage: &MetricsServer, path: &str) {
    let reads = || usage.readers().values().sum::<usize>();
    let before = reads();
    let mut hangs = std::pin::pin!(get(bed.client(), path));
    let arrived = wait::until("the request has arrived", || {
        std::future::ready((reads() > before).then_some(()))
    });
    tokio::select! {
        answer = &mut hangs => panic!("answered: {answer:?}"),
        () = arrived => {}
    }
    // It is not merely slow: a later request is answered first.
    usage.set_fault(MetricsApi::Resource, None);
    get(bed.client(), path).await.expect("answered");
    assert!(hangs.now_or_never().is_none(), "the answer never comes");
}

async fn get(client: Client, path: &str) -> Result<Value, kube::Error> {
    client.request(http::Request::get(path).body(Vec::new()).expect("a request")).await
}
