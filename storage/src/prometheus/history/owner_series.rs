//! Owners of pods over time from the series of kube-state-metrics, including those of deleted pods.
//!
//! `owner_queries` reads them.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use super::pod_name_rules::OwnerRef;

/// The metric families of intermediate owners between a workload and its pods.
pub(super) const INTERMEDIATE_KINDS: [(&str, &str, &str); 2] =
    [("kube_replicaset_owner", "ReplicaSet", "replicaset"), ("kube_job_owner", "Job", "job_name")];

/// The memory of one map entry without its names, in points of sixteen bytes.
pub(super) const POINTS_PER_ENTRY: u64 = 12;

/// The owners in a namespace that do not follow from the names of pods. CronJobs create millions of pods, and nearly all
/// their names identify the owner.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnerSeries {
    pods: HashMap<Box<str>, Vec<OwnerRef>>,
    /// Existing pods with unexpected names that a VPA selects. Their owners are always kept, because only they can
    /// contradict the selection.
    live_pods: Arc<HashMap<Box<str>, usize>>,
    /// ReplicaSets and Jobs, by name.
    intermediate: HashMap<Box<str>, Vec<IntermediateOwner>>,
    /// Number of pod series received.
    pod_count: usize,
    /// For each intermediate kind, whether any pod is owned by an object of that kind that is not itself a workload here.
    has_intermediate: [bool; INTERMEDIATE_KINDS.len()],
    pub(super) size_in_points: u64,
}

/// An intermediate owner and its controller; `None` if it has no controller.
#[derive(Clone, Debug)]
struct IntermediateOwner {
    object: OwnerRef,
    controller: Option<OwnerRef>,
}

impl OwnerSeries {
    /// Without any owner. Those of existing pods with unexpected names will be kept.
    pub(super) fn new(live_pods: &Arc<HashMap<Box<str>, usize>>) -> Self {
        Self { live_pods: Arc::clone(live_pods), ..Self::default() }
    }

    /// Whether the intermediate owners of a kind have to be known: its index in [`INTERMEDIATE_KINDS`].
    pub(super) fn has_intermediate(&self, index: usize) -> bool {
        self.has_intermediate[index]
    }

    /// Drops the intermediate owners of a kind, or everything, because the response will be read again from its start.
    pub(super) fn discard(&mut self, kind: Option<&str>, size_in_points: u64) {
        match kind {
            None => *self = Self::new(&self.live_pods),
            Some(kind) => self.intermediate.retain(|_, known| {
                known.retain(|owner| *owner.object.kind != *kind);
                !known.is_empty()
            }),
        }
        self.size_in_points = size_in_points;
    }

    /// The approximate number of pods: one with series from two replicas counts twice.
    pub(super) fn pods(&self) -> usize {
        self.pod_count
    }

    /// Whether the owner has pods whose names do not follow its rules.
    pub(super) fn has_unexpected_pod_names(&self, owner: &OwnerRef) -> bool {
        let is_unexpected =
            |pod: &str| !owner.matches(pod) && self.is_owned_by(pod, owner) == Some(true);
        let has_unexpected_name = |IntermediateOwner { object, controller }: &IntermediateOwner| {
            controller.as_ref() == Some(owner) && !owner.generates_name(&object.kind, &object.name)
        };
        self.pods.keys().any(|pod| is_unexpected(pod))
            || self.intermediate.values().flatten().any(has_unexpected_name)
    }

