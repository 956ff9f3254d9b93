//! Evicts a pod, if it is still the same pod.

use std::time::Duration;

use http::StatusCode;
use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::Eviction},
    apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions},
};
use kube::{Client, Resource as _, api::PostParams, client::Body};
use plimsoll_storage::WritePermit;

use crate::cluster::write::{
    pod_annotations::{PodRef, PodWriteError, send_pod_write, write_error},
    stats::{WriteKind, WriteStats},
};

/// The cause in the server's status when a PodDisruptionBudget blocks the eviction.
const PDB_CAUSE: &str = "DisruptionBudget";

/// The result of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionResult {
    /// The pod is terminating.
    Evicted,
    /// A PodDisruptionBudget blocks the eviction. Do not retry immediately: it would be blocked again.
    PdbBlocked {
        /// The server's message.
        why: String,
        /// When to retry, if the server says so: for a budget that has not been processed yet.
        retry_after: Option<Duration>,
    },
    /// The eviction failed for another reason.
    Failed(PodWriteError),
}

/// Evicts a pod, if it is still the same pod. Does not check its resource version: a pod that changes constantly must be
/// evictable too, and the server would charge its budget for an eviction that then fails.
pub async fn evict(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    pod: &PodRef,
) -> EvictionResult {
    let eviction = Eviction {
        metadata: ObjectMeta {
            name: Some(pod.name.to_string()),
            namespace: Some(pod.namespace.to_string()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.to_string()),
                resource_version: None,
            }),
            ..DeleteOptions::default()
        }),
    };
    let requests = kube::core::Request::new(Pod::url_path(&(), Some(&pod.namespace)));
    let request = serde_json::to_vec(&eviction).map_err(|why| why.to_string()).and_then(|body| {
        let request =
            requests.create_subresource("eviction", &pod.name, &PostParams::default(), body);
        let mut request = request.map_err(|why| why.to_string())?;
        request.extensions_mut().insert("create_subresource");
        Ok(request.map(Body::from))
    });
    let kind = WriteKind::Eviction;
    let reply = match send_pod_write(client, permit, stats, (kind, pod), request).await {
        Ok(reply) => reply,
        Err(error) => return EvictionResult::Failed(error),
    };
    match reply.code {
        code if code.is_success() => EvictionResult::Evicted,
        StatusCode::TOO_MANY_REQUESTS if reply.has_status_cause(PDB_CAUSE) => {
            EvictionResult::PdbBlocked { why: reply.message(), retry_after: reply.retry_after }
        }
        // The pod with this UID is gone; another pod may have its name.
        StatusCode::CONFLICT => EvictionResult::Failed(PodWriteError::NotFound),
        _ => EvictionResult::Failed(write_error(kind, pod, &reply)),
    }
}
