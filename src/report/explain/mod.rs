//! `plimsoll explain`: the steps behind every number of an object, as JSON and as text.
//!
//! ```text
//!   stored history and status, recomputed by the recommender's code ──▶ VpaReport ─┬─▶ text
//!                                                                                  └─▶ JSON
//! ```
//!
//! Nothing is decided here: numbers and reasons come from `plimsoll_core::recommender`, and those about a pod from
//! `plimsoll_core::updater`.

pub mod compare;
pub mod estimate_steps;
pub mod pod;
pub mod report;
mod resource_text;
pub mod status;
pub mod suggestions;
pub mod text;
pub mod wpa;

pub use pod::PodReport;
pub use report::{Finding, VpaReport};
pub use wpa::WpaReport;
