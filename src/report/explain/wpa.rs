//! `plimsoll explain wpa`: what the watermark controller last decided about an object and why, as data and as text.
//!
//! The decision is the controller's own, as it stands on the object: what metrics were at that moment, nobody can ask again.

pub mod report;
pub mod text;

pub use report::WpaReport;
