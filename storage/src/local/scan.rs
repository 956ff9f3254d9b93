//! Scans a history file and determines which entries are intact, damaged or unfinished.
//!
//! Every checksum is verified. After damage the scan continues at the next valid entry, so that only the damaged entries
//! are lost.

use std::{collections::HashMap, fs::File, io, os::unix::fs::FileExt};

use super::{
    commit_marker::{self, CommitMarker},
    frame::{self, END_MARK, FrameHeader, FrameKind},
};
use crate::codec;
use plimsoll_core::{history::SkippedRecord, types::ContainerKey};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLocation {
    pub offset: u64,
    pub length: u64,
    pub format: u8,
    pub richness: u64,
    pub body: u32,
    pub check: u64,
}

impl RecordLocation {
    pub fn at(offset: u64, head: &FrameHeader) -> Self {
        Self {
            offset,
            length: head.length(),
            format: head.format,
            richness: head.richness,
            body: head.body,
            check: head.check,
        }
    }
}

/// A record that is lost or restored to an older state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecord {
    /// The key, if it could be read.
    pub key: Option<ContainerKey>,
    pub skipped: SkippedRecord,
}

impl LostRecord {
    pub const CHECKSUM_MISMATCH: &str = "checksum mismatch";

    pub fn of_record(key: &[u8], why: &str) -> Self {
        let key = codec::decode_key(key).ok();
        let what = key.as_ref().map_or("a record without a name".into(), ContainerKey::to_string);
        Self { key, skipped: skipped(&what, why) }
    }

    fn of_location(what: &str, why: &str) -> Self {
        Self { key: None, skipped: skipped(what, why) }
    }
}

#[derive(Debug, Default)]
pub struct ScanResult {
    pub entries: HashMap<Box<[u8]>, RecordLocation>,
    /// Offset of the next save.
    pub end: u64,
    pub sequence: u64,
    /// Records that are lost or restored to an older state.
    pub lost: Vec<LostRecord>,
    pub harmless: Vec<SkippedRecord>,
    /// Whether the commit markers must be rewritten, because there is a complete save after the committed end.
    pub markers_outdated: bool,
}

/// Reads the whole file. The inner `Err(version)` means that it has another layout version.
pub fn scan(file: &File) -> io::Result<Result<ScanResult, u16>> {
    let length = file.metadata()?.len();
    let mut window = ReadBuffer { file, length, bytes: Vec::new(), start: 0 };
    let mut scan = ScanResult::default();

    let mut markers = Vec::new();
    for offset in [0, commit_marker::SECOND_MARKER_OFFSET] {
        let bytes = window.bytes(offset, commit_marker::LENGTH)?;
        match bytes.map_or(Ok(None), CommitMarker::decode) {
            Ok(marker) => markers.extend(marker),
            Err(version) => return Ok(Err(version)),
        }
    }
    let Some(committed) = markers.iter().copied().max_by_key(|marker| marker.sequence) else {
        scan.lost.push(LostRecord::of_location(
            "the start of the file",
            "checksum mismatch of both commit markers",
        ));
        scan.read_committed(&mut window, length, u64::MAX)?;
        return Ok(Ok(scan));
    };
    if markers.len() == 1 {
        let why = LostRecord::CHECKSUM_MISMATCH;
        scan.harmless.push(skipped("one of the two commit markers", why));
    }
    scan.sequence = committed.sequence;
    scan.read_committed(&mut window, committed.length, committed.sequence)?;
    if length > committed.length {
        let unfinished = scan.read_tail(&mut window, &committed)?;
        if unfinished && !scan.harmless.is_empty() {
            // With two intact markers this is an interrupted save that was never confirmed.
            scan.lost.push(LostRecord::of_location(
                "possibly the last save",
                "its commit marker is damaged",
            ));
        }
    }
    Ok(Ok(scan))
}

