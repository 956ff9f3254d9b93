//! Annotates pods, and the parts that all writes to pods share.

use std::{collections::BTreeMap, fmt, time::Duration};

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client, Resource as _,
    api::{Patch, PatchParams},
    client::Body,
};
use plimsoll_storage::WritePermit;
use serde_json::json;

use crate::cluster::write::{
    request::{ExchangeError, Reply, exchange},
    stats::{WriteKind, WriteStats},
};

/// The field manager of the updater.
pub(super) const FIELD_MANAGER: &str = "plimsoll-updater";

/// Long for a write of a few kilobytes; an unresponsive server must not block a pass for ever.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// A pod as it was when the decision about it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name, which another pod may have by now.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// Its resource version at that time.
    pub resource_version: Box<str>,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why a write to a pod failed, for reasons that all kinds of writes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodWriteError {
    /// The pod is gone, or another one has its name.
    NotFound,
    /// The pod has changed since it was read.
    Conflict,
    /// Not sent: this process may not write.
    NotLeader,
    /// The request timed out: it may have succeeded.
    NoResponse {
        /// The message: the action, the pod and the error.
        why: String,
    },
    /// Any other error.
    Failed {
        /// The message: the action, the pod and the error.
        why: String,
        /// The server's `Retry-After`.
        retry_after: Option<Duration>,
    },
}

/// The result of writing annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotateResult {
    /// The annotations were written.
    Written {
        /// The new resource version of the pod.
        resource_version: Box<str>,
    },
    /// The annotations were not written.
    Failed(PodWriteError),
}

/// Sets annotations of a pod, and removes those that are `None`, if the pod is unchanged.
pub async fn annotate_pod(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    pod: &PodRef,
    annotations: &BTreeMap<String, Option<String>>,
) -> AnnotateResult {
    let body = json!({"metadata": {
        "uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": annotations,
    }});
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let requests = kube::core::Request::new(Pod::url_path(&(), Some(&pod.namespace)));
    let request = requests.patch(&pod.name, &parameters, &Patch::Merge(body));
    let request = request.map(|mut request| {
        request.extensions_mut().insert("patch");
        request.map(Body::from)
    });
    let kind = WriteKind::PodAnnotations;
    let reply = match send_pod_write(client, permit, stats, (kind, pod), request).await {
        Ok(reply) => reply,
        Err(error) => return AnnotateResult::Failed(error),
    };
    match resource_version(&reply) {
        Some(resource_version) if reply.code.is_success() => {
            AnnotateResult::Written { resource_version }
        }
        _ => AnnotateResult::Failed(write_error(kind, pod, &reply)),
    }
}

/// Sends one write to a pod under the permit, and counts it.
pub(super) async fn send_pod_write(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    (kind, pod): (WriteKind, &PodRef),
    request: Result<http::Request<Body>, impl fmt::Display>,
) -> Result<Reply, PodWriteError> {
    let request = request.map_err(|why| failed(kind, pod, &why.to_string(), None))?;
    exchange(client, permit, (stats, kind), REQUEST_LIMIT, request).await.map_err(|error| {
        match error {
            ExchangeError::NotLeader => PodWriteError::NotLeader,
            ExchangeError::NoResponse(why) => {
                PodWriteError::NoResponse { why: error_line(kind, pod, &why) }
            }
        }
    })
}

/// The error of an unsuccessful response to any write to a pod.
pub(super) fn write_error(kind: WriteKind, pod: &PodRef, reply: &Reply) -> PodWriteError {
    match reply.code {
        StatusCode::NOT_FOUND => PodWriteError::NotFound,
        StatusCode::CONFLICT => PodWriteError::Conflict,
        StatusCode::GATEWAY_TIMEOUT => {
            PodWriteError::NoResponse { why: error_line(kind, pod, &reply.message()) }
        }
        code if code.is_success() => {
            failed(kind, pod, "failed to parse response", reply.retry_after)
        }
        code => {
            let why = format!("{}: {}", code.as_u16(), reply.message());
            failed(kind, pod, &why, reply.retry_after)
        }
    }
}

/// The resource version of the object in a response.
pub(super) fn resource_version(reply: &Reply) -> Option<Box<str>> {
    let object: serde_json::Value = serde_json::from_slice(&reply.body).ok()?;
    Some(object["metadata"]["resourceVersion"].as_str()?.into())
}

fn failed(
    kind: WriteKind,
    pod: &PodRef,
    why: &str,
    retry_after: Option<Duration>,
) -> PodWriteError {
    PodWriteError::Failed { why: error_line(kind, pod, why), retry_after }
}

fn error_line(kind: WriteKind, pod: &PodRef, why: &str) -> String {
    let action = match kind {
        WriteKind::Eviction => "evict",
        WriteKind::Resize => "resize",
        _ => "annotate",
    };
    format!("failed to {action} pod {pod}: {why}")
}
