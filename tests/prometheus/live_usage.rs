//! Live usage from Prometheus equals the metrics API's, or is unknown.

mod partial_responses;
mod pod_windows;
mod scraped_usage;
mod series_labels;

use std::time::Duration;

use jiff::Timestamp;
use plimsoll::cluster::container_usage::pod_metrics::{PodUsage, UsageError, UsageReport};
use plimsoll::cluster::container_usage::prometheus_usage::fetch_prometheus_usage;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::detect::{SchemaOverrides, detect};
use plimsoll_storage::prometheus::schema::Schema;

use super::series_collector::{client, short_limits};
use crate::support::wait::PATIENCE;

/// The detected names of the server's series.
async fn schema(url: &str, known: &SchemaOverrides, namespaces: &[&str], at: Timestamp) -> Schema {
    detect(&client(url, short_limits()), known, namespaces, at.into())
        .await
        .expect("schema detected")
}

/// Fetches usage with a generous timeout.
async fn fetch(
    url: &str,
    schema: &Schema,
    namespaces: &[&str],
    at: Timestamp,
) -> (Result<UsageReport, UsageError>, Vec<PodUsage>) {
    fetch_within(url, schema, namespaces, at, PATIENCE).await
}

async fn fetch_within(
    url: &str,
    schema: &Schema,
    namespaces: &[&str],
    at: Timestamp,
    patience: Duration,
) -> (Result<UsageReport, UsageError>, Vec<PodUsage>) {
    let mut pods = Vec::new();
    let mut keep = |pod| pods.push(pod);
    let client = client(url, short_limits());
    let now = Time::from(at);
    let report =
        fetch_prometheus_usage(&client, schema, namespaces, now, &mut keep, patience).await;
    (report, pods)
}

/// Name of a pod, age of its usage in seconds, millicores and bytes of each container, and whether part of it is
/// unknown.
type UsageByContainer<'a> = (&'a str, i64, Vec<(&'a str, Option<i64>, Option<i64>)>, bool);

fn short(pods: &[PodUsage], at: Timestamp) -> Vec<UsageByContainer<'_>> {
    let of = |pod: &PodUsage| Time::from(at).nanos_since(pod.at) / 1_000_000_000;
    let all = pods.iter().map(|pod| {
        let containers = pod.containers.iter();
        let containers = containers
            .map(|used| (&*used.name, used.cpu.map(|cpu| cpu.0), used.memory.map(|of| of.0)));
        (&*pod.pod, of(pod), containers.collect(), pod.is_incomplete)
    });
    all.collect()
}
