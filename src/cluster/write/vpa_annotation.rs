//! The updater's state of a workload, as an annotation of its VPA. It is written before the change that it accounts for, and
//! only if it is unchanged since it was read.

use kube::Client;
use plimsoll_core::types::ObjectKey;
use plimsoll_storage::WritePermit;
use serde_json::json;

use crate::cluster::write::{
    stats::WriteStats,
    vpa_status::{PatchTarget, REQUEST_LIMIT, StatusPatch, StatusWriteResult, try_write},
};
use plimsoll_core::api::VerticalPodAutoscaler;

/// The field manager of the updater.
pub const UPDATER_FIELD_MANAGER: &str = "plimsoll-updater";

/// The recommender writes the same object every minute: one conflict is common, two in a row are rare.
const TRIES: usize = 3;

/// An update of one annotation of a VPA.
#[derive(Clone, Copy, Debug)]
pub struct AnnotationUpdate<'a> {
    /// Its key.
    pub key: &'static str,
    /// The value as it was read; `None` if it was not set.
    pub before: Option<&'a str>,
    /// The new value.
    pub after: &'a str,
}

/// The result of writing the annotation.
#[derive(Clone, Debug)]
pub enum AnnotationWriteResult {
    /// The annotation was written.
    Written {
        /// The new resource version of the VPA.
        resource_version: Box<str>,
    },
    /// Another client changed the annotation; this is the current VPA.
    Conflict(Box<VerticalPodAutoscaler>),
    /// The annotation was not written: the VPA is gone, this process may not write, or a request failed.
    Failed(String),
}

/// Writes an annotation of a VPA. Retries if other fields of the object changed, but not if the annotation itself did.
pub async fn write_vpa_annotation(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    (vpa, resource_version): (&ObjectKey, &str),
    update: AnnotationUpdate<'_>,
) -> AnnotationWriteResult {
    let mut patch = StatusPatch {
        key: vpa.clone(),
        resource_version: resource_version.into(),
        body: json!({"metadata": {"annotations": {update.key: update.after}}}),
        field_manager: UPDATER_FIELD_MANAGER,
    };
    for _ in 0..TRIES {
        let attempt =
            try_write(client, permit, &patch, PatchTarget::UpdaterState, stats, REQUEST_LIMIT)
                .await;
        match attempt.outcome {
            StatusWriteResult::Written { resource_version } => {
                return AnnotationWriteResult::Written { resource_version };
            }
            StatusWriteResult::Conflict(Some(current)) => {
                let annotations = current.metadata.annotations.as_ref();
                let stored = annotations
                    .and_then(|annotations| annotations.get(update.key))
                    .map(String::as_str);
                if stored != update.before {
                    return AnnotationWriteResult::Conflict(current);
                }
                let version = current.metadata.resource_version.unwrap_or_default();
                patch.resource_version = version.into();
            }
            StatusWriteResult::Conflict(None) => {
                return AnnotationWriteResult::Failed(format!(
                    "VPA {vpa} changed, and reading it failed"
                ));
            }
            StatusWriteResult::NotFound => {
                return AnnotationWriteResult::Failed(format!("VPA {vpa} is gone"));
            }
            StatusWriteResult::NotLeader => {
                return AnnotationWriteResult::Failed("this process may not write".to_owned());
            }
            StatusWriteResult::Failed { why } => return AnnotationWriteResult::Failed(why),
        }
    }
    AnnotationWriteResult::Failed(format!("too many conflicts on VPA {vpa}"))
}
