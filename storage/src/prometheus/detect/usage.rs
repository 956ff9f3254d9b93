//! The series of what containers use: which labels they have, which jobs, and how many copies.

use std::time::Duration;

use super::{
    DetectError, SchemaOverrides, distinct,
    series_collector::{CollectedSeries, SeriesCollector},
};
use crate::prometheus::{
    client::PrometheusClient,
    promql::{Aggregation, Grouping, Query, RangeFunction},
    query_error::QueryError,
    schema::{CPU_METRIC, LabelValues, MEMORY_METRIC, UsageJob, UsageSeries, WithOrigin},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// Labels of pods and containers that belong together, most likely first: since 1.16; before; and what scrape
/// configurations of the time made of the names that Docker gives.
const POD_CONTAINER_LABELS: [(&str, &str); 5] = [
    ("pod", "container"),
    ("pod_name", "container_name"),
    ("pod_name", "container"),
    ("pod_name", "name"),
    ("kubernetes_pod_name", "container_name"),
];
/// Labels that tell copies of one series apart: of the operator, of others, of Thanos' receivers and rulers.
const REPLICA_LABELS: [&str; 6] = [
    "prometheus_replica",
    "__replica__",
    "replica",
    "receive_replica",
    "thanos_replica",
    "rule_replica",
];
/// Labels that name clusters.
const CLUSTERS: [&str; 5] =
    ["cluster", "cluster_name", "kubernetes_cluster", "k8s_cluster", "cluster_id"];
/// More namespaces than this are not worth naming in a question about names.
const MOST_NAMESPACES: usize = 50;
/// Series of each job that are looked at closer: copies of one are several, and not everybody knows of each pod.
const SAMPLES_PER_JOB: u32 = 6;
/// How far back it is looked for when there is nothing now: a server that was away.
const MAX_LOOKBACK: Duration = Duration::from_hours(24);

/// What was found.
pub(super) struct DetectedUsage {
    pub(super) usage: UsageSeries,
    pub(super) replicas: Vec<LabelValues>,
    pub(super) clusters: Vec<LabelValues>,
    /// A few series of memory.
    pub(super) samples: Vec<CollectedSeries>,
    /// How far back they were looked for, where there are none now.
    pub(super) lookback: Option<Duration>,
}

/// Where it is looked.
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
    let some = Some(namespaces).filter(|list| (1..=MOST_NAMESPACES).contains(&list.len()));
    // Narrow first; then everywhere; then in the past.
    let everywhere: &[&str] = &[];
    let mut places = Vec::new();
    places.extend(some.map(|namespaces| (namespaces, None)));
    places.extend([(everywhere, None), (everywhere, Some(MAX_LOOKBACK))]);
    for (namespaces, back) in places {
        let place = SearchScope { known, memory, namespaces, lookback: back, at };
        match place.find(client).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            // A day of everything may be too much to look for what is not there now.
            Err(QueryError::TooLarge(_)) if back.is_some() => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    if known.namespace.is_some() && known.pod.is_some() && known.container.is_some() {
        // They mean what they say.
        let label =
            |label: &Option<String>| WithOrigin::configured(label.clone().unwrap_or_default());
        return Ok(DetectedUsage {
            usage: UsageSeries {
                cpu: metric(known.cpu.as_ref(), CPU_METRIC),
                memory: metric(known.memory.as_ref(), MEMORY_METRIC),
                job: job(known).unwrap_or(WithOrigin::assumed(None)),
                metrics_path: None,
                namespace: label(&known.namespace),
                pod: label(&known.pod),
                container: label(&known.container),
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
        some => format!(" that {some} lets through"),
    };
    Err(DetectError::NoUsageSeries { metric: memory.to_owned(), matching })
}

impl SearchScope<'_> {
    async fn find(&self, client: &PrometheusClient) -> Result<Option<DetectedUsage>, QueryError> {
        for (pod, container) in self.pairs() {
            let query =
                self.series(pod, container, None).topk(SAMPLES_PER_JOB, &["job", "metrics_path"]);
            let mut kept = SeriesCollector::default();
            client.instant(&query, self.at, &mut kept).await?;
            if !kept.series.is_empty() {
                return self.inspect(client, pod, container, kept.series).await.map(Some);
            }
        }
        Ok(None)
    }

    /// The labels that are set, or those that may be.
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

    /// Memory of containers by these labels, in the namespaces that are looked at.
    fn series(&self, pod: &str, container: &str, namespace: Option<&str>) -> Query {
        let Self { known, memory, namespaces, lookback: back, .. } = *self;
        let mut selector = Selector::metric(memory)
            .not_equals(pod, "")
            .not_equals(container, "")
            .not_equals(container, "POD");
        if let Some(WithOrigin { value: Some(job), .. }) = job(known) {
            selector = selector.equals("job", job);
        }
        if !namespaces.is_empty() {
            let label = namespace.or(known.namespace.as_deref()).unwrap_or("namespace");
            selector = selector.matches(label, Pattern::any_literal(namespaces.iter().copied()));
        }
        let selector = selector.with_all(&known.matchers);
        match back {
            Some(back) => Query::range_function(RangeFunction::Last, &selector, back),
            None => selector.into(),
        }
    }

    /// Looks closer, at series that are there.
    async fn inspect(
        &self,
        client: &PrometheusClient,
        pod: &str,
        container: &str,
        samples: Vec<CollectedSeries>,
    ) -> Result<DetectedUsage, QueryError> {
        let known = self.known;
        // A scrape that does not honour labels puts its own in their place.
        let is_exported = samples.iter().any(|sample| !sample.get("exported_pod").is_empty());
        let actual = |set: &Option<String>, usual: &str| {
            if let Some(set) = set {
                return WithOrigin::configured(set.clone());
            }
            let exported = format!("exported_{usual}");
            let has = samples.iter().any(|sample| !sample.get(&exported).is_empty());
            WithOrigin::detected(if has { exported } else { usual.to_owned() })
        };
        let pod = actual(&known.pod, pod);
        let container = actual(&known.container, container);
        let namespace = match &known.namespace {
            None if samples.iter().all(|sample| sample.get("namespace").is_empty()) => {
                WithOrigin::detected("kubernetes_namespace".to_owned())
            }
            set => actual(set, "namespace"),
        };
        let place = if is_exported { SearchScope { namespaces: &[], ..*self } } else { *self };
        let series = place.series(&pod.value, &container.value, Some(&namespace.value));
        let identity = [&*namespace.value, &*pod.value, &*container.value];
        let mut labels = vec!["job", "metrics_path"];
        labels.extend(REPLICA_LABELS.iter().chain(&CLUSTERS));
        let all = [&labels[..], &identity].concat();
        let groups = series
            .aggregate(Aggregation::Group, Grouping::By(&all))
            .aggregate(Aggregation::Count, Grouping::By(&labels));
        let mut groups_kept = SeriesCollector::default();
        client.instant(&groups, self.at, &mut groups_kept).await?;
        let total = series
            .aggregate(Aggregation::Group, Grouping::By(&identity))
            .aggregate(Aggregation::Count, Grouping::By(&[]));
        let mut total_kept = SeriesCollector::default();
        client.instant(&total, self.at, &mut total_kept).await?;
        let containers =
            total_kept.series.first().and_then(CollectedSeries::value).unwrap_or(0.0) as u64;

        let sources = sources(&groups_kept);
        let (found, path) = choose(&sources, containers);
        let (job, path) = match job(known) {
            // All sources are of that job then: which of a kubelet's places is read is still to be chosen.
            Some(job) => {
                let path = path.filter(|_| job.value.is_some());
                (job, path)
            }
            None => (found, path),
        };
        let from = |sample: &CollectedSeries| {
            job.value.as_deref().is_none_or(|job| sample.get("job") == job)
                && path.as_deref().is_none_or(|path| sample.get("metrics_path") == path)
        };
        let mut samples = samples;
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
            replicas: distinct(&groups_kept, &REPLICA_LABELS, 2),
            clusters: distinct(&groups_kept, &CLUSTERS, 1),
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

/// The job that is set.
fn job(known: &SchemaOverrides) -> Option<WithOrigin<Option<String>>> {
    known
        .job
        .as_ref()
        .map(|job| WithOrigin::configured(Some(job.clone()).filter(|job| !job.is_empty())))
}

/// Jobs and paths, most containers first. Copies of one series do not count twice.
fn sources(groups: &SeriesCollector) -> Vec<UsageJob> {
    let mut sources: Vec<UsageJob> = Vec::new();
    for group in &groups.series {
        let (job, path) = (group.get("job"), group.get("metrics_path"));
        let containers = group.value().unwrap_or(0.0) as u64;
        match sources.iter_mut().find(|source| source.job == job && source.metrics_path == path) {
            // Another copy, or another cluster: which of them cannot be said here.
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

/// The one source that has nearly everything, where there are several: the others show it again. Where each has a
/// part, all are needed.
fn choose(sources: &[UsageJob], containers: u64) -> (WithOrigin<Option<String>>, Option<String>) {
    let any = (WithOrigin::detected(None), None);
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
        return any;
    };
    let is_shared = sources.iter().filter(|other| other.job == best.job).count() > 1;
    let path = Some(best.metrics_path.clone()).filter(|path| is_shared && !path.is_empty());
    (WithOrigin::detected(Some(best.job.clone()).filter(|job| !job.is_empty())), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_of_several_is_chosen_only_where_it_has_nearly_everything() {
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
