//! What recording rules have made of usage: whether it can be read in place of usage itself.

use super::kept::{Kept, Sampled};
use crate::prometheus::{
    client::Client,
    failure::Failure,
    query::{Along, Fold, Query},
    schema::{CPU, MEMORY, RECORDED_CPU, RECORDED_MEMORY, Recorded, Schema},
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
    client: &Client,
    schema: &Schema,
    namespaces: &[&str],
    (from, to): (Time, Time),
) -> Result<Recorded, Failure> {
    let usage = &schema.usage;
    // They are made of these; who sets another metric means that one.
    if usage.cpu.value != CPU || usage.memory.value != MEMORY {
        return Ok(Recorded::Absent);
    }
    let some = if namespaces.len() <= MOST_NAMESPACES { namespaces } else { &[] };
    for at in [to, from] {
        let mut containers = u64::MAX;
        for metric in [RECORDED_CPU, RECORDED_MEMORY] {
            let recorded = schema.recorded_in(metric, some);
            containers = containers.min(count(client, schema, recorded, at).await?);
            if containers == 0 && at == to {
                return Ok(Recorded::Absent);
            }
        }
        let of = count(client, schema, schema.usage_in(&usage.memory, some), at).await?;
        if containers == 0 || containers.saturating_mul(20) < of.saturating_mul(19) {
            return Ok(Recorded::Short { at, containers, of });
        }
    }
    Ok(Recorded::Whole)
}

/// How many containers have one of these.
async fn count(
    client: &Client,
    schema: &Schema,
    series: Selector,
    at: Time,
) -> Result<u64, Failure> {
    let one_each = Query::from(series).fold(Fold::Group, Along::By(&schema.usage.identity()));
    let mut kept = Kept::default();
    client.instant(&one_each.fold(Fold::Count, Along::By(&[])), at, &mut kept).await?;
    Ok(kept.series.first().and_then(Sampled::value).unwrap_or(0.0) as u64)
}
