//! Compares the cluster with the server: its VPAs, their pods, and which of them have series.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures::{StreamExt as _, stream};
use kube::{Client, ResourceExt};
use plimsoll_core::{api::VerticalPodAutoscaler, types::ObjectKey};
use plimsoll_storage::prometheus::{
    history::LivePods,
    promql::{Aggregation, Query},
    schema::Schema,
};

use super::ServerProbe;
use crate::{
    cluster::{
        snapshot::{ClusterSnapshot, ReadError, ReadErrorCause, SnapshotPart, SnapshotPod},
        target::TargetResolution,
    },
    controllers::runtime::command_client::{self, Cluster, ClusterOptions},
    report::doctor::{
        probe_results::{ClusterCoverage, ProbeAnswer},
        report::{CoverageReport, PartlyCoveredVpa},
    },
};

/// The maximum number of VPAs to compare: the pods and controllers of their namespaces are read.
const MAX_VPAS: usize = 500;
/// Namespaces that are read concurrently, each with several lists at once.
const CONCURRENT_NAMESPACES: usize = 2;
/// VPAs whose history is read to measure the cost.
const MAX_SAMPLED_VPAS: usize = 50;
const NAMESPACES_PER_QUERY: usize = 50;

#[derive(Debug)]
pub(super) struct ClusterPods {
    address: String,
    vpas: Vec<VpaPods>,
    skipped: usize,
}

pub(super) type VpaOwners = HashMap<ObjectKey, Option<Box<str>>>;

/// One VPA with the names of its running pods.
#[derive(Debug)]
pub(super) struct VpaPods {
    namespace: String,
    name: String,
    /// The owner of the pods, if the target was resolved.
    owner: Option<Box<str>>,
    pods: Vec<String>,
}

impl ClusterPods {
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.vpas.iter().map(|vpa| &*vpa.namespace)
    }

    /// The namespace with the most pods: its VPAs with the owners of their pods, as a storage needs them, and the pods.
    pub(super) fn largest_namespace(&self) -> Option<(&str, VpaOwners, LivePods)> {
        let has_pods = |vpa: &&VpaPods| vpa.owner.is_some() && !vpa.pods.is_empty();
        let with_pods = || self.vpas.iter().filter(has_pods);
        let mut pods: BTreeMap<&str, usize> = BTreeMap::new();
        for vpa in with_pods() {
            *pods.entry(&vpa.namespace).or_default() += vpa.pods.len();
        }
        let (namespace, _) = pods.into_iter().max_by_key(|(_, pods)| *pods)?;
        let (mut wanted, mut live) = (VpaOwners::new(), LivePods::new());
        for vpa in with_pods().filter(|vpa| vpa.namespace == namespace).take(MAX_SAMPLED_VPAS) {
            let key = ObjectKey::new(namespace, &*vpa.name);
            let pods = vpa.pods.iter().map(String::as_str);
            live.add(&key, vpa.owner.as_deref().unwrap_or_default(), pods);
            wanted.insert(key, vpa.owner.clone());
        }
        Some((namespace, wanted, live))
    }
}

/// Reads the VPAs of the cluster and their pods. The error is why there are none to compare.
pub(super) async fn find_pods(
    options: &ClusterOptions,
    namespace: Option<&str>,
) -> Result<ClusterPods, ClusterCoverage> {
    let cluster = command_client::connect(options, "plimsoll-doctor").await.map_err(|why| {
        // An error matters only if the user has specified a cluster.
        if *options != ClusterOptions::default() || std::env::var_os("KUBECONFIG").is_some() {
            ClusterCoverage::Unreadable(why.to_string())
        } else {
            ClusterCoverage::NoCluster("set KUBECONFIG or pass --kubeconfig".to_owned())
        }
    })?;
    let found = read_cluster(&cluster, namespace)
        .await
        .map_err(|error| ClusterCoverage::Unreadable(format!("{}: {error}", cluster.address)))?;
    found.ok_or(ClusterCoverage::Empty)
}

