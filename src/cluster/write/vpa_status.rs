//! Writes the status of a VerticalPodAutoscaler, or its annotations.

use kube::api::{Api, Patch};
use plimsoll_core::types::ObjectKey;
use serde_json::{Value, json};

use crate::cluster::write::{
    request::read_with_timeout,
    stats::WriteKind,
    write_context::{LONG_REQUEST_LIMIT, UpdateError, WriteContext, WriteError},
};
use plimsoll_core::api::VerticalPodAutoscaler;

pub const RECOMMENDER_FIELD_MANAGER: &str = "plimsoll-recommender";

#[derive(Clone, Debug)]
pub struct StatusPatch {
    pub key: ObjectKey,
    /// The resource version that the patch was made from. Any other version is a conflict.
    pub resource_version: Box<str>,
    /// The merge patch, `{"status": ...}` or `{"metadata": {"annotations": ...}}`, without the resourceVersion. A list
    /// replaces the stored one, so `conditions` must include those of other writers.
    pub body: Value,
    pub field_manager: &'static str,
}

/// The result of a write: the new resource version of the object. A conflict has the object as it is now.
pub type VpaWriteResult = Result<Box<str>, UpdateError<Box<VerticalPodAutoscaler>>>;

pub trait StatusSource: Send + Sync {
    /// The patch for a key, from the current state; `None` if there is nothing to write.
    fn next_patch(&self, key: &ObjectKey) -> Option<StatusPatch>;
    /// Receives the result. After a conflict with the current object, [`Self::next_patch`] is called again immediately.
    fn on_result(&self, key: &ObjectKey, outcome: &VpaWriteResult);

    /// Annotations that belong to the status that was just written. They cost a separate request, and are not retried after
    /// an error.
    fn next_annotation_patch(&self, _key: &ObjectKey) -> Option<StatusPatch> {
        None
    }

    /// Receives the result. After a conflict with the current object, [`Self::next_annotation_patch`] is called again
    /// immediately, until it returns `None`.
    fn on_annotation_result(&self, _key: &ObjectKey, _outcome: &VpaWriteResult) {}
}

/// Sends a patch, which applies only to the resource version that it was made from.
pub async fn try_write(
    writer: WriteContext<'_>,
    patch: &StatusPatch,
    kind: WriteKind,
) -> VpaWriteResult {
    let StatusPatch { key, resource_version, body, .. } = patch;
    let mut body = body.clone();
    let Some(fields) = body.as_object_mut() else {
        return Err(WriteError::malformed("patch is not an object").into());
    };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    metadata["resourceVersion"] = json!(resource_version);
    let place = (&*key.namespace, &*key.name);
    let sent =
        writer.patch::<VerticalPodAutoscaler>(kind, LONG_REQUEST_LIMIT, place, Patch::Merge(body));
    match sent.await?.resource_version() {
        Err(WriteError::Conflict(why)) => {
            let client = writer.client.clone();
            let api = Api::<VerticalPodAutoscaler>::namespaced(client, &key.namespace);
            match read_with_timeout(LONG_REQUEST_LIMIT, api.get_opt(&key.name)).await {
                Ok(Some(current)) => Err(UpdateError::Conflict(Box::new(current))),
                Ok(None) => Err(WriteError::NotFound.into()),
                // It changed, and reading it failed.
                Err(_) => Err(WriteError::Conflict(why).into()),
            }
        }
        result => Ok(result?),
    }
}
