//! As much of the Prometheus operator's kinds as is used here, and what of it is shipped.

use std::path::Path;

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::ContainerPort},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ROOT, documents};

/// Scrapes pods.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodMonitor {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    pub spec: PodMonitorSpec,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodMonitorSpec {
    selector: LabelSelector,
    pub pod_metrics_endpoints: Vec<Endpoint>,
}

/// Scrapes what is behind Services.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceMonitor {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: ServiceMonitorSpec,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ServiceMonitorSpec {
    selector: LabelSelector,
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    port: String,
    interval: String,
    pub honor_labels: bool,
}

/// Rules of a Prometheus.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrometheusRule {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: RuleGroups,
}

/// A file of rules.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RuleGroups {
    groups: Vec<RuleGroup>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RuleGroup {
    name: String,
    interval: String,
    // What a rule has is looked at where they are tried.
    rules: Vec<Value>,
}

/// The recommender's monitor, as it is shipped.
pub fn monitor() -> PodMonitor {
    of("recommender")
}

/// That of a base, or of an overlay that has pods of its own.
fn of(role: &str) -> PodMonitor {
    let mut all = documents(&Path::new(ROOT).join("deploy").join(role).join("monitor.yaml"));
    serde_json::from_value(all.remove(0)).expect("a monitor")
}

#[test]
fn each_monitor_finds_the_port_of_its_roles_pods_and_keeps_their_labels() {
    let bases = ["recommender", "updater", "admission-controller", "watermark"];
    for role in bases.into_iter().chain(["overlays/all-in-one"]) {
        let file = Path::new(ROOT).join("deploy").join(role).join("deployment.yaml");
        let deployment = documents(&file).into_iter().find(|one| one["kind"] == "Deployment");
        let deployment = deployment.expect("a Deployment");
        let deployment: Deployment = serde_json::from_value(deployment).expect("a Deployment");
        let monitor = of(role);
        assert_eq!(monitor.metadata.namespace, deployment.metadata.namespace);
        let template = deployment.spec.expect("a spec").template;
        let labels = template.metadata.expect("metadata").labels.expect("labels");
        let wanted = monitor.spec.selector.match_labels.expect("labels");
        assert!(
            wanted.iter().all(|(name, value)| labels.get(name) == Some(value)),
            "{role}: {wanted:?}"
        );
        let ports = template.spec.expect("a spec").containers.remove(0).ports.expect("ports");
        for endpoint in monitor.spec.pod_metrics_endpoints {
            let named = |port: &ContainerPort| port.name.as_ref() == Some(&endpoint.port);
            assert!(ports.iter().any(named), "{role}: no port is called {}", endpoint.port);
            assert!(endpoint.honor_labels, "{role}");
        }
    }
}

#[test]
fn the_operator_is_given_the_same_recording_rules() {
    let read = |name: &str| documents(&Path::new(ROOT).join("deploy/recommender").join(name));
    let (plain, object) = (read("rules.yaml"), read("prometheusrule.yaml"));
    assert_eq!(plain.len(), 1);
    assert_eq!(object[0]["spec"], plain[0]);
}
