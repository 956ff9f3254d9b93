//! Faults, one a test: its metric, its log line, and the recommendation afterwards.
//!
//! What dies or freezes is the real binary on real time; the others are in the test's own process, with a stepped
//! clock. Each has a bed of its own, because each breaks something that is the cluster's.

mod api_server_outage;
mod api_server_throttling;
mod broken_target;
mod clock_jumps;
pub mod fixture;
mod hanging_metrics_api;
mod late_lists;
mod metrics_api_errors;
mod process_kill;
mod recommender_process;
mod replicas;
mod slow_writes;
mod unreadable_history;
mod write_conflicts;
