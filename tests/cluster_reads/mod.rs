//! Reads of a real cluster: watches, usage and evictions, and their failure modes.

mod eviction_events;
mod memory_bound;
mod relist_cost;
mod shared_watch;
mod silent_api_server;
mod usage;
mod vpa_deletion;
mod watched_objects;
mod watches;
