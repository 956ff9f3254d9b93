//! Caches the objects that watches deliver, reduced to the fields that are used.

pub mod controllers;
pub mod deleted_vpas;
pub mod eviction_events;
pub mod label_store;
pub mod limit_range;
pub mod object_store;
pub mod recommender_pod;
pub mod replica_pod;
pub mod resource_quota;
pub mod schedulable_nodes;
pub mod selector;
pub mod startup_boost;
pub mod ttl_cache;
pub mod updater_pod;
pub mod vpa_index;
