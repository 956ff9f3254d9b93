//! Detects whether recorded usage series can be read instead of the raw ones.

use crate::prometheus::{
    client::PrometheusClient,
    promql::{Aggregation, Query},
    query_error::QueryError,
    schema::{
        CPU_METRIC, MEMORY_METRIC, RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC, RecordingRules,
        Schema,
    },
    selector::Selector,
};
use plimsoll_core::types::Time;

/// With more namespaces than this, the queries are not restricted to them.
const MOST_NAMESPACES: usize = 50;

/// Compares recorded and raw series at the start and the end of a history, in these namespaces or in all. One query if
/// there are none, six if they are complete.
///
/// A container that has just started has no recorded series yet, so 95% of the containers counts as complete.
pub async fn find(
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
    let namespaces = if namespaces.len() <= MOST_NAMESPACES { namespaces } else { &[] };
    for at in [to, from] {
        let mut containers = u64::MAX;
        for metric in [RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC] {
            let recorded = schema.recorded_selector_in(metric, namespaces);
            containers = containers.min(count(client, schema, recorded, at).await?);
            if containers == 0 && at == to {
                return Ok(RecordingRules::Absent);
            }
        }
        let total_containers =
            count(client, schema, schema.usage_selector_in(&usage.memory, namespaces), at).await?;
        if containers == 0 || containers.saturating_mul(20) < total_containers.saturating_mul(19) {
            return Ok(RecordingRules::Incomplete { at, containers, total_containers });
        }
    }
    Ok(RecordingRules::Complete)
}

/// Counts the containers that have any of these series.
async fn count(
    client: &PrometheusClient,
    schema: &Schema,
    series: Selector,
    at: Time,
) -> Result<u64, QueryError> {
    let by_container =
        Query::from(series).aggregate(Aggregation::Group, &schema.usage.container_labels());
    client.count(&by_container.aggregate(Aggregation::Count, &[]), at).await
}
