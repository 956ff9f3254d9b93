//! Detects the container usage series: their labels, jobs and replicas.

use std::time::Duration;

use super::{DetectError, SchemaOverrides, actual_label, count_containers, distinct, last_samples};
use crate::prometheus::{
    client::{CollectedSeries, PrometheusClient},
    promql::{Aggregation, Query},
    query_error::QueryError,
    schema::{
        CPU_METRIC, LabelValues, MAX_NAMESPACES, MEMORY_METRIC, UsageJob, UsageSeries, WithOrigin,
    },
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// Pairs of pod and container labels, most likely first: since Kubernetes 1.16; before; and relabelled Docker names of
/// that time.
const POD_CONTAINER_LABELS: [(&str, &str); 5] = [
    ("pod", "container"),
    ("pod_name", "container_name"),
    ("pod_name", "container"),
    ("pod_name", "name"),
    ("kubernetes_pod_name", "container_name"),
];
/// Labels that distinguish replicas of one series: of the Prometheus operator, of others, and of Thanos.
const REPLICA_LABELS: [&str; 6] = [
    "prometheus_replica",
    "__replica__",
    "replica",
    "receive_replica",
    "thanos_replica",
    "rule_replica",
];
/// Labels with the name of the cluster.
const CLUSTERS: [&str; 5] =
    ["cluster", "cluster_name", "kubernetes_cluster", "k8s_cluster", "cluster_id"];
/// Series to sample per job. Several, because some may be replicas and kube-state-metrics may not know every pod.
const SAMPLES_PER_JOB: u32 = 6;
/// How far back to search if there are no current series, because the server was down.
const MAX_LOOKBACK: Duration = Duration::from_hours(24);

pub(super) struct DetectedUsage {
    pub(super) usage: UsageSeries,
    pub(super) replicas: Vec<LabelValues>,
    pub(super) clusters: Vec<LabelValues>,
    /// A few series of memory.
    pub(super) samples: Vec<CollectedSeries>,
    /// How far back the series were found; `None` if they are current.
    pub(super) lookback: Option<Duration>,
}

#[derive(Clone, Copy)]
struct SearchScope<'a> {
    known: &'a SchemaOverrides,
    memory: &'a str,
    namespaces: &'a [&'a str],
    lookback: Option<Duration>,
    at: Time,
}

