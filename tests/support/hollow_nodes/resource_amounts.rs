//! Sums and comparisons of CPU and memory amounts.

use std::collections::BTreeMap;
use std::ops::{Add, Sub};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// An amount of CPU and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceAmounts {
    /// Millicores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
}

// === impl ResourceAmounts ===

impl ResourceAmounts {
    /// The amounts of a list; a missing entry counts as zero.
    pub fn of(list: Option<&BTreeMap<String, Quantity>>) -> Self {
        let get = |name: &str| {
            list.and_then(|list| list.get(name)).map(|text| {
                text.0
                    .parse::<plimsoll_core::types::quantity::Quantity>()
                    .expect("the server validates quantities")
            })
        };
        Self {
            cpu: get("cpu").map_or(0, |amount| amount.to_cpu().0),
            memory: get("memory").map_or(0, |amount| amount.to_memory().0),
        }
    }

    /// The resources that a node has allocated to a pod, or its requests before that.
    pub fn allocated(pod: &Pod) -> Self {
        let statuses = pod.status.iter().flat_map(|status| {
            status.container_statuses.iter().chain(&status.init_container_statuses).flatten()
        });
        let statuses: BTreeMap<_, _> =
            statuses.map(|status| (&status.name, status.allocated_resources.as_ref())).collect();
        long_running_containers(pod)
            .map(|container| match statuses.get(&container.name) {
                Some(Some(allocated)) => Self::of(Some(allocated)),
                _ => Self::requested(container),
            })
            .fold(Self::default(), Add::add)
    }

    /// The requests of a pod.
    pub fn desired(pod: &Pod) -> Self {
        long_running_containers(pod).map(Self::requested).fold(Self::default(), Add::add)
    }

    /// The resource that exceeds `room`, if one does.
    pub fn exceeded_resource(self, room: Self) -> Option<&'static str> {
        if self.cpu > room.cpu {
            Some("cpu")
        } else if self.memory > room.memory {
            Some("memory")
        } else {
            None
        }
    }

    fn requested(container: &Container) -> Self {
        Self::of(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
    }
}

impl Add for ResourceAmounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, memory: self.memory + other.memory }
    }
}

impl Sub for ResourceAmounts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { cpu: self.cpu - other.cpu, memory: self.memory - other.memory }
    }
}

/// Whether both specify the same amounts, in any notation.
pub fn same_resources(one: &ResourceRequirements, other: &ResourceRequirements) -> bool {
    ResourceAmounts::of(one.requests.as_ref()) == ResourceAmounts::of(other.requests.as_ref())
        && ResourceAmounts::of(one.limits.as_ref()) == ResourceAmounts::of(other.limits.as_ref())
}

/// Plain containers and sidecars: those that use their resources while the pod runs.
pub fn long_running_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.as_ref();
    let sidecars = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
    let plain = spec.map(|spec| &spec.containers).into_iter().flatten();
    sidecars.filter(|container| is_sidecar(container)).chain(plain)
}

/// Whether an init container is a sidecar.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}
