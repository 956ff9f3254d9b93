//! `plimsoll doctor`: checks whether a Prometheus can provide history, and reports the result as JSON and as text.
//!
//! ```text
//!   ProbeResults (queries and responses) ──▶ diagnose ──▶ DoctorReport ─┬─▶ text
//!                                                                       └─▶ JSON
//! ```
//!
//! This module sends no queries: `report::collect::doctor` does that.

pub mod cluster_findings;
pub mod diagnose;
mod history_findings;
pub mod probe_results;
mod recording_rules;
pub mod report;
mod series_findings;
pub mod server_flavor;
pub mod suggested_flags;
pub mod text;

pub use self::{diagnose::diagnose, probe_results::ProbeResults, report::DoctorReport};
