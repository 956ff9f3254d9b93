//! The series of kube-state-metrics: found by a pod that is known from its usage.

use super::{
    Known,
    kept::{Kept, Sampled},
    usage::Found,
};
use crate::prometheus::{
    client::Client,
    failure::Failure,
    query::{Over, Query},
    schema::States,
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// Families about pods.
pub const OF_PODS: [&str; 9] = [
    "kube_pod_owner",
    "kube_pod_labels",
    "kube_pod_container_status_restarts_total",
    "kube_pod_container_status_last_terminated_reason",
    "kube_pod_container_status_last_terminated_timestamp",
    "kube_pod_container_resource_requests",
    "kube_pod_container_resource_limits",
    "kube_pod_container_resource_requests_memory_bytes",
    "kube_pod_container_resource_limits_memory_bytes",
];
/// Families about what owns pods.
pub const OF_OWNERS: [&str; 2] = ["kube_replicaset_owner", "kube_job_owner"];

/// Pods that are looked for.
const MOST: usize = 3;

pub(super) async fn find(
    client: &Client,
    known: &Known,
    found: &Found,
    at: Time,
) -> Result<Option<States>, Failure> {
    let Found { usage, samples, back, .. } = found;
    let [namespace, pod, _] = usage.identity();
    // Where usage is long ago, so are these.
    let there = |series: Selector| match back {
        Some(back) => Query::over(Over::Last, &series, *back),
        None => series.into(),
    };
    let mut pods: Vec<_> = samples.iter().collect();
    pods.dedup_by_key(|sample| (sample.get(namespace), sample.get(pod)));
    for sample in pods.into_iter().take(MOST) {
        for prefix in ["exported_", ""] {
            let label = |name: &str| format!("{prefix}{name}");
            let of_pod = |family: Selector| {
                there(family.equals(label("pod"), sample.get(pod)).all(&known.matchers))
            };
            let mut kept = ask(client, &OF_PODS, of_pod, at).await?;
            let in_namespace = |series: &Sampled| {
                [label("namespace").as_str(), "exported_namespace", "namespace"]
                    .iter()
                    .any(|label| series.get(label) == sample.get(namespace))
            };
            kept.series.retain(in_namespace);
            if !kept.series.is_empty() {
                let mut states = states(&kept.series);
                states.families.extend(owners(client, known, &states, there, at).await?);
                return Ok(Some(states));
            }
        }
    }
    Ok(None)
}

/// The families about owners.
async fn owners(
    client: &Client,
    known: &Known,
    states: &States,
    there: impl Fn(Selector) -> Query,
    at: Time,
) -> Result<Vec<String>, Failure> {
    let one_of_each = |mut family: Selector| {
        if let Some(job) = &states.job {
            family = family.equals("job", job);
        }
        there(family.all(&known.matchers)).largest(1, &["__name__"])
    };
    let kept = ask(client, &OF_OWNERS, one_of_each, at).await?;
    Ok(kept.series.iter().map(|series| series.get("__name__").to_owned()).collect())
}

/// Asks about these families at once; one by one where the server wants each query to name its metric.
async fn ask(
    client: &Client,
    families: &[&str],
    query: impl Fn(Selector) -> Query,
    at: Time,
) -> Result<Kept, Failure> {
    let mut kept = Kept::default();
    let all = Selector::any().matches("__name__", Pattern::one_of(families.iter().copied()));
    match client.instant(&query(all), at, &mut kept).await {
        Err(Failure::BadQuery(_)) => {
            for family in families {
                client.instant(&query(Selector::metric(*family)), at, &mut kept).await?;
            }
        }
        answered => {
            answered?;
        }
    }
    Ok(kept)
}

/// The names in these series, which are about one pod.
fn states(series: &[Sampled]) -> States {
    let label = |usual: &str| {
        let exported = format!("exported_{usual}");
        let has = series.iter().any(|series| !series.get(&exported).is_empty());
        if has { exported } else { usual.to_owned() }
    };
    let families = series.iter().map(|series| series.get("__name__").to_owned()).collect();
    let jobs: Vec<&str> = series.iter().map(|series| series.get("job")).collect();
    let most = jobs.iter().max_by_key(|job| jobs.iter().filter(|other| other == job).count());
    let is_alone = jobs.windows(2).all(|pair| pair[0] == pair[1]);
    States {
        job: most.filter(|job| !job.is_empty() && !is_alone).map(|job| (*job).to_owned()),
        namespace: label("namespace"),
        pod: label("pod"),
        container: label("container"),
        families,
    }
}
