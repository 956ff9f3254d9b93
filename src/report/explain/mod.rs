//! `plimsoll explain`: the chain behind every number of an object, as data and as text for people.
//!
//! ```text
//!   what was read, what the recommender's own code makes of it ──▶ Report ─┬─▶ text
//!                                                                         └─▶ JSON
//! ```
//!
//! Nothing is decided here: numbers and reasons come from `recommend`, and those about a pod from `update`.

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
