//! Proof of where values come from that replicas follow: metrics APIs, recommenders and a Prometheus, over real sockets.

mod certificates;
mod metrics_apis;
mod prometheus;
mod query_text;
mod recommenders;
pub mod stage;
