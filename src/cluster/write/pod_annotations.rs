//! Annotates pods, and the parts that all writes to pods share.

use std::{collections::BTreeMap, fmt, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client, Resource as _,
    api::{Patch, PatchParams},
    client::Body,
};
use plimsoll_storage::WritePermit;
use serde_json::json;

use crate::cluster::write::{
    request::{Reply, exchange},
    stats::{WriteKind, WriteStats},
    write_context::WriteError,
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

/// Sets annotations of a pod, and removes those that are `None`, if the pod is unchanged. Returns its new resource version.
pub async fn annotate_pod(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    pod: &PodRef,
    annotations: &BTreeMap<String, Option<String>>,
) -> Result<Box<str>, WriteError> {
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
    send_pod_write(client, permit, (stats, kind), request).await?.resource_version()
}

/// Sends one write to a pod under the permit, and counts it. Returns the response, whatever its status.
pub(super) async fn send_pod_write(
    client: &Client,
    permit: &dyn WritePermit,
    counter: (&WriteStats, WriteKind),
    request: Result<http::Request<Body>, impl fmt::Display>,
) -> Result<Reply, WriteError> {
    let request = request.map_err(WriteError::malformed)?;
    exchange(client, permit, counter, REQUEST_LIMIT, request).await
}
