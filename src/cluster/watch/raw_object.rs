//! An object as raw JSON, which each subscriber of a shared watch decodes into its own type.

use std::{borrow::Cow, fmt, marker::PhantomData, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;

use crate::cluster::watch::partial_objects::lean_metadata;

/// The kind of a [`Resource`] that wraps an object of another type.
macro_rules! same_kind {
    ($kind:ident) => {
        type DynamicType = $kind::DynamicType;
        type Scope = $kind::Scope;

        fn kind(kind: &Self::DynamicType) -> Cow<'_, str> {
            $kind::kind(kind)
        }

        fn group(kind: &Self::DynamicType) -> Cow<'_, str> {
            $kind::group(kind)
        }

        fn version(kind: &Self::DynamicType) -> Cow<'_, str> {
            $kind::version(kind)
        }

        fn plural(kind: &Self::DynamicType) -> Cow<'_, str> {
            $kind::plural(kind)
        }
    };
}
pub(super) use same_kind;

/// An object of this kind, of which only the metadata is decoded.
pub(super) struct RawObject<K> {
    metadata: ObjectMeta,
    pub json: Arc<str>,
    kind: PhantomData<fn() -> K>,
}

/// The part that is decoded of every object.
#[derive(Deserialize)]
pub(super) struct ObjectHead {
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
}

impl<K> Clone for RawObject<K> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), json: Arc::clone(&self.json), kind: PhantomData }
    }
}

impl<K> fmt::Debug for RawObject<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawObject").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

impl<'de, K> Deserialize<'de> for RawObject<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(from)?.get();
        let ObjectHead { metadata } = serde_json::from_str(text).map_err(D::Error::custom)?;
        Ok(Self { metadata, json: text.into(), kind: PhantomData })
    }
}

impl<K: Resource> Resource for RawObject<K> {
    same_kind!(K);

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
