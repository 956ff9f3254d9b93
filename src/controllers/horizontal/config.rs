//! Configuration of the horizontal controller: flags, validated once.

use std::time::Duration;

use plimsoll_core::{
    hpa::{Config, Fixes},
    types::compat::Compat,
};
use plimsoll_storage::prometheus::{detect::SchemaOverrides, transport::TransportConfig};
use strum::{EnumString, IntoStaticStr};

use super::{super::replicas::ReplicaSettings, EVENT_COMPONENT};
use crate::{
    controllers::runtime::{
        config::{ElectionConfig, ProcessConfig},
        prometheus_queries::PrometheusQueries,
    },
    telemetry::Cardinality,
};

/// The time between two writes of a record that only differs in the times of recommendations.
const RECORD_INTERVAL: Duration = Duration::from_mins(1);

/// What the controller does with HorizontalPodAutoscalers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase", parse_err_ty = String, parse_err_fn = unknown_mode)]
pub enum HorizontalMode {
    /// Decides for every object and writes nothing: the HPA controller of the cluster changes replicas.
    #[default]
    Shadow,
    /// Changes the replicas of objects that were adopted, each in its own mode. All others are only decided.
    Adopted,
}

fn unknown_mode(_: &str) -> String {
    "use shadow or adopted".to_owned()
}

impl HorizontalMode {
    /// The name, as in the flag.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Everything that flags can configure.
#[derive(Clone, Debug)]
pub struct HorizontalConfig {
    /// Settings of the process.
    pub process: ProcessConfig,
    /// What to do with objects.
    pub mode: HorizontalMode,
    /// Whether to behave like upstream.
    pub compat: Compat,
    /// Which fixes are on for the decisions that are exported. Those that are compared have none.
    pub fixes: Fixes,
    /// The flags of the HPA controller.
    pub hpa: Config,
    /// The time between two reconciles of an object, and between two passes of the HPA controller.
    pub period: Duration,
    /// Where the usage of pods is read from.
    pub usage: UsageSource,
    /// The Prometheus server for PromQL queries of objects.
    pub queries: PrometheusQueries,
    /// The maximum age of the result of such a query; `None` accepts any age.
    pub max_metric_age: Option<Duration>,
    /// How many objects are reconciled concurrently, at least 1.
    pub workers: usize,
    /// The namespaces to watch; empty for all.
    pub namespaces: Vec<String>,
    /// Timeout of requests to the API server.
    pub request_timeout: Duration,
    /// Leader election.
    pub election: ElectionConfig,
    /// Which objects have metrics of their own.
    pub object_metrics: Cardinality,
}

/// Where the usage of pods is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageSource {
    /// `metrics.k8s.io`.
    Metrics,
    /// A Prometheus that scrapes the kubelets.
    Prometheus(Box<PrometheusUsage>),
}

/// A Prometheus that usage is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusUsage {
    /// Address and authentication.
    pub transport: TransportConfig,
    /// Configured series names, and matchers to add to every query. The rest is detected.
    pub series_options: SchemaOverrides,
    /// Timeout of a query.
    pub query_timeout: Duration,
    /// Maximum number of concurrent queries, at least 1.
    pub max_concurrent_queries: usize,
}

impl HorizontalConfig {
    /// What the shared controller has to know.
    pub(super) fn replica_settings(&self) -> ReplicaSettings {
        ReplicaSettings {
            name: "horizontal",
            event_component: EVENT_COMPONENT,
            // Scales are read from watches: upstream reads each before it may write it.
            compat: Compat::Plimsoll,
            period: self.period,
            workers: self.workers,
            status_interval: RECORD_INTERVAL,
            request_timeout: self.request_timeout,
            namespaces: self.namespaces.clone(),
            dry_run: None,
            election: self.election.clone(),
        }
    }
}
