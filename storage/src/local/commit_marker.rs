//! The two marks at the beginning of the history file: up to where it is committed.
//!
//! A save writes its entries behind the committed end, then one mark; the next save writes the other. So
//! one whole mark is left whatever happens, and a file that was cut is found out even when the cut falls
//! between two saves.
//!
//! ```text
//!   magic 8 │ version 2 │ sequence 8 │ length 8 │ records 8 │ XXH3 of these 8     little-endian
//! ```

use super::frame::{check, number};

const MAGIC: &[u8; 8] = b"PLIMSOLL";
/// Layout of the file. A higher one is refused, untouched.
const VERSION: u16 = 1;
const GUARDED: usize = 34;

/// Bytes of a mark.
pub const LENGTH: usize = GUARDED + 8;
/// Where the second mark lies: in another sector than the first, so that a torn write hits one of them.
pub const SECOND_MARKER_OFFSET: u64 = 512;
/// Where the entries begin.
pub const FIRST_FRAME_OFFSET: u64 = 1024;

/// What is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitMarker {
    /// Number of the latest save.
    pub sequence: u64,
    /// Where the committed entries end.
    pub length: u64,
    /// How many keys have a record.
    pub records: u64,
}

/// What a mark turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedMarker {
    /// Whole.
    Valid(CommitMarker),
    /// Written by a version with another layout.
    UnsupportedVersion(u16),
    /// Damaged, or never written.
    Damaged,
}

impl CommitMarker {
    /// Where this mark belongs: the two take turns.
    pub fn offset(&self) -> u64 {
        if self.sequence.is_multiple_of(2) { 0 } else { SECOND_MARKER_OFFSET }
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..18].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[18..26].copy_from_slice(&self.length.to_le_bytes());
        bytes[26..GUARDED].copy_from_slice(&self.records.to_le_bytes());
        let guard = check(&bytes[..GUARDED]);
        bytes[GUARDED..].copy_from_slice(&guard.to_le_bytes());
        bytes
    }

    /// Reads a mark.
    pub fn decode(bytes: &[u8]) -> DecodedMarker {
        if bytes.len() < LENGTH
            || !bytes.starts_with(MAGIC)
            || number(&bytes[GUARDED..LENGTH]) != check(&bytes[..GUARDED])
        {
            return DecodedMarker::Damaged;
        }
        match number(&bytes[8..10]) as u16 {
            VERSION => DecodedMarker::Valid(Self {
                sequence: number(&bytes[10..18]),
                length: number(&bytes[18..26]),
                records: number(&bytes[26..GUARDED]),
            }),
            other => DecodedMarker::UnsupportedVersion(other),
        }
    }
}
