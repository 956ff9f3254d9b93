//! Detects the series of kube-state-metrics by pods that have usage series.

use super::{SchemaOverrides, actual_label, last_samples, usage_series::DetectedUsage};
use crate::prometheus::{
    client::{CollectedSeries, PrometheusClient},
    promql::Query,
    query_error::QueryError,
    schema::KubeStateMetrics,
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

pub const OF_PODS: [&str; 9] = [
    "kube_pod_owner",
    "kube_pod_labels",
    "kube_pod_container_status_restarts_total",
    "kube_pod_container_status_last_terminated_reason",
    "kube_pod_container_status_last_terminated_timestamp",
    "kube_pod_container_resource_requests",
    "kube_pod_container_resource_limits",
    "kube_pod_container_resource_requests_memory_bytes",
    "kube_pod_container_resource_limits_memory_bytes",
];
/// Metric families about the owners of pods.
pub const OF_OWNERS: [&str; 2] = ["kube_replicaset_owner", "kube_job_owner"];

const MAX_PODS: usize = 3;

pub(super) async fn find(
    client: &PrometheusClient,
    known: &SchemaOverrides,
    detected: &DetectedUsage,
    at: Time,
) -> Result<Option<KubeStateMetrics>, QueryError> {
    let DetectedUsage { usage, samples, lookback, .. } = detected;
    let [namespace, pod, _] = usage.container_labels();
    // If the usage series are old, these are old too.
    let recent = |series: Selector| last_samples(series, *lookback);
    let mut pods: Vec<_> = samples.iter().collect();
    pods.dedup_by_key(|sample| (sample.get(namespace), sample.get(pod)));
    for sample in pods.into_iter().take(MAX_PODS) {
        for prefix in ["exported_", ""] {
            let label = |name: &str| format!("{prefix}{name}");
            let of_pod = |family: Selector| {
                recent(family.equals(label("pod"), sample.get(pod)).with_all(&known.matchers))
            };
            let mut found = query_families(client, &OF_PODS, of_pod, at).await?;
            let in_namespace = |series: &CollectedSeries| {
                [label("namespace").as_str(), "exported_namespace", "namespace"]
                    .iter()
                    .any(|label| series.get(label) == sample.get(namespace))
            };
            found.retain(in_namespace);
            if !found.is_empty() {
                let mut states = states(&found);
                let one_of_each = |family: Selector| {
                    let family = family.equals_if_set("job", states.job.as_ref());
                    recent(family.with_all(&known.matchers)).topk(1, &["__name__"])
                };
                let owners = query_families(client, &OF_OWNERS, one_of_each, at).await?;
                states.families.extend(names(&owners));
                return Ok(Some(states));
            }
        }
    }
    Ok(None)
}

/// Queries these families at once, or one by one if the server requires a metric name in every query.
async fn query_families(
    client: &PrometheusClient,
    families: &[&str],
    query: impl Fn(Selector) -> Query,
    at: Time,
) -> Result<Vec<CollectedSeries>, QueryError> {
    let any_family =
        Selector::any_metric().matches("__name__", Pattern::any_literal(families.iter().copied()));
    match client.vector(&query(any_family), at).await {
        Err(QueryError::BadQuery(_)) => {
            let mut found = Vec::new();
            for family in families {
                found.extend(client.vector(&query(Selector::metric(*family)), at).await?);
            }
            Ok(found)
        }
        result => result,
    }
}

/// Derives the label names from the series of one pod.
fn states(series: &[CollectedSeries]) -> KubeStateMetrics {
    let jobs: Vec<&str> = series.iter().map(|series| series.get("job")).collect();
    let most = jobs.iter().max_by_key(|job| jobs.iter().filter(|other| other == job).count());
    let is_alone = jobs.windows(2).all(|pair| pair[0] == pair[1]);
    KubeStateMetrics {
        job: most.filter(|job| !job.is_empty() && !is_alone).map(|job| (*job).to_owned()),
        namespace: actual_label(series, "namespace"),
        pod: actual_label(series, "pod"),
        container: actual_label(series, "container"),
        families: names(series).collect(),
    }
}

fn names(series: &[CollectedSeries]) -> impl Iterator<Item = String> {
    series.iter().map(|series| series.get("__name__").to_owned())
}
