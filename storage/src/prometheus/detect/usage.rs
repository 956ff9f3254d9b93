//! The series of what containers use: which labels they have, which jobs, and how many copies.

use std::time::Duration;

use super::{
    Known, Unknown, distinct,
    kept::{Kept, Sampled},
};
use crate::prometheus::{
    client::Client,
    failure::Failure,
    query::{Along, Fold, Over, Query},
    schema::{CPU, Distinct, Fact, MEMORY, Source, Usage},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// Labels of pods and containers that belong together, most likely first: since 1.16; before; and what scrape
/// configurations of the time made of the names that Docker gives.
const PAIRS: [(&str, &str); 5] = [
    ("pod", "container"),
    ("pod_name", "container_name"),
    ("pod_name", "container"),
    ("pod_name", "name"),
    ("kubernetes_pod_name", "container_name"),
];
/// Labels that tell copies of one series apart: of the operator, of others, of Thanos' receivers and rulers.
const COPIES: [&str; 6] = [
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
const SOME: u32 = 6;
/// How far back it is looked for when there is nothing now: a server that was away.
const LONG_AGO: Duration = Duration::from_hours(24);

/// What was found.
pub(super) struct Found {
    pub(super) usage: Usage,
    pub(super) replicas: Vec<Distinct>,
    pub(super) clusters: Vec<Distinct>,
    /// A few series of memory.
    pub(super) samples: Vec<Sampled>,
    /// How far back they were looked for, where there are none now.
    pub(super) back: Option<Duration>,
}

/// Where it is looked.
#[derive(Clone, Copy)]
struct Place<'a> {
    known: &'a Known,
    memory: &'a str,
    namespaces: &'a [&'a str],
    back: Option<Duration>,
    at: Time,
}

