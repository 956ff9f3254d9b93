//! Reads single entries, for loads and for compaction.

use std::{
    fs::File,
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
    sync::Arc,
};

use super::{
    directory::explain,
    frame::FrameHeader,
    scan::{LostRecord, RecordLocation},
};
use crate::codec;
use plimsoll_core::{
    history::{SkippedRecord, Snapshot},
    types::ContainerKey,
};

/// The records of one load. Later saves append to the file, and compaction does not change it.
#[derive(Debug)]
pub struct RecordReader {
    pub file: Arc<File>,
    /// In descending order of offset.
    pub entries: Vec<RecordLocation>,
    pub lost: Vec<SkippedRecord>,
}

impl RecordReader {
    /// Returns up to `count` records; empty at the end.
    pub fn next(&mut self, count: usize) -> Vec<Result<(ContainerKey, Snapshot), SkippedRecord>> {
        let rest = self.entries.len().saturating_sub(count);
        let file = &self.file;
        self.entries.drain(rest..).rev().map(|entry| read_record(file, &entry)).collect()
    }
}

fn read_record(
    file: &File,
    entry: &RecordLocation,
) -> Result<(ContainerKey, Snapshot), SkippedRecord> {
    let skipped_at_offset = |why: String| SkippedRecord {
        record: format!("the record at byte {}", entry.offset),
        reason: why,
    };
    let (head, bytes) = read_entry(file, entry)
        .map_err(|e| skipped_at_offset(format!("failed to read it: {}", explain(&e))))?
        .map_err(|head| match head {
            Some(head) => LostRecord::of_record(&head.key, LostRecord::CHECKSUM_MISMATCH).skipped,
            None => skipped_at_offset(LostRecord::CHECKSUM_MISMATCH.into()),
        })?;
    let key = codec::decode_key(&head.key).map_err(|e| skipped_at_offset(e.to_string()))?;
    let body = &bytes[head.to_body() as usize..];
    match codec::decode_snapshot(head.format, body) {
        Ok(snapshot) => Ok((key, snapshot)),
        Err(malformed) => {
            Err(SkippedRecord { record: key.to_string(), reason: malformed.to_string() })
        }
    }
}

/// The header and the bytes of an entry, or the header alone if the content is damaged.
pub type FrameRead = Result<(FrameHeader, Vec<u8>), Option<FrameHeader>>;

/// Reads the header and the bytes of an entry. Of a damaged entry, returns the header if it is intact.
pub fn read_entry(file: &File, entry: &RecordLocation) -> io::Result<FrameRead> {
    let mut bytes = vec![0; entry.length as usize];
    match file.read_exact_at(&mut bytes, entry.offset) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Err(None)),
        other => other?,
    }
    let head = FrameHeader::read::<io::Error>(0, &mut |from, length| {
        Ok(bytes.get(from as usize..from as usize + length).map(<[u8]>::to_vec))
    })?;
    Ok(match head {
        Some(head)
            if head.length() == entry.length
                && head.matches_checksum(&bytes[head.to_body() as usize..]) =>
        {
            Ok((head, bytes))
        }
        head => Err(head),
    })
}
