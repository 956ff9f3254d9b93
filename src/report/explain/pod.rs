//! `plimsoll explain pod`: what the updater would do about a pod and why, as data and as text for people.
//!
//! Nothing is decided here: reasons, numbers and guards come from `update`.

pub mod report;
pub mod text;

pub use report::PodReport;
