//! Writes to pods: evictions, resizes and annotations.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::Eviction},
    apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions},
};
use kube::{
    Resource as _,
    api::{Patch, PostParams},
};
use serde::Serialize;
use serde_json::json;

use crate::cluster::write::{
    stats::WriteKind,
    write_context::{LONG_REQUEST_LIMIT, WriteContext, WriteError},
};

/// A pod as it was when the decision about it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    pub namespace: Box<str>,
    /// Its name, which another pod may have by now.
    pub name: Box<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Sets annotations of a pod, and removes those that are `None`, if the pod is unchanged. Returns its new resource version.
pub async fn annotate_pod(
    writer: WriteContext<'_>,
    pod: &PodRef,
    annotations: &BTreeMap<String, Option<String>>,
) -> Result<Box<str>, WriteError> {
    let patch = Patch::Merge(json!({"metadata": {
        "uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": annotations,
    }}));
    let place = (&*pod.namespace, &*pod.name);
    let sent = writer.patch::<Pod>(WriteKind::PodAnnotations, LONG_REQUEST_LIMIT, place, patch);
    sent.await?.resource_version()
}

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
    let sent = writer.send(WriteKind::Eviction, LONG_REQUEST_LIMIT, "create_subresource", request);
    match sent.await?.success() {
        Ok(_) => Ok(()),
        // The pod with this UID is gone; another pod may have its name.
        Err(WriteError::Conflict(_)) => Err(WriteError::NotFound),
        Err(error) => Err(error),
    }
}

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

/// Sets new resources, if the pod is unchanged. Containers are identified by name; sidecars are init containers. Both must
/// be in the order of the pod: the server would take the order of the patch, and then reject that it differs. Returns the new
/// resource version of the pod; its conditions show whether the node can apply the resize.
pub async fn resize(
    writer: WriteContext<'_>,
    pod: &PodRef,
    containers: &[(String, ContainerResize)],
    sidecars: &[(String, ContainerResize)],
) -> Result<Box<str>, WriteError> {
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
    let patch = Patch::Strategic(json!({
        "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version}, "spec": spec,
    }));
    let place = (&*pod.namespace, &*pod.name);
    let sent = writer.patch::<Pod>(WriteKind::Resize, LONG_REQUEST_LIMIT, place, patch);
    sent.await?.resource_version()
}
