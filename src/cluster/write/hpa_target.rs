//! Reads a HorizontalPodAutoscaler, and writes its target.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{Api, Patch};
use serde_json::Value;

use crate::cluster::write::{
    request::read_with_timeout,
    stats::WriteKind,
    write_context::{REQUEST_LIMIT, WriteContext, WriteError},
};

pub async fn read_hpa(
    writer: WriteContext<'_>,
    (namespace, name): (&str, &str),
) -> Result<HorizontalPodAutoscaler, WriteError> {
    let api = Api::namespaced(writer.client.clone(), namespace);
    read_with_timeout(REQUEST_LIMIT, api.get(name)).await
}

/// Applies a JSON patch, which tests the version of the object that it was made for.
pub async fn patch_hpa_target(
    writer: WriteContext<'_>,
    place: (&str, &str),
    operations: Value,
) -> Result<(), WriteError> {
    let operations = serde_json::from_value(operations).map_err(WriteError::malformed)?;
    let patch = Patch::Json(operations);
    let sent =
        writer.patch::<HorizontalPodAutoscaler>(WriteKind::Object, REQUEST_LIMIT, place, patch);
    sent.await?.success().map(drop)
}
