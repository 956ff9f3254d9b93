//! What a pod asks for as a whole, as the API server counts it against quotas and LimitRanges.

use super::{
    lookup::Lookup,
    pod::{Container, ContainerRef, ContainerType, Pod, Resources},
    sized_container::SizedContainer,
};
use crate::api::ResourceList;

/// What a pod asks for as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTotals {
    /// To be set aside for it.
    pub requests: ResourceList,
    /// Not to have more than, as far as its containers have limits.
    pub limits: ResourceList,
}

/// A container with the resources that it would have.
pub struct ResizedContainer<'a> {
    /// The container.
    pub container: &'a Container,
    /// What its spec would say.
    pub resources: Resources,
}

/// All containers of a pod with these sizes, those that end included. As on creation, a container that has a limit and
/// requests nothing requests its limit.
pub fn resized_containers<'a>(pod: &'a Pod, sizes: &[SizedContainer]) -> Vec<ResizedContainer<'a>> {
    let mains = pod.containers.iter().enumerate().map(|(i, one)| (ContainerRef::Main(i), one));
    let inits = pod.init_containers.iter().enumerate().map(|(i, one)| (ContainerRef::Init(i), one));
    let pairs = || sizes.iter().map(|size| (size.container, size));
    let by_place = Lookup::new(sizes.len(), pairs());
    let resources = |place: ContainerRef, container: &Container| {
        let own = by_place.get(&place, pairs());
        let mut resources =
            own.map_or_else(|| container.spec.clone(), |it| it.apply_to(&container.spec));
        for (resource, limit) in resources.limits.iter().flat_map(ResourceList::iter) {
            let requests = resources.requests.get_or_insert_default();
            if requests.get(resource).is_none() {
                requests.insert(resource.clone(), limit);
            }
        }
        resources
    };
    let fitted =
        |(place, container)| ResizedContainer { container, resources: resources(place, container) };
    mains.chain(inits).map(fitted).collect()
}

impl PodTotals {
    /// Of a pod with these sizes: what its containers and sidecars ask for together, or what it needs to start where
    /// that is more, and its overhead.
    pub fn new(pod: &Pod, sizes: &[SizedContainer]) -> Self {
        let all = resized_containers(pod, sizes);
        let sum = |pick: fn(&Resources) -> &ResourceList| {
            let (mut running, mut starting, mut beside) =
                (ResourceList::EMPTY, ResourceList::EMPTY, ResourceList::EMPTY);
            for ResizedContainer { container, resources } in &all {
                let list = pick(resources);
                if container.container_type == ContainerType::Init {
                    let mut needed = beside.clone();
                    add(&mut needed, list);
                    raise_to(&mut starting, &needed);
                } else {
                    add(&mut running, list);
                    if container.container_type == ContainerType::Sidecar {
                        add(&mut beside, list);
                    }
                }
            }
            raise_to(&mut running, &starting);
            running
        };
        let mut demand =
            Self { requests: sum(Resources::requests), limits: sum(Resources::limits) };
        add(&mut demand.requests, &pod.overhead);
        for (resource, amount) in pod.overhead.iter() {
            // Where nothing is limited, overhead does not begin to.
            if let Some(limit) = demand.limits.get(resource) {
                demand.limits.insert(resource.clone(), limit + amount);
            }
        }
        demand
    }
}

fn add(to: &mut ResourceList, list: &ResourceList) {
    for (resource, amount) in list.iter() {
        to.insert(resource.clone(), to.get(resource).map_or(amount, |known| known + amount));
    }
}

fn raise_to(to: &mut ResourceList, list: &ResourceList) {
    for (resource, amount) in list.iter() {
        to.insert(resource.clone(), to.get(resource).map_or(amount, |known| known.max(amount)));
    }
}
