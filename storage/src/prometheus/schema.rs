//! What a server calls the series that history is read from: names of metrics, jobs and labels, as plain data.

use std::{collections::BTreeSet, fmt, time::Duration};

use super::selector::{LabelMatchers, Pattern, Selector};
use plimsoll_core::types::Time;

/// CPU time that a container has used, as cAdvisor counts it.
pub const CPU_METRIC: &str = "container_cpu_usage_seconds_total";
/// Memory that a container cannot do without, as cAdvisor measures it.
pub const MEMORY_METRIC: &str = "container_memory_working_set_bytes";
/// Scheduling periods in which a container was held back by its CPU limit, as cAdvisor counts them.
pub const THROTTLED_PERIODS_METRIC: &str = "container_cpu_cfs_throttled_periods_total";

/// Cores in use by each container, as `deploy/recommender/rules.yaml` has a server record them.
pub const RECORDED_CPU_METRIC: &str = "plimsoll:container_cpu_usage_cores:irate";
/// The largest memory of five minutes of each container, as it has a server record it.
pub const RECORDED_MEMORY_METRIC: &str = "plimsoll:container_memory_working_set_bytes:max5m";

/// How much is known of a server's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The series of what containers use.
    pub usage: UsageSeries,
    /// The series of kube-state-metrics, where they are there.
    pub kube_state_metrics: Option<KubeStateMetrics>,
    /// What recording rules have made of usage.
    pub recording_rules: RecordingRules,
    /// How often usage is scraped.
    pub scrape_interval: WithOrigin<ScrapeInterval>,
    /// How the server understands queries.
    pub dialect: Dialect,
    /// Labels by which several copies of one series are told apart, with their values. They are folded away.
    pub replica_labels: Vec<LabelValues>,
    /// Labels that name clusters, with their values. Where one has several, pods of the same name would be taken for
    /// one another: a matcher has to choose.
    pub cluster_labels: Vec<LabelValues>,
    /// Matchers that are in every query.
    pub matchers: LabelMatchers,
}

/// Something known, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithOrigin<T> {
    /// What.
    pub value: T,
    /// Why.
    pub origin: Origin,
}

/// Why something is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A setting says so.
    Configured,
    /// The server's series say so.
    Detected,
    /// Nothing says otherwise.
    Assumed,
}

/// The series of what containers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSeries {
    /// The counter of CPU seconds.
    pub cpu: WithOrigin<String>,
    /// The gauge of memory.
    pub memory: WithOrigin<String>,
    /// The job that they are restricted to, if to any.
    pub job: WithOrigin<Option<String>>,
    /// The path that they are restricted to: one kubelet shows the same numbers in two places.
    pub metrics_path: Option<String>,
    /// The label of namespaces.
    pub namespace: WithOrigin<String>,
    /// The label of pods.
    pub pod: WithOrigin<String>,
    /// The label of containers.
    pub container: WithOrigin<String>,
    /// Containers that the server knows usage of, in the namespaces that were looked at; one that is there twice
    /// counts once.
    pub containers: u64,
    /// All jobs and paths that have them.
    pub jobs: Vec<UsageJob>,
}

/// Where series come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageJob {
    /// The job.
    pub job: String,
    /// The path, where series carry it.
    pub metrics_path: String,
    /// Containers that it has.
    pub containers: u64,
}

/// The series of kube-state-metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeStateMetrics {
    /// The job that they are restricted to, if to any.
    pub job: Option<String>,
    /// The label of namespaces: `exported_namespace` where the scrape has one of its own.
    pub namespace: String,
    /// The label of pods.
    pub pod: String,
    /// The label of containers.
    pub container: String,
    /// Families that were seen.
    pub families: BTreeSet<String>,
}

/// Whether [`RECORDED_CPU`] and [`RECORDED_MEMORY`] can be read in place of what they were made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordingRules {
    /// There are none.
    #[default]
    Absent,
    /// There are some, and not of everything at this time.
    Incomplete {
        /// Where some were looked for: the end of the history, or its beginning.
        at: Time,
        /// Containers that they are of.
        containers: u64,
        /// Containers whose usage there is.
        total_containers: u64,
    },
    /// They are of everything at the beginning and at the end of the history that is wanted.
    Complete,
}

