//! A pod as sizing needs it: its containers, what they have and what they were told to have.

mod raw_pod;

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::types::Time;
use serde::{Deserialize, Serialize};

use crate::{
    api::{ResourceList, ResourceName},
    types::quantity::Quantity,
};

/// A pod. Read from the API's JSON, of which it keeps what is looked at here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "raw_pod::RawPod")]
pub struct Pod {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name; empty for one that is still to be named.
    pub name: Arc<str>,
    /// What its name will begin with, where the API server is to make one up.
    pub generate_name: Option<Box<str>>,
    /// Unique over all pods that ever had this name; empty for one that is still to be created.
    pub uid: Box<str>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, if it has any: a patch must know whether there is a map to add to.
    pub annotations: Option<BTreeMap<String, String>>,
    /// `spec.containers`, in their order.
    pub containers: Vec<Container>,
    /// `spec.initContainers`, in their order: those that stay as sidecars, and those that end.
    pub init_containers: Vec<Container>,
    /// What the pod costs beside its containers.
    pub overhead: ResourceList,
    /// Since when it is ready, if it is.
    pub ready_since: Option<Time>,
    /// How important it is, by the name of its class.
    pub priority_class: Option<Box<str>>,
    /// Whether it may run for a limited time only.
    pub has_deadline: bool,
}

/// A pod that is about to be created: whose it is hangs on its controller.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "raw_pod::RawPod")]
pub struct AdmissionPod {
    /// The first of its owners that is marked as the controller.
    pub controller: Option<Controller>,
    /// All else.
    pub pod: Pod,
}

/// What controls a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controller {
    /// Group and version, such as apps/v1.
    pub api_version: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    /// Its name.
    pub name: Arc<str>,
    /// The part that it plays.
    pub container_type: ContainerType,
    /// What the pod's spec asks for.
    pub spec: Resources,
    /// What the pod's status says it has, where it says so.
    pub status: Option<Resources>,
    /// What of it cannot change without a restart.
    pub resize_restarts: ResizeRestarts,
}

/// The part that a container plays in its pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContainerType {
    /// It is what the pod is for.
    #[default]
    Main,
    /// It starts before them and goes on beside them (`restartPolicy: Always`).
    Sidecar,
    /// It runs before them and ends.
    Init,
}

/// What of a container cannot change in place without restarting it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResizeRestarts {
    /// CPU.
    pub on_cpu: bool,
    /// Memory.
    pub on_memory: bool,
}

/// Requests and limits. A list that is absent is not one that is empty: a patch has to add it first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// What is set aside for the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceList>,
    /// What it cannot have more than.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceList>,
}

/// How a pod is treated when its node runs out of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QosClass {
    /// Goes first: nobody asked for anything.
    BestEffort,
    /// Asked for something.
    Burstable,
    /// Goes last: every container has limits for CPU and memory, and requests as much.
    Guaranteed,
}

impl QosClass {
    /// As it is written in objects.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }
}

static NO_RESOURCES: ResourceList = ResourceList::EMPTY;

impl Resources {
    /// The requests; none when there is no list.
    pub fn requests(&self) -> &ResourceList {
        self.requests.as_ref().unwrap_or(&NO_RESOURCES)
    }

    /// The limits; none when there is no list.
    pub fn limits(&self) -> &ResourceList {
        self.limits.as_ref().unwrap_or(&NO_RESOURCES)
    }
}

impl Container {
    /// What the container has: what the status says, and where that says nothing, what the spec asks for. The two are
    /// never mixed, so a status that says little hides the spec.
    pub fn actual(&self) -> &Resources {
        self.status.as_ref().unwrap_or(&self.spec)
    }
}

/// Where a container stands in its pod's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContainerRef {
    /// Among `spec.containers`.
    Main(usize),
    /// Among `spec.initContainers`.
    Init(usize),
}

impl fmt::Display for ContainerRef {
    /// As paths of a patch begin.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main(index) => write!(f, "/spec/containers/{index}"),
            Self::Init(index) => write!(f, "/spec/initContainers/{index}"),
        }
    }
}

impl Pod {
    /// The containers that are sized: the main ones, and the sidecars where those are wanted too.
    pub fn sized_containers(
        &self,
        sidecars: bool,
    ) -> impl Iterator<Item = (ContainerRef, &Container)> {
        let mains = self.containers.iter().enumerate();
        let inits = self.init_containers.iter().enumerate();
        let stays = move |one: &Container| sidecars && one.container_type == ContainerType::Sidecar;
        mains.map(|(index, one)| (ContainerRef::Main(index), one)).chain(
            inits
                .map(|(index, one)| (ContainerRef::Init(index), one))
                .filter(move |it| stays(it.1)),
        )
    }

    /// The container at a place.
    pub fn container(&self, place: ContainerRef) -> Option<&Container> {
        match place {
            ContainerRef::Main(index) => self.containers.get(index),
            ContainerRef::Init(index) => self.init_containers.get(index),
        }
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The class that its spec puts it in, with these resources in place of those that the spec asks for.
    pub fn qos_with<'a>(
        &'a self,
        instead: impl Fn(ContainerRef) -> Option<&'a Resources>,
    ) -> QosClass {
        let mains = self.containers.iter().enumerate().map(|(i, one)| (ContainerRef::Main(i), one));
        let inits =
            self.init_containers.iter().enumerate().map(|(i, one)| (ContainerRef::Init(i), one));
        let (mut any, mut all) = (false, true);
        for (place, container) in mains.chain(inits) {
            let it = instead(place).unwrap_or(&container.spec);
            for name in [ResourceName::Cpu, ResourceName::Memory] {
                let some = |amount: &Quantity| !amount.is_zero();
                let limit = it.limits().get(&name).filter(some);
                // The API server requests as much as a limit allows where nothing is requested.
                let request = it.requests().get(&name).filter(some).or(limit);
                any |= request.is_some();
                all &= limit.is_some() && request == limit;
            }
        }
        match (any, all) {
            (false, _) => QosClass::BestEffort,
            (true, false) => QosClass::Burstable,
            (true, true) => QosClass::Guaranteed,
        }
    }

    /// The class that its spec puts it in.
    pub fn qos(&self) -> QosClass {
        self.qos_with(|_| None)
    }
}
