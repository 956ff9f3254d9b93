//! Checks whether a server has series of pods at all, to distinguish an empty history from a misconfigured one.

use std::collections::HashSet;

use super::live_pods::groups;
use super::workload_batch::LONGEST_PATTERN;
use crate::prometheus::{
    client::PrometheusClient,
    promql::{Aggregation, Query},
    query_error::QueryError,
    schema::Schema,
};
use plimsoll_core::types::Time;

/// Returns the namespaces that have container series now.
pub(super) async fn with_series(
    client: &PrometheusClient,
    schema: &Schema,
    namespaces: &[&str],
    now: Time,
) -> Result<HashSet<Box<str>>, QueryError> {
    let label = &*schema.usage.namespace.value;
    let mut found = HashSet::new();
    for group in groups(namespaces.iter().copied().collect(), LONGEST_PATTERN) {
        let series = schema.usage_selector_in(&schema.usage.memory, &group);
        let query = Query::from(series).aggregate(Aggregation::Group, &[label]);
        let series = client.vector(&query, now).await?;
        found.extend(series.iter().filter_map(|one| Some(one.labels.get(label)?.as_str().into())));
    }
    Ok(found)
}
