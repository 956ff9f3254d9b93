//! Servers that speak Prometheus' API: how to be let in, and how to ask.

pub mod answer;
pub mod client;
pub mod door;
pub mod failure;
pub mod query;
pub mod selector;