pub(super) async fn find(
    client: &PrometheusClient,
    known: &SchemaOverrides,
    namespaces: &[&str],
    at: Time,
) -> Result<DetectedUsage, DetectError> {
    let memory = known.memory.as_deref().unwrap_or(MEMORY_METRIC);
    // Search these namespaces first, then all, then the past.
    let scopes = [(namespaces, None), (&[][..], None), (&[][..], Some(MAX_LOOKBACK))];
    let is_restricted = (1..=MAX_NAMESPACES).contains(&namespaces.len());
    for (namespaces, lookback) in scopes.into_iter().skip(usize::from(!is_restricted)) {
        let scope = SearchScope { known, memory, namespaces, lookback, at };
        match scope.find(client).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            // A day of all series may be too much.
            Err(QueryError::TooLarge(_)) if lookback.is_some() => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    if let (Some(namespace), Some(pod), Some(container)) =
        (&known.namespace, &known.pod, &known.container)
    {
        // All labels are configured, so nothing has to be detected.
        let label = |label: &String| WithOrigin::configured(label.clone());
        return Ok(DetectedUsage {
            usage: UsageSeries {
                cpu: metric(known.cpu.as_ref(), CPU_METRIC),
                memory: metric(known.memory.as_ref(), MEMORY_METRIC),
                job: job(known).unwrap_or(WithOrigin::assumed(None)),
                metrics_path: None,
                namespace: label(namespace),
                pod: label(pod),
                container: label(container),
                containers: 0,
                jobs: Vec::new(),
            },
            replicas: Vec::new(),
            clusters: Vec::new(),
            samples: Vec::new(),
            lookback: None,
        });
    }
    let matching = match known.matchers.to_string() {
        none if none.is_empty() => none,
        some => format!(" matching {some}"),
    };
    Err(DetectError::NoUsageSeries { metric: memory.to_owned(), matching })
}

impl SearchScope<'_> {
    async fn find(&self, client: &PrometheusClient) -> Result<Option<DetectedUsage>, QueryError> {
        for (pod, container) in self.pairs() {
            let query =
                self.series(pod, container, None).topk(SAMPLES_PER_JOB, &["job", "metrics_path"]);
            let samples = client.vector(&query, self.at).await?;
            if !samples.is_empty() {
                return self.inspect(client, pod, container, samples).await.map(Some);
            }
        }
        Ok(None)
    }

    /// The configured pair of labels, or the candidates.
    fn pairs(&self) -> Vec<(&str, &str)> {
        let SchemaOverrides { pod, container, .. } = self.known;
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for (usual_pod, usual_container) in POD_CONTAINER_LABELS {
            let pair = (
                pod.as_deref().unwrap_or(usual_pod),
                container.as_deref().unwrap_or(usual_container),
            );
            if !pairs.contains(&pair) {
                pairs.push(pair);
            }
        }
        pairs
    }

    /// Memory series of containers with these labels, in the namespaces of this scope.
    fn series(&self, pod: &str, container: &str, namespace: Option<&str>) -> Query {
        let Self { known, memory, namespaces, lookback, .. } = *self;
        let mut selector = Selector::metric(memory)
            .not_equals(pod, "")
            .not_equals(container, "")
            .not_equals(container, "POD");
        let job = job(known).and_then(|job| job.value);
        selector = selector.equals_if_set("job", job.as_ref());
        if !namespaces.is_empty() {
            let label = namespace.or(known.namespace.as_deref()).unwrap_or("namespace");
            selector = selector.matches(label, Pattern::any_literal(namespaces.iter().copied()));
        }
        last_samples(selector.with_all(&known.matchers), lookback)
    }

    async fn inspect(
        &self,
        client: &PrometheusClient,
        pod: &str,
        container: &str,
        mut samples: Vec<CollectedSeries>,
    ) -> Result<DetectedUsage, QueryError> {
        let known = self.known;
        let is_exported = samples.iter().any(|sample| !sample.get("exported_pod").is_empty());
        let actual = |set: &Option<String>, usual: &str| match set {
            Some(set) => WithOrigin::configured(set.clone()),
            None => WithOrigin::detected(actual_label(&samples, usual)),
        };
        let pod = actual(&known.pod, pod);
        let container = actual(&known.container, container);
        let namespace = match &known.namespace {
            None if samples.iter().all(|sample| sample.get("namespace").is_empty()) => {
                WithOrigin::detected("kubernetes_namespace".to_owned())
            }
            set => actual(set, "namespace"),
        };
        let scope = if is_exported { SearchScope { namespaces: &[], ..*self } } else { *self };
        let series = scope.series(&pod.value, &container.value, Some(&namespace.value));
        let identity = [&*namespace.value, &*pod.value, &*container.value];
        let mut labels = vec!["job", "metrics_path"];
        labels.extend(REPLICA_LABELS.iter().chain(&CLUSTERS));
        let group_labels = [&labels[..], &identity].concat();
        let groups = series
            .aggregate(Aggregation::Group, &group_labels)
            .aggregate(Aggregation::Count, &labels);
        let groups = client.vector(&groups, self.at).await?;
        let containers = count_containers(client, &series, &identity, self.at).await?;
        let sources = sources(&groups);
        let (found, path) = choose(&sources, containers);
        let (job, path) = match job(known) {
            // All sources have that job then, but the metrics path still has to be chosen.
            Some(job) if job.value.is_none() => (job, None),
            Some(job) => (job, path),
            None => (found, path),
        };
        let from = |sample: &CollectedSeries| {
            job.value.as_deref().is_none_or(|job| sample.get("job") == job)
                && path.as_deref().is_none_or(|path| sample.get("metrics_path") == path)
        };
        samples.retain(from);
        for sample in &mut samples {
            sample.labels.entry("__name__".to_owned()).or_insert_with(|| self.memory.to_owned());
        }
        Ok(DetectedUsage {
            usage: UsageSeries {
                cpu: metric(known.cpu.as_ref(), CPU_METRIC),
                memory: metric(known.memory.as_ref(), MEMORY_METRIC),
                job,
                metrics_path: path,
                namespace,
                pod,
                container,
                containers,
                jobs: sources,
            },
            replicas: distinct(&groups, &REPLICA_LABELS, 2),
            clusters: distinct(&groups, &CLUSTERS, 1),
            samples,
            lookback: self.lookback,
        })
    }
}

