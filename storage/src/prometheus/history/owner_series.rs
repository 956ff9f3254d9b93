//! Who owns which pod, as kube-state-metrics said over time: deleted pods included.
//!
//! Asked from the index of the server (`/api/v1/series`), which reads no samples: an owner is in the labels, so it
//! suffices that a series was there.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::pod_name_rules::OwnerRef;
use crate::prometheus::{
    client::PrometheusClient,
    decode::{Interest, Labels, SeriesVisitor},
    query_error::QueryError,
    schema::{KubeStateMetrics, Schema},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// What stands between a workload and its pods, where it is asked about.
const INTERMEDIATE_KINDS: [(&str, &str, &str); 2] =
    [("kube_replicaset_owner", "ReplicaSet", "replicaset"), ("kube_job_owner", "Job", "job_name")];

/// What one entry of a table takes, in points of sixteen bytes, besides its names.
const POINTS_PER_ENTRY: u64 = 12;

/// What was said of owners in a namespace, as far as names do not say the same. Of the pods of CronJobs there are
/// millions, and nearly all names tell whose they are.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnerSeries {
    pods: HashMap<Box<str>, Vec<OwnerRef>>,
    /// Pods that a VPA selects now, whatever they are called: their owners are kept, since they alone say otherwise.
    live_pods: Arc<HashMap<Box<str>, usize>>,
    /// ReplicaSets and Jobs, by name.
    intermediate: HashMap<Box<str>, Vec<IntermediateOwner>>,
    /// Series about pods that came.
    pod_count: usize,
    /// Whether any pod is of something of these kinds that made it for somebody else.
    has_intermediate: [bool; INTERMEDIATE_KINDS.len()],
    /// What all this takes, in points.
    size_in_points: u64,
}

/// Something that owns pods, and what made it: `None` where it was said that nothing did.
#[derive(Clone, Debug)]
struct IntermediateOwner {
    object: OwnerRef,
    controller: Option<OwnerRef>,
}

impl OwnerSeries {
    /// Asks who owned what, of everything whose owner is named like these. More than `most` points are not held: then it
    /// fails with [`Failure::Full`].
    pub(super) async fn query(
        client: &PrometheusClient,
        schema: &Schema,
        namespace: &str,
        owners: &[&OwnerRef],
        live: &Arc<HashMap<Box<str>, usize>>,
        (from, to): (Time, Time),
        most: u64,
    ) -> Result<Self, QueryError> {
        let mut proof = Self { live_pods: Arc::clone(live), ..Self::default() };
        let Some(states) = &schema.kube_state_metrics else { return Ok(proof) };
        let names = || Pattern::any_literal(owners.iter().map(|owner| &*owner.name));
        // Whatever stands between begins with the owner's name.
        let begins = names().then(&Pattern::regex("(?:-.*)?"));
        if states.has_family("kube_pod_owner") {
            let pods = states.selector("kube_pod_owner", namespace, &schema.matchers);
            let pods = pods.matches("owner_name", begins);
            let (label, about) = (&*states.pod, OwnerSubject::Pods);
            let mut said = OwnerCollector {
                proof: &mut proof,
                owners,
                label,
                subject: about,
                initial_points: 0,
                max_points: most,
            };
            client.series(&pods, (from, to), &mut said).await?;
        }
        for (number, (family, kind, label)) in INTERMEDIATE_KINDS.into_iter().enumerate() {
            if !proof.has_intermediate[number] || !states.has_family(family) {
                continue;
            }
            // Of those that others made, it suffices to know that they are not ours.
            let between = states.selector(family, namespace, &schema.matchers);
            let between = between.matches(label, names().then(&Pattern::regex("(?:-.*)?")));
            let (about, before) = (OwnerSubject::Intermediate { kind }, proof.size_in_points);
            let mut said = OwnerCollector {
                proof: &mut proof,
                owners,
                label,
                subject: about,
                initial_points: before,
                max_points: most,
            };
            client.series(&between, (from, to), &mut said).await?;
        }
        Ok(proof)
    }

