//! The two commit markers at the start of the history file, which contain the committed length.
//!
//! A save appends its entries after the committed end, and then writes one marker. The next save writes the other one. So
//! one marker is always intact, and a truncated file is detected even if the cut is between two saves.
//!
//! ```text
//!   magic 8 │ version 2 │ sequence 8 │ length 8 │ records 8 │ XXH3 of these 8     little-endian
//! ```

use super::frame::{check, number};

const MAGIC: &[u8; 8] = b"PLIMSOLL";
/// The layout version of the file. A newer one is rejected, and the file is not changed.
const VERSION: u16 = 1;
const GUARDED: usize = 34;

/// Length of a marker in bytes.
pub const LENGTH: usize = GUARDED + 8;
/// Offset of the second marker: in another sector than the first, so that a torn write damages only one.
pub const SECOND_MARKER_OFFSET: u64 = 512;
/// Offset of the first entry.
pub const FIRST_FRAME_OFFSET: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitMarker {
    pub sequence: u64,
    /// End offset of the committed entries.
    pub length: u64,
    pub records: u64,
}

impl CommitMarker {
    /// The offset of this marker: the two alternate.
    pub fn offset(&self) -> u64 {
        if self.sequence.is_multiple_of(2) { 0 } else { SECOND_MARKER_OFFSET }
    }

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

    /// Decodes a marker; `None` if it is damaged or was never written. Fails with the layout version if it is another one.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, u16> {
        if bytes.len() < LENGTH
            || !bytes.starts_with(MAGIC)
            || number(&bytes[GUARDED..LENGTH]) != check(&bytes[..GUARDED])
        {
            return Ok(None);
        }
        match number(&bytes[8..10]) as u16 {
            VERSION => Ok(Some(Self {
                sequence: number(&bytes[10..18]),
                length: number(&bytes[18..26]),
                records: number(&bytes[26..GUARDED]),
            })),
            other => Err(other),
        }
    }
}
