//! The series of kube-state-metrics: found by a pod that is known from its usage.

use super::{
    SchemaOverrides,
    series_collector::{CollectedSeries, SeriesCollector},
    usage::DetectedUsage,
};
use crate::prometheus::{
    client::PrometheusClient,
    promql::{Query, RangeFunction},
    query_error::QueryError,
    schema::KubeStateMetrics,
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// Families about pods.
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
/// Families about what owns pods.
pub const OF_OWNERS: [&str; 2] = ["kube_replicaset_owner", "kube_job_owner"];

/// Pods that are looked for.
const MOST: usize = 3;

pub(super) async fn find(
    client: &PrometheusClient,
    known: &SchemaOverrides,
    found: &DetectedUsage,
    at: Time,
) -> Result<Option<KubeStateMetrics>, QueryError> {
    let DetectedUsage { usage, samples, lookback: back, .. } = found;
    let [namespace, pod, _] = usage.container_labels();
    // Where usage is long ago, so are these.
    let there = |series: Selector| match back {
        Some(back) => Query::range_function(RangeFunction::Last, &series, *back),
        None => series.into(),
    };
    let mut pods: Vec<_> = samples.iter().collect();
    pods.dedup_by_key(|sample| (sample.get(namespace), sample.get(pod)));
    for sample in pods.into_iter().take(MOST) {
        for prefix in ["exported_", ""] {
            let label = |name: &str| format!("{prefix}{name}");
            let of_pod = |family: Selector| {
                there(family.equals(label("pod"), sample.get(pod)).with_all(&known.matchers))
            };
            let mut kept = query_families(client, &OF_PODS, of_pod, at).await?;
            let in_namespace = |series: &CollectedSeries| {
                [label("namespace").as_str(), "exported_namespace", "namespace"]
                    .iter()
                    .any(|label| series.get(label) == sample.get(namespace))
            };
            kept.series.retain(in_namespace);
            if !kept.series.is_empty() {
                let mut states = states(&kept.series);
                states.families.extend(owners(client, known, &states, there, at).await?);
                return Ok(Some(states));
            }
        }
    }
    Ok(None)
}

/// The families about owners.
async fn owners(
    client: &PrometheusClient,
    known: &SchemaOverrides,
    states: &KubeStateMetrics,
    there: impl Fn(Selector) -> Query,
    at: Time,
) -> Result<Vec<String>, QueryError> {
    let one_of_each = |mut family: Selector| {
        if let Some(job) = &states.job {
            family = family.equals("job", job);
        }
        there(family.with_all(&known.matchers)).topk(1, &["__name__"])
    };
    let kept = query_families(client, &OF_OWNERS, one_of_each, at).await?;
    Ok(kept.series.iter().map(|series| series.get("__name__").to_owned()).collect())
}

/// Asks about these families at once; one by one where the server wants each query to name its metric.
async fn query_families(
    client: &PrometheusClient,
    families: &[&str],
    query: impl Fn(Selector) -> Query,
    at: Time,
) -> Result<SeriesCollector, QueryError> {
    let mut kept = SeriesCollector::default();
    let all =
        Selector::any_metric().matches("__name__", Pattern::any_literal(families.iter().copied()));
    match client.instant(&query(all), at, &mut kept).await {
        Err(QueryError::BadQuery(_)) => {
            for family in families {
                client.instant(&query(Selector::metric(*family)), at, &mut kept).await?;
            }
        }
        answered => {
            answered?;
        }
    }
    Ok(kept)
}

/// The names in these series, which are about one pod.
fn states(series: &[CollectedSeries]) -> KubeStateMetrics {
    let label = |usual: &str| {
        let exported = format!("exported_{usual}");
        let has = series.iter().any(|series| !series.get(&exported).is_empty());
        if has { exported } else { usual.to_owned() }
    };
    let families = series.iter().map(|series| series.get("__name__").to_owned()).collect();
    let jobs: Vec<&str> = series.iter().map(|series| series.get("job")).collect();
    let most = jobs.iter().max_by_key(|job| jobs.iter().filter(|other| other == job).count());
    let is_alone = jobs.windows(2).all(|pair| pair[0] == pair[1]);
    KubeStateMetrics {
        job: most.filter(|job| !job.is_empty() && !is_alone).map(|job| (*job).to_owned()),
        namespace: label("namespace"),
        pod: label("pod"),
        container: label("container"),
        families,
    }
}
