//! `plimsoll doctor`: checks whether a Prometheus can provide history, and reports the result as JSON and as text.
//!
//! ```text
//!   ProbeResults (queries and responses) ──▶ diagnose ──▶ DoctorReport ─┬─▶ text
//!                                                                       └─▶ JSON
//! ```
//!
//! This module sends no queries: `report::collect::doctor` does that.

pub mod cluster_report;
pub(crate) mod diagnose;
mod history_findings;
pub mod hpa_lint;
pub(crate) mod probe_results;
pub(crate) mod report;
mod series_findings;
pub mod text;

pub use self::report::DoctorReport;
pub(crate) use self::{diagnose::diagnose, probe_results::ProbeResults};
