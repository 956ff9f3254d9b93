//! An object that may be unreadable: it is named with its reason, and the others around it are read.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

use super::partial_objects::lean_metadata;

/// An object of the API server, or why it is none. One that cannot be read would otherwise take the page of the list
/// that it is in with it.
///
/// kube's own guard builds a tree of every object before it reads it; this one looks again at the text of those that
/// failed. It reads what comes from a text or a slice, as everything does that kube's client reads.
#[derive(Clone, Debug)]
pub struct MaybeObject<K>(pub Result<K, InvalidObject>);

/// An object that cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct InvalidObject {
    /// What is wrong with it, and where.
    pub reason: String,
    /// Who it is, as far as that can be read.
    pub metadata: Box<ObjectMeta>,
}

/// All that is read of an object that cannot be read.
#[derive(Deserialize)]
struct MetadataOnly {
    #[serde(default, deserialize_with = "lean_metadata")]
    metadata: ObjectMeta,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for MaybeObject<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        match serde_json::from_str(text) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(why) => {
                let head: MetadataOnly = serde_json::from_str(text).map_err(D::Error::custom)?;
                let reason = without_position(&why.to_string()).to_owned();
                Ok(Self(Err(InvalidObject { reason, metadata: Box::new(head.metadata) })))
            }
        }
    }
}

/// Line and column are those of a text that nobody gets to see, and they move with every change of the object, which
/// would make a new reason of the old one.
pub(crate) fn without_position(reason: &str) -> &str {
    reason.rsplit_once(" at line ").map_or(reason, |(reason, _)| reason)
}

impl<K: Resource> Resource for MaybeObject<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(malformed) => &malformed.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(malformed) => &mut malformed.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::api::VerticalPodAutoscaler;

    #[test]
    fn an_unreadable_object_among_good_ones_is_named() {
        let text = r#"[
            {"metadata":{"name":"a"},"spec":{"targetRef":{"kind":"Deployment","name":"a"}}},
            {"metadata":{"name":"b","namespace":"n","resourceVersion":"7"},"spec":{"targetRef":5}},
            {"metadata":{"name":"c"},"spec":{"targetRef":{"kind":"Deployment","name":"c"}}}
        ]"#;
        let list: Vec<MaybeObject<VerticalPodAutoscaler>> =
            serde_json::from_str(text).expect("a list of three");
        let names: Vec<_> = list.iter().map(|object| object.meta().name.as_deref()).collect();
        assert_eq!(names, [Some("a"), Some("b"), Some("c")]);
        assert!(list[0].0.is_ok() && list[2].0.is_ok());
        let malformed = list[1].0.as_ref().expect_err("a number is no target");
        assert!(malformed.reason.starts_with("invalid type: integer `5`"), "{malformed}");
        assert!(!malformed.reason.contains("line"), "{malformed}");
        assert_eq!(malformed.metadata.resource_version.as_deref(), Some("7"));
    }
}