async fn read_cluster(
    cluster: &Cluster,
    namespace: Option<&str>,
) -> Result<Option<ClusterPods>, ReadError> {
    let client = &cluster.client;
    let found = match ClusterSnapshot::read(client, namespace, &[SnapshotPart::Vpas]).await.vpas {
        Ok(list) => list.objects,
        Err(error) if error.cause == ReadErrorCause::NotServed => Vec::new(),
        Err(error) => return Err(error),
    };
    if found.is_empty() {
        return Ok(None);
    }
    let skipped = found.len().saturating_sub(MAX_VPAS);
    let mut by_namespace: BTreeMap<String, Vec<VerticalPodAutoscaler>> = BTreeMap::new();
    for vpa in found.into_iter().take(MAX_VPAS) {
        by_namespace.entry(vpa.namespace().unwrap_or_default()).or_default().push(vpa);
    }
    let mut reads = stream::iter(by_namespace)
        .map(|(namespace, vpas)| find_pods_of(client, namespace, vpas))
        .buffered(CONCURRENT_NAMESPACES);
    let mut vpas = Vec::new();
    while let Some(of_namespace) = reads.next().await {
        vpas.extend(of_namespace?);
    }
    Ok(Some(ClusterPods { address: cluster.address.clone(), vpas, skipped }))
}

async fn find_pods_of(
    client: &Client,
    namespace: String,
    vpas: Vec<VerticalPodAutoscaler>,
) -> Result<Vec<VpaPods>, ReadError> {
    let parts = [SnapshotPart::Pods, SnapshotPart::Controllers];
    let kinds: Vec<&str> = vpas.iter().map(|vpa| &*vpa.spec.target_ref.kind).collect();
    let snapshot = ClusterSnapshot::read_for_targets(client, &namespace, &parts, &kinds).await;
    let pods = &snapshot.pods.as_ref().map_err(Clone::clone)?.objects;
    let is_live =
        |pod: &&SnapshotPod| pod.is_started() && pod.metadata.deletion_timestamp.is_none();
    let targets = snapshot.target_resolver(client);
    let mut found = Vec::new();
    for vpa in &vpas {
        let target = &vpa.spec.target_ref;
        let (owner, pods) = match snapshot.resolve_target(&targets, &namespace, target).await? {
            TargetResolution::Found { selector, owner } => {
                let of_vpa = pods.iter().filter(|pod| selector.matches(&pod.updater.labels));
                (Some(owner), of_vpa.filter(is_live).map(ResourceExt::name_any).collect())
            }
            // The recommender reports this on the VPA.
            _ => (None, Vec::new()),
        };
        found.push(VpaPods { namespace: namespace.clone(), name: vpa.name_any(), owner, pods });
    }
    Ok(found)
}

pub(super) async fn compare_with_series(
    probe: &ServerProbe,
    ClusterPods { address, vpas, skipped: passed_over }: ClusterPods,
    schema: Option<&Schema>,
) -> ClusterCoverage {
    let Some(schema) = schema else {
        let why = "the server has no container series.".to_owned();
        return ClusterCoverage::Unmatched(why, Vec::new());
    };
    let [namespace, pod, _] = schema.usage.container_labels();
    let mut by_namespace: BTreeMap<&str, HashSet<String>> = BTreeMap::new();
    for vpa in &vpas {
        by_namespace.entry(&vpa.namespace).or_default();
    }
    let names: Vec<&str> = by_namespace.keys().copied().collect();
    let mut evidence = Vec::new();
    for names in names.chunks(NAMESPACES_PER_QUERY) {
        let series = schema.usage_selector_in(&schema.usage.memory, names);
        let query = Query::from(series).aggregate(Aggregation::Group, &[namespace, pod]);
        let ProbeAnswer { evidence: queries, answer } = probe.query_vector(&query, probe.now).await;
        evidence.extend(queries);
        match answer {
            Ok(groups) => {
                for mut group in groups {
                    let name = group.labels.remove(pod).unwrap_or_default();
                    let namespace_of_group = group.labels.get(namespace).map_or("", String::as_str);
                    if let Some(known) = by_namespace.get_mut(namespace_of_group) {
                        known.insert(name);
                    }
                }
            }
            Err(why) => return ClusterCoverage::Unmatched(why, evidence),
        }
    }
    let mut comparison =
        CoverageReport { address, vpas: vpas.len(), passed_over, ..CoverageReport::default() };
    for VpaPods { namespace, name, pods, .. } in &vpas {
        let known = by_namespace.get(&**namespace);
        let has_series = |pod: &&String| known.is_some_and(|known| known.contains(*pod));
        let with_series = pods.iter().filter(has_series).count();
        comparison.pods += pods.len();
        comparison.with_series += with_series;
        if with_series < pods.len() {
            let (namespace, name) = (namespace.clone(), name.clone());
            comparison.without.push(PartlyCoveredVpa {
                namespace,
                name,
                pods: pods.len(),
                with_series,
            });
        }
    }
    ClusterCoverage::Compared(comparison, evidence)
}