/// How often something is scraped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeInterval {
    /// The usual time between two samples.
    pub interval: Duration,
    /// The longest one that was seen without a scrape missing. More than the interval where samples keep the time at
    /// which a node measured them.
    pub longest_gap: Duration,
}

/// How a server understands queries, as far as numbers depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// As Prometheus does: a window has its samples and no others.
    #[default]
    PromQl,
    /// As VictoriaMetrics does: a rate also knows the last sample before its window, and a range begins where its cache
    /// does unless that is turned off.
    MetricsQl,
}

/// A label and the values that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelValues {
    /// The label.
    pub label: String,
    /// Its values; the empty one is that of series without it.
    pub values: BTreeSet<String>,
}

impl<T> WithOrigin<T> {
    /// From a setting.
    pub fn configured(value: T) -> Self {
        Self { value, origin: Origin::Configured }
    }

    /// From what was seen.
    pub fn detected(value: T) -> Self {
        Self { value, origin: Origin::Detected }
    }

    /// For want of something better.
    pub fn assumed(value: T) -> Self {
        Self { value, origin: Origin::Assumed }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configured => "set",
            Self::Detected => "found",
            Self::Assumed => "assumed",
        })
    }
}

impl Default for ScrapeInterval {
    /// What most installations have: the interval of Prometheus' own default.
    fn default() -> Self {
        Self { interval: Duration::from_mins(1), longest_gap: Duration::from_mins(1) }
    }
}

impl Schema {
    /// The series of a metric of usage, in one namespace, of containers and not of the sandboxes around them.
    pub fn usage_selector(
        &self,
        metric: &WithOrigin<String>,
        namespace: &str,
        pods: Pattern,
    ) -> Selector {
        let [label, pod, _] = self.usage.container_labels();
        self.of_containers(self.of_source(metric).equals(label, namespace).matches(pod, pods))
    }

    /// The same in all of these namespaces, or in all that there are where none is named.
    pub fn usage_selector_in(&self, metric: &WithOrigin<String>, namespaces: &[&str]) -> Selector {
        self.of_containers(self.of_pods(self.of_source(metric), namespaces))
    }

    /// The recorded series of a metric, in one namespace. What they were made of has chosen job and path already.
    pub fn recorded_selector(&self, metric: &str, namespace: &str, pods: Pattern) -> Selector {
        let [label, pod, _] = self.usage.container_labels();
        let recorded = Selector::metric(metric).equals(label, namespace);
        self.of_containers(recorded.matches(pod, pods))
    }

    /// The same in all of these namespaces, or in all that there are where none is named.
    pub fn recorded_selector_in(&self, metric: &str, namespaces: &[&str]) -> Selector {
        self.of_containers(self.of_pods(Selector::metric(metric), namespaces))
    }

    fn of_source(&self, metric: &WithOrigin<String>) -> Selector {
        let mut selector = Selector::metric(&metric.value);
        if let Some(job) = &self.usage.job.value {
            selector = selector.equals("job", job);
        }
        if let Some(path) = &self.usage.metrics_path {
            selector = selector.equals("metrics_path", path);
        }
        selector
    }

    fn of_pods(&self, selector: Selector, namespaces: &[&str]) -> Selector {
        let [label, pod, _] = self.usage.container_labels();
        let selector = selector.not_equals(pod, "");
        if namespaces.is_empty() {
            return selector;
        }
        selector.matches(label, Pattern::any_literal(namespaces.iter().copied()))
    }

    fn of_containers(&self, selector: Selector) -> Selector {
        let [_, _, container] = self.usage.container_labels();
        selector.not_equals(container, "").not_equals(container, "POD").with_all(&self.matchers)
    }

    /// Whether something was not found that most servers have.
    pub fn is_incomplete(&self) -> bool {
        self.usage.containers == 0
            || self.kube_state_metrics.is_none()
            || self.scrape_interval.origin == Origin::Assumed
    }

