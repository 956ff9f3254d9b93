//! Pods, nodes and events reduced to the fields that are used: a twentieth of the memory of the full objects. Fields have
//! the names and the meaning of the API.

use k8s_openapi::{
    api::core::v1::{Event, Node, ObjectReference, Pod, Taint, Toleration},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time as MetaTime},
};
use serde::{Deserialize, Deserializer};
use std::{collections::BTreeMap, sync::Arc};

use plimsoll_core::{
    sizing::pod_annotations::BOOST,
    types::{Time, quantity::Quantity},
};

#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "Pod")]
pub struct PartialPod {
    /// Object metadata, with only startup boost annotations and only the controller's owner reference.
    #[serde(default, deserialize_with = "boost_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub containers: Vec<Container>,
    /// Containers that run before the others, or alongside them if they always restart.
    pub init_containers: Vec<Container>,
    pub node_name: Option<Box<str>>,
    pub tolerations: Vec<Toleration>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: Box<str>,
    /// `Always` on an init container makes it a sidecar.
    pub restart_policy: Option<Box<str>>,
    pub resources: Resources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    pub requests: ResourceAmounts,
    pub limits: ResourceAmounts,
}

/// CPU and memory; other resources are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceAmounts {
    pub cpu: Option<Quantity>,
    pub memory: Option<Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: Option<Box<str>>,
    pub container_statuses: Vec<ContainerStatus>,
    pub init_container_statuses: Vec<ContainerStatus>,
    #[serde(rename = "conditions", deserialize_with = "ready_since")]
    pub ready_since: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub name: Arc<str>,
    pub restart_count: i32,
    /// The actual resources, which differ from the spec during a resize.
    pub resources: Option<Resources>,
    pub state: ContainerState,
    pub last_state: ContainerState,
}

/// The state of a container: at most one field is set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub terminated: Option<Terminated>,
    pub waiting: Option<Waiting>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    pub reason: Option<Box<str>>,
    pub started_at: Option<Time>,
    pub finished_at: Option<Time>,
}

/// Conditions that a kubelet sets for a resize: pending, and in progress.
pub const RESIZE_CONDITIONS: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: Box<str>,
    pub status: Box<str>,
    pub reason: Box<str>,
    pub message: Box<str>,
    pub last_transition_time: Option<Time>,
    pub observed_generation: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Waiting {
    pub reason: Option<Box<str>>,
}

#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "Node")]
pub struct PartialNode {
    /// Object metadata without annotations.
    #[serde(default, deserialize_with = "bare_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: NodeSpec,
    #[serde(default)]
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    pub allocatable: ResourceAmounts,
    pub conditions: Vec<Condition>,
}

impl PartialNode {
    pub fn is_ready(&self) -> bool {
        let mut ready =
            self.status.conditions.iter().filter(|condition| &*condition.kind == "Ready");
        ready.any(|condition| &*condition.status == "True")
    }
}

#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "Event")]
#[serde(rename_all = "camelCase")]
pub struct PartialEvent {
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub involved_object: ObjectReference,
    #[serde(default)]
    pub reason: Option<Box<str>>,
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
    creation_timestamp: Option<MetaTime>,
    deletion_timestamp: Option<MetaTime>,
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
fn ready_since<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
    let mut conditions = Vec::<Condition>::deserialize(from)?.into_iter();
    let ready =
        conditions.find(|condition| &*condition.kind == "Ready" && &*condition.status == "True");
    Ok(ready.map(|condition| condition.last_transition_time.unwrap_or_default()))
}

/// Like [`lean_metadata`], without annotations.
fn bare_metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    Ok(ObjectMeta { annotations: None, ..lean_metadata(from)? })
}
