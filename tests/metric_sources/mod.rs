//! Metric sources of autoscalers over real sockets: metrics APIs, recommenders and a Prometheus.

pub mod loopback_server;
mod metrics_apis;
mod prometheus;
mod promql_syntax;
mod recommenders;
mod tls;
