//! Usage of pods from Prometheus, for clusters without a metrics server: queried for many namespaces at once, and
//! delivered pod by pod.
//!
//! ```text
//!   namespaces ─▶ batches: pattern below 4 KiB ─▶ memory[window], CPU[window] ─▶ SeriesTail: last points
//!                                                      one PodUsage each ◀─ PodSamples: by container ◀─┘
//! ```
//!
//! The queries return raw samples with their own timestamps, so that a sample that was delivered before is recognised.
//! Responses are streamed, and only the last points of each series are kept: about 250 bytes per container, for the
//! containers of one batch.

mod pod_samples;
mod series_tail;

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::PrometheusClient,
    promql::Query,
    query_error::QueryError,
    schema::{Schema, ScrapeInterval},
    selector::literal_groups,
};

use self::pod_samples::{PodSamples, SampleCollector};
use super::pod_metrics::{PodUsage, UsageError, UsageReport};
use crate::cluster::list_stream::Deadline;
use plimsoll_core::recommender::estimate::Resource;

/// Maximum length of the namespace pattern: some servers reject long queries.
const MAX_PATTERN_BYTES: usize = 4096;

/// How late a sample may become visible: a kubelet measures every ten seconds and exposes that timestamp, and the scrape
/// adds its own delay.
const INGESTION_LAG: Duration = Duration::from_secs(10);

/// The number of attempts per query. More would use up the time that is left for reporting a failure.
const ATTEMPTS: u32 = 2;

/// Fetches the usage of all pods of these namespaces at `now`, within `patience` in total.
///
/// CPU is the rate between the last two samples of its counter, and unknown for a container that has only one; memory is
/// the last sample. Returns an error only if every query failed. Partial failures are recorded in the report, and values
/// that are missing because of them are unknown, never zero. An empty result is not a failure.
pub async fn fetch_prometheus_usage(
    client: &PrometheusClient,
    schema: &Schema,
    namespaces: &[&str],
    now: Time,
    sink: &mut (dyn FnMut(PodUsage) + Send),
    patience: Duration,
) -> Result<UsageReport, UsageError> {
    let deadline = Deadline::after(patience);
    let client = client.clone().with_max_attempts(ATTEMPTS);
    let query = BatchQuery {
        client,
        schema,
        window: query_window(schema.scrape_interval.value),
        now,
        deadline,
    };
    let mut report = UsageReport::default();
    let mut has_response = false;
    // The parentheses around the alternatives take four bytes.
    let mut remaining = literal_groups(namespaces.iter().copied().collect(), MAX_PATTERN_BYTES - 4);
    remaining.reverse();
    while let Some(batch) = remaining.pop() {
        let before = report.malformed_mark();
        let mut samples = PodSamples::default();
        let mut failures = Vec::new();
        // Query CPU last, so that it is never older than memory, which sets the timestamp of a pod's usage.
        for resource in [Resource::Memory, Resource::Cpu] {
            match query.fetch(&batch, resource, &mut samples, &mut report).await {
                Ok(()) => has_response = true,
                Err(failure) => failures.push(failure),
            }
            if failures.iter().any(|failure| is_timeout(failure) || is_too_large(failure)) {
                break;
            }
        }
        if batch.len() > 1 && failures.iter().any(is_too_large) {
            report.rewind_malformed(before);
            let (first, second) = batch.split_at(batch.len() / 2);
            remaining.extend([second.to_vec(), first.to_vec()]);
            continue;
        }
        for usage in samples.into_usages(ended_after(schema.scrape_interval.value)) {
            report.emit(usage, sink);
        }
        let has_timed_out = failures.iter().any(is_timeout);
        for failure in failures {
            report.record_failure(failure);
        }
        if has_timed_out {
            break;
        }
    }
    report.into_result(has_response)
}

/// A window that contains the last two samples of a live series, and none of a series that has ended.
fn query_window(scrape_interval: ScrapeInterval) -> Duration {
    scrape_interval
        .longest_gap
        .saturating_mul(2)
        .saturating_add(INGESTION_LAG.max(scrape_interval.longest_gap / 10))
}

/// A sample that is this much older than the newest one of its pod belongs to a container that has ended.
fn ended_after(scrape_interval: ScrapeInterval) -> Duration {
    scrape_interval.longest_gap.saturating_mul(9) / 10
}

fn is_timeout(error: &UsageError) -> bool {
    matches!(error, UsageError::Timeout { .. })
}

fn is_too_large(error: &UsageError) -> bool {
    matches!(error, UsageError::Prometheus { failure: QueryError::TooLarge(_), .. })
}

struct BatchQuery<'a> {
    client: PrometheusClient,
    schema: &'a Schema,
    window: Duration,
    now: Time,
    deadline: Deadline,
}

impl BatchQuery<'_> {
    async fn fetch(
        &self,
        batch: &[&str],
        resource: Resource,
        samples: &mut PodSamples,
        report: &mut UsageReport,
    ) -> Result<(), UsageError> {
        let Self { client, schema, window, now, deadline } = self;
        let (metric, resource_name) = match resource {
            Resource::Cpu => (&schema.usage.cpu, "CPU"),
            Resource::Memory => (&schema.usage.memory, "memory"),
        };
        let query = Query::range_samples(&schema.usage_selector_in(metric, batch), *window);
        let identity = schema.usage.container_labels();
        let oldest = now.earlier(*window);
        let mut collector = SampleCollector::new(samples, report, resource, identity, oldest);
        let description = format!("{resource_name} in {}", describe_batch(batch));
        let request = async {
            let failed = |failure| UsageError::Prometheus { what: description.clone(), failure };
            client.instant(&query, *now, &mut collector).await.map_err(failed)
        };
        let result = deadline.run(&format!("Prometheus query for {description}"), request).await;
        match result {
            Ok(stats) => {
                for warning in &stats.warnings {
                    tracing::warn!(query = %description, warning, "Prometheus returned a warning for a usage query");
                }
                Ok(())
            }
            Err(error) => {
                // A cancelled query may have delivered half of its response.
                collector.reset();
                Err(error)
            }
        }
    }
}

fn describe_batch(batch: &[&str]) -> String {
    match batch {
        [] => "no namespace".to_owned(),
        [namespace] => format!("namespace {namespace}"),
        [first, .., last] => format!("{} namespaces ({first} to {last})", batch.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_window_always_contains_two_samples_of_each_series() {
        for (longest, seconds) in [(1, 12), (15, 40), (60, 130), (300, 630)] {
            let pace = Duration::from_secs(longest);
            let window = query_window(ScrapeInterval { interval: pace, longest_gap: pace });
            assert_eq!(window.as_secs(), seconds);
            assert!(window >= 2 * pace + INGESTION_LAG);
        }
    }
}