pub(super) async fn find(
    client: &Client,
    known: &Known,
    namespaces: &[&str],
    at: Time,
) -> Result<Found, Unknown> {
    let memory = known.memory.as_deref().unwrap_or(MEMORY);
    let some = Some(namespaces).filter(|list| (1..=MOST_NAMESPACES).contains(&list.len()));
    // Narrow first; then everywhere; then in the past.
    let everywhere: &[&str] = &[];
    let mut places = Vec::new();
    places.extend(some.map(|namespaces| (namespaces, None)));
    places.extend([(everywhere, None), (everywhere, Some(LONG_AGO))]);
    for (namespaces, back) in places {
        let place = Place { known, memory, namespaces, back, at };
        match place.find(client).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            // A day of everything may be too much to look for what is not there now.
            Err(Failure::TooLarge(_)) if back.is_some() => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    if known.namespace.is_some() && known.pod.is_some() && known.container.is_some() {
        // They mean what they say.
        let label = |label: &Option<String>| Fact::set(label.clone().unwrap_or_default());
        return Ok(Found {
            usage: Usage {
                cpu: metric(known.cpu.as_ref(), CPU),
                memory: metric(known.memory.as_ref(), MEMORY),
                job: job(known).unwrap_or(Fact::assumed(None)),
                path: None,
                namespace: label(&known.namespace),
                pod: label(&known.pod),
                container: label(&known.container),
                containers: 0,
                sources: Vec::new(),
            },
            replicas: Vec::new(),
            clusters: Vec::new(),
            samples: Vec::new(),
            back: None,
        });
    }
    let matching = match known.matchers.to_string() {
        none if none.is_empty() => none,
        some => format!(" that {some} lets through"),
    };
    Err(Unknown::NoUsage { metric: memory.to_owned(), matching })
}

impl Place<'_> {
    async fn find(&self, client: &Client) -> Result<Option<Found>, Failure> {
        for (pod, container) in self.pairs() {
            let query = self.series(pod, container, None).largest(SOME, &["job", "metrics_path"]);
            let mut kept = Kept::default();
            client.instant(&query, self.at, &mut kept).await?;
            if !kept.series.is_empty() {
                return self.look(client, pod, container, kept.series).await.map(Some);
            }
        }
        Ok(None)
    }

    /// The labels that are set, or those that may be.
    fn pairs(&self) -> Vec<(&str, &str)> {
        let Known { pod, container, .. } = self.known;
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for (usual_pod, usual_container) in PAIRS {
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
        let Self { known, memory, namespaces, back, .. } = *self;
        let mut selector = Selector::metric(memory)
            .differs(pod, "")
            .differs(container, "")
            .differs(container, "POD");
        if let Some(Fact { value: Some(job), .. }) = job(known) {
            selector = selector.equals("job", job);
        }
        if !namespaces.is_empty() {
            let label = namespace.or(known.namespace.as_deref()).unwrap_or("namespace");
            selector = selector.matches(label, Pattern::one_of(namespaces.iter().copied()));
        }
        let selector = selector.all(&known.matchers);
        match back {
            Some(back) => Query::over(Over::Last, &selector, back),
            None => selector.into(),
        }
    }

    /// Looks closer, at series that are there.
    async fn look(
        &self,
        client: &Client,
        pod: &str,
        container: &str,
        samples: Vec<Sampled>,
    ) -> Result<Found, Failure> {
        let known = self.known;
        // A scrape that does not honour labels puts its own in their place.
        let is_exported = samples.iter().any(|sample| !sample.get("exported_pod").is_empty());
        let actual = |set: &Option<String>, usual: &str| {
            if let Some(set) = set {
                return Fact::set(set.clone());
            }
            let exported = format!("exported_{usual}");
            let has = samples.iter().any(|sample| !sample.get(&exported).is_empty());
            Fact::found(if has { exported } else { usual.to_owned() })
        };
        let pod = actual(&known.pod, pod);
        let container = actual(&known.container, container);
        let namespace = match &known.namespace {
            None if samples.iter().all(|sample| sample.get("namespace").is_empty()) => {
                Fact::found("kubernetes_namespace".to_owned())
            }
            set => actual(set, "namespace"),
        };
        let place = if is_exported { Place { namespaces: &[], ..*self } } else { *self };
        let series = place.series(&pod.value, &container.value, Some(&namespace.value));
        let identity = [&*namespace.value, &*pod.value, &*container.value];
        let mut labels = vec!["job", "metrics_path"];
        labels.extend(COPIES.iter().chain(&CLUSTERS));
        let all = [&labels[..], &identity].concat();
        let groups =
            series.fold(Fold::Group, Along::By(&all)).fold(Fold::Count, Along::By(&labels));
        let mut groups_kept = Kept::default();
        client.instant(&groups, self.at, &mut groups_kept).await?;
        let total =
            series.fold(Fold::Group, Along::By(&identity)).fold(Fold::Count, Along::By(&[]));
        let mut total_kept = Kept::default();
        client.instant(&total, self.at, &mut total_kept).await?;
        let containers = total_kept.series.first().and_then(Sampled::value).unwrap_or(0.0) as u64;

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
        let from = |sample: &Sampled| {
            job.value.as_deref().is_none_or(|job| sample.get("job") == job)
                && path.as_deref().is_none_or(|path| sample.get("metrics_path") == path)
        };
        let mut samples = samples;
        samples.retain(from);
        for sample in &mut samples {
            sample.labels.entry("__name__".to_owned()).or_insert_with(|| self.memory.to_owned());
        }
        Ok(Found {
            usage: Usage {
                cpu: metric(known.cpu.as_ref(), CPU),
                memory: metric(known.memory.as_ref(), MEMORY),
                job,
                path,
                namespace,
                pod,
                container,
                containers,
                sources,
            },
            replicas: distinct(&groups_kept, &COPIES, 2),
            clusters: distinct(&groups_kept, &CLUSTERS, 1),
            samples,
            back: self.back,
        })
    }
}

fn metric(set: Option<&String>, usual: &str) -> Fact<String> {
    set.map_or_else(|| Fact::found(usual.to_owned()), |set| Fact::set(set.clone()))
}

/// The job that is set.
fn job(known: &Known) -> Option<Fact<Option<String>>> {
    known.job.as_ref().map(|job| Fact::set(Some(job.clone()).filter(|job| !job.is_empty())))
}

/// Jobs and paths, most containers first. Copies of one series do not count twice.
fn sources(groups: &Kept) -> Vec<Source> {
    let mut sources: Vec<Source> = Vec::new();
    for group in &groups.series {
        let (job, path) = (group.get("job"), group.get("metrics_path"));
        let containers = group.value().unwrap_or(0.0) as u64;
        match sources.iter_mut().find(|source| source.job == job && source.path == path) {
            // Another copy, or another cluster: which of them cannot be said here.
            Some(source) => source.containers = source.containers.max(containers),
            None => {
                sources.push(Source { job: job.to_owned(), path: path.to_owned(), containers });
            }
        }
    }
    sources.sort_by(|a, b| b.containers.cmp(&a.containers).then_with(|| a.job.cmp(&b.job)));
    sources
}

/// The one source that has nearly everything, where there are several: the others show it again. Where each has a
/// part, all are needed.
fn choose(sources: &[Source], containers: u64) -> (Fact<Option<String>>, Option<String>) {
    let any = (Fact::found(None), None);
    if sources.len() < 2 {
        let job = sources.first().map(|source| source.job.clone()).filter(|job| !job.is_empty());
        return (Fact::found(job), None);
    }
    let enough = |source: &&Source| source.containers.saturating_mul(20) >= containers * 19;
    let is_cadvisor =
        |source: &&Source| source.path.contains("cadvisor") || source.job.contains("cadvisor");
    let enough: Vec<_> = sources.iter().filter(enough).collect();
    let Some(best) = enough.iter().copied().find(is_cadvisor).or(enough.first().copied()) else {
        return any;
    };
    let is_shared = sources.iter().filter(|other| other.job == best.job).count() > 1;
    let path = Some(best.path.clone()).filter(|path| is_shared && !path.is_empty());
    (Fact::found(Some(best.job.clone()).filter(|job| !job.is_empty())), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_of_several_is_chosen_only_where_it_has_nearly_everything() {
        let source = |job: &str, path: &str, containers| Source {
            job: job.to_owned(),
            path: path.to_owned(),
            containers,
        };
        let kubelet = |path, containers| source("kubelet", path, containers);
        let chosen = |sources: &[Source], containers| {
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
