//! Servers that speak Prometheus' API: how to be let in, and how to ask.

pub mod client;
pub mod decode;
pub mod detect;
pub mod history;
pub mod promql;
pub mod query_error;
pub mod schema;
pub mod selector;
pub mod transport;
