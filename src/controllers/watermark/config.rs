//! What the watermark controller runs by: flags and environment, checked once and turned into plain data.

use std::{path::PathBuf, time::Duration};

use plimsoll_storage::prometheus::{selector::LabelMatchers, transport::TransportConfig};

use crate::{
    cluster::metrics_api::source::promql::TenantScope,
    controllers::{
        runtime::config::{Address, ElectionConfig, LogConfig, ObjectMetrics},
        updater::config::DryRun,
    },
    telemetry::LabelSet,
};
use plimsoll_core::{
    api::scale_target::TlsConfig,
    types::compat::{Compat, Fixes},
};

/// Everything about the watermark controller that flags can set.
#[derive(Clone, Debug)]
pub struct WatermarkConfig {
    /// Whose numbers and habits are wanted.
    pub compat: Compat,
    /// Which of upstream's defects are mended.
    pub fixes: Fixes,
    /// From the end of one look at an object to the next one.
    pub period: Duration,
    /// How many objects are looked at at once, at least 1.
    pub workers: usize,
    /// Nothing is said of a look without a change but in a condition.
    pub skips_idle_events: bool,
    /// A status in which nothing but values differs is written no more often than this.
    pub status_interval: Duration,
    /// A value that is older than this is none; nothing is any age.
    pub max_metric_age: Option<Duration>,
    /// Which namespaces are looked after; none is all of them.
    pub namespaces: Vec<String>,
    /// Labels of objects that are shown in metrics.
    pub labels_as_tags: Vec<String>,
    /// Name of the cluster, for recommenders; may be empty.
    pub cluster: String,
    /// How recommenders are reached over TLS where an object says nothing of it.
    pub recommender_tls: TlsConfig,
    /// Which labels the series of upstream's names have.
    pub label_set: LabelSet,
    /// Whether nothing is written, and what is said all the same.
    pub dry_run: Option<DryRun>,
    /// Where metrics are served.
    pub address: Address,
    /// Where health is served.
    pub health_address: Address,
    /// A Prometheus that is asked by queries of objects.
    pub prometheus: PrometheusQueries,
    /// How to reach the API server; none is from inside of the cluster.
    pub kubeconfig: Option<PathBuf>,
    /// How long a request to the API server may take.
    pub request_timeout: Duration,
    /// Requests a second to the API server; infinite for no limit.
    pub qps: f32,
    /// How many requests may go at once before that.
    pub burst: u32,
    /// Who acts, of several replicas.
    pub election: ElectionConfig,
    /// Of which objects there are series of their own beside those of upstream's names.
    pub object_metrics: ObjectMetrics,
    /// Where words about the work go.
    pub log: LogConfig,
    /// What was given and should be looked at; already logged by the command line.
    pub warnings: Vec<String>,
}

/// A Prometheus that is asked by queries of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusQueries {
    /// Where it is, and how to be let in. Without an address none is asked.
    pub transport: TransportConfig,
    /// What goes into every query.
    pub matchers: LabelMatchers,
    /// Which series the queries of a namespace may read.
    pub scope: TenantScope,
    /// How many queries may be under way at once.
    pub max_concurrent: usize,
    /// How long one may take.
    pub timeout: Duration,
}