fn metric(set: Option<&String>, usual: &str) -> WithOrigin<String> {
    set.map_or_else(
        || WithOrigin::detected(usual.to_owned()),
        |set| WithOrigin::configured(set.clone()),
    )
}

fn job(known: &SchemaOverrides) -> Option<WithOrigin<Option<String>>> {
    known
        .job
        .as_ref()
        .map(|job| WithOrigin::configured(Some(job.clone()).filter(|job| !job.is_empty())))
}

/// Jobs and paths, most containers first. Replicas of a series do not count twice.
fn sources(groups: &[CollectedSeries]) -> Vec<UsageJob> {
    let mut sources: Vec<UsageJob> = Vec::new();
    for group in groups {
        let (job, path) = (group.get("job"), group.get("metrics_path"));
        let containers = group.value().unwrap_or(0.0) as u64;
        match sources.iter_mut().find(|source| source.job == job && source.metrics_path == path) {
            // Another replica or another cluster; which one is unknown here.
            Some(source) => source.containers = source.containers.max(containers),
            None => {
                sources.push(UsageJob {
                    job: job.to_owned(),
                    metrics_path: path.to_owned(),
                    containers,
                });
            }
        }
    }
    sources.sort_by(|a, b| b.containers.cmp(&a.containers).then_with(|| a.job.cmp(&b.job)));
    sources
}

/// Chooses the source that has at least 95% of the containers, if there are several: the others duplicate it. If every
/// source has only a part, all are needed.
fn choose(sources: &[UsageJob], containers: u64) -> (WithOrigin<Option<String>>, Option<String>) {
    if sources.len() < 2 {
        let job = sources.first().map(|source| source.job.clone()).filter(|job| !job.is_empty());
        return (WithOrigin::detected(job), None);
    }
    let enough = |source: &&UsageJob| source.containers.saturating_mul(20) >= containers * 19;
    let is_cadvisor = |source: &&UsageJob| {
        source.metrics_path.contains("cadvisor") || source.job.contains("cadvisor")
    };
    let enough: Vec<_> = sources.iter().filter(enough).collect();
    let Some(best) = enough.iter().copied().find(is_cadvisor).or(enough.first().copied()) else {
        return (WithOrigin::detected(None), None);
    };
    let is_shared = sources.iter().filter(|other| other.job == best.job).count() > 1;
    let path = Some(best.metrics_path.clone()).filter(|path| is_shared && !path.is_empty());
    (WithOrigin::detected(Some(best.job.clone()).filter(|job| !job.is_empty())), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_sources_is_chosen_only_if_it_has_nearly_all_series() {
        let source = |job: &str, path: &str, containers| UsageJob {
            job: job.to_owned(),
            metrics_path: path.to_owned(),
            containers,
        };
        let kubelet = |path, containers| source("kubelet", path, containers);
        let chosen = |sources: &[UsageJob], containers| {
            let (job, path) = choose(sources, containers);
            (job.value, path)
        };
        let some = |text: &str| Some(text.to_owned());
        let both = [kubelet("/metrics/resource", 100), kubelet("/metrics/cadvisor", 99)];
        assert_eq!(chosen(&both, 100), (some("kubelet"), some("/metrics/cadvisor")));
        let halves = [source("linux", "", 60), source("gpu", "", 40)];
        assert_eq!(chosen(&halves, 100), (None, None));
        assert_eq!(chosen(&halves[..1], 60), (some("linux"), None));
        let nameless = [source("", "", 60)];
        assert_eq!(chosen(&nameless, 60), (None, None));
        let twice = [source("a", "", 100), source("kubernetes-nodes-cadvisor", "", 100)];
        assert_eq!(chosen(&twice, 100), (some("kubernetes-nodes-cadvisor"), None));
    }
}
