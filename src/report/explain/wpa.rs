//! `plimsoll explain wpa`: the watermark controller's last decision about an object, as JSON and as text.
//!
//! The decision is read from the object's status, because past metric values cannot be queried again.

pub mod report;
pub mod text;

pub use report::WpaReport;
