//! Settings of the recommender, checked once and typed.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use plimsoll_core::{
    recommender::{NamespaceScope, ResourceAmounts, Settings},
    types::compat::Compat,
};

use crate::{
    controllers::runtime::{
        config::{ElectionConfig, ProcessConfig},
        prometheus::PrometheusConfig,
    },
    telemetry::Cardinality,
};

/// Everything about the recommender that flags can set.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one flag of its own")]
pub struct RecommenderConfig {
    /// Settings of the process.
    pub process: ProcessConfig,
    /// The name that VPAs choose it by; `default` is also for those that choose none.
    pub name: String,
    /// Whose numbers are wanted.
    pub compat: Compat,
    /// The model's settings.
    pub settings: Settings,
    /// From one pass to the next.
    pub interval: Duration,
    /// Where history is kept.
    pub storage: StorageChoice,
    /// The age at which a history that changed is saved; zero is in every pass.
    pub checkpoint_interval: Duration,
    /// The least time between two collections of orphaned checkpoints.
    pub checkpoints_gc_interval: Duration,
    /// How long saving may take in one pass.
    pub checkpoints_timeout: Duration,
    /// How many writes are under way at once, at least 1.
    pub workers: usize,
    /// Which namespaces are looked after.
    pub scope: NamespaceScope,
    /// Who leads.
    pub election: ElectionConfig,
    /// Where usage comes from.
    pub usage: UsageSource,
    /// A Prometheus with history.
    pub prometheus: PrometheusConfig,
    /// Of which objects there are series.
    pub object_metrics: Cardinality,
    /// The share by which bounds must move to be written; 0 is whatever moves.
    pub bounds_dead_band: f64,
    /// Whether init containers that keep running are recommended for.
    pub native_sidecars: bool,
    /// Whether a recommendation is kept within the largest node.
    pub cap_to_largest_node: bool,
    /// The most for all containers of a pod together.
    pub pod_cap: ResourceAmounts,
    /// Whether it is ready, and works, without the history that could not be loaded.
    pub history_optional: bool,
}

/// Where history is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageChoice {
    /// In VerticalPodAutoscalerCheckpoints, as upstream does.
    Checkpoint,
    /// In a directory, for a single replica.
    Local(PathBuf),
    /// In the series of a Prometheus, which is only read.
    Prometheus,
}

impl StorageChoice {
    /// Where `local` keeps it when nothing else is said.
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
            ("prometheus", _) => Err("its address goes into --prometheus-address".to_owned()),
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

/// Where usage comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageSource {
    /// `metrics.k8s.io`.
    Metrics,
    /// `external.metrics.k8s.io`.
    External {
        /// The metric of CPU; none is not to ask.
        cpu: Option<String>,
        /// The metric of memory; none is not to ask.
        memory: Option<String>,
        /// The label with the container's name.
        container_label: String,
    },
    /// The series of a Prometheus.
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
