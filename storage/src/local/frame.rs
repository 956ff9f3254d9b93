//! One entry of the history file: a header with its own checksum, then the content.
//!
//! ```text
//!   magic    4   the start of an entry: a reader resynchronizes by it after damage
//!   kind     1   record, removal, or end of a save
//!   format   1   encoding of the content
//!   key      4   length of the key            \
//!   body     4   length of the content         | little-endian
//!   sequence 8   number of the save            |
//!   richness 8   richness of the record       /   (end of a save: number of its entries)
//!   check    8   XXH3 of the content              (end of a save: of all its entries)
//!   key bytes
//!   check    8   XXH3 of everything above
//!   content bytes
//! ```
//!
//! The header has its own checksum, so that a record with damaged content can still be identified.

use twox_hash::XxHash3_64;

use crate::codec;
use plimsoll_core::{
    history::{Record, SkippedRecord},
    types::ContainerKey,
};

const MAGIC: [u8; 4] = [0xA7, b'P', b'l', 0x1E];
const HEAD: usize = 38;
const CHECK: usize = 8;

/// Maximum length of a key: longer than three Kubernetes names, and short enough to detect a damaged length.
pub const MAX_KEY: usize = 64 * 1024;

/// Length of an end mark in bytes. Records and removals are longer.
pub const END_MARK: u64 = (HEAD + CHECK) as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The state of a key.
    Record = 1,
    /// The key was removed.
    Removal = 2,
    /// The save is complete.
    End = 3,
}

/// The header of an entry, with a verified checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: FrameKind,
    pub format: u8,
    pub body: u32,
    pub sequence: u64,
    /// The richness of the record; for an end mark, the number of entries of its save.
    pub richness: u64,
    /// XXH3 of the content; for an end mark, of all entries of its save.
    pub check: u64,
    /// The key; empty for an end mark.
    pub key: Box<[u8]>,
}

impl FrameHeader {
    /// Offset of the content within the entry.
    pub fn to_body(&self) -> u64 {
        (HEAD + self.key.len() + CHECK) as u64
    }

    pub fn length(&self) -> u64 {
        self.to_body() + u64::from(self.body)
    }

    pub fn matches_checksum(&self, body: &[u8]) -> bool {
        body.len() as u64 == u64::from(self.body) && XxHash3_64::oneshot(body) == self.check
    }

    /// Appends the entry. `body` must match `self.body` and `self.check`.
    pub fn write(&self, body: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.push(self.kind as u8);
        out.push(self.format);
        out.extend_from_slice(&(self.key.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.body.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.richness.to_le_bytes());
        out.extend_from_slice(&self.check.to_le_bytes());
        out.extend_from_slice(&self.key);
        let check = XxHash3_64::oneshot(&out[start..]);
        out.extend_from_slice(&check.to_le_bytes());
        out.extend_from_slice(body);
    }

    /// Reads the header of the entry at `offset`; `None` if there is no intact header.
    pub fn read<E>(
        offset: u64,
        bytes: &mut impl FnMut(u64, usize) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Option<Self>, E> {
        let Some(fixed) = bytes(offset, HEAD)? else { return Ok(None) };
        if !fixed.starts_with(&MAGIC) {
            return Ok(None);
        }
        let key_length = number(&fixed[6..10]) as usize;
        if key_length > MAX_KEY {
            return Ok(None);
        }
        let Some(whole) = bytes(offset, HEAD + key_length + CHECK)? else { return Ok(None) };
        let (guarded, check) = whole.split_at(HEAD + key_length);
        if XxHash3_64::oneshot(guarded) != number(check) {
            return Ok(None);
        }
        let kind = match guarded[4] {
            1 => FrameKind::Record,
            2 => FrameKind::Removal,
            3 => FrameKind::End,
            _ => return Ok(None),
        };
        Ok(Some(Self {
            kind,
            format: guarded[5],
            body: number(&guarded[10..14]) as u32,
            sequence: number(&guarded[14..22]),
            richness: number(&guarded[22..30]),
            check: number(&guarded[30..38]),
            key: guarded[HEAD..].into(),
        }))
    }
}

/// An encoded record, ready to be appended to the history file.
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
        let (true, Ok(length)) = (bytes.len() <= MAX_KEY, u32::try_from(body.len())) else {
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
            check: check(&body),
            key: bytes.into(),
        };
        Ok(Self { key: key.clone(), head, body, supersede: record.supersede })
    }
}

pub fn check(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

pub fn starts_with_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// A little-endian number of up to eight bytes.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
