//! The updater as a role on a real control plane.

pub mod availability_watch;
mod concurrent_conditions;
mod differential;
mod eviction_storm;
mod evictions;
mod faults;
pub mod fixture;
mod guards;
mod in_place;
mod log_deduplication;
mod rbac;
mod request_turns;
mod resizes;
pub mod sizing_webhook;
mod workload_kinds;
