//! Finds out what a server calls its series: by a handful of cheap queries, each about one moment.
//!
//! ```text
//!   one container of each job ──▶ labels ──▶ jobs, copies, clusters ──▶ its samples ──▶ scrape interval
//!                                   └──────▶ the same pod in kube-state-metrics
//! ```
//!
//! What is set is not looked for, and means what it says even where the server has nothing of it.

mod kube_state_metrics;
mod recording_rules;
mod series_collector;
mod usage;

use std::time::Duration;

pub use self::recording_rules::find as find_recorded;
use self::series_collector::SeriesCollector;
use super::{
    client::PrometheusClient,
    promql::Query,
    query_error::QueryError,
    schema::{Dialect, LabelValues, RecordingRules, Schema, ScrapeInterval, WithOrigin},
    selector::LabelMatchers,
};
use plimsoll_core::types::Time;

/// What somebody has set. `None` is looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaOverrides {
    /// The job of usage; the empty one means any (`--prometheus-cadvisor-job-name`).
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
    /// Matchers that go into every query (`--prometheus-matcher`).
    pub matchers: LabelMatchers,
}

/// Why nothing can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DetectError {
    /// There was no answer.
    #[error(transparent)]
    Failed(#[from] QueryError),
    /// The server has no usage of containers under any name that is known.
    #[error(
        "the server has no series of {metric} with labels of pods and containers{matching}: check that it scrapes \
         cAdvisor (the kubelets' /metrics/cadvisor), the matchers, and the labels if they are set"
    )]
    NoUsageSeries {
        /// The metric.
        metric: String,
        /// The matchers, as text.
        matching: String,
    },
}

/// Finds the names. Looks at these namespaces only, where they have anything, and at all otherwise. Whether there are
/// recorded series hangs on which time is asked about: [`find_recorded`].
pub async fn detect(
    client: &PrometheusClient,
    known: &SchemaOverrides,
    namespaces: &[&str],
    at: Time,
) -> Result<Schema, DetectError> {
    let found = usage::find(client, known, namespaces, at).await?;
    let states = kube_state_metrics::find(client, known, &found, at).await?;
    let pace = match known.scrape_interval {
        Some(interval) => {
            WithOrigin::configured(ScrapeInterval { interval, longest_gap: interval })
        }
        None => pace(client, &found.samples, at).await?,
    };
    let dialect = dialect(client, at).await?;
    Ok(Schema {
        usage: found.usage,
        kube_state_metrics: states,
        recording_rules: RecordingRules::Absent,
        scrape_interval: pace,
        dialect,
        replica_labels: found.replicas,
        cluster_labels: found.clusters,
        matchers: known.matchers.clone(),
    })
}

/// Told by a word that only one of them has.
async fn dialect(client: &PrometheusClient, at: Time) -> Result<Dialect, QueryError> {
    let Ok(query) = Query::from_user("vector(1) default 2", &LabelMatchers::default()) else {
        return Ok(Dialect::PromQl);
    };
    let mut kept = SeriesCollector::default();
    match client.instant(&query, at, &mut kept).await {
        Ok(_) => Ok(Dialect::MetricsQl),
        Err(failure) if failure.is_query_specific() => Ok(Dialect::PromQl),
        // A login page is no answer.
        Err(failure) => Err(failure),
    }
}

/// The time in which samples are looked at to find their interval. Long enough for one of five minutes.
const LOOK_BACK: Duration = Duration::from_mins(20);

/// From the times of samples of a few series.
async fn pace(
    client: &PrometheusClient,
    samples: &[series_collector::CollectedSeries],
    at: Time,
) -> Result<WithOrigin<ScrapeInterval>, QueryError> {
    let mut gaps = Vec::new();
    for sample in samples.iter().take(3) {
        let mut kept = SeriesCollector::default();
        client.instant(&Query::range_samples(&sample.selector(), LOOK_BACK), at, &mut kept).await?;
        for series in &kept.series {
            let times = series.points.iter().map(|(at, _)| at.as_nanos());
            let times: Vec<_> = times.collect();
            gaps.extend(times.windows(2).map(|pair| (pair[1] - pair[0]).unsigned_abs()));
        }
    }
    if gaps.len() < 3 {
        return Ok(WithOrigin::assumed(ScrapeInterval::default()));
    }
    gaps.sort_unstable();
    let interval = gaps[gaps.len() / 2].max(1);
    // A gap of two intervals is a scrape that is missing.
    let longest = gaps.iter().rev().find(|&&gap| gap < interval * 19 / 10).copied();
    let whole = |nanos: u64| Duration::from_millis(nanos.div_ceil(1_000_000));
    // What differs by milliseconds is meant to be the same.
    let interval = match whole(interval).as_millis() {
        millis if millis % 1000 <= 20 || millis % 1000 >= 980 => {
            Duration::from_secs(u64::try_from((millis + 500) / 1000).unwrap_or(60).max(1))
        }
        _ => whole(interval),
    };
    let longest = whole(longest.unwrap_or(0)).max(interval);
    // Shorter than a fiftieth is how late a scrape may be.
    let longest = if longest < interval + interval / 50 { interval } else { longest };
    Ok(WithOrigin::detected(ScrapeInterval { interval, longest_gap: longest }))
}

/// Labels that have values here, each with all of them.
fn distinct(groups: &SeriesCollector, labels: &[&str], at_least: usize) -> Vec<LabelValues> {
    let mut all = Vec::new();
    for &label in labels {
        let values = groups.series.iter().map(|series| series.get(label).to_owned());
        let values: std::collections::BTreeSet<_> = values.collect();
        if values.len() >= at_least && values.iter().any(|value| !value.is_empty()) {
            all.push(LabelValues { label: label.to_owned(), values });
        }
    }
    all
}
