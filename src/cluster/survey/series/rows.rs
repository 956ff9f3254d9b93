//! Puts workloads together from the rows of responses. Sends no queries.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use plimsoll_core::{
    rightsizing::survey::{
        Amounts, AutoscalerRef, Container, ContainerRole, ReplicaRange, Resource,
        UtilizationTarget, Workload,
    },
    types::units::{Bytes, MilliCpu},
};
use plimsoll_storage::prometheus::{
    client::CollectedSeries, history::OwnerRef, schema::KubeStateMetrics,
};

use super::super::{
    objects::resource,
    scope::{OwnerGroups, SurveyScope},
};

/// How far above a pod an owner is looked for that others are grouped by.
const MAX_OWNERS: usize = 10;

/// An object that owns pods, by namespace, kind and name.
pub(super) type OwnerKey = (Box<str>, Box<str>, Box<str>);

#[derive(Debug, Default)]
pub(super) struct SurveyRows {
    pods: BTreeMap<OwnerKey, BTreeMap<Box<str>, Option<Box<str>>>>,
    pub(super) containers: OwnedContainers,
    /// The containers of runs of CronJobs that may have ended.
    pub(super) runs: OwnedContainers,
    owners: HashMap<OwnerKey, OwnerRef>,
    newest_pods: HashMap<OwnerKey, f64>,
    replicas: HashMap<OwnerKey, u32>,
    pub(super) targets: BTreeMap<OwnerKey, Vec<UtilizationTarget>>,
    ranges: BTreeMap<OwnerKey, Vec<ReplicaRange>>,
    autoscalers: BTreeMap<OwnerKey, Vec<AutoscalerRef>>,
    /// Kinds of owners that everything below is grouped by, and the owners of pods that own others.
    groups: OwnerGroups,
    owners_of_pods: HashMap<OwnerKey, OwnerKey>,
    /// The pods whose labels match, if a label selector is set.
    pub(super) selected_pods: Option<HashSet<(Box<str>, Box<str>)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AmountField {
    Requests,
    Limits,
}

pub(super) type IsInit = bool;

type OwnedContainers = BTreeMap<OwnerKey, BTreeMap<(Box<str>, IsInit), Container>>;

impl SurveyRows {
    pub fn new(groups: OwnerGroups) -> Self {
        Self { groups, ..Self::default() }
    }

    pub fn add_pods(&mut self, states: &KubeStateMetrics, series: &[CollectedSeries]) {
        for row in series {
            let node = Some(node_name(row)).filter(|node| !node.is_empty()).map(Box::from);
            let (owner, pod) = (owner_key(states, row), row.get(&states.pod));
            if !self.groups.owner_kinds.is_empty() {
                let own = (owner.0.clone(), "Pod".into(), pod.into());
                self.owners_of_pods.insert(own, owner.clone());
            }
            self.pods.entry(owner).or_default().insert(pod.into(), node);
        }
    }

    /// Adds a pod whose owner is known by its name, with one of its containers.
    pub fn add_pod_by_name(&mut self, namespace: &str, pod: &str, container: &str) {
        let OwnerRef { kind, name } = OwnerRef::from_pod_name(pod);
        let key: OwnerKey = (namespace.into(), kind, name);
        self.pods.entry(key.clone()).or_default().insert(pod.into(), None);
        container_mut(&mut self.containers, key, container, false);
    }

    pub fn owner_kinds(&self) -> BTreeSet<&str> {
        self.pods.keys().chain(self.containers.keys()).map(|(_, kind, _)| &**kind).collect()
    }

    pub fn add_containers(
        &mut self,
        states: &KubeStateMetrics,
        series: &[CollectedSeries],
        is_init: IsInit,
    ) {
        for row in series {
            let (key, name) = (owner_key(states, row), row.get(&states.container));
            let container = container_mut(&mut self.containers, key, name, is_init);
            if is_init && row.get("restart_policy") == "Always" {
                container.role = ContainerRole::Sidecar;
            }
        }
    }

