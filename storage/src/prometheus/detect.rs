//! Detects the names of a server's series with a handful of cheap instant queries.
//!
//! ```text
//!   one container of each job ──▶ labels ──▶ jobs, replicas, clusters ──▶ its samples ──▶ scrape interval
//!                                   └──────▶ the same pod in kube-state-metrics
//! ```
//!
//! Configured names are not detected, and apply even if the server has no such series.

mod kube_state_metrics;
mod usage_series;

use std::time::Duration;

use super::{
    client::{CollectedSeries, PrometheusClient},
    decode::IgnoreSeries,
    promql::{Aggregation, Query, RangeFunction},
    query_error::QueryError,
    schema::{
        CPU_METRIC, Dialect, LabelValues, MAX_NAMESPACES, MEMORY_METRIC, RECORDED_CPU_METRIC,
        RECORDED_MEMORY_METRIC, RecordingRules, Schema, ScrapeInterval, WithOrigin,
    },
    selector::{LabelMatchers, Selector},
};
use plimsoll_core::types::Time;

/// Names from the configuration. `None` is detected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaOverrides {
    /// The job of usage series; empty for any job (`--prometheus-cadvisor-job-name`).
    pub job: Option<String>,
    /// The counter of CPU seconds (`--history-cpu-metric`).
    pub cpu: Option<String>,
    /// The gauge of memory (`--history-memory-metric`).
    pub memory: Option<String>,
    /// The label of namespaces (`--container-namespace-label`).
    pub namespace: Option<String>,
    /// The label of pods (`--container-pod-name-label`).
    pub pod: Option<String>,
    /// The label of containers (`--container-name-label`).
    pub container: Option<String>,
    /// The time between two scrapes.
    pub scrape_interval: Option<Duration>,
    /// Matchers for every query (`--prometheus-matcher`).
    pub matchers: LabelMatchers,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DetectError {
    #[error(transparent)]
    Failed(#[from] QueryError),
    /// The server has no container usage series under any known name.
    #[error(
        "the server has no {metric} series with pod and container labels{matching}: check that it scrapes \
         cAdvisor (the kubelets' /metrics/cadvisor), the matchers, and the label settings"
    )]
    NoUsageSeries {
        metric: String,
        /// The matchers, as text.
        matching: String,
    },
}

/// Detects the names. Searches these namespaces first, then all. Recording rules depend on the time range, so they are
/// detected by [`find_recorded`].
pub async fn detect(
    client: &PrometheusClient,
    known: &SchemaOverrides,
    namespaces: &[&str],
    at: Time,
) -> Result<Schema, DetectError> {
    let detected = usage_series::find(client, known, namespaces, at).await?;
    let states = kube_state_metrics::find(client, known, &detected, at).await?;
    let scrape_interval = match known.scrape_interval {
        Some(interval) => {
            WithOrigin::configured(ScrapeInterval { interval, longest_gap: interval })
        }
        None => detect_scrape_interval(client, &detected.samples, at).await?,
    };
    let dialect = dialect(client, at).await?;
    Ok(Schema {
        usage: detected.usage,
        kube_state_metrics: states,
        recording_rules: RecordingRules::Absent,
        scrape_interval,
        dialect,
        replica_labels: detected.replicas,
        cluster_labels: detected.clusters,
        matchers: known.matchers.clone(),
    })
}

/// Compares recorded and raw series at the start and the end of a history, in these namespaces or in all. One query if
/// there are none, six if they are complete.
///
/// A container that has just started has no recorded series yet, so 95% of the containers counts as complete.
pub async fn find_recorded(
    client: &PrometheusClient,
    schema: &Schema,
    namespaces: &[&str],
    (from, to): (Time, Time),
) -> Result<RecordingRules, QueryError> {
    let usage = &schema.usage;
    // The rules record these metrics. A configured metric takes precedence.
    if usage.cpu.value != CPU_METRIC || usage.memory.value != MEMORY_METRIC {
        return Ok(RecordingRules::Absent);
    }
    let namespaces = if namespaces.len() <= MAX_NAMESPACES { namespaces } else { &[] };
    for at in [to, from] {
        let identity = usage.container_labels();
        let mut containers = u64::MAX;
        for metric in [RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC] {
            let recorded = schema.in_namespaces(Selector::metric(metric), namespaces).into();
            containers = containers.min(count_containers(client, &recorded, &identity, at).await?);
            if containers == 0 && at == to {
                return Ok(RecordingRules::Absent);
            }
        }
        let all = schema.usage_selector_in(&usage.memory, namespaces).into();
        let total_containers = count_containers(client, &all, &identity, at).await?;
        if containers == 0 || containers.saturating_mul(20) < total_containers.saturating_mul(19) {
            return Ok(RecordingRules::Incomplete { at, containers, total_containers });
        }
    }
    Ok(RecordingRules::Complete)
}

