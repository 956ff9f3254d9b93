//! Usage from a Prometheus is what a metrics API would say, or unknown, and never something else.

mod labelled;
mod partial;
mod scraped;

use std::time::Duration;

use jiff::Timestamp;
use plimsoll::observe::series::fetch_series;
use plimsoll::observe::usage::{PodUsage, UsageError, UsageReport};
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::detect::{Known, detect};
use plimsoll_storage::prometheus::schema::Schema;

use super::gather::{client, hasty};
use crate::support::wait::PATIENCE;

/// What the server calls its series.
async fn schema(url: &str, known: &Known, namespaces: &[&str], at: Timestamp) -> Schema {
    detect(&client(url, hasty()), known, namespaces, at.into()).await.expect("a schema")
}

/// A read that has all the time it needs.
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
    let client = client(url, hasty());
    let now = Time::from(at);
    let report = fetch_series(&client, schema, namespaces, now, &mut keep, patience).await;
    (report, pods)
}

/// A pod's name, the seconds that its usage is older than some time, millicores and bytes of each container, and whether
/// something of it is unknown.
type Short<'a> = (&'a str, i64, Vec<(&'a str, Option<i64>, Option<i64>)>, bool);

fn short(pods: &[PodUsage], at: Timestamp) -> Vec<Short<'_>> {
    let of = |pod: &PodUsage| Time::from(at).nanos_since(pod.at) / 1_000_000_000;
    let all = pods.iter().map(|pod| {
        let containers = pod.containers.iter();
        let containers = containers
            .map(|used| (&*used.name, used.cpu.map(|cpu| cpu.0), used.memory.map(|of| of.0)));
        (&*pod.pod, of(pod), containers.collect(), pod.is_incomplete)
    });
    all.collect()
}