    /// About how many pods there were: of one that two copies tell of there are two.
    pub(super) fn pods(&self) -> usize {
        self.pod_count
    }

    /// What it takes, in points.
    pub(super) fn size_in_points(&self) -> u64 {
        self.size_in_points
    }

    /// Whether there are pods of an owner whose names do not tell.
    pub(super) fn has_unexpected_pod_names(&self, owner: &OwnerRef) -> bool {
        let is_odd = |pod: &str| !owner.matches(pod) && self.is_owned_by(pod, owner) == Some(true);
        let makes_odd = |IntermediateOwner { object: made, controller: by }: &IntermediateOwner| {
            by.as_ref() == Some(owner) && !owner.generates_name(&made.kind, &made.name)
        };
        self.pods.keys().any(|pod| is_odd(pod))
            || self.intermediate.values().flatten().any(makes_odd)
    }

    /// What is known of who owns a pod, to be asked about one owner after the other. `None` where nothing is known that its
    /// name does not tell.
    pub(super) fn timeline_of(&self, pod: &str) -> Option<OwnerTimeline<'_>> {
        if let Some(parents) = self.pods.get(pod) {
            return Some(OwnerTimeline(
                parents.iter().map(|it| (it, self.controller_of(it))).collect(),
            ));
        }
        let made = self.intermediate.get(generated_name_base(pod)?)?;
        Some(OwnerTimeline(
            made.iter()
                .map(|IntermediateOwner { object: made, controller: by }| (made, Some(by)))
                .collect(),
        ))
    }

    fn controller_of(&self, parent: &OwnerRef) -> Option<&Option<OwnerRef>> {
        let known = self.intermediate.get(&parent.name)?;
        known.iter().find(|it| it.object.kind == parent.kind).map(|it| &it.controller)
    }

    /// Whether this pod is of that owner; `None` where nothing is known of it.
    pub(super) fn is_owned_by(&self, pod: &str, owner: &OwnerRef) -> Option<bool> {
        self.timeline_of(pod)?.is_owned_by(owner)
    }

    /// Takes the owner of a pod, if its name does not tell the same.
    fn add_pod(&mut self, owners: &[&OwnerRef], pod: &str, parent: OwnerRef) {
        self.pod_count += 1;
        let stands_between =
            INTERMEDIATE_KINDS.iter().position(|(_, kind, _)| *kind == &*parent.kind);
        let stands_between = stands_between.filter(|_| !owners.contains(&&parent));
        if let Some(number) = stands_between {
            self.has_intermediate[number] = true;
        }
        let all = || owners.iter().copied();
        let told = OwnerTimeline(vec![(&parent, None)]);
        let is_told_by_name = !self.live_pods.contains_key(pod)
            && workload_of(all(), Some(&told), pod) == workload_of(all(), None, pod)
            // What made the parent is looked up by the parent's name.
            && (stands_between.is_none() || generated_name_base(pod) == Some(&*parent.name));
        match self.pods.get_mut(pod) {
            Some(parents) if parents.contains(&parent) => {}
            Some(parents) => {
                self.size_in_points += POINTS_PER_ENTRY / 2 + points(&[&parent.kind, &parent.name]);
                parents.push(parent);
            }
            None if is_told_by_name => {}
            None => {
                self.size_in_points +=
                    POINTS_PER_ENTRY + points(&[pod, &parent.kind, &parent.name]);
                self.pods.insert(pod.into(), vec![parent]);
            }
        }
    }

    /// Takes what made a ReplicaSet or a Job, if its name does not tell the same. What is said last holds.
    fn add_intermediate(&mut self, owners: &[&OwnerRef], made: OwnerRef, by: Option<OwnerRef>) {
        let mut makers = owners.iter().filter(|owner| owner.generates_name(&made.kind, &made.name));
        let is_told_by_name = match (makers.next(), makers.next()) {
            (Some(maker), None) => by.as_ref() == Some(*maker),
            // Of somebody else, which nobody would think otherwise; pods of unknown kinds go by more than names.
            (None, _) => {
                let is_foreign = by.as_ref().is_none_or(|by| !owners.contains(&by));
                is_foreign && (by.is_some() || owners.iter().all(|owner| owner.has_known_naming()))
            }
            (Some(_), Some(_)) => false,
        };
        if let Some(known) = self.intermediate.get_mut(&made.name) {
            if known.iter().any(|it| it.object == made && it.controller == by) {
                return;
            }
            known.retain(|it| it.object != made);
            if known.is_empty() {
                self.intermediate.remove(&made.name);
            }
        }
        if !is_told_by_name {
            let by_name = by.as_ref().map_or("", |by| &by.name);
            self.size_in_points += POINTS_PER_ENTRY + points(&[&made.name, &made.name, by_name]);
            self.intermediate
                .entry(made.name.clone())
                .or_default()
                .push(IntermediateOwner { object: made, controller: by });
        }
    }
}