    /// This, with what was known before in place of what is lacking now: a server that was just started has not scraped
    /// everything yet.
    #[must_use]
    pub fn or_previous(mut self, before: &Self) -> Self {
        if self.usage.containers == 0 && before.usage.containers > 0 {
            self.usage = before.usage.clone();
            self.scrape_interval = before.scrape_interval.clone();
        }
        if self.kube_state_metrics.is_none() {
            self.kube_state_metrics.clone_from(&before.kube_state_metrics);
        }
        if self.scrape_interval.origin == Origin::Assumed {
            self.scrape_interval = before.scrape_interval.clone();
        }
        self
    }

    /// Whether queries by this and by the other are the same. How many containers there are does not matter.
    pub fn has_same_names(&self, other: &Self) -> bool {
        let names = |schema: &Self| {
            let mut usage = schema.usage.clone();
            (usage.containers, usage.jobs) = (0, Vec::new());
            let KubeStateMetrics { job, namespace, pod, container, families: _ } =
                schema.kube_state_metrics.clone().unwrap_or_default();
            (
                usage,
                schema.kube_state_metrics.is_some(),
                job,
                namespace,
                pod,
                container,
                schema.dialect,
            )
        };
        names(self) == names(other) && self.scrape_interval == other.scrape_interval
    }

    /// Whether several clusters would be mixed.
    pub fn mixes_clusters(&self) -> bool {
        self.cluster_labels.iter().any(|label| label.values.len() > 1)
    }
}

impl UsageSeries {
    /// The labels that tell containers apart.
    pub fn container_labels(&self) -> [&str; 3] {
        [&self.namespace.value, &self.pod.value, &self.container.value]
    }
}

/// The container of a name that Docker gave: `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`. Others are names already. The
/// sandbox around containers is called `POD`.
pub fn container_name(label: &str) -> &str {
    label.strip_prefix("k8s_").and_then(|rest| rest.split('_').next()).unwrap_or(label)
}

impl KubeStateMetrics {
    /// The series of a family, in one namespace.
    pub fn selector(&self, family: &str, namespace: &str, matchers: &LabelMatchers) -> Selector {
        let mut selector = Selector::metric(family);
        if let Some(job) = &self.job {
            selector = selector.equals("job", job);
        }
        selector.equals(&self.namespace, namespace).with_all(matchers)
    }

    /// Whether a family was seen.
    pub fn has_family(&self, family: &str) -> bool {
        self.families.contains(family)
    }

    /// The labels that tell containers apart.
    pub fn container_labels(&self) -> [&str; 3] {
        [&self.namespace, &self.pod, &self.container]
    }
}

impl fmt::Display for Schema {
    /// One line for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UsageSeries {
            cpu,
            memory,
            job,
            metrics_path: path,
            namespace,
            pod,
            container,
            containers,
            ..
        } = &self.usage;
        write!(f, "usage: {} and {}", cpu.value, memory.value)?;
        match &job.value {
            Some(name) => write!(f, " of job {name:?} ({})", job.origin)?,
            None => write!(f, " of any job ({})", job.origin)?,
        }
        if let Some(path) = path {
            write!(f, " at {path}")?;
        }
        write!(f, ", {containers} containers, labels ")?;
        for (at, label) in [namespace, pod, container].into_iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({})", label.value, label.origin)?;
        }
        write!(
            f,
            ", scraped every {:?} ({})",
            self.scrape_interval.value.interval, self.scrape_interval.origin
        )?;
        match self.recording_rules {
            RecordingRules::Absent => {}
            RecordingRules::Incomplete { at, containers, total_containers: of } => {
                write!(f, ", recorded of {containers} of {of} containers at {at}: not read")?;
            }
            RecordingRules::Complete => f.write_str(", recorded by rules, which is read")?,
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
        for (what, labels) in [("copies", &self.replica_labels), ("clusters", &self.cluster_labels)]
        {
            for LabelValues { label, values } in labels {
                let values: Vec<_> = values.iter().take(5).map(String::as_str).collect();
                write!(f, "; {what} by {label}: {}", values.join(", "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
