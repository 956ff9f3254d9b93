//! The stored form of a plan of requests.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The stored form of the state of a plan: bytes, or base64 in text formats. Storages keep it as it is.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedPlan(Box<[u8]>);

impl EncodedPlan {
    /// The most bytes that a state has: a weight in every bucket of every hour.
    pub const MAX_BYTES: usize = 40 * 1024;

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// From bytes, which are only checked when the state is decoded.
    pub fn from_bytes(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the text form.
    pub fn to_text(&self) -> String {
        BASE64_STANDARD_NO_PAD.encode(&self.0)
    }

    /// Parses the text form; `None` if it is no base64 or too long.
    pub fn from_text(text: &str) -> Option<Self> {
        if text.len() > Self::MAX_BYTES / 3 * 4 + 4 {
            return None;
        }
        BASE64_STANDARD_NO_PAD.decode(text).ok().map(|bytes| Self(bytes.into()))
    }
}

impl fmt::Debug for EncodedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodedPlan({} bytes)", self.0.len())
    }
}

impl Serialize for EncodedPlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&self.to_text())
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for EncodedPlan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(EncodedPlanVisitor)
        } else {
            deserializer.deserialize_bytes(EncodedPlanVisitor)
        }
    }
}

struct EncodedPlanVisitor;

impl de::Visitor<'_> for EncodedPlanVisitor {
    type Value = EncodedPlan;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a plan state of at most {} bytes", EncodedPlan::MAX_BYTES)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<EncodedPlan, E> {
        EncodedPlan::from_text(text)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Str("text"), &self))
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<EncodedPlan, E> {
        if bytes.len() > EncodedPlan::MAX_BYTES {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        Ok(EncodedPlan(bytes.into()))
    }
}
