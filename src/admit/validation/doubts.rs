//! What is let in although it will hardly do what its author meant: one warning each.

use super::object::{ContainerPolicy, Metadata, Spec, TargetRef, policy_path};
use crate::quantity::Quantity;

/// Another autoscaler in the same namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour<'a> {
    /// What it is: `VerticalPodAutoscaler` or `HorizontalPodAutoscaler`.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The kind of its target.
    pub target_kind: &'a str,
    /// The name of its target.
    pub target_name: &'a str,
    /// Whether it goes by CPU or memory of the pods; so does every VPA.
    pub uses_resources: bool,
}

/// Kinds that are known by their names alone, and the group that they are then taken for.
const WELL_KNOWN: [(&str, &str); 7] = [
    ("CronJob", "batch"),
    ("DaemonSet", "apps"),
    ("Deployment", "apps"),
    ("Job", "batch"),
    ("ReplicaSet", "apps"),
    ("ReplicationController", ""),
    ("StatefulSet", "apps"),
];

/// All doubts about a VPA.
pub(super) fn find(spec: &Spec, own: &Metadata, others: &[Neighbour<'_>]) -> Vec<String> {
    let mut doubts = Vec::new();
    doubts.extend(spec.target_ref.iter().filter_map(group));
    doubts.extend(duplicates(spec));
    doubts.extend(
        spec.policies()
            .iter()
            .enumerate()
            .flat_map(|(index, policy)| negatives(&policy_path(index), policy)),
    );
    doubts.extend(boosts(spec));
    doubts.extend(requirements(spec));
    doubts.extend(spec.target_ref.iter().flat_map(|target| neighbours(target, own, others)));
    doubts
}

fn group(target: &TargetRef) -> Option<String> {
    let (kind, version) = (target.kind.as_deref()?, target.api_version.as_deref()?);
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let (_, known) = WELL_KNOWN.iter().find(|(known, _)| *known == kind)?;
    (group != *known).then(|| {
        format!(
            "spec.targetRef.apiVersion: a {kind} is looked for in group \"{known}\", whatever is written here, and \
             this is \"{group}\""
        )
    })
}

fn duplicates(spec: &Spec) -> Vec<String> {
    let name = |policy: &ContainerPolicy| policy.container_name.clone().unwrap_or_default();
    let policies = spec.policies();
    let repeated = policies.iter().enumerate().filter_map(|(index, policy)| {
        let first = policies[..index].iter().position(|other| name(other) == name(policy))?;
        // Of several entries for all others, the last one holds; of several of one name, the first.
        let (idle, holds) = if name(policy) == "*" { (first, index) } else { (index, first) };
        let (path, name) = (policy_path(idle), name(policy));
        Some(format!("{path}: has no effect: entry {holds} is for container \"{name}\" too"))
    });
    repeated.collect()
}

fn negatives(path: &str, policy: &ContainerPolicy) -> Vec<String> {
    let mut doubts = Vec::new();
    for (field, list) in [("minAllowed", &policy.min_allowed), ("maxAllowed", &policy.max_allowed)]
    {
        for (resource, amount) in list.iter().flatten() {
            if amount.is_negative() {
                doubts.push(format!("{path}.{field}[{resource}]: {amount} is below 0"));
            }
            if !["cpu", "memory"].contains(&&**resource) {
                doubts.push(format!(
                    "{path}.{field}[{resource}]: has no effect: only cpu and memory are recommended"
                ));
            }
        }
    }
    doubts
}

fn boosts(spec: &Spec) -> Vec<String> {
    let mut doubts = Vec::new();
    for (path, boost) in spec.boosts() {
        let Some(cpu) = &boost.cpu else {
            doubts.push(format!("{path}: has no effect: it says nothing about cpu"));
            continue;
        };
        if let Some(seconds) = cpu.duration_seconds.filter(|seconds| *seconds < 0) {
            doubts.push(format!("{path}.cpu.durationSeconds: {seconds} is below 0"));
        }
        if let Some(quantity) = cpu.quantity.filter(|quantity: &Quantity| quantity.is_negative()) {
            doubts
                .push(format!("{path}.cpu.quantity: {quantity} is below 0, so CPU would be less"));
        }
    }
    doubts
}

/// All requirements must hold, so two that want a resource to be both higher and lower keep every pod.
fn requirements(spec: &Spec) -> Vec<String> {
    let all =
        spec.update_policy.iter().flat_map(|policy| policy.eviction_requirements.iter().flatten());
    let all: Vec<_> = all.collect();
    let only = |index: usize| match all[index].resources.as_deref() {
        Some([resource]) => Some(resource.as_str()),
        _ => None,
    };
    let mut doubts = Vec::new();
    for (index, one) in all.iter().enumerate() {
        if one.resources.as_ref().is_none_or(Vec::is_empty) {
            doubts.push(format!(
                "spec.updatePolicy.evictionRequirements[{index}]: names no resource, so no pod is ever evicted"
            ));
        }
        let against = (0..index).find(|other| {
            only(*other).is_some()
                && only(*other) == only(index)
                && all[*other].change_requirement != one.change_requirement
        });
        if let Some(other) = against {
            doubts.push(format!(
                "spec.updatePolicy.evictionRequirements[{index}]: contradicts entry {other}, so no pod is ever evicted"
            ));
        }
    }
    doubts
}

fn neighbours(target: &TargetRef, own: &Metadata, others: &[Neighbour<'_>]) -> Vec<String> {
    let same = |other: &&Neighbour<'_>| {
        Some(other.target_kind) == target.kind.as_deref()
            && Some(other.target_name) == target.name.as_deref()
            && other.uses_resources
    };
    let is_itself = |other: &&Neighbour<'_>| {
        other.kind == "VerticalPodAutoscaler" && Some(other.name) == own.name.as_deref()
    };
    let others = others.iter().filter(same).filter(|other| !is_itself(other));
    let doubt = |other: &Neighbour<'_>| {
        let what = if other.kind == "VerticalPodAutoscaler" {
            "the older of the two has its pods"
        } else {
            "the two will work against each other where it goes by CPU or memory utilization"
        };
        let Neighbour { kind, name, .. } = other;
        format!("spec.targetRef: {kind} \"{name}\" has the same target: {what}")
    };
    others.map(doubt).collect()
}
