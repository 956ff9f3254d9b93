//! Configuration of the horizontal controller: flags, validated once.

use std::time::Duration;

use plimsoll_core::{
    hpa::{
        Config, Fixes,
        sentinel::{SENTINEL_NAME, SentinelRules},
    },
    types::{ObjectKey, compat::Compat},
};
use plimsoll_storage::prometheus::{detect::SchemaOverrides, transport::TransportConfig};
use strum::{EnumString, IntoStaticStr};

use super::{super::replicas::ReplicaSettings, horizontal_decision::RECORD_INTERVAL};
use crate::controllers::runtime::prometheus_queries::PrometheusQueries;

/// What the controller does with HorizontalPodAutoscalers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase", parse_err_ty = String, parse_err_fn = unknown_mode)]
pub enum HorizontalMode {
    /// Decides for every object and writes nothing: the HPA controller of the cluster changes replicas.
    #[default]
    Shadow,
    /// Changes the replicas of objects that were adopted, each in its own mode. All others are only decided.
    Adopted,
    /// Changes the replicas of all objects and writes their status: the HPA controller of the cluster is off.
    Replace,
}

fn unknown_mode(_: &str) -> String {
    "use shadow, adopted or replace".to_owned()
}

impl HorizontalMode {
    /// The name, as in the flag.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The reporting component of events.
    pub const fn event_component(self) -> &'static str {
        match self {
            Self::Shadow | Self::Adopted => "plimsoll-horizontal",
            // That of the HPA controller of kube-controller-manager.
            Self::Replace => "horizontal-pod-autoscaler",
        }
    }

    /// The minimum time between status updates that only change values.
    pub const fn status_interval(self) -> Duration {
        match self {
            Self::Shadow | Self::Adopted => RECORD_INTERVAL,
            // As upstream: tools show the values of the status.
            Self::Replace => Duration::ZERO,
        }
    }
}

/// Everything that flags can configure.
#[derive(Clone, Debug)]
pub struct HorizontalConfig {
    pub settings: ReplicaSettings,
    /// What to do with objects.
    pub mode: HorizontalMode,
    /// Whether to behave like upstream.
    pub compat: Compat,
    /// Which fixes are on for the decisions that are exported. Those that are compared have none.
    pub fixes: Fixes,
    /// The flags of the HPA controller.
    pub hpa: Config,
    /// How it is found out that no other HPA controller is active.
    pub sentinel: SentinelConfig,
    /// Where the usage of pods is read from.
    pub usage: UsageSource,
    /// The Prometheus server for PromQL queries of objects.
    pub queries: PrometheusQueries,
    /// The maximum age of the result of such a query; `None` accepts any age.
    pub max_metric_age: Option<Duration>,
}

/// How it is found out, with `--mode=replace`, that no other HPA controller is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentinelConfig {
    /// How long the sentinel has to stay untouched, and when it is created again.
    pub rules: SentinelRules,
    /// The time between two reads of it.
    pub poll_interval: Duration,
}

/// Where the usage of pods is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageSource {
    /// `metrics.k8s.io`.
    Metrics,
    /// A Prometheus that scrapes the kubelets.
    Prometheus(Box<PrometheusUsage>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusUsage {
    /// Address and authentication.
    pub transport: TransportConfig,
    /// Configured series names, and matchers to add to every query. The rest is detected.
    pub series_options: SchemaOverrides,
    pub query_timeout: Duration,
    /// Maximum number of concurrent queries, at least 1.
    pub max_concurrent_queries: usize,
}

impl HorizontalConfig {
    /// Whether an object is the sentinel, which is no object to scale.
    pub(super) fn is_sentinel(&self, key: &ObjectKey) -> bool {
        *key.name == *SENTINEL_NAME && *key.namespace == *self.settings.election.namespace
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::api::role_health::REPLACE_MODE;

    use super::*;

    #[test]
    fn updaters_recognize_the_mode_in_the_lease() {
        assert_eq!(HorizontalMode::Replace.as_str(), REPLACE_MODE);
    }
}
