//! What every workload of a cluster should request, what that costs, and what is at risk: the decisions of
//! `plimsoll recommend`.
//!
//! ```text
//! Survey (workloads as they are) ─┐
//! ContainerEvidence (history)    ─┼─▶ report ─▶ Report, which forms, patches and pages render
//! ReportOptions, Prices          ─┘
//!
//! report: need (or why nothing can be said) ─▶ targets (within bounds) ─▶ changes (request and limit)
//!           ─▶ autoscaler (what stays, which targets move) ─▶ severity, costs ─▶ totals, score
//! ```

pub mod assembly;
pub mod autoscaler;
pub mod baseline;
pub mod changes;
pub mod daily_peaks;
pub mod evidence;
pub mod fail_on;
pub mod glob;
pub mod jvm_heap;
pub mod labels;
pub mod limits;
pub mod need;
pub mod node_groups;
pub mod options;
pub mod owner_groups;
pub mod page_cache;
pub mod pod_amounts;
pub mod pod_count;
pub mod prices;
pub mod report;
pub mod row_key;
pub mod runs;
pub mod runtime_bounds;
pub mod runtime_hints;
pub mod score;
pub mod severity;
pub mod shape;
pub mod survey;
pub mod targets;
pub mod thresholds;
pub mod totals;

#[cfg(test)]
mod closed_loop_tests;
#[cfg(test)]
mod testing;

pub use assembly::report;
pub use options::{ReportHead, ReportOptions};
