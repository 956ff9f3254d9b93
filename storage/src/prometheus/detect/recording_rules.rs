//! What recording rules have made of usage: whether it can be read in place of usage itself.

use super::series_collector::{CollectedSeries, SeriesCollector};
use crate::prometheus::{
    client::PrometheusClient,
    promql::{Aggregation, Grouping, Query},
    query_error::QueryError,
    schema::{
        CPU_METRIC, MEMORY_METRIC, RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC, RecordingRules,
        Schema,
    },
    selector::Selector,
};
use plimsoll_core::types::Time;

/// More namespaces than this are not worth naming in a question about numbers.
const MOST_NAMESPACES: usize = 50;

/// Looks for them, in these namespaces or in all, at the beginning and at the end of a history. One question where there
/// are none, six where they have everything.
///
/// A container that began a minute ago has none yet, so nearly all is all.
pub async fn find(
    client: &PrometheusClient,
    schema: &Schema,
    namespaces: &[&str],
    (from, to): (Time, Time),
) -> Result<RecordingRules, QueryError> {
    let usage = &schema.usage;
    // They are made of these; who sets another metric means that one.
    if usage.cpu.value != CPU_METRIC || usage.memory.value != MEMORY_METRIC {
        return Ok(RecordingRules::Absent);
    }
    let some = if namespaces.len() <= MOST_NAMESPACES { namespaces } else { &[] };
    for at in [to, from] {
        let mut containers = u64::MAX;
        for metric in [RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC] {
            let recorded = schema.recorded_selector_in(metric, some);
            containers = containers.min(count(client, schema, recorded, at).await?);
            if containers == 0 && at == to {
                return Ok(RecordingRules::Absent);
            }
        }
        let of = count(client, schema, schema.usage_selector_in(&usage.memory, some), at).await?;
        if containers == 0 || containers.saturating_mul(20) < of.saturating_mul(19) {
            return Ok(RecordingRules::Incomplete { at, containers, total_containers: of });
        }
    }
    Ok(RecordingRules::Complete)
}

/// How many containers have one of these.
async fn count(
    client: &PrometheusClient,
    schema: &Schema,
    series: Selector,
    at: Time,
) -> Result<u64, QueryError> {
    let one_each = Query::from(series)
        .aggregate(Aggregation::Group, Grouping::By(&schema.usage.container_labels()));
    let mut kept = SeriesCollector::default();
    client
        .instant(&one_each.aggregate(Aggregation::Count, Grouping::By(&[])), at, &mut kept)
        .await?;
    Ok(kept.series.first().and_then(CollectedSeries::value).unwrap_or(0.0) as u64)
}
