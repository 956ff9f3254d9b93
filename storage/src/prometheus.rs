//! Servers that speak Prometheus' API: how to be let in, and how to ask.

pub mod answer;
pub mod client;
pub mod detect;
pub mod door;
pub mod failure;
pub mod history;
pub mod query;
pub mod schema;
pub mod selector;
