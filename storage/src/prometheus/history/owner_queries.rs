//! Queries the owners of pods, and which pods were OOM-killed.
//!
//! Both are labels, so the index of the server (`/api/v1/series`) is enough and no samples are read.

use std::collections::{BTreeSet, HashSet};

use super::{
    batch_group::BatchGroup,
    owner_series::{INTERMEDIATE_KINDS, OwnerSeries, POINTS_PER_ENTRY, points},
    pod_name_rules::OwnerRef,
    workload_batch::{LONGEST_PATTERN, WorkloadBatch},
};
use crate::prometheus::{
    client::PrometheusClient,
    decode::{Interest, Labels, SeriesVisitor},
    query_error::QueryError,
    schema::{KubeStateMetrics, Schema},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// Queries the owners of all objects whose owner has the name of a workload, or a name that starts with it and a dash. Returns
/// those of each batch. Batches whose pods are known by their labels need none. Fails with [`QueryError::CollectorFull`] if
/// the result exceeds `max_points`.
pub(super) async fn query_owners(
    client: &PrometheusClient,
    schema: &Schema,
    group: &BatchGroup,
    span: (Time, Time),
    max_points: u64,
) -> Result<Vec<OwnerSeries>, QueryError> {
    let parts: Vec<BatchOwners<'_>> = group.batches.iter().map(BatchOwners::new).collect();
    let empty = || group.batches.iter().map(|_| OwnerSeries::default()).collect();
    let Some(states) = &schema.kube_state_metrics else { return Ok(empty()) };
    let namespaces: BTreeSet<&str> =
        parts.iter().filter(|part| !part.is_labelled).map(|part| part.namespace).collect();
    if namespaces.is_empty() {
        return Ok(empty());
    }
    let namespaces: Vec<&str> = namespaces.into_iter().collect();
    let names: BTreeSet<&str> = parts
        .iter()
        .filter(|part| !part.is_labelled)
        .flat_map(|part| part.owners.iter().map(|owner| &*owner.name))
        .collect();
    // The names of intermediate owners start with the name of the workload.
    let names = Pattern::any_literal(names).then(&Pattern::regex("(?:-.*)?"));
    let names = Some(names).filter(|names| {
        // A batch never has many more. The names of several are too long together: then they are compared here.
        group.batches.len() == 1 || names.as_str().len() <= LONGEST_PATTERN
    });
    let mut collector = OwnerCollector {
        parts,
        namespace: &states.namespace,
        label: &states.pod,
        kind: None,
        max_points,
    };
    let select = |family: &str, label: &str| {
        let series = states.selector_in(family, &namespaces, &schema.matchers);
        match &names {
            Some(names) => series.matches(label, names.clone()),
            None => series,
        }
    };
    if states.has_family("kube_pod_owner") {
        client.series(&select("kube_pod_owner", "owner_name"), span, &mut collector).await?;
    }
    for (index, (family, kind, label)) in INTERMEDIATE_KINDS.into_iter().enumerate() {
        let is_needed = collector.parts.iter().any(|part| part.series.has_intermediate(index));
        if !is_needed || !states.has_family(family) {
            continue;
        }
        collector.start(label, kind);
        // Those of other workloads are skipped: it suffices to know that they are not ours.
        client.series(&select(family, label), span, &mut collector).await?;
    }
    Ok(collector.parts.into_iter().map(|part| part.series).collect())
}

struct BatchOwners<'a> {
    namespace: &'a str,
    owners: Vec<&'a OwnerRef>,
    names: HashSet<&'a str>,
    series: OwnerSeries,
    /// Memory in points before this query.
    initial_points: u64,
    /// Whether labels determine the workloads of pods.
    is_labelled: bool,
}

impl<'a> BatchOwners<'a> {
    fn new(batch: &'a WorkloadBatch) -> Self {
        let owners: Vec<&OwnerRef> = batch.claims.iter().map(|claim| &claim.owner).collect();
        Self {
            namespace: &batch.namespace,
            names: owners.iter().map(|owner| &*owner.name).collect(),
            owners,
            series: OwnerSeries::new(&batch.live_pods),
            initial_points: 0,
            is_labelled: batch.labelled.is_some(),
        }
    }

    /// Whether a name is that of a workload, or starts with it and a dash.
    fn is_wanted(&self, name: &str) -> bool {
        let starts = name.match_indices('-').map(|(end, _)| &name[..end]);
        starts.chain([name]).any(|start| self.names.contains(start))
    }
}

