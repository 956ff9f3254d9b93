//! The usage of containers: from `metrics.k8s.io`, `external.metrics.k8s.io`, or Prometheus.

pub mod external_usage;
pub mod pod_metrics;
pub mod prometheus_usage;
