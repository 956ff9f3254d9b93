//! How keys and snapshots become bytes: MessagePack with field names, every number bit for bit.
//!
//! Named fields let a record outlive the version that wrote it: a field that is new is absent from old
//! records and takes its default, one that is gone is passed over.

use serde::Serialize;

use plimsoll_core::{
    history::Snapshot,
    types::{ContainerKey, ObjectKey},
};

/// Number of the encoding below. It changes when old readers would misunderstand new records; a field
/// that is merely added does not change it.
pub const FORMAT: u8 = 1;

/// Why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes were written by a version with another encoding.
    #[error("it is in record format {0}, this version reads format {FORMAT}")]
    UnsupportedFormat(u8),
    /// The bytes do not say what they should.
    #[error("its content does not decode: {0}")]
    Malformed(String),
}

/// The bytes of a key: equal keys have equal bytes.
pub fn encode_key(key: &ContainerKey) -> Vec<u8> {
    to_bytes(&(&*key.vpa.namespace, &*key.vpa.name, &*key.container))
}

/// Reads what [`encode_key`] wrote.
pub fn decode_key(bytes: &[u8]) -> Result<ContainerKey, CodecError> {
    let (namespace, name, container): (String, String, String) = from_bytes(bytes)?;
    Ok(ContainerKey::new(ObjectKey::new(namespace, name), container))
}

/// The bytes of a snapshot: equal snapshots have equal bytes.
pub fn encode_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    to_bytes(snapshot)
}

/// Reads what [`encode_snapshot`] wrote.
pub fn decode_snapshot(format: u8, bytes: &[u8]) -> Result<Snapshot, CodecError> {
    if format != FORMAT {
        return Err(CodecError::UnsupportedFormat(format));
    }
    from_bytes(bytes)
}

fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory fails only for lengths beyond 32 bits, which names and buckets cannot reach.
    // Should it ever, the record is cut and reported as malformed by whoever loads it.
    let _ = value.serialize(&mut rmp_serde::Serializer::new(&mut bytes).with_struct_map());
    bytes
}

fn from_bytes<T: serde::de::DeserializeOwned>(mut bytes: &[u8]) -> Result<T, CodecError> {
    let mut decoder = rmp_serde::Deserializer::new(&mut bytes);
    let value = T::deserialize(&mut decoder).map_err(|e| CodecError::Malformed(one_line(&e)))?;
    // Reading moved the beginning of the slice: what is left belongs to nothing.
    match bytes.len() {
        0 => Ok(value),
        rest => Err(CodecError::Malformed(format!("{rest} bytes too many"))),
    }
}

fn one_line(error: &impl ToString) -> String {
    error.to_string().replace('\n', " ")
}
