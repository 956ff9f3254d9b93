//! One eviction, of exactly the pod that it was decided for, and what can come of it.

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

/// What the server says when a disruption budget is why it refuses.
const PDB_CAUSE: &str = "DisruptionBudget";

/// What came of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionResult {
    /// The pod is on its way out.
    Evicted,
    /// A disruption budget does not let it go now. That is an answer: whoever asks again at once is refused again.
    PdbBlocked {
        /// The server's words.
        why: String,
        /// When it may be worth asking again; budgets that were not looked at yet say so.
        retry_after: Option<Duration>,
    },
    /// It was not evicted for another reason.
    Failed(PodWriteError),
}

/// Evicts a pod, if it still is that pod. Its version is not looked at: a pod that changes all the time must be evictable
/// too, and the server would charge its budget for an eviction that then fails.
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
    let what = WriteKind::Eviction;
    let reply = match send_pod_write(client, permit, stats, (what, pod), request).await {
        Ok(reply) => reply,
        Err(unwritten) => return EvictionResult::Failed(unwritten),
    };
    match reply.code {
        code if code.is_success() => EvictionResult::Evicted,
        StatusCode::TOO_MANY_REQUESTS if reply.has_status_cause(PDB_CAUSE) => {
            EvictionResult::PdbBlocked { why: reply.message(), retry_after: reply.retry_after }
        }
        // The pod that had this uid is gone, whoever has its name now.
        StatusCode::CONFLICT => EvictionResult::Failed(PodWriteError::NotFound),
        _ => EvictionResult::Failed(write_error(what, pod, &reply)),
    }
}
