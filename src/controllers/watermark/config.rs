//! Configuration of the watermark controller: flags and environment variables, validated once.

use std::time::Duration;

use super::{super::replicas::ReplicaSettings, EVENT_COMPONENT};
use crate::{
    controllers::{
        runtime::{
            config::{ElectionConfig, ProcessConfig},
            prometheus_queries::PrometheusQueries,
        },
        updater::config::DryRun,
    },
    telemetry::{Cardinality, LabelSet},
};
use plimsoll_core::{
    api::scale_target::TlsConfig,
    types::compat::{Compat, Fixes},
};

/// Everything that flags can configure.
#[derive(Clone, Debug)]
pub struct WatermarkConfig {
    pub process: ProcessConfig,
    /// Whether to behave like upstream.
    pub compat: Compat,
    /// Which defects of upstream are fixed.
    pub fixes: Fixes,
    /// The time between two reconciles of an object.
    pub period: Duration,
    /// How many objects are reconciled concurrently, at least 1.
    pub workers: usize,
    /// Whether a reconcile without a change emits no event, only a condition.
    pub skips_idle_events: bool,
    /// The minimum time between status updates that only change values.
    pub status_interval: Duration,
    /// The maximum age of metric values; `None` accepts any age.
    pub max_metric_age: Option<Duration>,
    /// The namespaces to watch; empty for all.
    pub namespaces: Vec<String>,
    /// Labels of objects to add to their metrics.
    pub labels_as_tags: Vec<String>,
    /// Name of the cluster in requests to recommenders; may be empty.
    pub cluster: String,
    /// TLS settings for recommenders of objects that specify none.
    pub recommender_tls: TlsConfig,
    /// Which labels the metrics with upstream's names have.
    pub label_set: LabelSet,
    /// Dry run, in which nothing is written to the cluster; `None` if disabled.
    pub dry_run: Option<DryRun>,
    /// The Prometheus server for PromQL queries of objects.
    pub prometheus: PrometheusQueries,
    /// Timeout of requests to the API server.
    pub request_timeout: Duration,
    pub election: ElectionConfig,
    /// Which objects have metrics of their own besides those with upstream's names.
    pub object_metrics: Cardinality,
}

impl WatermarkConfig {
    /// What the shared controller has to know.
    pub(super) fn replica_settings(&self) -> ReplicaSettings {
        ReplicaSettings {
            name: "watermark",
            event_component: EVENT_COMPONENT,
            compat: self.compat,
            period: self.period,
            workers: self.workers,
            status_interval: self.status_interval,
            request_timeout: self.request_timeout,
            namespaces: self.namespaces.clone(),
            dry_run: self.dry_run,
            election: self.election.clone(),
        }
    }
}
