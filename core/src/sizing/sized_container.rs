//! Requests and limits that a pod gets.

use super::{
    limit_range::NamespaceLimitRanges,
    lookup::Lookup,
    pod::{ContainerRef, Pod, QosClass, Resources},
    pod_constraints::container_indices,
    post_process::{FieldSelection, capped_containers},
    reason::{SizingError, SizingReason},
    size_limits,
    sizing_spec::{SizingRules, SizingSpec},
};
use crate::api::{ResourceList, ResourceName, vpa::UpdateMode};

/// What one container of a pod gets. A resource that is not listed is left as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct SizedContainer {
    /// Where the container stands.
    pub container: ContainerRef,
    /// What it will request.
    pub requests: ResourceList,
    /// What its limits will be.
    pub limits: ResourceList,
    /// What happened to the numbers, in this order.
    pub reasons: Vec<SizingReason>,
}

impl SizedContainer {
    /// Nothing for the container at a place.
    pub const fn unchanged(place: ContainerRef) -> Self {
        Self {
            container: place,
            requests: ResourceList::EMPTY,
            limits: ResourceList::EMPTY,
            reasons: Vec::new(),
        }
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.limits.is_empty()
    }

    /// What a spec becomes.
    pub fn apply_to(&self, spec: &Resources) -> Resources {
        let mut spec = spec.clone();
        for (new, old) in [(&self.requests, &mut spec.requests), (&self.limits, &mut spec.limits)] {
            for (resource, amount) in new.iter() {
                old.get_or_insert_default().insert(resource.clone(), amount);
            }
        }
        spec
    }

    /// Whether a spec becomes another.
    pub fn changes(&self, spec: &Resources) -> bool {
        let differs = |new: &ResourceList, old: &ResourceList| {
            new.iter().any(|(resource, amount)| old.get(resource) != Some(amount))
        };
        differs(&self.requests, spec.requests()) || differs(&self.limits, spec.limits())
    }
}

/// What each container of a pod gets, in the order of the pod: nothing where nothing is recommended for it. This takes
/// no account of the update mode but where upstream does: what `Off` means is for who writes.
pub fn size_containers(
    pod: &Pod,
    plan: &SizingSpec<'_>,
    ranges: Option<&NamespaceLimitRanges>,
    rules: SizingRules,
) -> Result<Vec<SizedContainer>, SizingError> {
    let ranges = ranges.ok_or(SizingError::LimitRangesUnknown)?;
    size_limits::check_size(pod, plan)?;
    let mut sizes: Vec<SizedContainer> = pod
        .sized_containers(rules.sidecars)
        .map(|(place, _)| SizedContainer::unchanged(place))
        .collect();
    if plan.recommendation.is_none() {
        return Ok(sizes);
    }
    let entries = capped_containers(pod, plan, ranges, rules, FieldSelection::TargetsOnly)?;
    let mut entries = entries.unwrap_or_default();
    let by_place = Lookup::new(entries.len(), container_indices(&entries));
    for size in &mut sizes {
        let Some(index) = by_place.get(&size.container, container_indices(&entries)) else {
            continue;
        };
        let entry = &mut entries[index];
        if plan.update_mode() == UpdateMode::Off {
            // Upstream forgets the policy here, so that limits are worked out even for RequestsOnly.
            entry.bounds.limit_policy = plan.limit_policy;
        }
        size.reasons = std::mem::take(&mut entry.reasons);
        let (mut limits, mut reasons) = (ResourceList::EMPTY, Vec::new());
        for resource in [ResourceName::Cpu, ResourceName::Memory] {
            let (limit, why) = entry
                .bounds
                .limit_for_request(&resource, entry.recommendation.target.get(&resource));
            reasons.extend(why);
            if let Some(limit) = limit {
                limits.insert(resource, limit);
            }
        }
        if !limits.is_empty() {
            size.reasons.extend(reasons);
        }
        size.limits = limits;
        size.requests = std::mem::take(&mut entry.recommendation.target);
        let unnamed = ResourceName::Other("".into());
        size.requests.remove(&unnamed);
        size.limits.remove(&unnamed);
    }
    Ok(sizes)
}

/// The class of a pod with these sizes.
pub fn qos_with(pod: &Pod, sizes: &[SizedContainer]) -> QosClass {
    let wanted: Vec<(ContainerRef, Resources)> = sizes
        .iter()
        .filter_map(|size| {
            Some((size.container, size.apply_to(&pod.container(size.container)?.spec)))
        })
        .collect();
    let pairs = || wanted.iter().map(|(place, resources)| (*place, resources));
    let by_place = Lookup::new(wanted.len(), pairs());
    pod.qos_with(|place| by_place.get(&place, pairs()))
}
