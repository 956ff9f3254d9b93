//! The names of a server's series: metrics, jobs and labels, as plain data.

use std::{collections::BTreeSet, fmt, time::Duration};

use super::selector::{LabelMatchers, Pattern, Selector};
use plimsoll_core::types::Time;

/// The cAdvisor counter of CPU time used by a container.
pub const CPU_METRIC: &str = "container_cpu_usage_seconds_total";
/// The cAdvisor gauge of the working set of a container.
pub const MEMORY_METRIC: &str = "container_memory_working_set_bytes";
/// The cAdvisor counter of scheduling periods in which the CPU limit throttled a container.
pub const THROTTLED_PERIODS_METRIC: &str = "container_cpu_cfs_throttled_periods_total";
/// The cAdvisor gauge of anonymous memory of a container.
pub const RSS_METRIC: &str = "container_memory_rss";
/// The cAdvisor gauge of mapped files of a container, shared memory included.
pub const MAPPED_FILE_METRIC: &str = "container_memory_mapped_file";
/// The cAdvisor gauge of page cache of a container that was used lately.
pub const ACTIVE_FILE_METRIC: &str = "container_memory_total_active_file_bytes";

/// CPU cores used by each container, as recorded by `deploy/recommender/rules.yaml`.
pub const RECORDED_CPU_METRIC: &str = "plimsoll:container_cpu_usage_cores:irate";
/// Peak memory of each container in five minutes, as recorded by the same rules.
pub const RECORDED_MEMORY_METRIC: &str = "plimsoll:container_memory_working_set_bytes:max5m";

/// With more namespaces than this, queries are not restricted to them: servers limit the length of a query.
pub(super) const MAX_NAMESPACES: usize = 50;

