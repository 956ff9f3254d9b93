//! Encoded records, ready to be appended to the history file.

use super::frame::{self, FrameHeader, FrameKind};
use crate::codec;
use plimsoll_core::{
    history::{Record, SkippedRecord},
    types::ContainerKey,
};

#[derive(Debug)]
pub struct EncodedRecord {
    pub(super) key: ContainerKey,
    pub(super) head: FrameHeader,
    pub(super) body: Vec<u8>,
    pub(super) supersede: bool,
}

impl EncodedRecord {
    pub fn new(record: &Record) -> Result<Self, SkippedRecord> {
        let key = &record.key;
        let body = codec::encode_snapshot(&record.snapshot);
        let bytes = codec::encode_key(key);
        let (true, Ok(length)) = (bytes.len() <= frame::MAX_KEY, u32::try_from(body.len())) else {
            return Err(SkippedRecord {
                record: key.to_string().chars().take(80).collect(),
                reason: "its name or its content is too long".into(),
            });
        };
        let head = FrameHeader {
            kind: FrameKind::Record,
            format: codec::FORMAT,
            body: length,
            sequence: 0,
            richness: record.snapshot.sample_rank(),
            check: frame::check(&body),
            key: bytes.into(),
        };
        Ok(Self { key: key.clone(), head, body, supersede: record.supersede })
    }
}
