//! What an `Evicted` event tells about memory: which containers a starved node blamed, and their usage.

use crate::types::{quantity::Quantity, units::Bytes};

/// Annotation that names the containers.
pub const CONTAINERS: &str = "offending_containers";
/// Annotation that holds their usage, in the same order.
pub const USAGES: &str = "offending_containers_usage";
/// Annotation that holds the resource that ran out, in the same order.
pub const STARVED: &str = "starved_resource";

/// A container that a node under memory pressure blamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffendingContainer {
    /// Name of the container.
    pub container: Box<str>,
    /// What it used.
    pub usage: Bytes,
}

/// The containers blamed for memory. Lists of unequal length say nothing that could be trusted, so the
/// whole event is left aside; an entry about another resource or with an unreadable amount is passed over.
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
