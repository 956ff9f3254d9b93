//! Caches the objects that watches deliver, reduced to the fields that are used.

pub mod controllers;
pub mod deleted_vpas;
pub mod eviction_events;
pub mod label_store;
pub mod limit_range;
pub(crate) mod object_store;
pub(crate) mod recommender_pod;
pub(crate) mod replica_pod;
pub(crate) mod resource_quota;
pub(crate) mod schedulable_nodes;
pub mod selector;
pub(crate) mod startup_boost;
pub mod ttl_cache;
pub mod updater_pod;
pub mod vpa_index;
