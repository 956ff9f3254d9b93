//! Records that are encoded, and ready to be appended to the history file.

use super::frame::{self, Head, Kind};
use crate::codec;
use plimsoll_core::{
    history::{Record, Skipped},
    types::Key,
};

/// A record, encoded.
#[derive(Debug)]
pub struct Prepared {
    pub(super) key: Key,
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
    pub(super) supersede: bool,
}

impl Prepared {
    /// Encodes a record.
    pub fn new(record: &Record) -> Result<Self, Skipped> {
        let body = codec::encode_snapshot(&record.snapshot);
        Self::raw(&record.key, codec::FORMAT, record.snapshot.richness(), body)
            .map(|raw| Self { supersede: record.supersede, ..raw })
    }

    /// A record of bytes as they are.
    pub fn raw(key: &Key, format: u8, richness: u64, body: Vec<u8>) -> Result<Self, Skipped> {
        let bytes = codec::encode_key(key);
        let (true, Ok(length)) = (bytes.len() <= frame::MAX_KEY, u32::try_from(body.len())) else {
            return Err(Skipped {
                what: key.to_string().chars().take(80).collect(),
                why: "its name or its content is too long to be kept".into(),
            });
        };
        let head = Head {
            kind: Kind::Record,
            format,
            body: length,
            sequence: 0,
            richness,
            check: frame::check(&body),
            key: bytes.into(),
        };
        Ok(Self { key: key.clone(), head, body, supersede: false })
    }
}
