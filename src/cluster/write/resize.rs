//! Resizes the containers of a running pod through its `resize` subresource.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use serde::Serialize;
use serde_json::json;

use crate::cluster::write::{
    pod_annotations::{PodRef, REQUEST_LIMIT},
    stats::WriteKind,
    write_context::{WriteContext, WriteError},
};

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
    let place = (&*pod.namespace, &*pod.name, Some("resize"));
    let sent = writer.patch::<Pod>(WriteKind::Resize, REQUEST_LIMIT, place, patch);
    sent.await?.resource_version()
}
