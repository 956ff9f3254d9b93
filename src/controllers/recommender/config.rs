//! Configuration of the recommender: validated flags and environment variables.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use plimsoll_core::{
    recommender::{NamespaceScope, ResourceAmounts, Settings},
    types::compat::Compat,
};

use crate::{
    cluster::container_usage::external_usage::ExternalMetrics,
    controllers::runtime::{
        config::{ElectionConfig, ProcessConfig},
        prometheus::PrometheusConfig,
    },
    telemetry::Cardinality,
};

#[derive(Clone, Debug)]
pub struct RecommenderConfig {
    pub process: ProcessConfig,
    /// Name by which VPAs select this recommender; `default` also handles VPAs that select none.
    pub name: String,
    /// Whether to behave like upstream or like Plimsoll.
    pub compat: Compat,
    /// Settings of the recommendation model.
    pub settings: Settings,
    /// Interval between two passes.
    pub interval: Duration,
    pub storage: StorageChoice,
    /// Age at which a changed history is saved; zero saves it in every pass.
    pub checkpoint_interval: Duration,
    /// Minimum interval between two garbage collections of checkpoints.
    pub checkpoints_gc_interval: Duration,
    /// Time limit for saving in one pass.
    pub checkpoints_timeout: Duration,
    /// Maximum number of concurrent writes; at least 1.
    pub workers: usize,
    pub scope: NamespaceScope,
    pub election: ElectionConfig,
    pub usage: UsageSource,
    /// Prometheus server with history or usage.
    pub prometheus: PrometheusConfig,
    pub object_metrics: Cardinality,
    /// Relative change of a bound above which it is written; 0 writes every change.
    pub bounds_dead_band: f64,
    /// Whether native sidecars get recommendations.
    pub native_sidecars: bool,
    /// Whether recommendations are capped to the largest node.
    pub cap_to_largest_node: bool,
    /// Maximum total recommendation of the containers of a pod.
    pub pod_cap: ResourceAmounts,
    /// Whether the recommender becomes ready and runs without history that could not be loaded.
    pub history_optional: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageChoice {
    /// VerticalPodAutoscalerCheckpoints, as in upstream.
    Checkpoint,
    /// A local directory, for a single replica.
    Local(PathBuf),
    /// Series of a Prometheus server, which are only read.
    Prometheus,
}

impl StorageChoice {
    pub const DEFAULT_DIRECTORY: &str = "/var/lib/plimsoll";
}

impl FromStr for StorageChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("" | "checkpoint", "") => Ok(Self::Checkpoint),
            ("local", "") => Ok(Self::Local(Self::DEFAULT_DIRECTORY.into())),
            ("local", directory) => Ok(Self::Local(directory.into())),
            ("prometheus", "") => Ok(Self::Prometheus),
            ("prometheus", _) => Err("set its address with --prometheus-address".to_owned()),
            _ => Err("use checkpoint (the default), prometheus or local[:DIR]".to_owned()),
        }
    }
}

impl fmt::Display for StorageChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Local(directory) => write!(f, "local:{}", directory.display()),
            Self::Prometheus => f.write_str("prometheus"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageSource {
    /// `metrics.k8s.io`.
    Metrics,
    /// `external.metrics.k8s.io`.
    External(ExternalMetrics),
    Prometheus,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_is_checkpoint_prometheus_or_a_directory() {
        for (text, shown) in [
            ("", "checkpoint"),
            ("checkpoint", "checkpoint"),
            ("local", "local:/var/lib/plimsoll"),
            ("local:/data", "local:/data"),
            ("prometheus", "prometheus"),
        ] {
            assert_eq!(
                text.parse::<StorageChoice>().map(|storage| storage.to_string()),
                Ok(shown.into())
            );
        }
        for bad in ["etcd", "checkpoint:/data"] {
            let error = bad.parse::<StorageChoice>().expect_err(bad);
            assert!(error.contains("prometheus") && error.contains("local"), "{error}");
        }
        let error = "prometheus:http://x".parse::<StorageChoice>().expect_err("an address");
        assert!(error.contains("--prometheus-address"), "{error}");
    }
}
