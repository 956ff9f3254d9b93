//! The total requests and limits of a pod, as the API server counts them against ResourceQuotas and LimitRanges.

use std::ops::Add;

use super::{
    lookup::first_by_key,
    pod::{Container, ContainerRef, ContainerType, Pod, Resources},
    sized_container::SizedContainer,
};
use crate::api::ResourceList;

/// The total requests and limits of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTotals {
    /// The sum of requests, including overhead.
    pub requests: ResourceList,
    /// The sum of limits, over the containers that have one.
    pub limits: ResourceList,
}

/// A container with its new resources.
pub struct ResizedContainer<'a> {
    pub container: &'a Container,
    /// The resources of its new spec.
    pub resources: Resources,
}

/// Returns all containers of a pod with these sizes, init containers included. As on creation, a request that is unset
/// defaults to the limit.
pub fn resized_containers<'a>(pod: &'a Pod, sizes: &[SizedContainer]) -> Vec<ResizedContainer<'a>> {
    let by_ref = first_by_key(sizes.iter().map(|size| (size.container, size)));
    let resized = |(container_ref, container): (ContainerRef, &'a Container)| {
        let size = by_ref.get(&container_ref);
        let mut resources =
            size.map_or_else(|| container.spec.clone(), |size| size.apply_to(&container.spec));
        if let Some(limits) = resources.limits.as_ref().filter(|limits| !limits.is_empty()) {
            resources.requests.get_or_insert_default().merge(limits, |request, _| request);
        }
        ResizedContainer { container, resources }
    };
    pod.all_containers().map(resized).collect()
}

impl PodTotals {
    /// Computes the totals of a pod with these sizes: the sum of its containers and sidecars, or what its init containers
    /// need if that is more, plus the overhead.
    pub fn new(pod: &Pod, sizes: &[SizedContainer]) -> Self {
        let resized = resized_containers(pod, sizes);
        let sum = |pick: fn(&Resources) -> &ResourceList| {
            let (mut running, mut starting, mut sidecars) =
                (ResourceList::EMPTY, ResourceList::EMPTY, ResourceList::EMPTY);
            for ResizedContainer { container, resources } in &resized {
                let list = pick(resources);
                if container.container_type == ContainerType::Init {
                    let mut needed = sidecars.clone();
                    needed.merge(list, Add::add);
                    starting.merge(&needed, Ord::max);
                } else {
                    running.merge(list, Add::add);
                    if container.container_type == ContainerType::Sidecar {
                        sidecars.merge(list, Add::add);
                    }
                }
            }
            running.merge(&starting, Ord::max);
            running
        };
        let mut totals =
            Self { requests: sum(Resources::requests), limits: sum(Resources::limits) };
        totals.requests.merge(&pod.overhead, Add::add);
        for (resource, amount) in pod.overhead.iter() {
            // Overhead adds to a limit, but does not create one.
            if let Some(limit) = totals.limits.get(resource) {
                totals.limits.insert(resource.clone(), limit + amount);
            }
        }
        totals
    }
}