/// The names of a server's series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub usage: UsageSeries,
    pub kube_state_metrics: Option<KubeStateMetrics>,
    pub recording_rules: RecordingRules,
    pub scrape_interval: WithOrigin<ScrapeInterval>,
    pub dialect: Dialect,
    /// Labels that distinguish replicas of a series, with their values. Queries aggregate over them.
    pub replica_labels: Vec<LabelValues>,
    /// Labels with the name of the cluster, and their values. With several values a matcher is needed, or pods with the same
    /// name are mixed up.
    pub cluster_labels: Vec<LabelValues>,
    pub matchers: LabelMatchers,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithOrigin<T> {
    pub value: T,
    pub origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum Origin {
    #[strum(serialize = "set")]
    Configured,
    /// Detected from the server's series.
    #[strum(serialize = "found")]
    Detected,
    /// A default, because nothing was detected.
    #[strum(serialize = "assumed")]
    Assumed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSeries {
    /// The counter of CPU seconds.
    pub cpu: WithOrigin<String>,
    /// The gauge of memory.
    pub memory: WithOrigin<String>,
    /// The job to which queries are restricted, if any.
    pub job: WithOrigin<Option<String>>,
    /// The metrics path to which queries are restricted: a kubelet exposes the same numbers at two paths.
    pub metrics_path: Option<String>,
    /// The label of namespaces.
    pub namespace: WithOrigin<String>,
    pub pod: WithOrigin<String>,
    pub container: WithOrigin<String>,
    /// Number of distinct containers with usage series in the searched namespaces.
    pub containers: u64,
    /// All jobs and paths with usage series.
    pub jobs: Vec<UsageJob>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageJob {
    pub job: String,
    /// The metrics path, if the series have it.
    pub metrics_path: String,
    pub containers: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeStateMetrics {
    /// The job to which queries are restricted, if any.
    pub job: Option<String>,
    /// The label of namespaces: `exported_namespace` if the scrape adds its own.
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub families: BTreeSet<String>,
}

/// Whether [`RECORDED_CPU_METRIC`] and [`RECORDED_MEMORY_METRIC`] can be read instead of the raw series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordingRules {
    #[default]
    Absent,
    /// The recorded series do not cover all containers at this time.
    Incomplete {
        /// The time of the check: the end or the start of the history.
        at: Time,
        containers: u64,
        total_containers: u64,
    },
    /// The recorded series cover all containers at the start and the end of the history.
    Complete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeInterval {
    /// The usual interval.
    pub interval: Duration,
    /// The longest interval without a missing scrape. It is longer than the usual one if samples keep the timestamps at
    /// which the node measured them.
    pub longest_gap: Duration,
}

/// The query dialect of a server, as far as it affects results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Prometheus: a window contains only its own samples.
    #[default]
    PromQl,
    /// VictoriaMetrics: a rate also uses the last sample before its window, and the start of a range is aligned to the cache
    /// unless the cache is disabled.
    MetricsQl,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelValues {
    pub label: String,
    /// The values. Series without the label have the empty value.
    pub values: BTreeSet<String>,
}

impl<T> WithOrigin<T> {
    pub fn configured(value: T) -> Self {
        Self { value, origin: Origin::Configured }
    }

    pub fn detected(value: T) -> Self {
        Self { value, origin: Origin::Detected }
    }

    pub fn assumed(value: T) -> Self {
        Self { value, origin: Origin::Assumed }
    }
}

impl Default for ScrapeInterval {
    fn default() -> Self {
        Self { interval: Duration::from_mins(1), longest_gap: Duration::from_mins(1) }
    }
}

impl Schema {
    /// Selects the series of a usage metric for containers in these namespaces, or in all if the list is empty, without pod
    /// sandboxes.
    pub fn usage_selector_in(&self, metric: &WithOrigin<String>, namespaces: &[&str]) -> Selector {
        self.in_namespaces(self.usage_series(&metric.value), namespaces)
    }

    /// Restricts series to containers in these namespaces, or in all if the list is empty.
    pub(super) fn in_namespaces(&self, series: Selector, namespaces: &[&str]) -> Selector {
        let [label, pod, _] = self.usage.container_labels();
        let series = series.not_equals(pod, "");
        if namespaces.is_empty() {
            return self.of_containers(series);
        }
        self.of_containers(series.matches(label, Pattern::any_literal(namespaces.iter().copied())))
    }

    /// Restricts series to containers of these pods in one of these namespaces.
    pub(super) fn of_pods_in(
        &self,
        series: Selector,
        namespaces: &[&str],
        pods: Pattern,
    ) -> Selector {
        let [label, pod, _] = self.usage.container_labels();
        self.of_containers(series.equals_any(label, namespaces).matches(pod, pods))
    }

    /// Selects the series of a usage metric. Recorded ones are selected by their name alone, because the rules have already
    /// selected the job and the path.
    pub(super) fn usage_series(&self, metric: &str) -> Selector {
        let UsageSeries { job, metrics_path, .. } = &self.usage;
        Selector::metric(metric)
            .equals_if_set("job", job.value.as_ref())
            .equals_if_set("metrics_path", metrics_path.as_ref())
    }

    fn of_containers(&self, series: Selector) -> Selector {
        let [_, _, container] = self.usage.container_labels();
        series.not_equals(container, "").not_equals(container, "POD").with_all(&self.matchers)
    }

    /// Whether something that most servers have was not detected.
    pub fn is_incomplete(&self) -> bool {
        self.usage.containers == 0
            || self.kube_state_metrics.is_none()
            || self.scrape_interval.origin == Origin::Assumed
    }

    /// Fills missing parts from the previous schema: a server that has just started has not scraped everything yet.
    #[must_use]
    pub fn or_previous(mut self, previous: &Self) -> Self {
        if self.usage.containers == 0 && previous.usage.containers > 0 {
            self.usage = previous.usage.clone();
            self.scrape_interval = previous.scrape_interval.clone();
        }
        if self.kube_state_metrics.is_none() {
            self.kube_state_metrics.clone_from(&previous.kube_state_metrics);
        }
        if self.scrape_interval.origin == Origin::Assumed {
            self.scrape_interval = previous.scrape_interval.clone();
        }
        self
    }

    /// Whether both schemas result in the same queries. The number of containers does not matter.
    pub fn has_same_names(&self, other: &Self) -> bool {
        let names = |schema: &Self| {
            let mut usage = schema.usage.clone();
            (usage.containers, usage.jobs) = (0, Vec::new());
            let states = schema.kube_state_metrics.clone();
            let states =
                states.map(|states| KubeStateMetrics { families: BTreeSet::new(), ..states });
            (usage, states, schema.dialect, schema.scrape_interval.clone())
        };
        names(self) == names(other)
    }

    /// Whether the series of several clusters would be mixed up.
    pub fn mixes_clusters(&self) -> bool {
        self.cluster_labels.iter().any(|label| label.values.len() > 1)
    }
}

impl UsageSeries {
    pub fn container_labels(&self) -> [&str; 3] {
        [&self.namespace.value, &self.pod.value, &self.container.value]
    }
}

/// The container name in a Docker name: `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`. Other names are returned as they are.
/// The pod sandbox is called `POD`.
pub fn container_name(label: &str) -> &str {
    label.strip_prefix("k8s_").and_then(|rest| rest.split('_').next()).unwrap_or(label)
}

impl KubeStateMetrics {
    /// Selects a family in one of these namespaces.
    pub fn selector_in(
        &self,
        family: &str,
        namespaces: &[&str],
        matchers: &LabelMatchers,
    ) -> Selector {
        Selector::metric(family)
            .equals_if_set("job", self.job.as_ref())
            .equals_any(&self.namespace, namespaces)
            .with_all(matchers)
    }

    pub fn has_family(&self, family: &str) -> bool {
        self.families.contains(family)
    }

    pub fn container_labels(&self) -> [&str; 3] {
        [&self.namespace, &self.pod, &self.container]
    }
}

impl fmt::Display for Schema {
    /// One line for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usage = &self.usage;
        write!(f, "usage: {} and {}", usage.cpu.value, usage.memory.value)?;
        match &usage.job.value {
            Some(name) => write!(f, " of job {name:?} ({})", usage.job.origin)?,
            None => write!(f, " of any job ({})", usage.job.origin)?,
        }
        if let Some(path) = &usage.metrics_path {
            write!(f, " at {path}")?;
        }
        let labels = [&usage.namespace, &usage.pod, &usage.container]
            .map(|label| format!("{} ({})", label.value, label.origin))
            .join(", ");
        write!(f, ", {} containers, labels {labels}", usage.containers)?;
        write!(
            f,
            ", scraped every {:?} ({})",
            self.scrape_interval.value.interval, self.scrape_interval.origin
        )?;
        match self.recording_rules {
            RecordingRules::Absent => {}
            RecordingRules::Incomplete { at, containers, total_containers: of } => {
                write!(
                    f,
                    ", not using recording rules: recorded for {containers} of {of} containers at {at}"
                )?;
            }
            RecordingRules::Complete => f.write_str(", using recording rules")?,
        }
        match &self.kube_state_metrics {
            Some(states) => {
                f.write_str("; kube-state-metrics")?;
                if let Some(job) = &states.job {
                    write!(f, " of job {job:?}")?;
                }
                write!(f, ", labels {}, {}, {}", states.namespace, states.pod, states.container)?;
            }
            None => f.write_str("; no kube-state-metrics")?,
        }
        for (kind, labels) in
            [("replicas", &self.replica_labels), ("clusters", &self.cluster_labels)]
        {
            for LabelValues { label, values } in labels {
                let values: Vec<_> = values.iter().take(5).map(String::as_str).collect();
                write!(f, "; {kind} by {label}: {}", values.join(", "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
