//! What is let in although it will hardly do what its author meant: one warning each.

use std::collections::HashMap;

use super::{
    messages::Warnings,
    raw_vpa::{ContainerPolicy, Metadata, Spec, TargetRef, policy_path},
};
use crate::types::quantity::Quantity;

/// Another autoscaler in the same namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherAutoscaler<'a> {
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
const WELL_KNOWN_KINDS: [(&str, &str); 7] = [
    ("CronJob", "batch"),
    ("DaemonSet", "apps"),
    ("Deployment", "apps"),
    ("Job", "batch"),
    ("ReplicaSet", "apps"),
    ("ReplicationController", ""),
    ("StatefulSet", "apps"),
];

/// All doubts about a VPA.
pub(super) fn add_warnings(
    spec: &Spec,
    own: &Metadata,
    others: &[OtherAutoscaler<'_>],
    doubts: &mut Warnings,
) {
    if let Some(target) = &spec.target_ref {
        check_target_group(target, doubts);
    }
    check_duplicates(spec, doubts);
    for (index, policy) in spec.container_policies().iter().enumerate() {
        check_negative_amounts(&policy_path(index), policy, doubts);
    }
    check_boosts(spec, doubts);
    check_requirements(spec, doubts);
    if let Some(target) = &spec.target_ref {
        check_other_autoscalers(target, own, others, doubts);
    }
}

fn check_target_group(target: &TargetRef, doubts: &mut Warnings) {
    let (Some(kind), Some(version)) = (&target.kind, &target.api_version) else { return };
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let Some((_, known)) = WELL_KNOWN_KINDS.iter().find(|(known, _)| *known == kind) else {
        return;
    };
    if group != *known {
        doubts.add(format_args!(
            "spec.targetRef.apiVersion: a {kind} is looked for in group \"{known}\", whatever is written here, and \
             this is \"{group}\""
        ));
    }
}

fn check_duplicates(spec: &Spec, doubts: &mut Warnings) {
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (index, policy) in spec.container_policies().iter().enumerate() {
        let name = policy.container_name.as_deref().unwrap_or_default();
        let first = *known.entry(name).or_insert(index);
        if first == index {
            continue;
        }
        // Of several entries for all others, the last one holds; of several of one name, the first.
        let (idle, holds) = if name == "*" { (first, index) } else { (index, first) };
        let path = policy_path(idle);
        doubts.add(format_args!(
            "{path}: has no effect: entry {holds} is for container \"{name}\" too"
        ));
    }
}

fn check_negative_amounts(path: &str, policy: &ContainerPolicy, doubts: &mut Warnings) {
    for (field, list) in [("minAllowed", &policy.min_allowed), ("maxAllowed", &policy.max_allowed)]
    {
        for (resource, amount) in list.iter().flatten() {
            if amount.is_negative() {
                doubts.add(format_args!("{path}.{field}[{resource}]: {amount} is below 0"));
            }
            if !["cpu", "memory"].contains(&&**resource) {
                doubts.add(format_args!(
                    "{path}.{field}[{resource}]: has no effect: only cpu and memory are recommended"
                ));
            }
        }
    }
}

fn check_boosts(spec: &Spec, doubts: &mut Warnings) {
    for (path, boost) in spec.startup_boosts() {
        let Some(cpu) = &boost.cpu else {
            doubts.add(format_args!("{path}: has no effect: it says nothing about cpu"));
            continue;
        };
        if let Some(seconds) = cpu.duration_seconds.filter(|seconds| *seconds < 0) {
            doubts.add(format_args!("{path}.cpu.durationSeconds: {seconds} is below 0"));
        }
        if let Some(quantity) = cpu.quantity.filter(|quantity: &Quantity| quantity.is_negative()) {
            doubts.add(format_args!(
                "{path}.cpu.quantity: {quantity} is below 0, so CPU would be less"
            ));
        }
    }
}

/// All requirements must hold, so two that want a resource to be both higher and lower keep every pod.
fn check_requirements(spec: &Spec, doubts: &mut Warnings) {
    // By resource: what the first entry demands of it, and the first entry that demands anything else.
    let mut known: HashMap<&str, (usize, Option<&str>, Option<usize>)> = HashMap::new();
    for (index, one) in spec.eviction_requirements().iter().enumerate() {
        let path = format!("spec.updatePolicy.evictionRequirements[{index}]");
        if one.resources.as_ref().is_none_or(Vec::is_empty) {
            doubts.add(format_args!("{path}: names no resource, so no pod is ever evicted"));
        }
        let Some([resource]) = one.resources.as_deref() else { continue };
        let demand = one.change_requirement.as_deref();
        let (first, demanded, other) = known.entry(resource).or_insert((index, demand, None));
        let against = if *demanded == demand { *other } else { Some(*first) };
        if *demanded != demand {
            other.get_or_insert(index);
        }
        if let Some(other) = against {
            doubts
                .add(format_args!("{path}: contradicts entry {other}, so no pod is ever evicted"));
        }
    }
}

fn check_other_autoscalers(
    target: &TargetRef,
    own: &Metadata,
    others: &[OtherAutoscaler<'_>],
    doubts: &mut Warnings,
) {
    let same = |other: &&OtherAutoscaler<'_>| {
        Some(other.target_kind) == target.kind.as_deref()
            && Some(other.target_name) == target.name.as_deref()
            && other.uses_resources
    };
    let is_itself = |other: &&OtherAutoscaler<'_>| {
        other.kind == "VerticalPodAutoscaler" && Some(other.name) == own.name.as_deref()
    };
    for other in others.iter().filter(same).filter(|other| !is_itself(other)) {
        let what = if other.kind == "VerticalPodAutoscaler" {
            "the older of the two has its pods"
        } else {
            "the two will work against each other where it goes by CPU or memory utilization"
        };
        let OtherAutoscaler { kind, name, .. } = other;
        doubts.add(format_args!("spec.targetRef: {kind} \"{name}\" has the same target: {what}"));
    }
}
