//! Annotates pods, and the parts that all writes to pods share.

use std::{collections::BTreeMap, fmt, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use serde_json::json;

use crate::cluster::write::{
    stats::WriteKind,
    write_context::{WriteContext, WriteError},
};

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

/// Sets annotations of a pod, and removes those that are `None`, if the pod is unchanged. Returns its new resource version.
pub async fn annotate_pod(
    writer: WriteContext<'_>,
    pod: &PodRef,
    annotations: &BTreeMap<String, Option<String>>,
) -> Result<Box<str>, WriteError> {
    let patch = Patch::Merge(json!({"metadata": {
        "uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": annotations,
    }}));
    let place = (&*pod.namespace, &*pod.name, None);
    let sent = writer.patch::<Pod>(WriteKind::PodAnnotations, REQUEST_LIMIT, place, patch);
    sent.await?.resource_version()
}
