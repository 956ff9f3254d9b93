//! Resizes the containers of a running pod through its `resize` subresource.

use std::collections::BTreeMap;

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client, Resource as _,
    api::{Patch, PatchParams},
    client::Body,
};
use plimsoll_storage::WritePermit;
use serde::Serialize;
use serde_json::json;

use crate::cluster::write::{
    pod_annotations::{FIELD_MANAGER, PodRef, send_pod_write},
    stats::{WriteKind, WriteStats},
    write_context::WriteError,
};

/// The cause in the server's status when no node has that much capacity (Kubernetes 1.36).
const NODE_CAPACITY_CAUSE: &str = "NodeCapacity";

/// New resources of a container. Resources that are not set are unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContainerResize {
    /// Requests by resource, as quantities.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// Limits by resource, as quantities.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
}

/// Why a pod was not resized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeError {
    /// The server reports that it is infeasible: it exceeds the node's capacity.
    Infeasible {
        /// The server's message.
        why: String,
    },
    /// The resize failed for another reason.
    Failed(WriteError),
}

/// Sets new resources, if the pod is unchanged. Containers are identified by name; sidecars are init containers. Both must
/// be in the order of the pod: the server would take the order of the patch, and then reject that it differs. Returns the new
/// resource version of the pod; its conditions show whether the node can apply the resize.
pub async fn resize(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    pod: &PodRef,
    containers: &[(String, ContainerResize)],
    sidecars: &[(String, ContainerResize)],
) -> Result<Box<str>, ResizeError> {
    let list = |resized: &[(String, ContainerResize)]| {
        let to_json = |(name, resources): &(String, ContainerResize)| json!({"name": name, "resources": resources});
        resized.iter().map(to_json).collect::<Vec<_>>()
    };
    let mut spec = json!({});
    for (field, resized) in [("containers", containers), ("initContainers", sidecars)] {
        if !resized.is_empty() {
            spec[field] = list(resized).into();
        }
    }
    let body = json!({
        "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version}, "spec": spec,
    });
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let requests = kube::core::Request::new(Pod::url_path(&(), Some(&pod.namespace)));
    let patch = Patch::Strategic(body);
    let request = requests.patch_subresource("resize", &pod.name, &parameters, &patch);
    let request = request.map(|mut request| {
        request.extensions_mut().insert("patch_subresource");
        request.map(Body::from)
    });
    let reply = send_pod_write(client, permit, (stats, WriteKind::Resize), request).await;
    let reply = reply.map_err(ResizeError::Failed)?;
    if reply.code == StatusCode::FORBIDDEN && reply.has_status_cause(NODE_CAPACITY_CAUSE) {
        return Err(ResizeError::Infeasible { why: reply.message() });
    }
    reply.resource_version().map_err(ResizeError::Failed)
}
