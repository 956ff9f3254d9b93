//! The cluster beside a server: its VPAs, their pods, and which of them have series.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::{StreamExt as _, stream};
use plimsoll_core::types::VpaKey;
use plimsoll_storage::prometheus::{
    history::LivePods,
    query::{Along, Fold, Query},
    schema::Schema,
};

use super::Exam;
use crate::{
    doctor::{
        facts::{Asked, Beside},
        report::{Comparison, Without},
    },
    observe::{
        lookup::{self, LookupError},
        target::Outcome,
    },
    run::cluster::{self, ANSWER, Cluster, Reach},
};
use plimsoll_core::api::VerticalPodAutoscaler;

/// Who asks.
const AGENT: &str = concat!("plimsoll-doctor/", env!("CARGO_PKG_VERSION"));
/// VPAs that are compared: each takes a few requests.
const MOST: usize = 500;
/// VPAs that are looked up at once.
const AT_ONCE: usize = 8;
/// VPAs whose history is read to see what it costs.
const MOST_READ: usize = 50;
/// Namespaces in one query.
const NAMESPACES: usize = 50;

/// The pods of each VPA, or why they are not known.
#[derive(Debug)]
pub(super) enum Pods {
    /// Nothing to compare.
    Not(Beside),
    /// By VPA.
    Of { address: String, vpas: Vec<Vpa>, passed_over: usize },
}

/// VPAs, each with the owner of its pods.
pub(super) type Owned = HashMap<VpaKey, Option<Box<str>>>;

/// One VPA with the names of its pods that run.
#[derive(Debug)]
pub(super) struct Vpa {
    namespace: String,
    name: String,
    /// The owner of its pods, where that is known.
    owner: Option<Box<str>>,
    pods: Vec<String>,
}

impl Pods {
    /// Namespaces with VPAs.
    pub(super) fn namespaces(&self) -> Vec<&str> {
        match self {
            Self::Not(_) => Vec::new(),
            Self::Of { vpas, .. } => vpas.iter().map(|vpa| &*vpa.namespace).collect(),
        }
    }
}

impl Pods {
    /// The VPAs of the namespace with the most pods, each with the owner of its pods, as a storage wants them, and those pods.
    pub(super) fn largest(&self) -> Option<(&str, Owned, LivePods)> {
        let Self::Of { vpas, .. } = self else { return None };
        let with_pods = || vpas.iter().filter(|vpa| vpa.owner.is_some() && !vpa.pods.is_empty());
        let mut pods: BTreeMap<&str, usize> = BTreeMap::new();
        for vpa in with_pods() {
            *pods.entry(&vpa.namespace).or_default() += vpa.pods.len();
        }
        let (namespace, _) = pods.into_iter().max_by_key(|(_, pods)| *pods)?;
        let (mut wanted, mut live) = (Owned::new(), LivePods::new());
        for vpa in with_pods().filter(|vpa| vpa.namespace == namespace).take(MOST_READ) {
            let key = VpaKey::new(namespace, &*vpa.name);
            let pods = vpa.pods.iter().map(String::as_str);
            live.add(&key, vpa.owner.as_deref().unwrap_or_default(), pods);
            wanted.insert(key, vpa.owner.clone());
        }
        Some((namespace, wanted, live))
    }
}

/// Reads the VPAs of a cluster and their pods.
pub(super) async fn find_pods(reach: &Reach, namespace: Option<&str>) -> Pods {
    let cluster = match cluster::connect(reach, AGENT).await {
        Ok(cluster) => cluster,
        // Who names one wants to hear why it is not there.
        Err(why) if *reach != Reach::default() || std::env::var_os("KUBECONFIG").is_some() => {
            return Pods::Not(Beside::Unreadable(why.to_string()));
        }
        Err(_) => return Pods::Not(Beside::None("set KUBECONFIG or give --kubeconfig".to_owned())),
    };
    match read(&cluster, namespace).await {
        Ok(pods) => pods,
        Err(error) => Pods::Not(Beside::Unreadable(format!("{}: {error}", cluster.address))),
    }
}

