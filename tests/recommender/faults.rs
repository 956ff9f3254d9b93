//! Faults that only a recommender has, one per test; those of every controller are in `tests/faults/`. Each test asserts its metric, its log line and the recommendation afterwards.
//!
//! Tests that kill or freeze a process use the real binary in real time; the others run in the test's process with a
//! stepped clock. Each has its own testbed, because each breaks something cluster-wide.

mod api_server_throttling;
mod broken_target;
mod clock_jumps;
mod expired_watch;
pub mod fixture;
mod hanging_metrics_api;
mod late_lists;
mod metrics_api_errors;
mod process_kill;
mod recommender_process;
mod restart_of_both_replicas;
mod slow_writes;
mod unreadable_history;
mod write_conflicts;
