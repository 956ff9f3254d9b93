//! Parses stored objects. Each is parsed separately, so that a malformed one does not affect others.

use kube::api::DynamicObject;
use twox_hash::XxHash3_64;

use super::{annotation, fingerprint::fingerprint, object_names};
use plimsoll_core::{
    api::{
        checkpoint::{VerticalPodAutoscalerCheckpointSpec, VerticalPodAutoscalerCheckpointStatus},
        state::StateError,
    },
    history::{
        SkippedRecord, Snapshot,
        checkpoint::{FormatError, VERSION, snapshot_from_status},
    },
    types::{ContainerKey, ObjectKey},
};

#[derive(Debug)]
pub struct CheckpointObject {
    pub key: ContainerKey,
    pub name: Box<str>,
    /// The UID, which distinguishes it from a recreated object with the same name.
    pub uid: Option<String>,
    pub version: Box<str>,
    /// Whether the object has any annotations.
    pub annotated: bool,
    pub content: CheckpointContent,
}

#[derive(Debug)]
pub enum CheckpointContent {
    Empty,
    /// A foreign format, which is not changed.
    Foreign(FormatError),
    Malformed(String),
    History(Box<StoredHistory>),
}

#[derive(Debug)]
pub struct StoredHistory {
    pub snapshot: Snapshot,
    pub fingerprint: StoredFingerprint,
    /// Why the annotation is ignored, if it is.
    pub annotation_error: Option<StateError>,
}

/// A compact fingerprint of a stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFingerprint {
    pub richness: u64,
    pub status: u64,
    pub annotation: Option<u64>,
}

pub fn print_of_text(text: &str) -> u64 {
    XxHash3_64::oneshot(text.as_bytes())
}

impl CheckpointObject {
    /// Parses an object. Fails if its container cannot be determined.
    pub fn read(mut object: DynamicObject) -> Result<Self, SkippedRecord> {
        let metadata = object.metadata;
        let namespace = metadata.namespace.unwrap_or_default();
        let name = metadata.name.unwrap_or_default();
        let skipped =
            |why: &str| SkippedRecord { record: format!("{namespace}/{name}"), reason: why.into() };
        let spec: VerticalPodAutoscalerCheckpointSpec = match object.data.get_mut("spec") {
            Some(spec) => serde_json::from_value(spec.take())
                .map_err(|error| skipped(&format!("its spec is malformed: {error}")))?,
            None => return Err(skipped("it has no spec, so its container is unknown")),
        };
        let vpa = ObjectKey::new(namespace.as_str(), spec.vpa_object_name);
        let key = ContainerKey::new(vpa, spec.container_name);
        if object_names::invalid_key_reason(&key).is_some() {
            return Err(skipped("its spec has no valid VPA and container name"));
        }
        let annotation =
            metadata.annotations.as_ref().and_then(|annotations| annotations.get(annotation::KEY));
        let status = object.data.get_mut("status").map(serde_json::Value::take);
        Ok(Self {
            content: CheckpointContent::read(status, annotation.map(String::as_str)),
            key,
            name: name.into(),
            uid: metadata.uid,
            version: metadata.resource_version.unwrap_or_default().into(),
            annotated: metadata.annotations.is_some_and(|annotations| !annotations.is_empty()),
        })
    }

    /// Why the object or its annotation was skipped, if it was.
    pub fn skipped(&self) -> Option<SkippedRecord> {
        let why = match &self.content {
            CheckpointContent::Empty => "it has no status yet".to_owned(),
            CheckpointContent::Foreign(error) => error.to_string(),
            CheckpointContent::Malformed(why) => why.clone(),
            CheckpointContent::History(history) => {
                let error = history.annotation_error.as_ref()?;
                let record = format!("{}, annotation {}", self.key, annotation::KEY);
                let reason = format!("{error}: using the status only");
                return Some(SkippedRecord { record, reason });
            }
        };
        Some(SkippedRecord { record: format!("{} (object {})", self.key, self.name), reason: why })
    }
}

impl CheckpointContent {
    fn read(status: Option<serde_json::Value>, annotation: Option<&str>) -> Self {
        let is_empty = status
            .as_ref()
            .is_none_or(|status| status.as_object().is_some_and(serde_json::Map::is_empty));
        let Some(status) = status.filter(|_| !is_empty) else { return Self::Empty };
        let status: VerticalPodAutoscalerCheckpointStatus = match serde_json::from_value(status) {
            Ok(status) => status,
            Err(error) => return Self::Malformed(format!("its status is malformed: {error}")),
        };
        if status.version != VERSION {
            return Self::Foreign(FormatError::Version(status.version));
        }
        let read = snapshot_from_status(&status)
            .and_then(|snapshot| fingerprint(&status).map(|print| (snapshot, print)));
        let (from_status, print) = match read {
            Ok(read) => read,
            Err(error) => return Self::Malformed(error.to_string()),
        };
        let (snapshot, annotation_error) =
            match annotation.map(|text| annotation::decode(text, &from_status, print)) {
                None => (from_status, None),
                Some(Ok(snapshot)) => (snapshot, None),
                Some(Err(error)) => (from_status, Some(error)),
            };
        let fingerprint = StoredFingerprint {
            richness: snapshot.sample_rank(),
            status: print,
            annotation: annotation.map(print_of_text),
        };
        Self::History(Box::new(StoredHistory { snapshot, fingerprint, annotation_error }))
    }
}
