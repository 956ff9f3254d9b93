//! Warnings about valid VPAs that will probably not do what the user intended.

use std::collections::HashMap;

use super::{
    message_limits::Warnings,
    raw_vpa::{ContainerPolicy, Metadata, Spec, TargetRef, policy_path},
};
use crate::types::quantity::Quantity;

/// Another autoscaler in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherAutoscaler<'a> {
    /// `VerticalPodAutoscaler` or `HorizontalPodAutoscaler`.
    pub kind: &'a str,
    pub name: &'a str,
    pub target_kind: &'a str,
    pub target_name: &'a str,
    /// What it scales on relative to requests. Empty for a VPA.
    pub utilization_of: Vec<UtilizationMetric<'a>>,
}

/// A metric whose target is relative to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtilizationMetric<'a> {
    pub resource: &'a str,
    /// Name of the container; `None` for all of them.
    pub container: Option<&'a str>,
}

/// Kinds that are looked up by name only, and the API group that is used for them.
const WELL_KNOWN_KINDS: [(&str, &str); 7] = [
    ("CronJob", "batch"),
    ("DaemonSet", "apps"),
    ("Deployment", "apps"),
    ("Job", "batch"),
    ("ReplicaSet", "apps"),
    ("ReplicationController", ""),
    ("StatefulSet", "apps"),
];

