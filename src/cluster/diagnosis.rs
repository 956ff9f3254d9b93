//! Reads what `plimsoll doctor --cluster` checks.
//!
//! ```text
//!   API server: pages of 500, four at once ──▶ reduced objects ──▶ facts
//!   Prometheus: four queries ────────────────────────────────────▶ facts
//! ```
//!
//! Every list is reduced page by page, and every request has a time limit. What cannot be read is an error with the
//! permission that is missing.

pub(crate) mod api_server;
mod list_reader;
pub(crate) mod live_pod;
pub(crate) mod metrics;
pub(crate) mod objects;
pub(crate) mod roles;
pub(crate) mod series;
pub(crate) mod targets;
#[cfg(test)]
mod tests;
pub(crate) mod webhooks;

pub(crate) use self::list_reader::ListReader;
