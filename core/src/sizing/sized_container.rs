//! The requests and limits that each container of a pod gets.

use super::{
    limit_range::NamespaceLimitRanges,
    lookup::first_by_key,
    pod::{ContainerRef, Pod, QosClass, Resources},
    post_process::{FieldSelection, capped_containers},
    reason::{SizingError, SizingReason},
    size_limits,
    sizing_spec::{SizingRules, SizingSpec},
};
use crate::api::{ResourceList, ResourceName, vpa::UpdateMode};

/// The new requests and limits of a container. Resources that are not listed do not change.
#[derive(Clone, Debug, PartialEq)]
pub struct SizedContainer {
    /// Position of the container in the pod.
    pub container: ContainerRef,
    pub requests: ResourceList,
    pub limits: ResourceList,
    /// The adjustments that were made, in order.
    pub reasons: Vec<SizingReason>,
}

impl SizedContainer {
    /// Leaves the container at this position unchanged.
    pub const fn unchanged(container: ContainerRef) -> Self {
        Self {
            container,
            requests: ResourceList::EMPTY,
            limits: ResourceList::EMPTY,
            reasons: Vec::new(),
        }
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.limits.is_empty()
    }

    /// Applies the new amounts to the resources of a spec.
    pub fn apply_to(&self, spec: &Resources) -> Resources {
        let mut spec = spec.clone();
        for (new, old) in [(&self.requests, &mut spec.requests), (&self.limits, &mut spec.limits)] {
            if !new.is_empty() {
                old.get_or_insert_default().merge(new, |_, amount| amount);
            }
        }
        spec
    }

    /// Whether applying the new amounts changes the resources of a spec.
    pub fn changes(&self, spec: &Resources) -> bool {
        let differs = |new: &ResourceList, old: &ResourceList| {
            new.iter().any(|(resource, amount)| old.get(resource) != Some(amount))
        };
        differs(&self.requests, spec.requests()) || differs(&self.limits, spec.limits())
    }
}

/// Computes the new resources of each sized container, in the order of the pod. A container without a recommendation is
/// unchanged. The update mode is ignored except where upstream considers it: callers decide what `Off` means.
pub fn size_containers(
    pod: &Pod,
    sizing_spec: &SizingSpec<'_>,
    ranges: Option<&NamespaceLimitRanges>,
    rules: SizingRules,
) -> Result<Vec<SizedContainer>, SizingError> {
    let ranges = ranges.ok_or(SizingError::LimitRangesUnknown)?;
    size_limits::check_size(pod, sizing_spec)?;
    let mut sizes: Vec<SizedContainer> = pod
        .sized_containers(rules.sidecars)
        .map(|(container, _)| SizedContainer::unchanged(container))
        .collect();
    if sizing_spec.recommendation.is_none() {
        return Ok(sizes);
    }
    let containers =
        capped_containers(pod, sizing_spec, ranges, rules, FieldSelection::TargetsOnly)?;
    let containers = containers.unwrap_or_default().into_iter();
    let mut by_ref = first_by_key(containers.map(|capped| (capped.container, capped)));
    for size in &mut sizes {
        let Some(mut capped) = by_ref.remove(&size.container) else { continue };
        if sizing_spec.update_mode() == UpdateMode::Off {
            // Upstream ignores the container policy here and computes limits even for RequestsOnly.
            capped.bounds.limit_policy = sizing_spec.limit_policy;
        }
        size.reasons = capped.reasons;
        let (mut limits, mut reasons) = (ResourceList::EMPTY, Vec::new());
        for resource in [ResourceName::Cpu, ResourceName::Memory] {
            let (limit, limit_reasons) = capped
                .bounds
                .limit_for_request(&resource, capped.recommendation.target.get(&resource));
            reasons.extend(limit_reasons);
            if let Some(limit) = limit {
                limits.insert(resource, limit);
            }
        }
        if !limits.is_empty() {
            size.reasons.extend(reasons);
        }
        size.limits = limits;
        size.requests = capped.recommendation.target;
        let unnamed = ResourceName::Other("".into());
        size.requests.remove(&unnamed);
        size.limits.remove(&unnamed);
    }
    Ok(sizes)
}

/// Computes the QoS class of a pod with these sizes.
pub fn qos_with(pod: &Pod, sizes: &[SizedContainer]) -> QosClass {
    pod.qos_with(sizes.iter().filter_map(|size| {
        Some((size.container, size.apply_to(&pod.container(size.container)?.spec)))
    }))
}
