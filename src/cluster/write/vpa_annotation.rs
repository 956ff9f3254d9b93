//! What is remembered of a workload, written on its VPA before the change that it pays for: if nobody else did so since it
//! was read.

use kube::Client;
use plimsoll_core::types::ObjectKey;
use plimsoll_storage::WritePermit;
use serde_json::json;

use crate::cluster::write::{
    stats::WriteStats,
    vpa_status::{PatchTarget, REQUEST_LIMIT, StatusPatch, StatusWriteResult, try_write},
};
use plimsoll_core::api::VerticalPodAutoscaler;

/// Who writes, in `managedFields`.
pub const UPDATER_FIELD_MANAGER: &str = "plimsoll-updater";

/// The recommender writes the same object once a minute, so another version is common, and seldom twice in a row.
const TRIES: usize = 3;

/// One annotation of a VPA, as it was read and as it is to be.
#[derive(Clone, Copy, Debug)]
pub struct AnnotationUpdate<'a> {
    /// Its key.
    pub key: &'static str,
    /// As it was read; none when there was none.
    pub before: Option<&'a str>,
    /// As it is to be.
    pub after: &'a str,
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum AnnotationWriteResult {
    /// It is stored.
    Written {
        /// The version of the VPA since.
        resource_version: Box<str>,
    },
    /// Somebody else changed it meanwhile; this is the VPA now.
    Conflict(Box<VerticalPodAutoscaler>),
    /// It is not stored: the VPA is gone, this process may not write, or something failed.
    Failed(String),
}

/// Writes a note on a VPA. Other changes of the object are no reason not to; one of the note itself is.
pub async fn write_vpa_annotation(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    (vpa, resource_version): (&ObjectKey, &str),
    note: AnnotationUpdate<'_>,
) -> AnnotationWriteResult {
    let mut patch = StatusPatch {
        key: vpa.clone(),
        resource_version: resource_version.into(),
        body: json!({"metadata": {"annotations": {note.key: note.after}}}),
        field_manager: UPDATER_FIELD_MANAGER,
    };
    for _ in 0..TRIES {
        let tried =
            try_write(client, permit, &patch, PatchTarget::UpdaterState, stats, REQUEST_LIMIT)
                .await;
        match tried.outcome {
            StatusWriteResult::Written { resource_version } => {
                return AnnotationWriteResult::Written { resource_version };
            }
            StatusWriteResult::Conflict(Some(now)) => {
                let annotations = now.metadata.annotations.as_ref();
                let stands = annotations.and_then(|all| all.get(note.key)).map(String::as_str);
                if stands != note.before {
                    return AnnotationWriteResult::Conflict(now);
                }
                let version = now.metadata.resource_version.unwrap_or_default();
                patch.resource_version = version.into();
            }
            StatusWriteResult::Conflict(None) => {
                return AnnotationWriteResult::Failed(format!(
                    "VPA {vpa} changed and cannot be read"
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
    AnnotationWriteResult::Failed(format!("VPA {vpa} changes all the time"))
}
