//! What a role serves beside its work: metrics and probes, on one plain listener.

mod admin;
mod answers;
mod go_duration;

pub use admin::{Admin, Limits, ServeError};
pub use answers::{Exposition, Probes, Stalled};
