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
    pod_annotations::{
        FIELD_MANAGER, PodRef, PodWriteError, resource_version, send_pod_write, write_error,
    },
    stats::{WriteKind, WriteStats},
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

/// The result of a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeResult {
    /// The server accepted it; the pod's conditions show whether the node can apply it.
    Accepted {
        /// The new resource version of the pod.
        resource_version: Box<str>,
    },
    /// The server reports that it is infeasible: it exceeds the node's capacity.
    Infeasible {
        /// The server's message.
        why: String,
    },
    /// The server rejected it as invalid (another QoS class, a LimitRange, a quota): a retry would fail again.
    Rejected {
        /// The server's message.
        why: String,
    },
    /// The resize failed for another reason.
    Failed(PodWriteError),
}

/// Sets new resources, if the pod is unchanged. Containers are identified by name; sidecars are init containers. Both must
/// be in the order of the pod: the server would take the order of the patch, and then reject that it differs.
pub async fn resize(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    pod: &PodRef,
    containers: &[(String, ContainerResize)],
    sidecars: &[(String, ContainerResize)],
) -> ResizeResult {
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
    let kind = WriteKind::Resize;
    let reply = match send_pod_write(client, permit, stats, (kind, pod), request).await {
        Ok(reply) => reply,
        Err(error) => return ResizeResult::Failed(error),
    };
    match (reply.code, resource_version(&reply)) {
        (code, Some(resource_version)) if code.is_success() => {
            ResizeResult::Accepted { resource_version }
        }
        (StatusCode::FORBIDDEN, _) if reply.has_status_cause(NODE_CAPACITY_CAUSE) => {
            ResizeResult::Infeasible { why: reply.message() }
        }
        // Admission (a LimitRange, a quota) returns a 403 about the pod; missing RBAC returns one about the subresource.
        (StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST, _) => {
            ResizeResult::Rejected { why: reply.message() }
        }
        (StatusCode::FORBIDDEN, _) if !reply.message().contains("cannot patch resource") => {
            ResizeResult::Rejected { why: reply.message() }
        }
        _ => ResizeResult::Failed(write_error(kind, pod, &reply)),
    }
}
