//! Decodes an object or the reason why it is invalid, so that an invalid object does not fail the whole list.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

use super::raw_object::{ObjectHead, same_kind};

/// An object of the API server, or why it is invalid. Otherwise a single invalid object would fail the page of the list
/// that contains it.
///
/// kube's `DeserializeGuard` builds a tree of every object before it decodes it; this one parses the JSON a second time, and
/// only after an error. It works on strings and slices, which is all that kube's client uses.
#[derive(Clone, Debug)]
pub struct MaybeObject<K>(pub Result<K, InvalidObject>);

#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct InvalidObject {
    pub reason: String,
    /// Its metadata, as far as it can be decoded.
    pub metadata: Box<ObjectMeta>,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for MaybeObject<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        match serde_json::from_str(text) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(why) => {
                let head: ObjectHead = serde_json::from_str(text).map_err(D::Error::custom)?;
                let reason = without_position(&why.to_string()).to_owned();
                Ok(Self(Err(InvalidObject { reason, metadata: Box::new(head.metadata) })))
            }
        }
    }
}

/// Removes line and column: they refer to a text that is not visible, and change with the object, so that the same error
/// would look new.
pub(crate) fn without_position(reason: &str) -> &str {
    reason.rsplit_once(" at line ").map_or(reason, |(reason, _)| reason)
}

impl<K: Resource> Resource for MaybeObject<K> {
    same_kind!(K);

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(invalid) => &mut invalid.metadata,
        }
    }
}