impl ScanResult {
    /// Reads the committed part: `length` bytes, saves up to sequence number `newest`.
    fn read_committed(
        &mut self,
        window: &mut ReadBuffer<'_>,
        length: u64,
        newest: u64,
    ) -> io::Result<()> {
        let limit = length.min(window.length);
        let mut damaged: HashMap<Box<[u8]>, LostRecord> = HashMap::new();
        let (mut offset, mut oldest) = (commit_marker::FIRST_FRAME_OFFSET, 0);
        while offset < limit {
            let head = window.head(offset)?.filter(|head| {
                (oldest..=newest).contains(&head.sequence)
                    && (head.kind != FrameKind::End || head.key.is_empty())
            });
            let Some(head) = head else {
                let next = window.next_head(offset + 1, limit, oldest..=newest)?;
                self.record_gap(offset, next);
                offset = next;
                continue;
            };
            oldest = head.sequence;
            self.sequence = self.sequence.max(head.sequence);
            match head.kind {
                FrameKind::End => {}
                FrameKind::Removal => {
                    self.entries.remove(&head.key);
                    damaged.remove(&head.key);
                }
                FrameKind::Record => {
                    let body = window.bytes(offset + head.to_body(), head.body as usize)?;
                    if body.is_some_and(|body| head.matches_checksum(body)) {
                        self.entries.insert(head.key.clone(), RecordLocation::at(offset, &head));
                        damaged.remove(&head.key);
                    } else {
                        let is_complete = offset + head.length() <= window.length;
                        let cause = if is_complete {
                            LostRecord::CHECKSUM_MISMATCH
                        } else {
                            "the file ends within it"
                        };
                        damaged.insert(head.key.clone(), LostRecord::of_record(&head.key, cause));
                    }
                }
            }
            offset += head.length();
        }
        for (key, mut damage) in damaged {
            if self.entries.contains_key(&key) {
                damage.skipped.reason += "; using the previous state";
            }
            self.lost.push(damage);
        }
        self.lost.sort_by(|a, b| a.skipped.record.cmp(&b.skipped.record));
        if window.length < length && newest != u64::MAX {
            self.lost.push(LostRecord::of_location(
                "the end of the file",
                &format!("it is truncated at {} of {length} bytes", window.length),
            ));
        }
        self.end = limit.max(commit_marker::FIRST_FRAME_OFFSET);
        Ok(())
    }

    /// Records a range without valid entries.
    fn record_gap(&mut self, from: u64, to: u64) {
        let range = format!("bytes {from} to {to}");
        if to - from == END_MARK {
            self.harmless.push(skipped(&range, "checksum mismatch of the end mark of a save"));
        } else {
            self.lost.push(LostRecord::of_location(&range, "checksum mismatch"));
        }
    }

    /// Reads complete, intact and consecutive saves after the committed end. Returns whether an unfinished one is left.
    fn read_tail(
        &mut self,
        window: &mut ReadBuffer<'_>,
        committed: &CommitMarker,
    ) -> io::Result<bool> {
        let mut offset = committed.length;
        let mut begin = offset;
        let mut save: Vec<(u64, FrameHeader)> = Vec::new();
        while let Some(head) = window.head(offset)? {
            if head.sequence <= self.sequence
                || save.first().is_some_and(|(_, first)| first.sequence != head.sequence)
            {
                break;
            }
            if head.kind == FrameKind::End {
                let length = (offset - begin) as usize;
                let complete = head.richness == save.len() as u64
                    && window
                        .bytes(begin, length)?
                        .is_some_and(|bytes| frame::check(bytes) == head.check);
                if !complete {
                    break;
                }
                self.sequence = head.sequence;
                for (offset, head) in save.drain(..) {
                    if head.kind == FrameKind::Record {
                        self.entries.insert(head.key.clone(), RecordLocation::at(offset, &head));
                    } else {
                        self.entries.remove(&head.key);
                    }
                }
                begin = offset + head.length();
                self.end = begin;
                self.markers_outdated = true;
                offset = begin;
            } else {
                let next = offset + head.length();
                save.push((offset, head));
                offset = next;
            }
        }
        Ok(begin < window.length)
    }
}

/// A read buffer, so that sequential reads need few system calls.
struct ReadBuffer<'a> {
    file: &'a File,
    length: u64,
    bytes: Vec<u8>,
    start: u64,
}

impl ReadBuffer<'_> {
    const SPAN: usize = 1 << 20;

    /// These bytes of the file; `None` if it ends before.
    fn bytes(&mut self, offset: u64, length: usize) -> io::Result<Option<&[u8]>> {
        let Some(end) = offset.checked_add(length as u64).filter(|end| *end <= self.length) else {
            return Ok(None);
        };
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            let span = (length.max(Self::SPAN) as u64).min(self.length - offset);
            self.bytes.resize(span as usize, 0);
            self.start = offset;
            if let Err(error) = self.file.read_exact_at(&mut self.bytes, offset) {
                self.bytes.clear();
                return Err(error);
            }
        }
        let from = (offset - self.start) as usize;
        Ok(self.bytes.get(from..from + length))
    }

    fn head(&mut self, offset: u64) -> io::Result<Option<FrameHeader>> {
        FrameHeader::read(offset, &mut |offset, length| {
            self.bytes(offset, length).map(|bytes| bytes.map(<[u8]>::to_vec))
        })
    }

    /// The next offset with an intact header of one of these saves, or `limit`.
    fn next_head(
        &mut self,
        mut offset: u64,
        limit: u64,
        sequences: std::ops::RangeInclusive<u64>,
    ) -> io::Result<u64> {
        while offset < limit {
            if self.bytes(offset, 4)?.is_some_and(frame::starts_with_magic)
                && self.head(offset)?.is_some_and(|head| sequences.contains(&head.sequence))
            {
                return Ok(offset);
            }
            offset += 1;
        }
        Ok(limit)
    }
}

fn skipped(what: &str, why: &str) -> SkippedRecord {
    SkippedRecord { record: what.into(), reason: why.into() }
}
