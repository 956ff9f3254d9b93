//! Responses of the three metrics APIs, as JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::request_query::{Selector, decode, parameter};
use super::state::{MetricsApi, State, UsageLine};

/// metrics-server's default window.
const WINDOW: &str = "15s";

/// The API that a path belongs to.
pub fn api(path: &str) -> Option<MetricsApi> {
    match path.split('/').nth(2)? {
        "metrics.k8s.io" => Some(MetricsApi::Resource),
        "custom.metrics.k8s.io" => Some(MetricsApi::Custom),
        "external.metrics.k8s.io" => Some(MetricsApi::External),
        _ => None,
    }
}

/// Whether a path is a discovery request.
pub fn is_discovery(path: &str) -> bool {
    path.trim_matches('/').split('/').count() <= 3
}

/// Whether a path requests the usage of pods.
pub fn is_usage_of_pods(path: &str) -> bool {
    let pieces: Vec<_> = path.trim_matches('/').split('/').collect();
    matches!(pieces[..], ["apis", "metrics.k8s.io", _, .., "pods"])
}

/// The namespace in a path, if there is one.
pub fn namespace(path: &str) -> Option<String> {
    let pieces: Vec<_> = path.trim_matches('/').split('/').collect();
    match pieces[..] {
        ["apis", _, _, "namespaces", namespace, ..] => Some(decode(namespace)),
        _ => None,
    }
}

/// The response to a request; `None` if the path is unknown.
pub fn answer(state: &State, path: &str, query: &str) -> Option<Value> {
    let decoded: Vec<_> = path.trim_matches('/').split('/').map(decode).collect();
    let pieces: Vec<_> = decoded.iter().map(String::as_str).collect();
    let selector = Selector::parse(&parameter(query, "labelSelector"));
    let now = state.now(namespace(path).as_deref());
    match pieces[..] {
        ["apis", group, version] => resources(group, version),
        ["apis", "metrics.k8s.io", _, "nodes"] => Some(nodes(state, now)),
        ["apis", "metrics.k8s.io", _, "pods"] => Some(pods(state, None, &selector)),
        ["apis", "metrics.k8s.io", _, "namespaces", namespace, "pods"] => {
            Some(pods(state, Some(namespace), &selector))
        }
        ["apis", "metrics.k8s.io", _, "namespaces", namespace, "pods", name] => {
            let mut all = pods(state, Some(namespace), &Selector::default());
            let items = all["items"].as_array_mut()?;
            let index = items.iter().position(|item| item["metadata"]["name"] == name)?;
            let mut item = items.swap_remove(index);
            item["kind"] = "PodMetrics".into();
            item["apiVersion"] = "metrics.k8s.io/v1beta1".into();
            Some(item)
        }
        [
            "apis",
            "custom.metrics.k8s.io",
            version,
            "namespaces",
            namespace,
            resource,
            object,
            metric,
        ] => custom(state, version, namespace, resource, object, metric, &selector, now),
        ["apis", "external.metrics.k8s.io", _, "namespaces", namespace, metric] => {
            Some(external(state, namespace, metric, &selector, now))
        }
        _ => None,
    }
}

fn resources(group: &str, version: &str) -> Option<Value> {
    let resource = |name: &str, kind: &str, namespaced: bool| json!({ "name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"] });
    let resources = match group {
        "metrics.k8s.io" => {
            vec![resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)]
        }
        "custom.metrics.k8s.io" => vec![resource("pods/any", "MetricValueList", true)],
        "external.metrics.k8s.io" => vec![resource("any", "ExternalMetricValueList", true)],
        _ => return None,
    };
    let group_version = format!("{group}/{version}");
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

fn pods(state: &State, namespace: Option<&str>, selector: &Selector) -> Value {
    let mut items: Vec<Value> = Vec::new();
    let mut last = None;
    for line in state.lines(namespace) {
        if !selector.matches(&labels(&line)) {
            continue;
        }
        let pod = (line.namespace.clone(), line.pod.clone());
        if last.as_ref() != Some(&pod) {
            items.push(json!({
                "metadata": {
                    "name": line.pod, "namespace": line.namespace,
                    "creationTimestamp": line.at, "labels": labels(&line),
                },
                "timestamp": seconds(line.at), "window": WINDOW, "containers": [],
            }));
            last = Some(pod);
        }
        if let Some(containers) =
            items.last_mut().and_then(|item| item["containers"].as_array_mut())
        {
            let used = usage(line.used.cpu, line.used.memory);
            containers.push(json!({ "name": line.container, "usage": used }));
        }
    }
    list("PodMetricsList", "metrics.k8s.io/v1beta1", items)
}

