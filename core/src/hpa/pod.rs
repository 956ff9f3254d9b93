//! The fields of a pod that a decision depends on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::selector::Labels;
use crate::scaling::pod_readiness::Phase;
use crate::types::{Quantity, Time};

/// Quantities by resource name.
pub type Resources = BTreeMap<String, Quantity>;

/// A pod that the scale's selector may match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pod {
    pub name: String,
    pub labels: Labels,
    /// Whether the pod is known not to be owned by the target, directly or through its controllers.
    pub is_foreign: bool,
    pub phase: Phase,
    /// Whether the pod is being deleted.
    pub is_terminating: bool,
    /// When the kubelet accepted the pod.
    pub start_time: Option<Time>,
    pub ready: Option<ReadyCondition>,
    /// The containers, without restartable init containers.
    pub containers: Vec<Container>,
    /// The init containers, including restartable ones.
    pub init_containers: Vec<Container>,
    /// The pod-level requests.
    pub requests: Resources,
    /// The pod-level limits.
    pub limits: Resources,
    /// The overhead of the RuntimeClass.
    pub overhead: Resources,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadyCondition {
    pub status: ReadyStatus,
    /// The last transition time. A missing time counts as long ago.
    pub since: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadyStatus {
    True,
    /// Not ready.
    False,
    /// Unknown, for example because the node is not reachable.
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Container {
    pub name: String,
    /// The requests in the spec.
    pub requests: Resources,
    /// The actuated requests, if the kubelet reports them. They differ from the spec while a resize is pending.
    pub actuated: Option<Resources>,
    /// The limits in the spec.
    pub limits: Resources,
    /// Whether this is a restartable init container (sidecar).
    pub is_restartable: bool,
}

impl Pod {
    /// Reads a pod of the API. Invalid quantities count as missing.
    pub fn read(pod: &api::Pod) -> Self {
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let ready = status.and_then(|status| {
            status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready")
        });
        let statuses = |status: &api::PodStatus| {
            let all = [&status.container_statuses, &status.init_container_statuses];
            all.into_iter().flatten().flatten().cloned().collect::<Vec<_>>()
        };
        let statuses = status.map(statuses).unwrap_or_default();
        let container = |container: &api::Container| Container::read(container, &statuses);
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            is_foreign: false,
            phase: match status.and_then(|status| status.phase.as_deref()) {
                Some("Pending") => Phase::Pending,
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Unknown,
            },
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            start_time: status
                .and_then(|status| status.start_time.as_ref())
                .map(|time| time.0.into()),
            ready: ready.map(|condition| ReadyCondition {
                status: match condition.status.as_str() {
                    "True" => ReadyStatus::True,
                    "False" => ReadyStatus::False,
                    _ => ReadyStatus::Unknown,
                },
                since: condition.last_transition_time.as_ref().map(|time| time.0.into()),
            }),
            containers: spec.iter().flat_map(|spec| &spec.containers).map(container).collect(),
            init_containers: spec
                .and_then(|spec| spec.init_containers.as_ref())
                .into_iter()
                .flatten()
                .map(container)
                .collect(),
            requests: resources(spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref())),
            limits: resources(spec.and_then(|spec| spec.resources.as_ref()?.limits.as_ref())),
            overhead: resources(spec.and_then(|spec| spec.overhead.as_ref())),
        }
    }

    /// Whether the pod is running and ready.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Running
            && self.ready.is_some_and(|condition| condition.status == ReadyStatus::True)
    }
}

impl Container {
    fn read(container: &api::Container, statuses: &[api::ContainerStatus]) -> Self {
        let status = statuses.iter().find(|status| status.name == container.name);
        let actuated = status.and_then(|status| status.resources.as_ref()?.requests.as_ref());
        let of_spec = container.resources.as_ref();
        Self {
            name: container.name.clone(),
            requests: resources(of_spec.and_then(|resources| resources.requests.as_ref())),
            actuated: actuated.map(|requests| resources(Some(requests))),
            limits: resources(of_spec.and_then(|resources| resources.limits.as_ref())),
            is_restartable: container.restart_policy.as_deref() == Some("Always"),
        }
    }
}

fn resources(amounts: Option<&BTreeMap<String, ApiQuantity>>) -> Resources {
    let parsed = |(name, amount): (&String, &ApiQuantity)| {
        Some((name.clone(), amount.0.trim().parse().ok()?))
    };
    amounts.into_iter().flatten().filter_map(parsed).collect()
}
