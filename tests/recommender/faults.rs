//! Faults, one a test: its metric, its log line, and the recommendation afterwards.
//!
//! What dies or freezes is the real binary on real time; the others are in the test's own process, with a stepped
//! clock. Each has a bed of its own, because each breaks something that is the cluster's.

mod clocks;
mod conflicts;
mod hang;
mod kill;
mod lists;
mod outage;
mod process;
mod refusals;
mod replicas;
mod slow;
pub mod stage;
mod target;
mod unread;
mod usage;
