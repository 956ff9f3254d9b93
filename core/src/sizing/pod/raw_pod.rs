//! The fields of a pod that are deserialized from the API's JSON.

use std::{collections::BTreeMap, sync::Arc};

use crate::types::Time;
use serde::Deserialize;

use super::{AdmissionPod, Container, ContainerType, Controller, Pod, ResizeRestarts, Resources};
use crate::{api::ResourceList, sizing::lookup::first_by_key};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawPod {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    namespace: Option<Arc<str>>,
    name: Option<Arc<str>>,
    generate_name: Option<Box<str>>,
    uid: Option<Box<str>>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner {
    api_version: Box<str>,
    kind: Box<str>,
    name: Box<str>,
    controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    containers: Option<Vec<SpecContainer>>,
    init_containers: Option<Vec<SpecContainer>>,
    overhead: Option<ResourceList>,
    priority_class_name: Option<Box<str>>,
    active_deadline_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecContainer {
    name: Arc<str>,
    restart_policy: Option<Box<str>>,
    resources: Option<Resources>,
    resize_policy: Option<Vec<ResizePolicy>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResizePolicy {
    resource_name: Box<str>,
    restart_policy: Box<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    container_statuses: Option<Vec<StatusContainer>>,
    init_container_statuses: Option<Vec<StatusContainer>>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusContainer {
    name: Arc<str>,
    resources: Option<Resources>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: Box<str>,
    status: Box<str>,
    last_transition_time: Option<Time>,
}

impl From<RawPod> for AdmissionPod {
    fn from(mut object: RawPod) -> Self {
        let owners = object.metadata.owner_references.take().unwrap_or_default();
        let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
        let controller = controller.map(|owner| Controller {
            api_version: owner.api_version,
            kind: owner.kind,
            name: owner.name,
        });
        Self { controller, pod: object.into() }
    }
}

impl From<RawPod> for Pod {
    fn from(RawPod { metadata, spec, status }: RawPod) -> Self {
        let by_name = |statuses: Option<Vec<StatusContainer>>| {
            let named = |status: StatusContainer| (status.name, status.resources);
            first_by_key(statuses.unwrap_or_default().into_iter().map(named))
        };
        let statuses = by_name(status.container_statuses);
        let init_statuses = by_name(status.init_container_statuses);
        let conditions = status.conditions.unwrap_or_default();
        let is_ready = |found: &&Condition| &*found.kind == "Ready" && &*found.status == "True";
        let ready = conditions.iter().find(is_ready);
        let mains = spec.containers.unwrap_or_default().into_iter();
        let inits = spec.init_containers.unwrap_or_default().into_iter();
        Self {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            generate_name: metadata.generate_name,
            uid: metadata.uid.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations,
            containers: mains
                .map(|main| {
                    let status = statuses.get(&main.name).cloned().flatten();
                    to_container(main, ContainerType::Main, status)
                })
                .collect(),
            init_containers: inits
                .map(|init| {
                    let is_sidecar = init.restart_policy.as_deref() == Some("Always");
                    let container_type =
                        if is_sidecar { ContainerType::Sidecar } else { ContainerType::Init };
                    let status = init_statuses.get(&init.name).cloned().flatten();
                    to_container(init, container_type, status)
                })
                .collect(),
            overhead: spec.overhead.unwrap_or_default(),
            ready_since: ready.map(|found| found.last_transition_time.unwrap_or_default()),
            priority_class: spec.priority_class_name.filter(|name| !name.is_empty()),
            has_deadline: spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0),
        }
    }
}

fn to_container(
    container: SpecContainer,
    container_type: ContainerType,
    status: Option<Resources>,
) -> Container {
    let policies = container.resize_policy.unwrap_or_default();
    let restarts = |resource: &str| {
        let restart = |policy: &ResizePolicy| &*policy.restart_policy == "RestartContainer";
        policies.iter().any(|policy| &*policy.resource_name == resource && restart(policy))
    };
    Container {
        name: container.name,
        container_type,
        spec: container.resources.unwrap_or_default(),
        status,
        resize_restarts: ResizeRestarts { on_cpu: restarts("cpu"), on_memory: restarts("memory") },
    }
}