struct OwnerCollector<'a> {
    parts: Vec<BatchOwners<'a>>,
    namespace: &'a str,
    /// The label with the name of the owned object.
    label: &'a str,
    /// The kind of the owned objects; `None` for pods.
    kind: Option<&'static str>,
    max_points: u64,
}

impl OwnerCollector<'_> {
    /// Starts to read the controllers of objects of a kind.
    fn start(&mut self, label: &'static str, kind: &'static str) {
        (self.label, self.kind) = (label, Some(kind));
        for part in &mut self.parts {
            part.initial_points = part.series.size_in_points;
        }
    }
}

impl SeriesVisitor for OwnerCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let Some(name) = labels.get(self.label) else { return Interest::LabelsOnly };
        let (owner, namespace) = (owner(labels), labels.get(self.namespace));
        let is_one = self.parts.len() == 1;
        for part in &mut self.parts {
            if part.is_labelled || !(is_one || namespace == Some(part.namespace)) {
                continue;
            }
            match (self.kind, owner.clone()) {
                (None, Some(owner)) if is_one || part.is_wanted(&owner.name) => {
                    part.series.add_pod(&part.owners, name, owner);
                }
                (Some(kind), controller) if is_one || part.is_wanted(name) => {
                    let object = OwnerRef { kind: kind.into(), name: name.into() };
                    part.series.add_intermediate(&part.owners, object, controller);
                }
                _ => {}
            }
        }
        Interest::LabelsOnly
    }

    fn is_full(&self) -> bool {
        let size: u64 = self.parts.iter().map(|part| part.series.size_in_points).sum();
        size > self.max_points
    }

    fn discard(&mut self) {
        for part in &mut self.parts {
            part.series.discard(self.kind, part.initial_points);
        }
    }
}

fn owner(labels: Labels<'_>) -> Option<OwnerRef> {
    let (kind, name) = (labels.get("owner_kind")?, labels.get("owner_name")?);
    let is_set = |text: &str| !text.is_empty() && text != "<none>";
    (is_set(kind) && is_set(name)).then(|| OwnerRef { kind: kind.into(), name: name.into() })
}

/// The pods of each batch that were OOM-killed at some time, and their memory in points, at most `max_points`. With several
/// batches, those of other workloads are missing.
pub(super) async fn oom_killed_pods(
    client: &PrometheusClient,
    schema: &Schema,
    group: &BatchGroup,
    pods: Pattern,
    span: (Time, Time),
    max_points: u64,
) -> Result<Vec<OomKilledPods>, QueryError> {
    let killed = group.batches.iter().map(|_| OomKilledPods::default()).collect();
    let Some(states) = &schema.kube_state_metrics else { return Ok(killed) };
    let namespaces = Vec::from_iter(group.namespaces());
    let series = reason(states, schema, &namespaces).matches(&states.pod, pods);
    let mut collector = OomKillCollector { group, states, killed, max_points };
    client.series(&series, span, &mut collector).await?;
    Ok(collector.killed)
}

const TERMINATED_REASON: &str = "kube_pod_container_status_last_terminated_reason";

/// Selects containers whose last termination was an OOM kill.
pub(super) fn reason(states: &KubeStateMetrics, schema: &Schema, namespaces: &[&str]) -> Selector {
    states
        .selector_in(TERMINATED_REASON, namespaces, &schema.matchers)
        .equals("reason", "OOMKilled")
}

#[derive(Debug, Default)]
pub(super) struct OomKilledPods {
    pub(super) pods: HashSet<Box<str>>,
    pub(super) size_in_points: u64,
}

struct OomKillCollector<'a> {
    group: &'a BatchGroup,
    states: &'a KubeStateMetrics,
    killed: Vec<OomKilledPods>,
    max_points: u64,
}

impl SeriesVisitor for OomKillCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let Some(pod) = labels.get(&self.states.pod) else { return Interest::LabelsOnly };
        let mut add = |batch: usize| {
            let killed = &mut self.killed[batch];
            if !killed.pods.contains(pod) {
                killed.size_in_points += POINTS_PER_ENTRY / 4 + points(&[pod]);
                killed.pods.insert(pod.into());
            }
        };
        if self.group.batches.len() == 1 {
            add(0);
        } else {
            let namespace = labels.get(&self.states.namespace);
            self.group.workloads_of(namespace, pod).for_each(|(batch, _)| add(batch));
        }
        Interest::LabelsOnly
    }

    fn is_full(&self) -> bool {
        self.killed.iter().map(|killed| killed.size_in_points).sum::<u64>() > self.max_points
    }

    fn discard(&mut self) {
        self.killed.iter_mut().for_each(|killed| *killed = OomKilledPods::default());
    }
}
