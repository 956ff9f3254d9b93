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
    pod_annotations::{PodRef, send_pod_write},
    stats::{WriteKind, WriteStats},
    write_context::WriteError,
};

/// The cause in the server's status when a PodDisruptionBudget blocks the eviction.
const PDB_CAUSE: &str = "DisruptionBudget";

/// Why a pod was not evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionError {
    /// A PodDisruptionBudget blocks the eviction. Do not retry immediately: it would be blocked again.
    PdbBlocked {
        /// The server's message.
        why: String,
        /// When to retry, if the server says so: for a budget that has not been processed yet.
        retry_after: Option<Duration>,
    },
    /// The eviction failed for another reason.
    Failed(WriteError),
}

/// Evicts a pod, if it is still the same pod. Does not check its resource version: a pod that changes constantly must be
/// evictable too, and the server would charge its budget for an eviction that then fails.
pub async fn evict(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    pod: &PodRef,
) -> Result<(), EvictionError> {
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
    let reply = send_pod_write(client, permit, (stats, WriteKind::Eviction), request).await;
    let reply = reply.map_err(EvictionError::Failed)?;
    if reply.code == StatusCode::TOO_MANY_REQUESTS && reply.has_status_cause(PDB_CAUSE) {
        let (why, retry_after) = (reply.message(), reply.retry_after);
        return Err(EvictionError::PdbBlocked { why, retry_after });
    }
    match reply.success() {
        Ok(_) => Ok(()),
        // The pod with this UID is gone; another pod may have its name.
        Err(WriteError::Conflict(_)) => Err(EvictionError::Failed(WriteError::NotFound)),
        Err(error) => Err(EvictionError::Failed(error)),
    }
}