/// What texts take, in points.
fn points(texts: &[&str]) -> u64 {
    texts.iter().map(|text| text.len() as u64 / 16 + 1).sum()
}

/// The name of what owns a pod, if the API server made the pod's name unique: a dash and five characters.
fn generated_name_base(pod: &str) -> Option<&str> {
    let (parent, unique) = pod.rsplit_once('-')?;
    (unique.len() == 5).then_some(parent)
}

/// Whose pod this is, of these owners. What is known goes before what names look like, and among those the longest name
/// of a workload says most.
pub(super) fn workload_of<'a>(
    owners: impl Iterator<Item = &'a OwnerRef>,
    lineage: Option<&OwnerTimeline<'_>>,
    pod: &str,
) -> Option<usize> {
    let mut likely: Option<(usize, usize)> = None;
    for (index, owner) in owners.enumerate() {
        let length = owner.name.len();
        match lineage.and_then(|lineage| lineage.is_owned_by(owner)) {
            Some(true) => return Some(index),
            None if likely.is_none_or(|(_, other)| other < length) && owner.matches(pod) => {
                likely = Some((index, length));
            }
            Some(false) | None => {}
        }
    }
    likely.map(|(index, _)| index)
}

/// Those that own a pod, each with what made it where that is known.
#[derive(Debug)]
pub(super) struct OwnerTimeline<'a>(Vec<(&'a OwnerRef, Option<&'a Option<OwnerRef>>)>);

impl OwnerTimeline<'_> {
    /// Whether the pod is of that owner; `None` where nothing is known of it.
    pub(super) fn is_owned_by(&self, owner: &OwnerRef) -> Option<bool> {
        // A name that was used twice is of both.
        let mut verdict = None;
        for (parent, made_by) in &self.0 {
            match leads_to(parent, *made_by, owner) {
                Some(true) => return Some(true),
                Some(false) => verdict = Some(false),
                None if verdict.is_none() => {}
                None => verdict = None,
            }
        }
        verdict
    }
}

/// Whether what owns a pod is this owner, or was made by it.
fn leads_to(
    parent: &OwnerRef,
    made_by: Option<&Option<OwnerRef>>,
    owner: &OwnerRef,
) -> Option<bool> {
    if parent == owner {
        return Some(true);
    }
    match made_by {
        Some(Some(made_by)) if made_by == owner => return Some(true),
        Some(made_by) if owner.has_known_naming() || made_by.is_none() => return Some(false),
        _ => {}
    }
    if owner.has_known_naming() {
        // Nothing is known of what stands between but its name.
        return Some(owner.generates_name(&parent.kind, &parent.name));
    }
    // What a kind of somebody's own makes, nobody knows: names decide.
    None
}