    /// The known owners of a pod. `None` if only its name determines the owner.
    pub(super) fn timeline_of(&self, pod: &str) -> Option<OwnerTimeline<'_>> {
        if let Some(parents) = self.pods.get(pod) {
            return Some(OwnerTimeline(
                parents.iter().map(|parent| (parent, self.controller_of(parent))).collect(),
            ));
        }
        let intermediates = self.intermediate.get(generated_name_base(pod)?)?;
        Some(OwnerTimeline(
            intermediates
                .iter()
                .map(|IntermediateOwner { object, controller }| (object, Some(controller)))
                .collect(),
        ))
    }

    fn controller_of(&self, parent: &OwnerRef) -> Option<&Option<OwnerRef>> {
        let known = self.intermediate.get(&parent.name)?;
        known.iter().find(|owner| owner.object.kind == parent.kind).map(|owner| &owner.controller)
    }

    /// Whether the owner owns this pod; `None` if unknown.
    pub(super) fn is_owned_by(&self, pod: &str, owner: &OwnerRef) -> Option<bool> {
        self.timeline_of(pod)?.is_owned_by(owner)
    }

    /// Adds the owner of a pod, unless it follows from the pod's name.
    pub(super) fn add_pod(&mut self, owners: &[&OwnerRef], pod: &str, parent: OwnerRef) {
        self.pod_count += 1;
        let intermediate_kind =
            INTERMEDIATE_KINDS.iter().position(|(_, kind, _)| *kind == &*parent.kind);
        let intermediate_kind = intermediate_kind.filter(|_| !owners.contains(&&parent));
        if let Some(index) = intermediate_kind {
            self.has_intermediate[index] = true;
        }
        let all_owners = || owners.iter().copied();
        let timeline = OwnerTimeline(vec![(&parent, None)]);
        let follows_from_name = !self.live_pods.contains_key(pod)
            && workload_of(all_owners(), Some(&timeline), pod) == workload_of(all_owners(), None, pod)
            // The controller of the parent is looked up by the parent's name.
            && (intermediate_kind.is_none() || generated_name_base(pod) == Some(&*parent.name));
        match self.pods.get_mut(pod) {
            Some(parents) if parents.contains(&parent) => {}
            Some(parents) => {
                self.size_in_points += POINTS_PER_ENTRY / 2 + points(&[&parent.kind, &parent.name]);
                parents.push(parent);
            }
            None if follows_from_name => {}
            None => {
                self.size_in_points +=
                    POINTS_PER_ENTRY + points(&[pod, &parent.kind, &parent.name]);
                self.pods.insert(pod.into(), vec![parent]);
            }
        }
    }

    /// Adds the controller of a ReplicaSet or a Job, unless it follows from its name. The last one wins.
    pub(super) fn add_intermediate(
        &mut self,
        owners: &[&OwnerRef],
        object: OwnerRef,
        controller: Option<OwnerRef>,
    ) {
        let mut candidates =
            owners.iter().filter(|owner| owner.generates_name(&object.kind, &object.name));
        let follows_from_name = match (candidates.next(), candidates.next()) {
            (Some(candidate), None) => controller.as_ref() == Some(*candidate),
            // It belongs to another controller and its name does not suggest otherwise. For unknown kinds names alone
            // are not enough.
            (None, _) => {
                let is_foreign =
                    controller.as_ref().is_none_or(|controller| !owners.contains(&controller));
                is_foreign
                    && (controller.is_some() || owners.iter().all(|owner| owner.has_known_naming()))
            }
            (Some(_), Some(_)) => false,
        };
        if let Some(known) = self.intermediate.get_mut(&object.name) {
            if known.iter().any(|owner| owner.object == object && owner.controller == controller) {
                return;
            }
            known.retain(|owner| owner.object != object);
            if known.is_empty() {
                self.intermediate.remove(&object.name);
            }
        }
        if !follows_from_name {
            let controller_name = controller.as_ref().map_or("", |controller| &controller.name);
            self.size_in_points +=
                POINTS_PER_ENTRY + points(&[&object.name, &object.name, controller_name]);
            self.intermediate
                .entry(object.name.clone())
                .or_default()
                .push(IntermediateOwner { object, controller });
        }
    }
}

/// The memory of these texts, in points.
pub(super) fn points(texts: &[&str]) -> u64 {
    texts.iter().map(|text| text.len() as u64 / 16 + 1).sum()
}

/// The name of the pod's owner, if the pod has a generated name: a dash and five random characters.
fn generated_name_base(pod: &str) -> Option<&str> {
    let (parent, unique) = pod.rsplit_once('-')?;
    (unique.len() == 5).then_some(parent)
}

/// The index of the owner of this pod. Known owners take precedence over names, and longer workload names over shorter
/// ones.
pub(super) fn workload_of<'a>(
    owners: impl Iterator<Item = &'a OwnerRef>,
    timeline: Option<&OwnerTimeline<'_>>,
    pod: &str,
) -> Option<usize> {
    let mut best_match: Option<(usize, usize)> = None;
    for (index, owner) in owners.enumerate() {
        let length = owner.name.len();
        match timeline.and_then(|timeline| timeline.is_owned_by(owner)) {
            Some(true) => return Some(index),
            None if best_match.is_none_or(|(_, other)| other < length) && owner.matches(pod) => {
                best_match = Some((index, length));
            }
            Some(false) | None => {}
        }
    }
    best_match.map(|(index, _)| index)
}

/// The owners of a pod, each with its controller if known.
#[derive(Debug)]
pub(super) struct OwnerTimeline<'a>(Vec<(&'a OwnerRef, Option<&'a Option<OwnerRef>>)>);

impl OwnerTimeline<'_> {
    /// Whether the owner owns the pod; `None` if unknown.
    pub(super) fn is_owned_by(&self, owner: &OwnerRef) -> Option<bool> {
        // A pod name that was used twice belongs to both owners.
        let mut result = None;
        for (parent, controller) in &self.0 {
            match is_owned_through(parent, *controller, owner) {
                Some(true) => return Some(true),
                Some(false) => result = Some(false),
                None if result.is_none() => {}
                None => result = None,
            }
        }
        result
    }
}

/// Whether the parent of a pod is this owner, or is controlled by it.
fn is_owned_through(
    parent: &OwnerRef,
    controller: Option<&Option<OwnerRef>>,
    owner: &OwnerRef,
) -> Option<bool> {
    if parent == owner {
        return Some(true);
    }
    match controller {
        Some(Some(controller)) if controller == owner => return Some(true),
        Some(controller) if owner.has_known_naming() || controller.is_none() => return Some(false),
        _ => {}
    }
    if owner.has_known_naming() {
        // Only the name of the intermediate owner is known.
        return Some(owner.generates_name(&parent.kind, &parent.name));
    }
    // The objects that a custom kind creates are unknown: names decide.
    None
}
