//! Pods, nodes and events reduced to the fields that are used: a twentieth of the memory of the full objects.

use k8s_openapi::{
    api::core::v1::{Event, Node, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

use plimsoll_core::{sizing::pod_annotations::BOOST, types::quantity::Quantity};

/// A pod.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "Pod")]
pub struct PartialPod {
    /// Object metadata, with only startup boost annotations and only the controller's owner reference.
    #[serde(default, deserialize_with = "boost_metadata")]
    pub metadata: ObjectMeta,
    /// `spec`.
    #[serde(default)]
    pub spec: PodSpec,
    /// `status`.
    #[serde(default)]
    pub status: PodStatus,
}

/// The spec of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The regular containers.
    pub containers: Vec<Container>,
    /// Containers that run before the others, or alongside them if they always restart.
    pub init_containers: Vec<Container>,
    /// The node that it is bound to.
    pub node_name: Option<Box<str>>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: Box<str>,
    /// `Always` on an init container makes it a sidecar.
    pub restart_policy: Option<Box<str>>,
    /// Requests and limits.
    pub resources: Resources,
}

/// A toleration of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// The taint key; `None` or empty matches every key.
    pub key: Option<Box<str>>,
    /// `Equal` (the default) or `Exists`.
    pub operator: Option<Box<str>>,
    /// The taint value.
    pub value: Option<Box<str>>,
    /// The taint effect; `None` or empty matches every effect.
    pub effect: Option<Box<str>>,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Requests.
    pub requests: ResourceAmounts,
    /// Limits.
    pub limits: ResourceAmounts,
}

/// CPU and memory; other resources are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceAmounts {
    /// Cores.
    pub cpu: Option<Quantity>,
    /// Bytes.
    pub memory: Option<Quantity>,
}

/// The status of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    pub phase: Option<Box<str>>,
    /// Statuses of the regular containers, in any order.
    pub container_statuses: Vec<ContainerStatus>,
    /// Statuses of the init containers.
    pub init_container_statuses: Vec<ContainerStatus>,
    /// When it became ready, if it is ready.
    #[serde(rename = "conditions", deserialize_with = "ready_since")]
    pub ready_since: Option<plimsoll_core::types::Time>,
}

/// The status of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: Box<str>,
    /// The number of restarts.
    pub restart_count: i32,
    /// The actual resources, which differ from the spec during a resize.
    pub resources: Option<Resources>,
    /// The current state.
    pub state: ContainerState,
    /// The state before the last restart.
    pub last_state: ContainerState,
}

/// The state of a container: at most one field is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// The container is running.
    pub running: Option<Running>,
    /// The container has terminated.
    pub terminated: Option<Terminated>,
    /// The container is waiting to start.
    pub waiting: Option<Waiting>,
}

/// A running container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// When it started.
    pub started_at: Option<Time>,
}

/// A terminated container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// `OOMKilled`, `Error`, `Completed`.
    pub reason: Option<Box<str>>,
    /// When it terminated.
    pub finished_at: Option<Time>,
}

/// A container that is waiting to start.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// `CrashLoopBackOff`, `ContainerCreating`.
    pub reason: Option<Box<str>>,
}

/// A node.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "Node")]
pub struct PartialNode {
    /// Object metadata without annotations.
    #[serde(default, deserialize_with = "bare_metadata")]
    pub metadata: ObjectMeta,
    /// Cordon and taints.
    #[serde(default)]
    pub spec: NodeSpec,
    /// Allocatable resources and conditions.
    #[serde(default)]
    pub status: NodeStatus,
}

/// The scheduling fields of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Taints.
    pub taints: Vec<Taint>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// The taint key.
    pub key: Box<str>,
    /// The taint value.
    pub value: Option<Box<str>>,
    /// `NoSchedule`, `PreferNoSchedule`, `NoExecute`.
    pub effect: Box<str>,
}

/// The status of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Resources available to pods.
    pub allocatable: ResourceAmounts,
    /// `Ready` and others.
    pub conditions: Vec<Condition>,
}

/// One condition of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// The condition type.
    #[serde(rename = "type")]
    pub kind: Box<str>,
    /// `True`, `False`, `Unknown`.
    pub status: Box<str>,
}

impl PartialNode {
    /// Whether the `Ready` condition is `True`.
    pub fn is_ready(&self) -> bool {
        let mut ready =
            self.status.conditions.iter().filter(|condition| &*condition.kind == "Ready");
        ready.any(|condition| &*condition.status == "True")
    }
}

/// An event, with its annotations.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "Event")]
#[serde(rename_all = "camelCase")]
pub struct PartialEvent {
    /// Object metadata with annotations.
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    /// The involved object.
    #[serde(default)]
    pub involved_object: EventInvolvedObject,
    /// The reason.
    #[serde(default)]
    pub reason: Option<Box<str>>,
}

/// The involved object of an event.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EventInvolvedObject {
    /// Its kind.
    pub kind: Option<Box<str>>,
    /// Its namespace.
    pub namespace: Option<Box<str>>,
    /// Its name.
    pub name: Option<Box<str>>,
}

/// The decoded part of an object's metadata. Leaves out managed fields, which are half the JSON of many objects.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// Reduced metadata, with only the controller's owner reference.
pub(crate) fn lean_metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = Metadata::deserialize(from)?;
    if let Some(owners) = &mut metadata.owner_references {
        owners.retain(|owner| owner.controller == Some(true));
    }
    Ok(metadata.into())
}

/// Like [`lean_metadata`], with all owners and without annotations.
pub(crate) fn lean_references<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let metadata = Metadata::deserialize(from)?;
    Ok(ObjectMeta { annotations: None, ..metadata.into() })
}

impl From<Metadata> for ObjectMeta {
    fn from(metadata: Metadata) -> Self {
        Self {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            labels: metadata.labels,
            annotations: metadata.annotations,
            owner_references: metadata.owner_references,
            ..Self::default()
        }
    }
}

/// Like [`lean_metadata`], with only the annotations of startup boosts.
fn boost_metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = lean_metadata(from)?;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| key.starts_with(BOOST));
    }
    Ok(metadata)
}

/// When a pod became ready, from its conditions.
fn ready_since<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<plimsoll_core::types::Time>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct PodCondition {
        #[serde(rename = "type")]
        kind: Box<str>,
        status: Box<str>,
        last_transition_time: Option<plimsoll_core::types::Time>,
    }
    let mut conditions = Vec::<PodCondition>::deserialize(from)?.into_iter();
    let ready =
        conditions.find(|condition| &*condition.kind == "Ready" && &*condition.status == "True");
    Ok(ready.map(|condition| condition.last_transition_time.unwrap_or_default()))
}

/// Like [`lean_metadata`], without annotations.
fn bare_metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    Ok(ObjectMeta { annotations: None, ..lean_metadata(from)? })
}
