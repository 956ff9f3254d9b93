//! `plimsoll explain`: the chain behind every number of an object, as data and as text for people.
//!
//! ```text
//!   what was read, what the recommender's own code makes of it ──▶ Report ─┬─▶ text
//!                                                                         └─▶ JSON
//! ```
//!
//! Nothing is decided here: numbers and reasons come from `recommend`, and those about a pod from `update`.

mod chain;
pub mod compare;
pub mod nearest;
pub mod pod;
pub mod report;
pub mod status;
pub mod text;
pub mod walk;
pub mod wpa;

pub use pod::PodReport;
pub use report::{Finding, Report};
pub use wpa::WpaReport;