/// Adds all warnings about a VPA.
pub(super) fn add_warnings(
    spec: &Spec,
    own: &Metadata,
    others: &[OtherAutoscaler<'_>],
    warnings: &mut Warnings,
) {
    if let Some(target) = &spec.target_ref {
        check_target_group(target, warnings);
    }
    check_duplicates(spec, warnings);
    for (index, policy) in spec.container_policies().iter().enumerate() {
        check_negative_amounts(&policy_path(index), policy, warnings);
    }
    check_boosts(spec, warnings);
    check_requirements(spec, warnings);
    if let Some(target) = &spec.target_ref {
        check_other_vpas(target, own, others, warnings);
        check_utilization(spec, target, others, warnings);
    }
}

fn check_target_group(target: &TargetRef, warnings: &mut Warnings) {
    let (Some(kind), Some(version)) = (&target.kind, &target.api_version) else { return };
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let Some((_, known)) = WELL_KNOWN_KINDS.iter().find(|(known, _)| *known == kind) else {
        return;
    };
    if group != *known {
        warnings.add(format_args!(
            "spec.targetRef.apiVersion: API group \"{group}\" is ignored: a {kind} is always looked up in group \
             \"{known}\""
        ));
    }
}

fn check_duplicates(spec: &Spec, warnings: &mut Warnings) {
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (index, policy) in spec.container_policies().iter().enumerate() {
        let name = policy.container_name.as_deref().unwrap_or_default();
        let first = *known.entry(name).or_insert(index);
        if first == index {
            continue;
        }
        // The last entry for `*` applies, but the first entry for any other name.
        let (unused, used) = if name == "*" { (first, index) } else { (index, first) };
        let path = policy_path(unused);
        warnings.add(format_args!(
            "{path}: has no effect: entry {used} is for container \"{name}\" too"
        ));
    }
}

fn check_negative_amounts(path: &str, policy: &ContainerPolicy, warnings: &mut Warnings) {
    for (field, list) in [("minAllowed", &policy.min_allowed), ("maxAllowed", &policy.max_allowed)]
    {
        for (resource, amount) in list.iter().flatten() {
            if amount.is_negative() {
                warnings.add(format_args!("{path}.{field}[{resource}]: {amount} is below 0"));
            }
            if !["cpu", "memory"].contains(&&**resource) {
                warnings.add(format_args!(
                    "{path}.{field}[{resource}]: has no effect: only cpu and memory are recommended"
                ));
            }
        }
    }
}

fn check_boosts(spec: &Spec, warnings: &mut Warnings) {
    for (path, boost) in spec.startup_boosts() {
        let Some(cpu) = &boost.cpu else {
            warnings.add(format_args!("{path}: has no effect: cpu is not set"));
            continue;
        };
        if let Some(seconds) = cpu.duration_seconds.filter(|seconds| *seconds < 0) {
            warnings.add(format_args!("{path}.cpu.durationSeconds: {seconds} is below 0"));
        }
        if let Some(quantity) = cpu.quantity.filter(|quantity: &Quantity| quantity.is_negative()) {
            warnings.add(format_args!(
                "{path}.cpu.quantity: {quantity} is below 0, so the boost would lower CPU"
            ));
        }
    }
}

/// All requirements must be met, so two that require a resource to be both higher and lower block every eviction.
fn check_requirements(spec: &Spec, warnings: &mut Warnings) {
    // By resource: the first entry with its requirement, and the first entry with another requirement.
    let mut known: HashMap<&str, (usize, Option<&str>, Option<usize>)> = HashMap::new();
    for (index, requirement) in spec.eviction_requirements().iter().enumerate() {
        let path = format!("spec.updatePolicy.evictionRequirements[{index}]");
        if requirement.resources.as_ref().is_none_or(Vec::is_empty) {
            warnings.add(format_args!("{path}: names no resource, so no pod is ever evicted"));
        }
        let Some([resource]) = requirement.resources.as_deref() else { continue };
        let change = requirement.change_requirement.as_deref();
        let (first, first_change, other) = known.entry(resource).or_insert((index, change, None));
        let contradicted = if *first_change == change { *other } else { Some(*first) };
        if *first_change != change {
            other.get_or_insert(index);
        }
        if let Some(other) = contradicted {
            warnings
                .add(format_args!("{path}: contradicts entry {other}, so no pod is ever evicted"));
        }
    }
}

const VPA: &str = "VerticalPodAutoscaler";

fn has_same_target(target: &TargetRef, other: &OtherAutoscaler<'_>) -> bool {
    Some(other.target_kind) == target.kind.as_deref()
        && Some(other.target_name) == target.name.as_deref()
}

fn check_other_vpas(
    target: &TargetRef,
    own: &Metadata,
    others: &[OtherAutoscaler<'_>],
    warnings: &mut Warnings,
) {
    let others = others.iter().filter(|other| {
        let is_itself = Some(other.name) == own.name.as_deref();
        other.kind == VPA && !is_itself && has_same_target(target, other)
    });
    for OtherAutoscaler { name, .. } in others {
        warnings.add(format_args!(
            "spec.targetRef: {VPA} \"{name}\" has the same target: the older of the two controls the pods"
        ));
    }
}

/// Warns about autoscalers of replicas that use a resource relative to the requests that this VPA changes.
fn check_utilization(
    spec: &Spec,
    target: &TargetRef,
    others: &[OtherAutoscaler<'_>],
    warnings: &mut Warnings,
) {
    let mode = spec.update_policy.as_ref().and_then(|policy| policy.update_mode.as_deref());
    if mode == Some("Off") {
        return;
    }
    for other in others.iter().filter(|other| has_same_target(target, other)) {
        let mut contested: Vec<&str> = Vec::new();
        for metric in &other.utilization_of {
            if changes_requests(spec, metric) && !contested.contains(&metric.resource) {
                contested.push(metric.resource);
            }
        }
        let OtherAutoscaler { kind, name, .. } = other;
        for resource in contested {
            warnings.add(format_args!(
                "spec.targetRef: {kind} \"{name}\" has the same target and scales on the utilization of {resource} requests, \
                 so Plimsoll does not change these requests: give it an averageValue, or leave {resource} out of \
                 controlledResources"
            ));
        }
    }
}

/// Whether the VPA may change the requests that a metric is relative to.
fn changes_requests(spec: &Spec, metric: &UtilizationMetric<'_>) -> bool {
    let policies = spec.container_policies();
    let is_named = |policy: &&ContainerPolicy, name| policy.container_name.as_deref() == Some(name);
    let of_others = policies.iter().rfind(|policy| is_named(policy, "*"));
    let controls = |policy: Option<&ContainerPolicy>| {
        policy.is_none_or(|policy| {
            let resources = policy.controlled_resources.as_ref();
            let names = |names: &Vec<String>| names.iter().any(|name| name == metric.resource);
            policy.mode.as_deref() != Some("Off") && resources.is_none_or(names)
        })
    };
    match metric.container {
        Some(name) => controls(policies.iter().find(|policy| is_named(policy, name)).or(of_others)),
        // Pods may have containers that no policy names.
        None => controls(of_others) || policies.iter().any(|policy| controls(Some(policy))),
    }
}
