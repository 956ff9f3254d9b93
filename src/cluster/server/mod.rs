//! What a role serves: metrics and probes on one plain listener, and the webhook that the API server calls over TLS.

mod admin;
mod body;
pub mod certificate;
mod go_duration;
mod listener;
mod readiness;
mod routes;
mod scrape_pages;
pub mod webhook;

pub use admin::{AdminLimits, AdminServer};
pub use listener::ServeError;
pub use routes::{Exposition, Probes, Stalled};
pub use webhook::WebhookServer;
