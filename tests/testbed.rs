//! A testbed starts, runs pods and serves their usage, and tests without one are reported as skipped. Its parts are
//! tested in deep.

mod deep;

use std::{fs, process::Command};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use serde_json::Value;

use crate::support::hollow_nodes::is_ready;
use crate::support::metrics_server::UsageValue;
use crate::support::{MetricsServer, Testbed, manifests, skipped};

#[tokio::test]
async fn a_testbed_runs_pods_and_serves_their_usage() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    bed.nodes().add("node", "8", "16Gi").await;
    let usage = MetricsServer::serve(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = manifests::deployment("web", 1, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    let pods = bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.25, memory: 64 << 20 });
    let noon: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a time");
    usage.at(noon);

    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    let list: Value = bed.client().request(request).await.expect("answered");
    let items = list["items"].as_array().expect("items");
    assert_eq!(items.len(), 1, "{list}");
    assert_eq!(items[0]["metadata"]["name"], pods[0].name_any());
    assert_eq!(items[0]["timestamp"], "2026-03-01T12:00:00Z");
    assert_eq!(items[0]["containers"][0]["usage"]["cpu"], "250000000n");
}

#[test]
fn every_test_without_a_testbed_reports_that_it_was_skipped() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for threads in ["1", "4"] {
        let reasons = folder.path().join(threads);
        fs::create_dir(&reasons).expect("the folder is writable");
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["testbed::deep::nodes::", &format!("--test-threads={threads}")])
            .env("KUBEBUILDER_ASSETS", folder.path())
            .env(skipped::FOLDER, &reasons)
            .output()
            .expect("this program starts again");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let passed = stdout.split_once("ok. ").and_then(|(_, rest)| rest.split_once(" passed"));
        let passed: usize = passed.and_then(|(count, _)| count.parse().ok()).expect("a count");
        let notes = fs::read_dir(&reasons).expect("the folder is there").count();
        assert!(passed > 10, "{passed} tests were started");
        assert_eq!(notes, passed, "with {threads} threads:\n{stdout}");
    }
}
