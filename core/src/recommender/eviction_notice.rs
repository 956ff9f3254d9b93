//! Parses the memory usage in an `Evicted` event: the offending containers of a node under memory pressure.

use crate::types::{quantity::Quantity, units::Bytes};

/// Annotation with the names of the containers.
pub const CONTAINERS: &str = "offending_containers";
/// Annotation with their usage, in the same order.
pub const USAGES: &str = "offending_containers_usage";
/// Annotation with the starved resource, in the same order.
pub const STARVED: &str = "starved_resource";

/// An offending container of a node under memory pressure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffendingContainer {
    pub container: Box<str>,
    pub usage: Bytes,
}

/// Returns the containers that were evicted because of memory. Ignores the event if its lists differ in length, and
/// entries for other resources or with an invalid amount.
pub fn parse(containers: &str, usages: &str, starved: &str) -> Vec<OffendingContainer> {
    let count = containers.split(',').count();
    if usages.split(',').count() != count || starved.split(',').count() != count {
        return Vec::new();
    }
    let entries = containers.split(',').zip(usages.split(',')).zip(starved.split(','));
    entries
        .filter(|(_, resource)| *resource == "memory")
        .filter_map(|((container, usage), _)| {
            let usage = usage.parse::<Quantity>().ok()?.to_memory();
            Some(OffendingContainer { container: container.into(), usage })
        })
        .collect()
}
