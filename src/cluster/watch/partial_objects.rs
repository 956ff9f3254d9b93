//! Pods, nodes and events with only the fields that somebody reads: a twentieth of the memory of the whole objects.

use k8s_openapi::{
    api::core::v1::{Event, Node, Pod},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

use plimsoll_core::{sizing::pod_annotations::BOOST, types::quantity::Quantity};

/// A pod.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "Pod")]
pub struct PartialPod {
    /// Of the annotations only those of startup boosts, and of the owners only the controller.
    #[serde(default, deserialize_with = "boost_metadata")]
    pub metadata: ObjectMeta,
    /// What was asked for.
    #[serde(default)]
    pub spec: PodSpec,
    /// What became of it.
    #[serde(default)]
    pub status: PodStatus,
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The containers proper.
    pub containers: Vec<Container>,
    /// Containers that run before the others, or beside them when they restart always.
    pub init_containers: Vec<Container>,
    /// The node that it is bound to.
    pub node_name: Option<Box<str>>,
    /// Taints that it does not mind.
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
    /// What it is given.
    pub resources: Resources,
}

/// Taints that a pod does not mind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// None or empty: of every key.
    pub key: Option<Box<str>>,
    /// `Equal` when it is not told, `Exists`.
    pub operator: Option<Box<str>>,
    /// Of this value.
    pub value: Option<Box<str>>,
    /// None or empty: of every effect.
    pub effect: Option<Box<str>>,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// What is set aside for it.
    pub requests: ResourceAmounts,
    /// What it cannot go beyond.
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

/// What became of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    pub phase: Option<Box<str>>,
    /// Of the containers proper, in no order to rely on.
    pub container_statuses: Vec<ContainerStatus>,
    /// Of the init containers.
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Since when it is ready, if it is.
    #[serde(rename = "conditions", deserialize_with = "ready_since")]
    pub ready_since: Option<plimsoll_core::types::Time>,
}

/// What became of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Its name.
    pub name: Box<str>,
    /// How often it was started again.
    pub restart_count: i32,
    /// What the node gives it, which differs from the spec during a resize.
    pub resources: Option<Resources>,
    /// How it is.
    pub state: ContainerState,
    /// How it was before it was started again.
    pub last_state: ContainerState,
}

/// How a container is: at most one of the three.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It runs.
    pub running: Option<Running>,
    /// It has ended.
    pub terminated: Option<Terminated>,
    /// It is not yet started, or not again.
    pub waiting: Option<Waiting>,
}

/// A container that runs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Since when.
    pub started_at: Option<Time>,
}

/// A container that has ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    /// `OOMKilled`, `Error`, `Completed`.
    pub reason: Option<Box<str>>,
    /// Since when.
    pub finished_at: Option<Time>,
    /// What its process said.
    pub exit_code: i32,
}

/// A container that is not running yet.
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
    /// Without annotations.
    #[serde(default, deserialize_with = "bare_metadata")]
    pub metadata: ObjectMeta,
    /// What keeps pods off it.
    #[serde(default)]
    pub spec: NodeSpec,
    /// What it has to give.
    #[serde(default)]
    pub status: NodeStatus,
}

/// What keeps pods off a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// What only some pods tolerate.
    pub taints: Vec<Taint>,
}

/// What only some pods tolerate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// What it is about.
    pub key: Box<str>,
    /// In one word.
    pub value: Option<Box<str>>,
    /// `NoSchedule`, `PreferNoSchedule`, `NoExecute`.
    pub effect: Box<str>,
}

/// What a node has to give.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// For pods.
    pub allocatable: ResourceAmounts,
    /// `Ready` and others.
    pub conditions: Vec<Condition>,
}

/// One condition of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: Box<str>,
    /// `True`, `False`, `Unknown`.
    pub status: Box<str>,
}

impl PartialNode {
    /// Whether it says so itself; `Unknown` is no yes.
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
    /// With annotations.
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    /// What it is about.
    #[serde(default)]
    pub involved_object: EventInvolvedObject,
    /// Why it was sent, in one word.
    #[serde(default)]
    pub reason: Option<Box<str>>,
    /// When it happened, if its sender says so.
    #[serde(default)]
    pub event_time: Option<MicroTime>,
}

/// What an event is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EventInvolvedObject {
    /// Its kind.
    pub kind: Option<Box<str>>,
    /// Where it is.
    pub namespace: Option<Box<str>>,
    /// Its name.
    pub name: Option<Box<str>>,
}

/// What is kept of an object's metadata: above all not its managed fields, half the text of many objects.
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

/// Metadata without what nobody reads; of its owners only the controller.
pub(crate) fn lean_metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let mut read = Metadata::deserialize(from)?;
    if let Some(owners) = &mut read.owner_references {
        owners.retain(|owner| owner.controller == Some(true));
    }
    Ok(read.into())
}

/// As [`lean_metadata`], with all owners and without annotations.
pub(crate) fn lean_references<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let read = Metadata::deserialize(from)?;
    Ok(ObjectMeta { annotations: None, ..read.into() })
}

impl From<Metadata> for ObjectMeta {
    fn from(read: Metadata) -> Self {
        Self {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            resource_version: read.resource_version,
            generation: read.generation,
            creation_timestamp: read.creation_timestamp,
            deletion_timestamp: read.deletion_timestamp,
            labels: read.labels,
            annotations: read.annotations,
            owner_references: read.owner_references,
            ..Self::default()
        }
    }
}

/// As [`lean_metadata`], and of the annotations only those of startup boosts.
fn boost_metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let mut read = lean_metadata(from)?;
    if let Some(annotations) = &mut read.annotations {
        annotations.retain(|key, _| key.starts_with(BOOST));
    }
    Ok(read)
}

/// Since when a pod is ready, by its conditions.
fn ready_since<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<plimsoll_core::types::Time>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Told {
        #[serde(rename = "type")]
        kind: Box<str>,
        status: Box<str>,
        last_transition_time: Option<plimsoll_core::types::Time>,
    }
    let mut told = Vec::<Told>::deserialize(from)?.into_iter();
    let ready = told.find(|one| &*one.kind == "Ready" && &*one.status == "True");
    Ok(ready.map(|one| one.last_transition_time.unwrap_or_default()))
}

/// As [`lean_metadata`], without annotations.
fn bare_metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    Ok(ObjectMeta { annotations: None, ..lean_metadata(from)? })
}
