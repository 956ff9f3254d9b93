//! Usage of pods from the series of a Prometheus, for clusters without a metrics server: asked for many namespaces at once,
//! and handed out pod by pod.
//!
//! ```text
//!   namespaces ─▶ batches: a pattern below 4 KiB ─▶ memory[window], CPU[window] ─▶ the last points of each series
//!                                                      one usage each pod ◀─ pairs by container ◀─┘
//! ```
//!
//! What is asked for are the samples themselves, so each has the time at which it was taken, and one that was handed
//! out before is known again. An answer is read as it arrives, and the last points of each series are all that is
//! kept of it: some 250 bytes a container, for the containers of one batch.

mod pod_samples;
mod series_tail;

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::PrometheusClient,
    promql::Query,
    query_error::QueryError,
    schema::{Schema, ScrapeInterval},
    selector::Pattern,
};

use self::pod_samples::{PodSamples, SampleCollector};
use super::{
    list_stream::Deadline,
    pod_metrics::{PodUsage, UsageError, UsageReport},
};
use plimsoll_core::recommender::estimate::Resource;

/// The longest pattern of namespaces: some servers refuse long queries.
const MAX_PATTERN_BYTES: usize = 4096;

/// How much later than it was taken a sample may be known at least: a kubelet measures each ten seconds and stamps what it
/// shows with that time, and a scrape takes its own.
const INGESTION_LAG: Duration = Duration::from_secs(10);

/// How often a query is tried. More would take the time in which a failure can still be told.
const ATTEMPTS: u32 = 2;

/// Reads the usage of all pods of these namespaces as it is `now`, within `patience` for all of it.
///
/// CPU is what its counter grew by between its last two samples, and unknown of a container that has only one; memory is
/// the last sample. An error means that nothing was answered at all. What failed in part is in the report, and what
/// is missing for it is unknown, never zero; that nothing is there is no failure.
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
    let question = BatchQuery {
        client,
        schema,
        window: query_window(schema.scrape_interval.value),
        now,
        deadline,
    };
    let mut report = UsageReport::default();
    let mut answered = false;
    let mut left = batches(namespaces);
    left.reverse();
    while let Some(batch) = left.pop() {
        let before = report.malformed_mark();
        let mut gathered = PodSamples::default();
        let mut failures = Vec::new();
        // CPU comes later, so that what it has is never behind memory, whose time a pod's usage goes by.
        for resource in [Resource::Memory, Resource::Cpu] {
            match question.fetch(&batch, resource, &mut gathered, &mut report).await {
                Ok(()) => answered = true,
                Err(failure) => failures.push(failure),
            }
            if failures.iter().any(|failure| is_timeout(failure) || is_too_large(failure)) {
                break;
            }
        }
        if batch.len() > 1 && failures.iter().any(is_too_large) {
            report.rewind_malformed(before);
            let (first, second) = batch.split_at(batch.len() / 2);
            left.extend([second.to_vec(), first.to_vec()]);
            continue;
        }
        for usage in gathered.into_usages(ended_after(schema.scrape_interval.value)) {
            report.emit(usage, sink);
        }
        let is_over = failures.iter().any(is_timeout);
        for failure in failures {
            report.record_failure(failure);
        }
        if is_over {
            break;
        }
    }
    report.into_result(answered)
}

/// The time in which the last two samples of a series are, and those of a series that has ended no longer.
fn query_window(pace: ScrapeInterval) -> Duration {
    pace.longest_gap.saturating_mul(2).saturating_add(INGESTION_LAG.max(pace.longest_gap / 10))
}

/// A sample that is so much older than the newest one of its pod is the last of a container that has ended.
fn ended_after(pace: ScrapeInterval) -> Duration {
    pace.longest_gap.saturating_mul(9) / 10
}

/// Namespaces that are asked for together.
fn batches<'a>(namespaces: &[&'a str]) -> Vec<Vec<&'a str>> {
    let mut namespaces = namespaces.to_vec();
    namespaces.sort_unstable();
    namespaces.dedup();
    let mut batches: Vec<Vec<&str>> = Vec::new();
    let mut length = 0;
    for namespace in namespaces {
        let more = Pattern::literal(namespace).as_str().len() + 1;
        match batches.last_mut() {
            Some(batch) if length + more <= MAX_PATTERN_BYTES => {
                batch.push(namespace);
                length += more;
            }
            _ => {
                batches.push(vec![namespace]);
                // The brackets around all of them.
                length = more + 4;
            }
        }
    }
    batches
}

fn is_timeout(error: &UsageError) -> bool {
    matches!(error, UsageError::Timeout { .. })
}

fn is_too_large(error: &UsageError) -> bool {
    matches!(error, UsageError::Prometheus { failure: QueryError::TooLarge(_), .. })
}

/// What is asked of each batch.
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
        gathered: &mut PodSamples,
        report: &mut UsageReport,
    ) -> Result<(), UsageError> {
        let Self { client, schema, window, now, deadline } = self;
        let (metric, word) = match resource {
            Resource::Cpu => (&schema.usage.cpu, "CPU"),
            Resource::Memory => (&schema.usage.memory, "memory"),
        };
        let query = Query::range_samples(&schema.usage_selector_in(metric, batch), *window);
        let identity = schema.usage.container_labels();
        let oldest = now.earlier(*window);
        let mut taker = SampleCollector::new(gathered, report, resource, identity, oldest);
        let what = format!("{word} in {}", describe_batch(batch));
        let asked = async {
            let failed = |failure| UsageError::Prometheus { what: what.clone(), failure };
            client.instant(&query, *now, &mut taker).await.map_err(failed)
        };
        let answered = deadline.run(&format!("the Prometheus about {what}"), asked).await;
        match answered {
            Ok(tally) => {
                for warning in &tally.warnings {
                    tracing::warn!(%what, warning, "the Prometheus warns of its answer about usage");
                }
                Ok(())
            }
            Err(error) => {
                // Of a query that was given up, half an answer may have come.
                taker.reset();
                Err(error)
            }
        }
    }
}

fn describe_batch(batch: &[&str]) -> String {
    match batch {
        [] => "no namespace".to_owned(),
        [one] => format!("namespace {one}"),
        [first, .., last] => format!("{} namespaces ({first} to {last})", batch.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_asked_for_together_as_long_as_their_pattern_is_short() {
        let names: Vec<String> = (0..500).map(|number| format!("team-{number:03}")).collect();
        let mut wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        wanted.extend(["team-007", "team-008"]);
        wanted.reverse();
        let batches = batches(&wanted);
        assert_eq!(batches.len(), 2);
        for batch in &batches {
            let pattern = Pattern::any_literal(batch.iter().copied());
            assert!(pattern.as_str().len() <= MAX_PATTERN_BYTES, "{}", pattern.as_str().len());
        }
        assert_eq!(batches.concat(), names, "each once");
        assert!(super::batches(&[]).is_empty());
    }

    #[test]
    fn the_window_has_two_samples_of_each_series_whenever_it_is_asked() {
        for (longest, seconds) in [(1, 12), (15, 40), (60, 130), (300, 630)] {
            let pace = Duration::from_secs(longest);
            let window = query_window(ScrapeInterval { interval: pace, longest_gap: pace });
            assert_eq!(window.as_secs(), seconds);
            assert!(window >= 2 * pace + INGESTION_LAG);
        }
    }
}
