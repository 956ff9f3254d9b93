//! The Prometheus operator's kinds, as far as they are used, and the shipped monitors.

use std::{fs, path::Path, time::Duration};

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::ContainerPort},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    ROOT, documents,
    rendered_manifests::{self, chart_template},
};

/// A PodMonitor.
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

/// A ServiceMonitor.
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

/// A PrometheusRule.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PrometheusRule {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: RuleGroups,
}

/// A rule file.
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
    // Rules are checked in their own tests.
    rules: Vec<Value>,
}

/// The recommender's monitor as shipped.
pub fn monitor() -> PodMonitor {
    of("recommender")
}

/// The monitor of a base, or of an overlay with its own pods.
fn of(role: &str) -> PodMonitor {
    let mut all = documents(&Path::new(ROOT).join("deploy").join(role).join("monitor.yaml"));
    serde_json::from_value(all.remove(0)).expect("a monitor")
}

#[test]
fn each_monitor_matches_a_port_of_its_role_and_honors_labels() {
    let bases = ["recommender", "updater", "admission-controller", "watermark", "horizontal"];
    for role in bases.into_iter().chain(["overlays/all-in-one"]) {
        let file = Path::new(ROOT).join("deploy").join(role).join("deployment.yaml");
        let deployment = documents(&file).into_iter().find(|one| one["kind"] == "Deployment");
        let deployment = deployment.expect("a Deployment");
        let deployment: Deployment = serde_json::from_value(deployment).expect("a Deployment");
        let monitor = of(role);
        assert_eq!(monitor.metadata.namespace, deployment.metadata.namespace);
        let template = deployment.spec.expect("a spec").template;
        let labels = template.metadata.expect("metadata").labels.expect("labels");
        let expected = monitor.spec.selector.match_labels.expect("labels");
        assert!(
            expected.iter().all(|(name, value)| labels.get(name) == Some(value)),
            "{role}: {expected:?}"
        );
        let ports = template.spec.expect("a spec").containers.remove(0).ports.expect("ports");
        for endpoint in monitor.spec.pod_metrics_endpoints {
            let named = |port: &ContainerPort| port.name.as_ref() == Some(&endpoint.port);
            assert!(ports.iter().any(named), "{role}: no port is called {}", endpoint.port);
            assert!(endpoint.honor_labels, "{role}");
        }
    }
}

fn seconds(text: &str) -> Duration {
    let number = |rest: &str| rest.parse().unwrap_or_else(|why| panic!("{text}: {why}"));
    match text.strip_suffix('m') {
        Some(minutes) => Duration::from_mins(number(minutes)),
        None => Duration::from_secs(number(text.trim_end_matches('s'))),
    }
}

/// The shortest scrape interval that any of these boards assumes.
fn counted_on(boards: &[&str]) -> Duration {
    let of = |board: &&str| {
        let file = Path::new(ROOT).join("grafana").join(format!("{board}.json"));
        let text = fs::read_to_string(&file).expect("a board");
        let intervals =
            text.lines().filter_map(|line| line.trim().strip_prefix("\"interval\": \""));
        let durations: Vec<Duration> =
            intervals.map(|rest| seconds(rest.trim_end_matches(['"', ',']))).collect();
        durations.into_iter().min().expect("panels have intervals")
    };
    boards.iter().map(of).min().expect("a board")
}

/// With a longer interval, `$__rate_interval` covers fewer than two scrapes, and rates have no data.
#[test]
fn no_monitor_scrapes_less_often_than_the_boards_of_its_roles_require() {
    let of_all = counted_on(&["overview", "vertical", "controller", "history"]);
    let of_replicas = ["watermark", "horizontal"].map(|board| counted_on(&[board]).min(of_all));
    assert_eq!((of_all.as_secs(), of_replicas.map(|it| it.as_secs())), (60, [15, 15]));
    let check = |name: &str, monitor: &Value, scales_replicas: bool| {
        let limit = if scales_replicas { of_replicas[0] } else { of_all };
        let spec = &monitor["spec"];
        let endpoints = spec["podMetricsEndpoints"].as_array().or(spec["endpoints"].as_array());
        for endpoint in endpoints.expect("endpoints") {
            let interval = endpoint["interval"].as_str().expect("an interval");
            assert!(seconds(interval) <= limit, "{name}: {interval} is more than {limit:?}");
        }
    };
    let bases = ["recommender", "updater", "admission-controller", "watermark", "horizontal"];
    for role in bases.into_iter().chain(["overlays/all-in-one"]) {
        let file = Path::new(ROOT).join("deploy").join(role).join("monitor.yaml");
        let scales_replicas = matches!(role, "watermark" | "horizontal" | "overlays/all-in-one");
        check(role, &documents(&file)[0], scales_replicas);
    }
    let mut count = 0;
    for (kind, extra) in [
        ("PodMonitor", None),
        ("ServiceMonitor", None),
        ("PodMonitor", Some("allInOne.enabled=true")),
    ] {
        let kind = format!("monitoring.kind={kind}");
        let values: Vec<&str> = [&*kind, "watermark.enabled=true", "horizontal.enabled=true"]
            .into_iter()
            .chain(extra)
            .collect();
        let Some(objects) = chart_template(&values) else { return };
        for kind in ["PodMonitor", "ServiceMonitor"] {
            for monitor in rendered_manifests::of_kind(&objects, kind) {
                let component = &monitor["metadata"]["labels"]["app.kubernetes.io/component"];
                let scales_replicas =
                    ["watermark", "horizontal", "all-in-one"].iter().any(|it| component == it);
                check(&format!("chart, {component}"), monitor, scales_replicas);
                count += 1;
            }
        }
    }
    assert_eq!(count, 5 + 5 + 1);
    // Without controllers of replicas the all-in-one process is scraped as often as the other roles.
    for (more, interval) in [(None, "60s"), (Some("horizontal.enabled=true"), "15s")] {
        let values = ["monitoring.kind=PodMonitor", "allInOne.enabled=true"];
        let values: Vec<&str> = values.into_iter().chain(more).collect();
        let Some(objects) = chart_template(&values) else { return };
        let monitor = rendered_manifests::of_kind(&objects, "PodMonitor")[0];
        assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["interval"], interval);
    }
}

#[test]
fn the_prometheusrule_has_the_same_recording_rules() {
    let read = |name: &str| documents(&Path::new(ROOT).join("deploy/recommender").join(name));
    let (plain, object) = (read("rules.yaml"), read("prometheusrule.yaml"));
    assert_eq!(plain.len(), 1);
    assert_eq!(object[0]["spec"], plain[0]);
}
