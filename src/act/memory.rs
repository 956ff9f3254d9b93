//! What is remembered of a workload, written on its VPA before the change that it pays for: if nobody else did so since it
//! was read.

use kube::Client;
use plimsoll_core::types::VpaKey;
use plimsoll_storage::WritePermit;
use serde_json::json;

use crate::act::{
    status::{Outcome, Part, REQUEST_LIMIT, StatusPatch, attempt},
    writes::WriteStats,
};
use plimsoll_core::api::VerticalPodAutoscaler;

/// Who writes, in `managedFields`.
pub const UPDATER: &str = "plimsoll-updater";

/// The recommender writes the same object once a minute, so another version is common, and seldom twice in a row.
const TRIES: usize = 3;

/// One annotation of a VPA, as it was read and as it is to be.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    /// Its key.
    pub key: &'static str,
    /// As it was read; none when there was none.
    pub before: Option<&'a str>,
    /// As it is to be.
    pub after: &'a str,
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum Noted {
    /// It is stored.
    Done {
        /// The version of the VPA since.
        resource_version: Box<str>,
    },
    /// Somebody else changed it meanwhile; this is the VPA now.
    Overtaken(Box<VerticalPodAutoscaler>),
    /// It is not stored: the VPA is gone, this process may not write, or something failed.
    Unwritten(String),
}

/// Writes a note on a VPA. Other changes of the object are no reason not to; one of the note itself is.
pub async fn note(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    (vpa, resource_version): (&VpaKey, &str),
    note: Note<'_>,
) -> Noted {
    let mut patch = StatusPatch {
        key: vpa.clone(),
        resource_version: resource_version.into(),
        body: json!({"metadata": {"annotations": {note.key: note.after}}}),
        writer: UPDATER,
    };
    for _ in 0..TRIES {
        let tried = attempt(client, permit, &patch, Part::Memory, stats, REQUEST_LIMIT).await;
        match tried.outcome {
            Outcome::Written { resource_version } => return Noted::Done { resource_version },
            Outcome::Conflict(Some(now)) => {
                let annotations = now.metadata.annotations.as_ref();
                let stands = annotations.and_then(|all| all.get(note.key)).map(String::as_str);
                if stands != note.before {
                    return Noted::Overtaken(now);
                }
                let version = now.metadata.resource_version.unwrap_or_default();
                patch.resource_version = version.into();
            }
            Outcome::Conflict(None) => {
                return Noted::Unwritten(format!("VPA {vpa} changed and cannot be read"));
            }
            Outcome::Gone => return Noted::Unwritten(format!("VPA {vpa} is gone")),
            Outcome::Fenced => return Noted::Unwritten("this process may not write".to_owned()),
            Outcome::Failed { why } => return Noted::Unwritten(why),
        }
    }
    Noted::Unwritten(format!("VPA {vpa} changes all the time"))
}
