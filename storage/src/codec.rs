//! Encodes keys and snapshots as MessagePack with field names. Numbers are preserved exactly.
//!
//! Field names keep records readable by other versions: a new field gets its default in old records, and a removed field
//! is skipped.

use serde::Serialize;

use plimsoll_core::{
    history::Snapshot,
    types::{ContainerKey, ObjectKey},
};

/// The version of the encoding. It changes if old readers would misread new records, but not for an added field.
pub const FORMAT: u8 = 1;

/// Why a record cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    #[error("unsupported record format {0}, expected {FORMAT}")]
    UnsupportedFormat(u8),
    #[error("malformed content: {0}")]
    Malformed(String),
}

/// Encodes a key. Equal keys have equal bytes.
pub fn encode_key(key: &ContainerKey) -> Vec<u8> {
    to_bytes(&(&*key.vpa.namespace, &*key.vpa.name, &*key.container))
}

pub fn decode_key(bytes: &[u8]) -> Result<ContainerKey, CodecError> {
    let (namespace, name, container): (String, String, String) = from_bytes(bytes)?;
    Ok(ContainerKey::new(ObjectKey::new(namespace, name), container))
}

/// Encodes a snapshot. Equal snapshots have equal bytes.
pub fn encode_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    to_bytes(snapshot)
}

pub fn decode_snapshot(format: u8, bytes: &[u8]) -> Result<Snapshot, CodecError> {
    if format != FORMAT {
        return Err(CodecError::UnsupportedFormat(format));
    }
    from_bytes(bytes)
}

fn to_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory fails only for lengths beyond 32 bits, which names and buckets cannot reach. If it ever does, the
    // record is truncated and a load reports it as malformed.
    let _ = value.serialize(&mut rmp_serde::Serializer::new(&mut bytes).with_struct_map());
    bytes
}

fn from_bytes<T: serde::de::DeserializeOwned>(mut bytes: &[u8]) -> Result<T, CodecError> {
    let mut decoder = rmp_serde::Deserializer::new(&mut bytes);
    let value = T::deserialize(&mut decoder).map_err(|e| CodecError::Malformed(one_line(&e)))?;
    // Deserializing advances the slice, so the rest is unexpected.
    match bytes.len() {
        0 => Ok(value),
        rest => Err(CodecError::Malformed(format!("{rest} unexpected bytes at the end"))),
    }
}

fn one_line(error: &impl ToString) -> String {
    error.to_string().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{recommender::plan::PlanState, types::Time};

    use super::*;

    #[test]
    fn a_plan_is_kept_without_loss() {
        let plan = PlanState::new(Time::from_secs(1_790_000_000)).encode();
        let snapshot = Snapshot { plan: Some(plan), ..Snapshot::default() };
        let bytes = encode_snapshot(&snapshot);
        assert_eq!(decode_snapshot(FORMAT, &bytes), Ok(snapshot));
    }

    #[test]
    fn a_record_of_an_earlier_version_has_no_plan() {
        let bytes = encode_snapshot(&Snapshot::default());
        assert!(!bytes.windows(4).any(|window| window == b"plan"));
        assert_eq!(decode_snapshot(FORMAT, &bytes), Ok(Snapshot::default()));
    }
}
