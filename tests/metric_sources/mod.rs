//! Proof of where values come from that replicas follow: metrics APIs, recommenders and a Prometheus, over real sockets.

pub mod loopback_server;
mod metrics_apis;
mod prometheus;
mod promql_syntax;
mod recommenders;
mod tls;
