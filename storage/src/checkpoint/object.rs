//! What a stored object turns out to be. Each is read by itself, so that a bad one harms no other.

use kube::api::DynamicObject;
use twox_hash::XxHash3_64;

use super::{annotation, fingerprint::fingerprint, object_names};
use plimsoll_core::{
    api::checkpoint::{VerticalPodAutoscalerCheckpointSpec, VerticalPodAutoscalerCheckpointStatus},
    history::checkpoint::{FormatError, VERSION, snapshot_from_status},
};
use plimsoll_core::{
    history::{SkippedRecord, Snapshot},
    types::{ContainerKey, ObjectKey},
};

/// An object of the cluster.
#[derive(Debug)]
pub struct CheckpointObject {
    /// What it says it is of.
    pub key: ContainerKey,
    /// Its own name.
    pub name: Box<str>,
    /// Tells it from one that is made anew under the same name.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub version: Box<str>,
    /// Whether it has any annotations.
    pub annotated: bool,
    /// What it holds.
    pub content: CheckpointContent,
}

/// What an object holds.
#[derive(Debug)]
pub enum CheckpointContent {
    /// Nothing yet.
    Empty,
    /// A format of somebody else, which is left as it is.
    Foreign(FormatError),
    /// Nothing that can be read.
    Malformed(String),
    /// History.
    History(Box<StoredHistory>),
}

/// History, as far as it can be read.
#[derive(Debug)]
pub struct StoredHistory {
    /// What is remembered.
    pub snapshot: Snapshot,
    /// What tells its state from others.
    pub fingerprint: StoredFingerprint,
    /// Why the annotation does not count, if there is one and it does not.
    pub annotation_error: Option<annotation::AnnotationError>,
}

/// What tells a stored state from others, in few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFingerprint {
    /// How much was seen.
    pub richness: u64,
    /// Of the status.
    pub status: u64,
    /// Of the annotation.
    pub annotation: Option<u64>,
}

/// Hash of an annotation's text.
pub fn print_of_text(text: &str) -> u64 {
    XxHash3_64::oneshot(text.as_bytes())
}

impl CheckpointObject {
    /// Reads an object. The error is for one that does not even say which container it is of.
    pub fn read(mut object: DynamicObject) -> Result<Self, SkippedRecord> {
        let metadata = object.metadata;
        let namespace = metadata.namespace.unwrap_or_default();
        let name = metadata.name.unwrap_or_default();
        let skipped =
            |why: &str| SkippedRecord { record: format!("{namespace}/{name}"), reason: why.into() };
        let spec: VerticalPodAutoscalerCheckpointSpec = match object.data.get_mut("spec") {
            Some(spec) => serde_json::from_value(spec.take())
                .map_err(|error| skipped(&format!("its spec cannot be read: {error}")))?,
            None => return Err(skipped("it has no spec, so nobody knows what it is of")),
        };
        let vpa = ObjectKey::new(namespace.as_str(), spec.vpa_object_name);
        let key = ContainerKey::new(vpa, spec.container_name);
        if object_names::invalid_key_reason(&key).is_some() {
            return Err(skipped("its spec does not say which container of which VPA it is of"));
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

    /// Why it cannot be used, if so.
    pub fn skipped(&self) -> Option<SkippedRecord> {
        let why = match &self.content {
            CheckpointContent::Empty => "it holds nothing yet".to_owned(),
            CheckpointContent::Foreign(error) => error.to_string(),
            CheckpointContent::Malformed(why) => why.clone(),
            CheckpointContent::History(history) => {
                let ignored = history.annotation_error.as_ref()?;
                let what = format!("{}, annotation {}", self.key, annotation::KEY);
                return Some(SkippedRecord { record: what, reason: ignored.to_string() });
            }
        };
        Some(SkippedRecord { record: format!("{} (object {})", self.key, self.name), reason: why })
    }
}

impl CheckpointContent {
    fn read(status: Option<serde_json::Value>, annotation: Option<&str>) -> Self {
        let nothing = status
            .as_ref()
            .is_none_or(|status| status.as_object().is_some_and(serde_json::Map::is_empty));
        let Some(status) = status.filter(|_| !nothing) else { return Self::Empty };
        let status: VerticalPodAutoscalerCheckpointStatus = match serde_json::from_value(status) {
            Ok(status) => status,
            Err(error) => return Self::Malformed(format!("its status cannot be read: {error}")),
        };
        if status.version != VERSION {
            return Self::Foreign(FormatError::Version(status.version));
        }
        let read = snapshot_from_status(&status)
            .and_then(|snapshot| fingerprint(&status).map(|print| (snapshot, print)));
        let (alone, print) = match read {
            Ok(read) => read,
            Err(error) => return Self::Malformed(error.to_string()),
        };
        let (snapshot, ignored) =
            match annotation.map(|text| annotation::decode(text, &alone, print)) {
                None => (alone, None),
                Some(Ok(snapshot)) => (snapshot, None),
                Some(Err(ignored)) => (alone, Some(ignored)),
            };
        let print = StoredFingerprint {
            richness: snapshot.sample_rank(),
            status: print,
            annotation: annotation.map(print_of_text),
        };
        Self::History(Box::new(StoredHistory {
            snapshot,
            fingerprint: print,
            annotation_error: ignored,
        }))
    }
}