/// Detects the dialect by a keyword that only MetricsQL has.
async fn dialect(client: &PrometheusClient, at: Time) -> Result<Dialect, QueryError> {
    let Ok(query) = Query::from_user("vector(1) default 2", &LabelMatchers::default()) else {
        return Ok(Dialect::PromQl);
    };
    match client.instant(&query, at, &mut IgnoreSeries).await {
        Ok(_) => Ok(Dialect::MetricsQl),
        Err(failure) if failure.is_query_specific() => Ok(Dialect::PromQl),
        // For example a login page, which says nothing about the dialect.
        Err(failure) => Err(failure),
    }
}

/// The window of samples from which to detect the scrape interval. Long enough for an interval of five minutes.
const LOOK_BACK: Duration = Duration::from_mins(20);

/// Detects the scrape interval from the timestamps of a few series.
async fn detect_scrape_interval(
    client: &PrometheusClient,
    samples: &[CollectedSeries],
    at: Time,
) -> Result<WithOrigin<ScrapeInterval>, QueryError> {
    let mut gaps = Vec::new();
    for sample in samples.iter().take(3) {
        let query = Query::range_samples(&sample.selector(), LOOK_BACK);
        for series in client.vector(&query, at).await? {
            let gap = |pair: &[(Time, f64)]| pair[1].0.nanos_since(pair[0].0).unsigned_abs();
            gaps.extend(series.points.windows(2).map(gap));
        }
    }
    if gaps.len() < 3 {
        return Ok(WithOrigin::assumed(ScrapeInterval::default()));
    }
    gaps.sort_unstable();
    let interval = gaps[gaps.len() / 2].max(1);
    // A gap of two intervals means a missing scrape.
    let longest = gaps.iter().rev().find(|&&gap| gap < interval * 19 / 10).copied();
    let whole_millis = |nanos: u64| Duration::from_millis(nanos.div_ceil(1_000_000));
    // Ignore differences of some milliseconds.
    let interval = match whole_millis(interval).as_millis() {
        millis if millis % 1000 <= 20 || millis % 1000 >= 980 => {
            Duration::from_secs(u64::try_from((millis + 500) / 1000).unwrap_or(60).max(1))
        }
        _ => whole_millis(interval),
    };
    let longest = whole_millis(longest.unwrap_or(0)).max(interval);
    // A scrape may be late by up to 2% of the interval.
    let longest = if longest < interval + interval / 50 { interval } else { longest };
    Ok(WithOrigin::detected(ScrapeInterval { interval, longest_gap: longest }))
}

/// The last sample of each series within this time; without a time, the current one.
fn last_samples(series: Selector, within: Option<Duration>) -> Query {
    match within {
        Some(within) => Query::range_function(RangeFunction::Last, &series, within),
        None => series.into(),
    }
}

/// The name of a label. A scrape without honor_labels overwrites the label and keeps the original as `exported_`.
fn actual_label(series: &[CollectedSeries], usual: &str) -> String {
    let exported = format!("exported_{usual}");
    let is_exported = series.iter().any(|series| !series.get(&exported).is_empty());
    if is_exported { exported } else { usual.to_owned() }
}

/// Counts the containers that have any of these series.
async fn count_containers(
    client: &PrometheusClient,
    series: &Query,
    identity: &[&str; 3],
    at: Time,
) -> Result<u64, QueryError> {
    let by_container = series.aggregate(Aggregation::Group, identity);
    client.count(&by_container.aggregate(Aggregation::Count, &[]), at).await
}

/// The labels that have at least this many distinct values, with these values.
fn distinct(groups: &[CollectedSeries], labels: &[&str], at_least: usize) -> Vec<LabelValues> {
    let mut distinct = Vec::new();
    for &label in labels {
        let values = groups.iter().map(|series| series.get(label).to_owned());
        let values: std::collections::BTreeSet<_> = values.collect();
        if values.len() >= at_least && values.iter().any(|value| !value.is_empty()) {
            distinct.push(LabelValues { label: label.to_owned(), values });
        }
    }
    distinct
}
