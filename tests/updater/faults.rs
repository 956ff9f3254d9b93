//! Faults of an updater and its dependencies, one per test: an operation that has started is not repeated, and no limit is
//! exceeded.
//!
//! The webhook of the namespace sizes replacement pods, so each pod has a reason to be evicted once and none to be evicted
//! twice. The process that dies or freezes is the real binary; a proxy to the API server determines where.

mod api_server_outage;
mod clock_skew;
mod leader_failover;
mod orphaned_surge;
mod process_kill;
mod two_leaders;
