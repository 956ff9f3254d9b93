//! `plimsoll explain pod`: what the updater would do with a pod and why, as JSON and as text.
//!
//! Nothing is decided here: reasons, numbers and guards come from `plimsoll_core::updater`.

pub mod report;
pub mod text;

pub use report::PodReport;
