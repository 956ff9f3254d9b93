//! New resources for the containers of a running pod, through its `resize` subresource, and what can come of that.

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

/// What the server says when no node of this size could ever give so much (Kubernetes 1.36).
const NODE_CAPACITY_CAUSE: &str = "NodeCapacity";

/// What a container is to have. What is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContainerResize {
    /// Requests by resource, as quantities.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// Limits by resource, as quantities.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
}

/// What came of a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeResult {
    /// The server took it; whether the node can do it shows in the pod's conditions.
    Accepted {
        /// The version of the pod since.
        resource_version: Box<str>,
    },
    /// The server itself says that it cannot be: the node is too small for it.
    Infeasible {
        /// The server's words.
        why: String,
    },
    /// The server refuses it as it is (another QoS class, a LimitRange, a quota): asking again changes nothing.
    Rejected {
        /// The server's words.
        why: String,
    },
    /// It was not written for another reason.
    Failed(PodWriteError),
}

/// Asks for other resources, if the pod is still what it was. Containers go by name, sidecars among the init containers,
/// both in the order of the pod: the server puts them into the order of the patch, and then refuses another one than it has.
pub async fn resize(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    pod: &PodRef,
    containers: &[(String, ContainerResize)],
    sidecars: &[(String, ContainerResize)],
) -> ResizeResult {
    let list = |of: &[(String, ContainerResize)]| {
        let one = |(name, resources): &(String, ContainerResize)| json!({"name": name, "resources": resources});
        of.iter().map(one).collect::<Vec<_>>()
    };
    let mut spec = json!({});
    for (field, of) in [("containers", containers), ("initContainers", sidecars)] {
        if !of.is_empty() {
            spec[field] = list(of).into();
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
    let what = WriteKind::Resize;
    let reply = match send_pod_write(client, permit, stats, (what, pod), request).await {
        Ok(reply) => reply,
        Err(unwritten) => return ResizeResult::Failed(unwritten),
    };
    match (reply.code, resource_version(&reply)) {
        (code, Some(resource_version)) if code.is_success() => {
            ResizeResult::Accepted { resource_version }
        }
        (StatusCode::FORBIDDEN, _) if reply.has_status_cause(NODE_CAPACITY_CAUSE) => {
            ResizeResult::Infeasible { why: reply.message() }
        }
        // Admission (a LimitRange, a quota) says 403 about the pod; who may not resize is told so about the subresource.
        (StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST, _) => {
            ResizeResult::Rejected { why: reply.message() }
        }
        (StatusCode::FORBIDDEN, _) if !reply.message().contains("cannot patch resource") => {
            ResizeResult::Rejected { why: reply.message() }
        }
        _ => ResizeResult::Failed(write_error(what, pod, &reply)),
    }
}