    pub fn add_owners(
        &mut self,
        states: &KubeStateMetrics,
        series: &[CollectedSeries],
        (kind, label): (&str, &str),
    ) {
        for row in series {
            let key = (row.get(&states.namespace).into(), kind.into(), row.get(label).into());
            let owner =
                OwnerRef { kind: row.get("owner_kind").into(), name: row.get("owner_name").into() };
            self.owners.insert(key, owner);
        }
    }

    /// Assigns objects of a kind to owners by their names, if the server does not tell the owners.
    pub fn infer_owners(&mut self, kind: &str) {
        let keys: BTreeSet<_> = self.pods.keys().chain(self.containers.keys()).cloned().collect();
        for key in keys {
            let object = OwnerRef { kind: key.1.clone(), name: key.2.clone() };
            if let Some(owner) = object.generator().filter(|_| &*key.1 == kind) {
                self.owners.insert(key, owner);
            }
        }
    }

    /// Whether a workload has pods of several direct owners, such as two ReplicaSets during a rollout.
    pub fn has_rollouts(&self) -> bool {
        let mut tops = HashSet::new();
        !self.containers.keys().all(|key| tops.insert(self.top_of(key)))
    }

    /// Adds when the newest pod of each owner was created.
    pub fn add_newest_pods(&mut self, states: &KubeStateMetrics, series: &[CollectedSeries]) {
        let created = |row: &CollectedSeries| Some((owner_key(states, row), row.value()?));
        self.newest_pods.extend(series.iter().filter_map(created));
    }

    pub fn add_replicas(
        &mut self,
        states: &KubeStateMetrics,
        series: &[CollectedSeries],
        (kind, label): (&str, &str),
    ) {
        for row in series {
            let key = (row.get(&states.namespace).into(), kind.into(), row.get(label).into());
            if let Some(count) = row.value().filter(|count| *count >= 0.0) {
                self.replicas.insert(key, count as u32);
            }
        }
    }

    /// Adds the utilization targets of HorizontalPodAutoscalers. Series do not tell the place of a metric: it is their order
    /// by name.
    pub fn add_hpas(
        &mut self,
        states: &KubeStateMetrics,
        hpas: &[CollectedSeries],
        metrics: &[CollectedSeries],
    ) {
        let key = |row: &CollectedSeries| {
            [&states.namespace, "horizontalpodautoscaler"]
                .map(|label| Box::<str>::from(row.get(label)))
        };
        let mut by_hpa: HashMap<_, BTreeMap<&str, f64>> = HashMap::new();
        for row in metrics {
            if let Some(percent) = row.value().filter(|percent| *percent > 0.0) {
                by_hpa.entry(key(row)).or_default().insert(row.get("metric_name"), percent);
            }
        }
        for hpa in hpas {
            let id = key(hpa);
            let of_hpa = by_hpa.get(&id).into_iter().flatten().enumerate();
            let [namespace, name] = id.clone();
            let targets = of_hpa.filter_map(|(metric, (resource_name, percent))| {
                Some(UtilizationTarget {
                    kind: "HorizontalPodAutoscaler".into(),
                    name: name.clone(),
                    metric,
                    resource: resource(resource_name)?,
                    container: None,
                    percent: percent.round() as u32,
                })
            });
            let kind = hpa.get("scaletargetref_kind").into();
            let target = (namespace, kind, hpa.get("scaletargetref_name").into());
            let autoscaler =
                AutoscalerRef { kind: "HorizontalPodAutoscaler".into(), name: name.clone() };
            self.autoscalers.entry(target.clone()).or_default().push(autoscaler);
            self.targets.entry(target).or_default().extend(targets);
        }
    }

