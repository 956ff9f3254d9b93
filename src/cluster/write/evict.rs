//! Evicts a pod, if it is still the same pod.

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::Eviction},
    apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions},
};
use kube::{Resource as _, api::PostParams};

use crate::cluster::write::{
    pod_annotations::{PodRef, REQUEST_LIMIT},
    stats::WriteKind,
    write_context::{WriteContext, WriteError},
};

/// Evicts a pod, if it is still the same pod. Does not check its resource version: a pod that changes constantly must be
/// evictable too, and the server would charge its budget for an eviction that then fails.
pub async fn evict(writer: WriteContext<'_>, pod: &PodRef) -> Result<(), WriteError> {
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
    let body = serde_json::to_vec(&eviction).map_err(WriteError::malformed)?;
    let parameters = PostParams::default();
    let request = requests.create_subresource("eviction", &pod.name, &parameters, body);
    let sent = writer.send(WriteKind::Eviction, REQUEST_LIMIT, "create_subresource", request);
    match sent.await?.success() {
        Ok(_) => Ok(()),
        // The pod with this UID is gone; another pod may have its name.
        Err(WriteError::Conflict(_)) => Err(WriteError::NotFound),
        Err(error) => Err(error),
    }
}
