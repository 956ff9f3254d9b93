//! What a role serves: metrics and probes on one plain listener, and the webhook that the API server calls over TLS.

mod admin;
mod answers;
mod body;
mod go_duration;
mod pages;
mod readiness;
mod socket;
pub mod webhook;

pub use admin::{Admin, Limits};
pub use answers::{Exposition, Probes, Stalled};
pub use socket::ServeError;
pub use webhook::Webhook;
