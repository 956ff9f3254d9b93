//! `plimsoll doctor`: what a Prometheus is good for as the source of history, as data and as text for people.
//!
//! ```text
//!   Facts (what was asked, what came) ──▶ diagnose ──▶ Report ─┬─▶ text
//!                                                             └─▶ JSON
//! ```
//!
//! Nothing is asked here: `run` does that.

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
