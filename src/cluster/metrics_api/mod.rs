//! Usage and metric values: `metrics.k8s.io`, `external.metrics.k8s.io`, Prometheus, and recommenders over HTTP.

mod circuit_breaker;
pub mod external_usage;
pub(crate) mod list_stream;
pub mod metrics_client;
pub mod pod_metrics;
pub mod prometheus_usage;
pub mod source;
