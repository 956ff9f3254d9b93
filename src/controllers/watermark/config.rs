//! Configuration of the watermark controller: flags and environment variables, validated once.

use std::time::Duration;

use super::super::replicas::ReplicaSettings;
use crate::{controllers::runtime::prometheus_queries::PrometheusQueries, telemetry::LabelSet};
use plimsoll_core::{api::scale_target::TlsConfig, types::compat::Fixes};

#[derive(Clone, Debug)]
pub struct WatermarkConfig {
    pub settings: ReplicaSettings,
    /// Which defects of upstream are fixed.
    pub fixes: Fixes,
    /// Whether a reconcile without a change emits no event, only a condition.
    pub skips_idle_events: bool,
    /// The maximum age of metric values; `None` accepts any age.
    pub max_metric_age: Option<Duration>,
    /// Labels of objects to add to their metrics.
    pub labels_as_tags: Vec<String>,
    /// Name of the cluster in requests to recommenders; may be empty.
    pub cluster: String,
    /// TLS settings for recommenders of objects that specify none.
    pub recommender_tls: TlsConfig,
    /// Which labels the metrics with upstream's names have.
    pub label_set: LabelSet,
    /// The Prometheus server for PromQL queries of objects.
    pub prometheus: PrometheusQueries,
}
