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

use crate::act::{
    pod::{FIELD_MANAGER, PodRef, Unwritten, unwritten, version, write},
    writes::{WriteKind, WriteStats},
};

/// What the server says when no node of this size could ever give so much (Kubernetes 1.36).
const CAPACITY: &str = "NodeCapacity";

/// What a container is to have. What is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContainerResources {
    /// Requests by resource, as quantities.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    /// Limits by resource, as quantities.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
}

/// What came of a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resized {
    /// The server took it; whether the node can do it shows in the pod's conditions.
    Accepted {
        /// The version of the pod since.
        resource_version: Box<str>,
    },
    /// The server itself says that it cannot be: the node is too small for it.
    BeyondNode {
        /// The server's words.
        why: String,
    },
    /// The server refuses it as it is (another QoS class, a LimitRange, a quota): asking again changes nothing.
    Refused {
        /// The server's words.
        why: String,
    },
    /// It was not written for another reason.
    Unwritten(Unwritten),
}

/// Asks for other resources, if the pod is still what it was. Containers go by name, sidecars among the init containers,
/// both in the order of the pod: the server puts them into the order of the patch, and then refuses another one than it has.
pub async fn resize(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    pod: &PodRef,
    containers: &[(String, ContainerResources)],
    sidecars: &[(String, ContainerResources)],
) -> Resized {
    let list = |of: &[(String, ContainerResources)]| {
        let one = |(name, resources): &(String, ContainerResources)| json!({"name": name, "resources": resources});
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
    let reply = match write(client, permit, stats, (what, pod), request).await {
        Ok(reply) => reply,
        Err(unwritten) => return Resized::Unwritten(unwritten),
    };
    match (reply.code, version(&reply)) {
        (code, Some(resource_version)) if code.is_success() => {
            Resized::Accepted { resource_version }
        }
        (StatusCode::FORBIDDEN, _) if reply.has_cause(CAPACITY) => {
            Resized::BeyondNode { why: reply.message() }
        }
        // Admission (a LimitRange, a quota) says 403 about the pod; who may not resize is told so about the subresource.
        (StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST, _) => {
            Resized::Refused { why: reply.message() }
        }
        (StatusCode::FORBIDDEN, _) if !reply.message().contains("cannot patch resource") => {
            Resized::Refused { why: reply.message() }
        }
        _ => Resized::Unwritten(unwritten(what, pod, &reply)),
    }
}
