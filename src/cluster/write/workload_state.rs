//! The updater's state of a workload, as an annotation of its VPA. It is written before the change that it accounts for, and
//! only if it is unchanged since it was read.

use plimsoll_core::types::ObjectKey;
use serde_json::json;

use crate::cluster::write::{
    stats::WriteKind,
    vpa_status::{StatusPatch, VpaWriteResult, try_write},
    write_context::{UpdateError, WriteContext, WriteError},
};

pub const UPDATER_FIELD_MANAGER: &str = "plimsoll-updater";

/// The recommender writes the same object every minute: one conflict is common, two in a row are rare.
const TRIES: usize = 3;

#[derive(Clone, Copy, Debug)]
pub struct AnnotationUpdate<'a> {
    pub key: &'static str,
    /// The value as it was read; `None` if it was not set.
    pub before: Option<&'a str>,
    pub after: &'a str,
}

/// Writes an annotation of a VPA. Retries if other fields of the object changed, but not if the annotation itself did.
pub async fn write_vpa_annotation(
    writer: WriteContext<'_>,
    (vpa, resource_version): (&ObjectKey, &str),
    update: AnnotationUpdate<'_>,
) -> VpaWriteResult {
    let mut patch = StatusPatch {
        key: vpa.clone(),
        resource_version: resource_version.into(),
        body: json!({"metadata": {"annotations": {update.key: update.after}}}),
        field_manager: writer.field_manager,
    };
    for _ in 0..TRIES {
        let written = try_write(writer, &patch, WriteKind::UpdaterState).await;
        let Err(UpdateError::Conflict(current)) = written else { return written };
        let annotations = current.metadata.annotations.as_ref();
        let stored = annotations.and_then(|annotations| annotations.get(update.key));
        if stored.map(String::as_str) != update.before {
            return Err(UpdateError::Conflict(current));
        }
        patch.resource_version = current.metadata.resource_version.unwrap_or_default().into();
    }
    Err(WriteError::Conflict("the VPA was changed by other clients all the time".to_owned()).into())
}
