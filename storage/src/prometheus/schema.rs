//! What a server calls the series that history is read from: names of metrics, jobs and labels, as plain data.

use std::{collections::BTreeSet, fmt, time::Duration};

use super::selector::{Matchers, Pattern, Selector};
use plimsoll_core::types::Time;

/// CPU time that a container has used, as cAdvisor counts it.
pub const CPU: &str = "container_cpu_usage_seconds_total";
/// Memory that a container cannot do without, as cAdvisor measures it.
pub const MEMORY: &str = "container_memory_working_set_bytes";
/// Scheduling periods in which a container was held back by its CPU limit, as cAdvisor counts them.
pub const THROTTLED: &str = "container_cpu_cfs_throttled_periods_total";

/// Cores in use by each container, as `deploy/recommender/rules.yaml` has a server record them.
pub const RECORDED_CPU: &str = "plimsoll:container_cpu_usage_cores:irate";
/// The largest memory of five minutes of each container, as it has a server record it.
pub const RECORDED_MEMORY: &str = "plimsoll:container_memory_working_set_bytes:max5m";

/// How much is known of a server's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The series of what containers use.
    pub usage: Usage,
    /// The series of kube-state-metrics, where they are there.
    pub states: Option<States>,
    /// What recording rules have made of usage.
    pub recorded: Recorded,
    /// How often usage is scraped.
    pub pace: Fact<Pace>,
    /// How the server understands queries.
    pub dialect: Dialect,
    /// Labels by which several copies of one series are told apart, with their values. They are folded away.
    pub replicas: Vec<Distinct>,
    /// Labels that name clusters, with their values. Where one has several, pods of the same name would be taken for
    /// one another: a matcher has to choose.
    pub clusters: Vec<Distinct>,
    /// Matchers that are in every query.
    pub matchers: Matchers,
}

/// Something known, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    /// What.
    pub value: T,
    /// Why.
    pub origin: Origin,
}

/// Why something is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A setting says so.
    Set,
    /// The server's series say so.
    Found,
    /// Nothing says otherwise.
    Assumed,
}

/// The series of what containers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The counter of CPU seconds.
    pub cpu: Fact<String>,
    /// The gauge of memory.
    pub memory: Fact<String>,
    /// The job that they are restricted to, if to any.
    pub job: Fact<Option<String>>,
    /// The path that they are restricted to: one kubelet shows the same numbers in two places.
    pub path: Option<String>,
    /// The label of namespaces.
    pub namespace: Fact<String>,
    /// The label of pods.
    pub pod: Fact<String>,
    /// The label of containers.
    pub container: Fact<String>,
    /// Containers that the server knows usage of, in the namespaces that were looked at; one that is there twice
    /// counts once.
    pub containers: u64,
    /// All jobs and paths that have them.
    pub sources: Vec<Source>,
}

/// Where series come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The job.
    pub job: String,
    /// The path, where series carry it.
    pub path: String,
    /// Containers that it has.
    pub containers: u64,
}

/// The series of kube-state-metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct States {
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
pub enum Recorded {
    /// There are none.
    #[default]
    Absent,
    /// There are some, and not of everything at this time.
    Short {
        /// Where some were looked for: the end of the history, or its beginning.
        at: Time,
        /// Containers that they are of.
        containers: u64,
        /// Containers whose usage there is.
        of: u64,
    },
    /// They are of everything at the beginning and at the end of the history that is wanted.
    Whole,
}

/// How often something is scraped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The usual time between two samples.
    pub interval: Duration,
    /// The longest one that was seen without a scrape missing. More than the interval where samples keep the time at
    /// which a node measured them.
    pub longest: Duration,
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
pub struct Distinct {
    /// The label.
    pub label: String,
    /// Its values; the empty one is that of series without it.
    pub values: BTreeSet<String>,
}

impl<T> Fact<T> {
    /// From a setting.
    pub fn set(value: T) -> Self {
        Self { value, origin: Origin::Set }
    }

    /// From what was seen.
    pub fn found(value: T) -> Self {
        Self { value, origin: Origin::Found }
    }

    /// For want of something better.
    pub fn assumed(value: T) -> Self {
        Self { value, origin: Origin::Assumed }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "set",
            Self::Found => "found",
            Self::Assumed => "assumed",
        })
    }
}

impl Default for Pace {
    /// What most installations have: the interval of Prometheus' own default.
    fn default() -> Self {
        Self { interval: Duration::from_mins(1), longest: Duration::from_mins(1) }
    }
}

impl Schema {
    /// The series of a metric of usage, in one namespace, of containers and not of the sandboxes around them.
    pub fn usage_of(&self, metric: &Fact<String>, namespace: &str, pods: Pattern) -> Selector {
        let [label, pod, _] = self.usage.identity();
        self.of_containers(self.of_source(metric).equals(label, namespace).matches(pod, pods))
    }

    /// The same in all of these namespaces, or in all that there are where none is named.
    pub fn usage_in(&self, metric: &Fact<String>, namespaces: &[&str]) -> Selector {
        self.of_containers(self.of_pods(self.of_source(metric), namespaces))
    }

