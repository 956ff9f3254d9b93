//! Servers with the Prometheus HTTP API: authentication, queries, and history from their series.

pub mod client;
pub mod decode;
pub mod detect;
pub mod history;
pub mod promql;
pub mod query_error;
pub mod schema;
pub mod selector;
pub mod server_flavor;
pub mod transport;