fn nodes(state: &State, now: Timestamp) -> Value {
    let mut sums: BTreeMap<String, (f64, u64)> = BTreeMap::new();
    for line in state.lines(None) {
        let node = line.object.and_then(|pod| pod.spec?.node_name).unwrap_or_default();
        let sum = sums.entry(node).or_default();
        *sum = (sum.0 + line.used.cpu, sum.1 + line.used.memory);
    }
    let item = |(node, (cpu, memory))| {
        let metadata = json!({ "name": node, "creationTimestamp": now });
        json!({ "metadata": metadata, "timestamp": seconds(now), "window": WINDOW, "usage": usage(cpu, memory) })
    };
    let items: Vec<_> = sums.into_iter().map(item).collect();
    list("NodeMetricsList", "metrics.k8s.io/v1beta1", items)
}

#[expect(clippy::too_many_arguments, reason = "the pieces of one path")]
fn custom(
    state: &State,
    version: &str,
    namespace: &str,
    resource: &str,
    object: &str,
    metric: &str,
    selector: &Selector,
    now: Timestamp,
) -> Option<Value> {
    let labels: BTreeMap<_, _> = state
        .pods(Some(namespace))
        .into_iter()
        .map(|pod| (pod.metadata.name.unwrap_or_default(), pod.metadata.labels.unwrap_or_default()))
        .collect();
    let known = state.lock();
    let wanted = known.custom.iter().filter(|([of, kind, name, found], _)| {
        let selected = labels.get(name).is_none_or(|labels| selector.matches(labels));
        of == namespace
            && kind == resource
            && found == metric
            && (name == object || (object == "*" && selected))
    });
    let items: Vec<_> = wanted
        .map(|([_, _, name, _], value)| {
            let mut item = json!({
                "describedObject": { "kind": kind(resource), "namespace": namespace, "name": name },
                "timestamp": seconds(now), "value": quantity(*value),
            });
            if version == "v1beta1" {
                item["metricName"] = metric.into();
            } else {
                item["metric"] = json!({ "name": metric, "selector": null });
            }
            item
        })
        .collect();
    (!items.is_empty())
        .then(|| list("MetricValueList", &format!("custom.metrics.k8s.io/{version}"), items))
}

fn external(
    state: &State,
    namespace: &str,
    metric: &str,
    selector: &Selector,
    now: Timestamp,
) -> Value {
    let known = state.lock();
    let wanted = known.external.iter().filter(|((of, found, labels), _)| {
        of == namespace && found == metric && selector.matches(labels)
    });
    let items: Vec<_> = wanted
        .map(|((_, _, labels), value)| {
            json!({
                "metricName": metric, "metricLabels": labels,
                "timestamp": seconds(now), "value": quantity(*value),
            })
        })
        .collect();
    list("ExternalMetricValueList", "external.metrics.k8s.io/v1beta1", items)
}

fn list(kind: &str, api_version: &str, items: impl Into<Value>) -> Value {
    let items = items.into();
    json!({ "kind": kind, "apiVersion": api_version, "metadata": {}, "items": items })
}

fn labels(line: &UsageLine) -> BTreeMap<String, String> {
    line.object.as_ref().and_then(|pod| pod.metadata.labels.clone()).unwrap_or_default()
}

/// In metrics-server's format: CPU in nanocores.
fn usage(cores: f64, bytes: u64) -> Value {
    json!({ "cpu": format!("{}n", (cores * 1e9).round() as i64), "memory": bytes.to_string() })
}

/// The kind of a resource, guessed from its name.
fn kind(resource: &str) -> String {
    let plural = resource.split('.').next().unwrap_or_default();
    let mut letters = plural.strip_suffix('s').unwrap_or(plural).chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Millis preserve a fraction, as adapters write it.
fn quantity(value: f64) -> String {
    format!("{}m", (value * 1e3).round() as i64)
}

/// The APIs report times in whole seconds.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