async fn read(cluster: &Cluster, namespace: Option<&str>) -> Result<Pods, LookupError> {
    let found = lookup::find_vpas(&cluster.client, namespace).await?.unwrap_or_default();
    if found.is_empty() {
        return Ok(Pods::Not(Beside::Empty));
    }
    let passed_over = found.len().saturating_sub(MOST);
    let mut read = stream::iter(found.into_iter().take(MOST))
        .map(|vpa| find_pods_of(cluster, vpa))
        .buffered(AT_ONCE);
    let mut vpas = Vec::new();
    while let Some(vpa) = read.next().await {
        vpas.push(vpa?);
    }
    Ok(Pods::Of { address: cluster.address.clone(), vpas, passed_over })
}

async fn find_pods_of(cluster: &Cluster, vpa: VerticalPodAutoscaler) -> Result<Vpa, LookupError> {
    let client = &cluster.client;
    let namespace = vpa.metadata.namespace.unwrap_or_default();
    let name = vpa.metadata.name.unwrap_or_default();
    let target = &vpa.spec.target_ref;
    let (owner, pods) = match lookup::find_target(client, &namespace, target, ANSWER).await? {
        Outcome::Found { selector, owner } => {
            (Some(owner), lookup::find_pods(client, &namespace, &selector).await?)
        }
        // That is for the recommender to say, on the VPA.
        _ => (None, Vec::new()),
    };
    let running = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let pods = running.filter_map(|pod| pod.metadata.name).collect();
    Ok(Vpa { namespace, name, owner, pods })
}

/// Looks for the series of those pods.
pub(super) async fn compare(exam: &Exam, pods: Pods, schema: Option<&Schema>) -> Beside {
    let (address, vpas, passed_over) = match pods {
        Pods::Not(beside) => return beside,
        Pods::Of { address, vpas, passed_over } => (address, vpas, passed_over),
    };
    let Some(schema) = schema else {
        let why = "the server has no series of containers.".to_owned();
        return Beside::Unmatched(why, Vec::new());
    };
    let [namespace, pod, _] = schema.usage.identity();
    let mut by_namespace: BTreeMap<&str, HashSet<String>> = BTreeMap::new();
    for vpa in &vpas {
        by_namespace.entry(&vpa.namespace).or_default();
    }
    let names: Vec<&str> = by_namespace.keys().copied().collect();
    let mut evidence = Vec::new();
    for names in names.chunks(NAMESPACES) {
        let series = schema.usage_in(&schema.usage.memory, names);
        let query = Query::from(series).fold(Fold::Group, Along::By(&[namespace, pod]));
        let Asked { evidence: asked, answer } = exam.groups(&query, exam.now).await;
        evidence.extend(asked);
        match answer {
            Ok(groups) => {
                for mut group in groups.all {
                    let name = group.labels.remove(pod).unwrap_or_default();
                    let of = group.labels.get(namespace).map_or("", String::as_str);
                    if let Some(known) = by_namespace.get_mut(of) {
                        known.insert(name);
                    }
                }
            }
            Err(why) => return Beside::Unmatched(why, evidence),
        }
    }
    let mut comparison =
        Comparison { address, vpas: vpas.len(), passed_over, ..Comparison::default() };
    for Vpa { namespace, name, pods, .. } in &vpas {
        let known = by_namespace.get(&**namespace);
        let has = |pod: &&String| known.is_some_and(|known| known.contains(*pod));
        let with_series = pods.iter().filter(has).count();
        comparison.pods += pods.len();
        comparison.with_series += with_series;
        if with_series < pods.len() {
            let (namespace, name) = (namespace.clone(), name.clone());
            comparison.without.push(Without { namespace, name, pods: pods.len(), with_series });
        }
    }
    Beside::Compared(comparison, evidence)
}
