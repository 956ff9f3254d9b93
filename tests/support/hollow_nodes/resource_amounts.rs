//! Owns sums and comparisons of CPU and memory, as far as nodes need them.

use std::collections::BTreeMap;
use std::ops::{Add, Sub};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// An amount of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceAmounts {
    /// Thousandths of a core.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
}

// === impl Amounts ===

impl ResourceAmounts {
    /// Those of a list; what is not in it is none.
    pub fn of(list: Option<&BTreeMap<String, Quantity>>) -> Self {
        let get = |name: &str| {
            list.and_then(|list| list.get(name)).map(|text| {
                text.0
                    .parse::<plimsoll_core::types::quantity::Quantity>()
                    .expect("the server lets only quantities in")
            })
        };
        Self {
            cpu: get("cpu").map_or(0, |amount| amount.to_cpu().0),
            memory: get("memory").map_or(0, |amount| amount.to_memory().0),
        }
    }

    /// What a node has set aside for a pod: what it allocated, or what is asked for when it has not yet.
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

    /// What a pod asks for.
    pub fn desired(pod: &Pod) -> Self {
        long_running_containers(pod).map(Self::requested).fold(Self::default(), Add::add)
    }

    /// Whether this is within `room`; the one that is not, if not.
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

/// Whether both ask for the same, however it is written.
pub fn same_resources(one: &ResourceRequirements, other: &ResourceRequirements) -> bool {
    ResourceAmounts::of(one.requests.as_ref()) == ResourceAmounts::of(other.requests.as_ref())
        && ResourceAmounts::of(one.limits.as_ref()) == ResourceAmounts::of(other.limits.as_ref())
}

/// Sidecars and plain containers: those that hold their resources while the pod lives.
pub fn long_running_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.as_ref();
    let sidecars = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
    let plain = spec.map(|spec| &spec.containers).into_iter().flatten();
    sidecars.filter(|container| is_sidecar(container)).chain(plain)
}

/// Whether an init container keeps running beside the others.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}