    /// Adds how many replicas HorizontalPodAutoscalers may set: minimum, maximum, and those with other metrics.
    pub fn add_replica_ranges(
        &mut self,
        states: &KubeStateMetrics,
        hpas: &[CollectedSeries],
        [min, max, other]: [&[CollectedSeries]; 3],
    ) {
        let key = |row: &CollectedSeries| {
            [&states.namespace, "horizontalpodautoscaler"]
                .map(|label| Box::<str>::from(row.get(label)))
        };
        let counts = |rows: &[CollectedSeries]| -> HashMap<_, u32> {
            let count = |row: &CollectedSeries| row.value().filter(|count| *count >= 0.0);
            rows.iter().filter_map(|row| Some((key(row), count(row)? as u32))).collect()
        };
        let (min, max) = (counts(min), counts(max));
        let other: HashSet<_> = other.iter().map(key).collect();
        for hpa in hpas {
            let id = key(hpa);
            let kind = hpa.get("scaletargetref_kind").into();
            let target = (id[0].clone(), kind, hpa.get("scaletargetref_name").into());
            let range = ReplicaRange {
                autoscaler: id[1].clone(),
                min: min.get(&id).copied(),
                max: max.get(&id).copied(),
                has_other_metrics: other.contains(&id),
            };
            self.ranges.entry(target).or_default().push(range);
        }
    }

    pub fn into_workloads(mut self, scope: &SurveyScope) -> Vec<Workload> {
        let mut drafts: BTreeMap<OwnerKey, Draft> = BTreeMap::new();
        for (key, pods) in &self.pods {
            let draft = drafts.entry(self.top_of(key)).or_default();
            draft.pods.extend(pods.iter().map(|(pod, node)| (pod.clone(), node.clone())));
        }
        for (key, containers) in &self.containers {
            let draft = drafts.entry(self.top_of(key)).or_default();
            let created = self.newest_pods.get(key).copied().unwrap_or_default();
            if draft.containers.is_empty() || created > draft.created {
                (draft.created, draft.containers) =
                    (created, containers.values().cloned().collect());
            }
        }
        for (key, containers) in std::mem::take(&mut self.runs) {
            let draft = drafts.entry(key).or_default();
            if draft.containers.is_empty() {
                draft.containers = containers.into_values().collect();
            }
        }
        let selected = self.selected_pods.take();
        let is_selected = |namespace: &str, draft: &Draft| {
            selected.as_ref().is_none_or(|selected| {
                draft.pods.keys().any(|pod| selected.contains(&(namespace.into(), pod.clone())))
            })
        };
        let is_covered = |(namespace, kind, _): &OwnerKey, draft: &Draft| {
            scope.includes_namespace(namespace)
                && scope.includes_kind(kind)
                && is_selected(namespace, draft)
                && !draft.containers.is_empty()
                // A Job exists between its runs; of anything else only finished pods are left.
                && (!draft.pods.is_empty() || matches!(&**kind, "Job" | "CronJob"))
        };
        drafts
            .into_iter()
            .filter(|(key, draft)| is_covered(key, draft))
            .map(|(key, draft)| self.workload(key, draft))
            .collect()
    }

    fn workload(&mut self, key: OwnerKey, draft: Draft) -> Workload {
        let mut utilization_targets = self.targets.remove(&key).unwrap_or_default();
        utilization_targets.sort_by(|a, b| (&a.name, a.metric).cmp(&(&b.name, b.metric)));
        let mut replica_ranges = self.ranges.remove(&key).unwrap_or_default();
        replica_ranges.sort_unstable();
        let mut scaled_by = self.autoscalers.remove(&key).unwrap_or_default();
        scaled_by.sort_unstable();
        let count = u32::try_from(draft.pods.len()).ok();
        let replicas = match &*key.1 {
            "Job" | "CronJob" => None,
            _ => self.replicas.get(&key).copied().or(count),
        };
        let (namespace, kind, name) = key;
        let (pods, nodes): (Vec<_>, Vec<_>) = draft.pods.into_iter().unzip();
        let mut containers = draft.containers;
        containers.sort_by_key(|container| container.role == ContainerRole::Main);
        for container in &mut containers {
            // Series are those of pods: a request that equals the limit may come from the limit.
            let Container { requests, limits, .. } = container;
            requests.cpu = requests.cpu.filter(|_| requests.cpu != limits.cpu);
            requests.memory = requests.memory.filter(|_| requests.memory != limits.memory);
        }
        Workload {
            namespace: namespace.into(),
            kind: kind.into(),
            name,
            replicas,
            nodes: nodes.into_iter().flatten().collect(),
            pods,
            utilization_targets,
            replica_ranges,
            scaled_by,
            containers: containers.into(),
            ..Workload::default()
        }
    }

