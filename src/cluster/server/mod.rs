//! HTTP servers: metrics and probes on a plain listener, web pages, and the admission webhook over TLS.

mod admin;
pub mod certificate;
mod go_duration;
mod listener;
mod readiness;
mod routes;
mod scrape_pages;
pub mod web;
pub mod webhook;

pub use admin::{AdminLimits, AdminServer};
pub use listener::{Listener, ServeError};
pub use routes::{Exposition, Probes, ScrapePages, Stalled};
pub use web::{WebHandler, WebPeer, serve_pages};
pub use webhook::WebhookServer;
