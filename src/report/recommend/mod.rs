//! `plimsoll recommend`: what workloads should request, what that costs, and what is at risk.
//!
//! ```text
//!   Survey (workloads) ─┐
//!   histories ──────────┼─▶ evidence ─▶ plimsoll_core::rightsizing ─▶ Report ─▶ forms, patches
//!   other queries ──────┘
//! ```
//!
//! [`run`] makes a [`plimsoll_core::rightsizing::report::Report`]; [`forms`] and [`html`] render it and decide nothing.

pub(in crate::report) mod amounts;
pub mod cluster_evidence;
mod columns;
pub(in crate::report) mod csv;
pub(in crate::report) mod escape;
pub mod estimate;
pub mod evidence;
pub mod forms;
pub mod history;
pub mod html;
mod json;
pub mod manifest_files;
mod markdown;
pub mod memory_signals;
mod names;
pub mod node_groups;
mod overprovisioned;
#[cfg(test)]
mod property_tests;
pub mod query_tally;
#[cfg(test)]
mod random_reports;
pub mod run;
mod sarif;
mod selection;
pub mod server;
mod slack;
pub mod strategy;
mod table;
#[cfg(test)]
mod test_reports;
mod totals_table;
pub mod why;
mod wide;
mod words;

pub use columns::Column;
pub use forms::{Form, FormOptions, OutputTarget, RenderError, render};
pub use json::write_json;
pub use sarif::Placement;
pub use selection::SortKey;
pub use why::why;
