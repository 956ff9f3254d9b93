//! A pod as sizing sees it: its containers with the resources of their spec and of their status.

mod raw_pod;

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::types::Time;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{
    api::{ResourceList, ResourceName},
    sizing::lookup::first_by_key,
    types::quantity::Quantity,
};

/// A pod. Deserializes from the API's JSON and keeps only the fields that sizing needs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "raw_pod::RawPod")]
pub struct Pod {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`; empty before the API server has generated one.
    pub name: Arc<str>,
    /// `metadata.generateName`: the prefix of a generated name.
    pub generate_name: Option<Box<str>>,
    /// `metadata.uid`; empty before the pod is created.
    pub uid: Box<str>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`. `None` differs from empty: a JSON patch must add the map first.
    pub annotations: Option<BTreeMap<String, String>>,
    /// `spec.containers`.
    pub containers: Vec<Container>,
    /// `spec.initContainers`, sidecars included.
    pub init_containers: Vec<Container>,
    /// `spec.overhead`.
    pub overhead: ResourceList,
    /// When the pod became ready; `None` if it is not ready.
    pub ready_since: Option<Time>,
    /// `spec.priorityClassName`.
    pub priority_class: Option<Box<str>>,
    /// Whether `spec.activeDeadlineSeconds` is set.
    pub has_deadline: bool,
}

/// A pod in an admission review, with its controller.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "raw_pod::RawPod")]
pub struct AdmissionPod {
    /// The first owner reference with `controller: true`.
    pub controller: Option<Controller>,
    pub pod: Pod,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controller {
    /// API group and version, such as `apps/v1`.
    pub api_version: Box<str>,
    /// The kind, such as `ReplicaSet`.
    pub kind: Box<str>,
    pub name: Box<str>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    pub name: Arc<str>,
    /// Whether it is a main, sidecar or init container.
    pub container_type: ContainerType,
    pub spec: Resources,
    /// Resources in the pod's status, if reported.
    pub status: Option<Resources>,
    /// Which resources need a restart to be resized.
    pub resize_restarts: ResizeRestarts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContainerType {
    /// In `spec.containers`.
    #[default]
    Main,
    /// An init container with `restartPolicy: Always`, which keeps running.
    Sidecar,
    /// An init container that runs to completion.
    Init,
}

/// Which resources of a container have the resize policy `RestartContainer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResizeRestarts {
    pub on_cpu: bool,
    pub on_memory: bool,
}

/// Requests and limits. `None` differs from an empty list: a JSON patch must add the list first.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    pub requests: Option<ResourceList>,
    pub limits: Option<ResourceList>,
}

/// The QoS class of a pod. The kubelet evicts lower classes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display)]
pub enum QosClass {
    /// No container has a request or limit.
    BestEffort,
    /// Some container has a request or limit.
    Burstable,
    /// Every container has CPU and memory limits equal to its requests.
    Guaranteed,
}

static NO_RESOURCES: ResourceList = ResourceList::EMPTY;

impl Resources {
    /// Returns the requests, or an empty list if unset.
    pub fn requests(&self) -> &ResourceList {
        self.requests.as_ref().unwrap_or(&NO_RESOURCES)
    }

    /// Returns the limits, or an empty list if unset.
    pub fn limits(&self) -> &ResourceList {
        self.limits.as_ref().unwrap_or(&NO_RESOURCES)
    }
}

impl Container {
    /// Returns the actual resources: those in the status if reported, else those in the spec. The two are never merged,
    /// so a partial status hides the spec.
    pub fn actual(&self) -> &Resources {
        self.status.as_ref().unwrap_or(&self.spec)
    }
}

/// The position of a container in its pod's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContainerRef {
    /// Index into `spec.containers`.
    Main(usize),
    /// Index into `spec.initContainers`.
    Init(usize),
}

impl fmt::Display for ContainerRef {
    /// Formats it as a JSON patch path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main(index) => write!(f, "/spec/containers/{index}"),
            Self::Init(index) => write!(f, "/spec/initContainers/{index}"),
        }
    }
}

impl Pod {
    /// Returns all containers: the main ones, then the init containers.
    pub fn all_containers(&self) -> impl Iterator<Item = (ContainerRef, &Container)> {
        let mains = self.containers.iter().enumerate();
        let inits = self.init_containers.iter().enumerate();
        mains
            .map(|(index, main)| (ContainerRef::Main(index), main))
            .chain(inits.map(|(index, init)| (ContainerRef::Init(index), init)))
    }

    /// Returns the containers that are sized: the main ones, and the sidecars if `sidecars` is set.
    pub fn sized_containers(
        &self,
        sidecars: bool,
    ) -> impl Iterator<Item = (ContainerRef, &Container)> {
        self.all_containers().filter(move |(position, container)| match position {
            ContainerRef::Main(_) => true,
            ContainerRef::Init(_) => sidecars && container.container_type == ContainerType::Sidecar,
        })
    }

    pub fn container(&self, place: ContainerRef) -> Option<&Container> {
        match place {
            ContainerRef::Main(index) => self.containers.get(index),
            ContainerRef::Init(index) => self.init_containers.get(index),
        }
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Computes the QoS class of the spec, with these resources in place of the spec's.
    pub fn qos_with(&self, resized: impl Iterator<Item = (ContainerRef, Resources)>) -> QosClass {
        let resized = first_by_key(resized);
        let (mut any_set, mut all_equal) = (false, true);
        for (position, container) in self.all_containers() {
            let resources = resized.get(&position).unwrap_or(&container.spec);
            for name in [ResourceName::Cpu, ResourceName::Memory] {
                let non_zero = |amount: &Quantity| !amount.is_zero();
                let limit = resources.limits().get(&name).filter(non_zero);
                // The API server defaults an unset request to the limit.
                let request = resources.requests().get(&name).filter(non_zero).or(limit);
                any_set |= request.is_some();
                all_equal &= limit.is_some() && request == limit;
            }
        }
        match (any_set, all_equal) {
            (false, _) => QosClass::BestEffort,
            (true, false) => QosClass::Burstable,
            (true, true) => QosClass::Guaranteed,
        }
    }

    /// Computes the QoS class of the spec.
    pub fn qos(&self) -> QosClass {
        self.qos_with(std::iter::empty())
    }
}
