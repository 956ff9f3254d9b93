//! Which pod is written to, and its annotations.

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

/// Who wrote, in `managedFields`.
pub(super) const FIELD_MANAGER: &str = "plimsoll-updater";

/// Long for a write of a few kilobytes; a server that hangs must not hold a pass for ever.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// A pod as it was when something was decided about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name, which another pod may have by now.
    pub name: Box<str>,
    /// What no other pod ever has.
    pub uid: Box<str>,
    /// Its version then.
    pub resource_version: Box<str>,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What came of a write to a pod, where it is neither done nor refused for a reason of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodWriteError {
    /// There is no such pod any more, or another one has its name.
    NotFound,
    /// The pod has changed since.
    Conflict,
    /// It was not sent: this process may not write.
    NotLeader,
    /// There was no answer: it may have been done all the same.
    NoResponse {
        /// One line: what, where, why.
        why: String,
    },
    /// Anything else.
    Failed {
        /// One line: what, where, why.
        why: String,
        /// How long the server asked to be left alone.
        retry_after: Option<Duration>,
    },
}

/// What came of annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotateResult {
    /// They are stored.
    Written {
        /// The version of the pod since.
        resource_version: Box<str>,
    },
    /// They are not.
    Failed(PodWriteError),
}

/// Sets annotations of a pod, and takes those away that are `None`, if it is still what it was.
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
    let what = WriteKind::PodAnnotations;
    let reply = match send_pod_write(client, permit, stats, (what, pod), request).await {
        Ok(reply) => reply,
        Err(unwritten) => return AnnotateResult::Failed(unwritten),
    };
    match resource_version(&reply) {
        Some(resource_version) if reply.code.is_success() => {
            AnnotateResult::Written { resource_version }
        }
        _ => AnnotateResult::Failed(write_error(what, pod, &reply)),
    }
}

/// Sends one request about a pod, under the permit, and counts it.
pub(super) async fn send_pod_write(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    (what, pod): (WriteKind, &PodRef),
    request: Result<http::Request<Body>, impl fmt::Display>,
) -> Result<Reply, PodWriteError> {
    let request = request.map_err(|why| failed(what, pod, &why.to_string(), None))?;
    exchange(client, permit, (stats, what), REQUEST_LIMIT, request).await.map_err(|unsent| {
        match unsent {
            ExchangeError::NotLeader => PodWriteError::NotLeader,
            ExchangeError::NoResponse(why) => {
                PodWriteError::NoResponse { why: error_line(what, pod, &why) }
            }
        }
    })
}

/// What an answer that is no success means for any write to a pod.
pub(super) fn write_error(what: WriteKind, pod: &PodRef, reply: &Reply) -> PodWriteError {
    match reply.code {
        StatusCode::NOT_FOUND => PodWriteError::NotFound,
        StatusCode::CONFLICT => PodWriteError::Conflict,
        StatusCode::GATEWAY_TIMEOUT => {
            PodWriteError::NoResponse { why: error_line(what, pod, &reply.message()) }
        }
        code if code.is_success() => {
            failed(what, pod, "the answer cannot be read", reply.retry_after)
        }
        code => {
            let why = format!("{}: {}", code.as_u16(), reply.message());
            failed(what, pod, &why, reply.retry_after)
        }
    }
}

/// The version of the object in an answer.
pub(super) fn resource_version(reply: &Reply) -> Option<Box<str>> {
    let object: serde_json::Value = serde_json::from_slice(&reply.body).ok()?;
    Some(object["metadata"]["resourceVersion"].as_str()?.into())
}

fn failed(
    what: WriteKind,
    pod: &PodRef,
    why: &str,
    retry_after: Option<Duration>,
) -> PodWriteError {
    PodWriteError::Failed { why: error_line(what, pod, why), retry_after }
}

fn error_line(what: WriteKind, pod: &PodRef, why: &str) -> String {
    let what = match what {
        WriteKind::Eviction => "was not evicted",
        WriteKind::Resize => "was not resized",
        _ => "was not annotated",
    };
    format!("pod {pod} {what}: {why}")
}