/// The pods that were killed for lack of memory at some time, and what they take, in points; no more than `most`.
pub(super) async fn oom_killed_pods(
    client: &PrometheusClient,
    schema: &Schema,
    namespace: &str,
    pods: Pattern,
    (from, to): (Time, Time),
    most: u64,
) -> Result<(HashSet<Box<str>>, u64), QueryError> {
    let Some(states) = &schema.kube_state_metrics else { return Ok((HashSet::new(), 0)) };
    let selector = reason(states, schema, namespace).matches(&states.pod, pods);
    let mut pods = LabelValueCollector {
        label: &states.pod,
        values: HashSet::new(),
        size_in_points: 0,
        max_points: most,
    };
    client.series(&selector, (from, to), &mut pods).await?;
    Ok((pods.values, pods.size_in_points))
}

/// Containers whose last end was for lack of memory.
pub(super) fn reason(states: &KubeStateMetrics, schema: &Schema, namespace: &str) -> Selector {
    let family = "kube_pod_container_status_last_terminated_reason";
    states.selector(family, namespace, &schema.matchers).equals("reason", "OOMKilled")
}

/// What series tell of.
enum OwnerSubject {
    Pods,
    Intermediate { kind: &'static str },
}

/// Takes who owns what, and nothing else that labels say.
struct OwnerCollector<'a> {
    proof: &'a mut OwnerSeries,
    owners: &'a [&'a OwnerRef],
    /// The name of what is owned.
    label: &'a str,
    subject: OwnerSubject,
    /// Points that were held before.
    initial_points: u64,
    /// Points that may be held.
    max_points: u64,
}

impl SeriesVisitor for OwnerCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        if let Some(name) = labels.get(self.label) {
            let owner = owner(labels);
            match (&self.subject, owner) {
                (OwnerSubject::Pods, Some(owner)) => self.proof.add_pod(self.owners, name, owner),
                (OwnerSubject::Pods, None) => {}
                (OwnerSubject::Intermediate { kind }, by) => {
                    let made = OwnerRef { kind: (*kind).into(), name: name.into() };
                    self.proof.add_intermediate(self.owners, made, by);
                }
            }
        }
        Interest::LabelsOnly
    }

    fn point(&mut self, _: Time, _: f64) {}

    fn is_full(&self) -> bool {
        self.proof.size_in_points > self.max_points
    }

    fn discard(&mut self) {
        // It comes again from its beginning.
        match &self.subject {
            OwnerSubject::Pods => *self.proof = OwnerSeries::default(),
            OwnerSubject::Intermediate { kind } => self.proof.intermediate.retain(|_, known| {
                known.retain(|it| *it.object.kind != **kind);
                !known.is_empty()
            }),
        }
        self.proof.size_in_points = self.initial_points;
    }
}

/// Takes the values of one label.
struct LabelValueCollector<'a> {
    label: &'a str,
    values: HashSet<Box<str>>,
    size_in_points: u64,
    max_points: u64,
}

impl SeriesVisitor for LabelValueCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        if let Some(name) = labels.get(self.label).filter(|name| !self.values.contains(*name)) {
            self.size_in_points += POINTS_PER_ENTRY / 4 + points(&[name]);
            self.values.insert(name.into());
        }
        Interest::LabelsOnly
    }

    fn point(&mut self, _: Time, _: f64) {}

    fn is_full(&self) -> bool {
        self.size_in_points > self.max_points
    }

    fn discard(&mut self) {
        self.values.clear();
        self.size_in_points = 0;
    }
}

fn owner(labels: Labels<'_>) -> Option<OwnerRef> {
    let (kind, name) = (labels.get("owner_kind")?, labels.get("owner_name")?);
    let is_one = |text: &str| !text.is_empty() && text != "<none>";
    (is_one(kind) && is_one(name)).then(|| OwnerRef { kind: kind.into(), name: name.into() })
}
