//! A real Prometheus that scrapes an installation in real time, with the targets that the operator would derive from
//! the installed monitors.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use serde_json::Value;
use xtask::test_programs::PrometheusRelease;

use super::{fixture::Fixture, rendered_manifests::of_kind, scenario::SHOP};
use crate::support::{
    clock::wall_now,
    prometheus_server::{PrometheusServer, ScrapeTarget},
    wait,
};

/// The targets of all monitors, with the labels that the operator adds.
async fn targets(fixture: &Fixture, home: &str, installed: &[Value]) -> Vec<ScrapeTarget> {
    let mut targets = Vec::new();
    for monitor in of_kind(installed, "PodMonitor") {
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let labels = monitor["spec"]["selector"]["matchLabels"].as_object().expect("labels");
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}={}", text(value))).collect();
        // Each role has two replicas.
        for pod in fixture.ready(home, &labels.join(","), 2).await {
            for endpoint in monitor["spec"]["podMetricsEndpoints"].as_array().expect("endpoints") {
                let container = &pod.spec.as_ref().expect("a spec").containers[0];
                let port = IntOrString::String(text(&endpoint["port"]));
                let port = fixture.local_address(&pod, container, &port).expect("it is served");
                targets.push(ScrapeTarget {
                    job: format!("{home}/{}", text(&monitor["metadata"]["name"])),
                    scheme: "http",
                    address: format!("127.0.0.1:{port}"),
                    path: "/metrics".to_owned(),
                    labels: vec![
                        ("namespace", home.to_owned()),
                        ("container", container.name.clone()),
                        ("pod", pod.name_any()),
                    ],
                    honor_labels: endpoint["honorLabels"] == true,
                });
            }
        }
    }
    targets
}

/// Expected results of queries.
const EXPECTED: [(&str, f64); 9] = [
    ("count(up == 1)", 10.0),
    ("count(plimsoll_build_info)", 10.0),
    // One leader for each of the four roles that elect one.
    ("count(sum by (role) (plimsoll_leader) == 1)", 4.0),
    ("count(sum by (job) (plimsoll_feed_synced) > 0)", 5.0),
    ("min(plimsoll_webhook_reachable)", 1.0),
    // Series of an object have the object's namespace, others have the pod's.
    (
        "count(count by (name) (plimsoll_target{namespace=\"shop\", container=\"main\"})) > bool 1",
        1.0,
    ),
    ("count(count by (wpa_name) (wpa_controller_value{wpa_namespace=\"shop\"}))", 5.0),
    ("count(plimsoll_object_info{kind=\"hpa\", namespace=\"shop\"})", 5.0),
    ("count(plimsoll_object_info{namespace!=\"shop\"}) or vector(0)", 0.0),
];

/// Scrapes until all queries have the expected results.
pub async fn check(fixture: &Fixture, home: &str, installed: &[Value]) {
    assert_eq!(SHOP, "shop");
    let targets = targets(fixture, home, installed).await;
    assert_eq!(targets.len(), 10, "{targets:#?}");
    let Some(server) = PrometheusServer::start(PrometheusRelease::V3, None, &targets).await else {
        return;
    };
    wait::until_ok("all roles are scraped", || async {
        let now = wall_now();
        for (query, expected) in EXPECTED {
            let found = server.value(query, now).await;
            if found != Some(expected) {
                return Err(format!("{query} is {found:?}, not {expected}"));
            }
        }
        Ok(())
    })
    .await;
}