    /// The recorded series of a metric, in one namespace. What they were made of has chosen job and path already.
    pub fn recorded_of(&self, metric: &str, namespace: &str, pods: Pattern) -> Selector {
        let [label, pod, _] = self.usage.identity();
        let recorded = Selector::metric(metric).equals(label, namespace);
        self.of_containers(recorded.matches(pod, pods))
    }

    /// The same in all of these namespaces, or in all that there are where none is named.
    pub fn recorded_in(&self, metric: &str, namespaces: &[&str]) -> Selector {
        self.of_containers(self.of_pods(Selector::metric(metric), namespaces))
    }

    fn of_source(&self, metric: &Fact<String>) -> Selector {
        let mut selector = Selector::metric(&metric.value);
        if let Some(job) = &self.usage.job.value {
            selector = selector.equals("job", job);
        }
        if let Some(path) = &self.usage.path {
            selector = selector.equals("metrics_path", path);
        }
        selector
    }

    fn of_pods(&self, selector: Selector, namespaces: &[&str]) -> Selector {
        let [label, pod, _] = self.usage.identity();
        let selector = selector.differs(pod, "");
        if namespaces.is_empty() {
            return selector;
        }
        selector.matches(label, Pattern::one_of(namespaces.iter().copied()))
    }

    fn of_containers(&self, selector: Selector) -> Selector {
        let [_, _, container] = self.usage.identity();
        selector.differs(container, "").differs(container, "POD").all(&self.matchers)
    }

    /// Whether something was not found that most servers have.
    pub fn lacks(&self) -> bool {
        self.usage.containers == 0 || self.states.is_none() || self.pace.origin == Origin::Assumed
    }

    /// This, with what was known before in place of what is lacking now: a server that was just started has not scraped
    /// everything yet.
    #[must_use]
    pub fn or_as_before(mut self, before: &Self) -> Self {
        if self.usage.containers == 0 && before.usage.containers > 0 {
            self.usage = before.usage.clone();
            self.pace = before.pace.clone();
        }
        if self.states.is_none() {
            self.states.clone_from(&before.states);
        }
        if self.pace.origin == Origin::Assumed {
            self.pace = before.pace.clone();
        }
        self
    }

    /// Whether queries by this and by the other are the same. How many containers there are does not matter.
    pub fn has_same_names(&self, other: &Self) -> bool {
        let names = |schema: &Self| {
            let mut usage = schema.usage.clone();
            (usage.containers, usage.sources) = (0, Vec::new());
            let States { job, namespace, pod, container, families: _ } =
                schema.states.clone().unwrap_or_default();
            (usage, schema.states.is_some(), job, namespace, pod, container, schema.dialect)
        };
        names(self) == names(other) && self.pace == other.pace
    }

    /// Whether several clusters would be mixed.
    pub fn mixes_clusters(&self) -> bool {
        self.clusters.iter().any(|label| label.values.len() > 1)
    }
}

impl Usage {
    /// The labels that tell containers apart.
    pub fn identity(&self) -> [&str; 3] {
        [&self.namespace.value, &self.pod.value, &self.container.value]
    }
}

/// The container of a name that Docker gave: `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`. Others are names already. The
/// sandbox around containers is called `POD`.
pub fn container_name(label: &str) -> &str {
    label.strip_prefix("k8s_").and_then(|rest| rest.split('_').next()).unwrap_or(label)
}

impl States {
    /// The series of a family, in one namespace.
    pub fn of(&self, family: &str, namespace: &str, matchers: &Matchers) -> Selector {
        let mut selector = Selector::metric(family);
        if let Some(job) = &self.job {
            selector = selector.equals("job", job);
        }
        selector.equals(&self.namespace, namespace).all(matchers)
    }

    /// Whether a family was seen.
    pub fn has(&self, family: &str) -> bool {
        self.families.contains(family)
    }

    /// The labels that tell containers apart.
    pub fn identity(&self) -> [&str; 3] {
        [&self.namespace, &self.pod, &self.container]
    }
}

impl fmt::Display for Schema {
    /// One line for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage { cpu, memory, job, path, namespace, pod, container, containers, .. } =
            &self.usage;
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
        write!(f, ", scraped every {:?} ({})", self.pace.value.interval, self.pace.origin)?;
        match self.recorded {
            Recorded::Absent => {}
            Recorded::Short { at, containers, of } => {
                write!(f, ", recorded of {containers} of {of} containers at {at}: not read")?;
            }
            Recorded::Whole => f.write_str(", recorded by rules, which is read")?,
        }
        match &self.states {
            Some(states) => {
                f.write_str("; kube-state-metrics")?;
                if let Some(job) = &states.job {
                    write!(f, " of job {job:?}")?;
                }
                write!(f, ", labels {}, {}, {}", states.namespace, states.pod, states.container)?;
            }
            None => f.write_str("; no kube-state-metrics")?,
        }
        for (what, labels) in [("copies", &self.replicas), ("clusters", &self.clusters)] {
            for Distinct { label, values } in labels {
                let values: Vec<_> = values.iter().take(5).map(String::as_str).collect();
                write!(f, "; {what} by {label}: {}", values.join(", "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
