//! Container usage from `external.metrics.k8s.io`: one query per pod and metric, several at a time.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use plimsoll_core::types::Time;
use serde::Deserialize;
use serde_json::Value;

use super::pod_metrics::{ContainerUsage, PodUsage, UsageError, UsageReport, parse_amount};
use crate::cluster::list_stream::{Deadline, encode_query, read_items};
use plimsoll_core::types::quantity::Quantity;

const API: &str = "/apis/external.metrics.k8s.io/v1beta1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalMetrics {
    /// The metric of CPU, in cores. `None` skips CPU.
    pub cpu: Option<String>,
    /// The metric of memory, in bytes. `None` skips memory.
    pub memory: Option<String>,
    pub container_label: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodQuery {
    pub namespace: Box<str>,
    /// The selector of the pod's workload, as text; empty to select all pods.
    pub selector: Box<str>,
    pub pod: Box<str>,
}

/// Queries the usage of these pods, `at_once` at a time, within `timeout` in total. A query that fails is recorded in the
/// report and marks its pod as incomplete; the other queries continue. Returns an error if no query got a response. Pods
/// without any value are not passed to `sink`.
pub async fn fetch_external_usage(
    client: &Client,
    metrics: &ExternalMetrics,
    pods: impl IntoIterator<Item = PodQuery, IntoIter: Send>,
    at_once: usize,
    sink: &mut (dyn FnMut(PodUsage) + Send),
    timeout: Duration,
) -> Result<UsageReport, UsageError> {
    let deadline = Deadline::after(timeout);
    let query = |pod| query_pod(client, metrics, pod, deadline);
    let mut responses =
        std::pin::pin!(futures::stream::iter(pods).map(query).buffer_unordered(at_once.max(1)));
    let mut report = UsageReport::default();
    let mut has_response = false;
    while let Some(response) = responses.next().await {
        has_response |= response.has_response;
        response.failures.into_iter().for_each(|failure| report.record_failure(failure));
        response.malformed.into_iter().for_each(|malformed| report.record_malformed(|| malformed));
        if let Some(usage) = response.usage {
            report.emit(usage, sink);
        }
    }
    report.into_result(has_response)
}

#[derive(Default)]
struct PodResponse {
    usage: Option<PodUsage>,
    has_response: bool,
    failures: Vec<UsageError>,
    malformed: Vec<String>,
}

/// The values of one metric, with the timestamp of the first.
#[derive(Default)]
struct ContainerValues {
    at: Option<Time>,
    by_container: BTreeMap<String, Quantity>,
    is_incomplete: bool,
}

async fn query_pod(
    client: &Client,
    metrics: &ExternalMetrics,
    query: PodQuery,
    deadline: Deadline,
) -> PodResponse {
    let mut response = PodResponse::default();
    let mut at = None;
    let mut is_incomplete = false;
    let mut containers: BTreeMap<String, ContainerUsage> = BTreeMap::new();
    // Memory comes last, so that its timestamp is used when both have one: upstream uses either of the two.
    for (metric, is_cpu) in [(&metrics.cpu, true), (&metrics.memory, false)] {
        let Some(metric) = metric.as_deref().filter(|metric| !metric.is_empty()) else { continue };
        let label = &metrics.container_label;
        let values = query_metric(client, metric, label, &query, deadline, &mut response).await;
        at = values.at.or(at);
        is_incomplete |= values.is_incomplete;
        for (name, value) in values.by_container {
            let container = containers.entry(name).or_insert_with_key(|name| ContainerUsage {
                name: name.as_str().into(),
                cpu: None,
                memory: None,
            });
            if is_cpu {
                container.cpu = Some(value.to_cpu());
            } else {
                container.memory = Some(value.to_memory());
            }
        }
    }
    response.usage = at.map(|at| PodUsage {
        namespace: query.namespace,
        pod: query.pod,
        at,
        containers: containers.into_values().collect(),
        is_incomplete,
    });
    response
}

async fn query_metric(
    client: &Client,
    metric: &str,
    label: &str,
    query: &PodQuery,
    deadline: Deadline,
    response: &mut PodResponse,
) -> ContainerValues {
    let PodQuery { namespace, selector, pod } = query;
    let comma = if selector.is_empty() { "" } else { "," };
    let path = format!(
        "{API}/namespaces/{}/{}?labelSelector={}",
        encode_query(namespace),
        encode_query(metric),
        encode_query(&format!("{selector}{comma}pod={pod}"))
    );
    let mut values = ContainerValues::default();
    let malformed = &mut response.malformed;
    let request = read_items(client, &path, deadline, |item| {
        let parsed = match serde_json::from_slice::<Item>(item) {
            Ok(item) => read_value(item, label, &mut values),
            Err(why) if !why.is_data() => return Err(why),
            Err(why) => Err(why.to_string()),
        };
        if let Err(why) = parsed {
            values.is_incomplete = true;
            malformed.push(format!("{namespace}/{pod}: a value of {metric}: {why}"));
        }
        Ok(())
    });
    match request.await {
        Ok(()) => response.has_response = true,
        Err(failure) => {
            values.is_incomplete = true;
            response.failures.push(failure);
        }
    }
    values
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    #[serde(default)]
    metric_labels: Option<BTreeMap<String, String>>,
    timestamp: Timestamp,
    value: Value,
}

fn read_value(mut item: Item, label: &str, values: &mut ContainerValues) -> Result<(), String> {
    // The first item sets the timestamp, whether or not it names a container.
    values.at.get_or_insert(item.timestamp.into());
    let Some(name) = item.metric_labels.as_mut().and_then(|labels| labels.remove(label)) else {
        return Ok(());
    };
    match parse_amount(Some(&item.value)) {
        Ok(value) => {
            values.by_container.insert(name, value.unwrap_or(Quantity::ZERO));
            Ok(())
        }
        Err(why) => Err(format!("container {name}: {why}")),
    }
}