    fn top_of(&self, key: &OwnerKey) -> OwnerKey {
        let (mut top, mut next) = (None, Some(key.clone()));
        let is_grouped = !self.groups.owner_kinds.is_empty();
        for _ in 0..MAX_OWNERS {
            let Some(id) = next.take().filter(|_| is_grouped) else { break };
            let owner = self.owners.get(&id);
            next = owner
                .map(|owner| (id.0.clone(), owner.kind.clone(), owner.name.clone()))
                .or_else(|| self.owners_of_pods.get(&id).filter(|owner| **owner != id).cloned());
            if self.groups.is_by_kind(&id.1) {
                top = Some(id);
            }
        }
        if let Some(top) = top {
            return top;
        }
        match self.owners.get(key) {
            Some(owner) => (key.0.clone(), owner.kind.clone(), owner.name.clone()),
            None => key.clone(),
        }
    }
}

/// A workload of which not everything is known yet.
#[derive(Debug, Default)]
struct Draft {
    pods: BTreeMap<Box<str>, Option<Box<str>>>,
    created: f64,
    containers: Vec<Container>,
}

fn owner_key(states: &KubeStateMetrics, row: &CollectedSeries) -> OwnerKey {
    (row.get(&states.namespace).into(), row.get("owner_kind").into(), row.get("owner_name").into())
}

/// The node of a series. If the scrape adds a node of its own, that of the series is renamed.
pub(super) fn node_name(row: &CollectedSeries) -> &str {
    match row.get("exported_node") {
        "" => row.get("node"),
        node => node,
    }
}

fn container_mut<'a>(
    containers: &'a mut OwnedContainers,
    key: OwnerKey,
    name: &str,
    is_init: IsInit,
) -> &'a mut Container {
    let role = if is_init { ContainerRole::Init } else { ContainerRole::Main };
    let new = || Container { name: name.into(), role, ..Container::default() };
    containers.entry(key).or_default().entry((name.into(), is_init)).or_insert_with(new)
}

pub(super) fn add_amounts(
    containers: &mut OwnedContainers,
    states: &KubeStateMetrics,
    series: &[CollectedSeries],
    field: AmountField,
    is_init: IsInit,
) {
    for row in series {
        let (key, name) = (owner_key(states, row), row.get(&states.container));
        let container = container_mut(containers, key, name, is_init);
        let amounts = match field {
            AmountField::Requests => &mut container.requests,
            AmountField::Limits => &mut container.limits,
        };
        set_amount(amounts, row);
    }
}

/// Sets CPU or memory from the value of a row. What is no amount stays unknown.
pub(super) fn set_amount(amounts: &mut Amounts, row: &CollectedSeries) {
    let Some(value) = row.value().filter(|value| value.is_finite() && *value >= 0.0) else {
        return;
    };
    match resource(row.get("resource")) {
        // Rounded up as the quantity of an object is, but not because of the last bit of a float.
        Some(Resource::Cpu) => amounts.cpu = Some(MilliCpu((value * 1000.0 - 1e-6).ceil() as i64)),
        Some(Resource::Memory) => amounts.memory = Some(Bytes((value - 1e-3).ceil() as i64)),
        None => {}
    }
}
