//! What a stored object turns out to be. Each is read by itself, so that a bad one harms no other.

use kube::api::DynamicObject;
use twox_hash::XxHash3_64;

use super::{annotation, fingerprint::fingerprint, names};
use plimsoll_core::{
    api::checkpoint::{VerticalPodAutoscalerCheckpointSpec, VerticalPodAutoscalerCheckpointStatus},
    history::checkpoint::{FormatError, VERSION, snapshot_from_status},
};
use plimsoll_core::{
    history::{Skipped, Snapshot},
    types::{Key, VpaKey},
};

/// An object of the cluster.
#[derive(Debug)]
pub struct Object {
    /// What it says it is of.
    pub key: Key,
    /// Its own name.
    pub name: Box<str>,
    /// Tells it from one that is made anew under the same name.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub version: Box<str>,
    /// Whether it has any annotations.
    pub annotated: bool,
    /// What it holds.
    pub content: Content,
}

/// What an object holds.
#[derive(Debug)]
pub enum Content {
    /// Nothing yet.
    Nothing,
    /// A format of somebody else, which is left as it is.
    Foreign(FormatError),
    /// Nothing that can be read.
    Malformed(String),
    /// History.
    History(Box<History>),
}

/// History, as far as it can be read.
#[derive(Debug)]
pub struct History {
    /// What is remembered.
    pub snapshot: Snapshot,
    /// What tells its state from others.
    pub print: Print,
    /// Why the annotation does not count, if there is one and it does not.
    pub ignored: Option<annotation::Ignored>,
}

/// What tells a stored state from others, in few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print {
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

impl Object {
    /// Reads an object. The error is for one that does not even say which container it is of.
    pub fn read(mut object: DynamicObject) -> Result<Self, Skipped> {
        let metadata = object.metadata;
        let namespace = metadata.namespace.unwrap_or_default();
        let name = metadata.name.unwrap_or_default();
        let skipped = |why: &str| Skipped { what: format!("{namespace}/{name}"), why: why.into() };
        let spec: VerticalPodAutoscalerCheckpointSpec = match object.data.get_mut("spec") {
            Some(spec) => serde_json::from_value(spec.take())
                .map_err(|error| skipped(&format!("its spec cannot be read: {error}")))?,
            None => return Err(skipped("it has no spec, so nobody knows what it is of")),
        };
        let vpa = VpaKey::new(namespace.as_str(), spec.vpa_object_name);
        let key = Key::new(vpa, spec.container_name);
        if names::why_impossible(&key).is_some() {
            return Err(skipped("its spec does not say which container of which VPA it is of"));
        }
        let annotation =
            metadata.annotations.as_ref().and_then(|annotations| annotations.get(annotation::KEY));
        let status = object.data.get_mut("status").map(serde_json::Value::take);
        Ok(Self {
            content: Content::read(status, annotation.map(String::as_str)),
            key,
            name: name.into(),
            uid: metadata.uid,
            version: metadata.resource_version.unwrap_or_default().into(),
            annotated: metadata.annotations.is_some_and(|annotations| !annotations.is_empty()),
        })
    }

    /// Why it cannot be used, if so.
    pub fn skipped(&self) -> Option<Skipped> {
        let why = match &self.content {
            Content::Nothing => "it holds nothing yet".to_owned(),
            Content::Foreign(error) => error.to_string(),
            Content::Malformed(why) => why.clone(),
            Content::History(history) => {
                let ignored = history.ignored.as_ref()?;
                let what = format!("{}, annotation {}", self.key, annotation::KEY);
                return Some(Skipped { what, why: ignored.to_string() });
            }
        };
        Some(Skipped { what: format!("{} (object {})", self.key, self.name), why })
    }
}

impl Content {
    fn read(status: Option<serde_json::Value>, annotation: Option<&str>) -> Self {
        let nothing = status
            .as_ref()
            .is_none_or(|status| status.as_object().is_some_and(serde_json::Map::is_empty));
        let Some(status) = status.filter(|_| !nothing) else { return Self::Nothing };
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
        let (snapshot, ignored) = match annotation.map(|text| annotation::read(text, &alone, print))
        {
            None => (alone, None),
            Some(Ok(snapshot)) => (snapshot, None),
            Some(Err(ignored)) => (alone, Some(ignored)),
        };
        let print = Print {
            richness: snapshot.richness(),
            status: print,
            annotation: annotation.map(print_of_text),
        };
        Self::History(Box::new(History { snapshot, print, ignored }))
    }
}
