//! One entry of the history file: a head that names the record and guards itself, then the content.
//!
//! ```text
//!   magic    4   where an entry begins: a reader that lost its place looks for it
//!   kind     1   record, removal, or the end of a save
//!   format   1   encoding of the content
//!   key      4   length of the key            \
//!   body     4   length of the content         | little-endian
//!   sequence 8   which save it belongs to      |
//!   richness 8   how much the record saw      /   (end of a save: how many entries it has)
//!   check    8   XXH3 of the content              (end of a save: of all its entries)
//!   key bytes
//!   check    8   XXH3 of everything above
//!   content bytes
//! ```
//!
//! The head has a check of its own, so that a record whose content is damaged can still be named.

use twox_hash::XxHash3_64;

const MAGIC: [u8; 4] = [0xA7, b'P', b'l', 0x1E];
const HEAD: usize = 38;
const CHECK: usize = 8;

/// Longest key: far beyond what three Kubernetes names can be, small enough that a damaged length is
/// found out at once.
pub const MAX_KEY: usize = 64 * 1024;

/// Bytes of an end mark. No record and no removal is as short.
pub const END_MARK: u64 = (HEAD + CHECK) as u64;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The state of a key.
    Record,
    /// The key was removed.
    Removal,
    /// The save is complete.
    End,
}

/// The head of an entry, proven whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the entry says.
    pub kind: FrameKind,
    /// Encoding of the content.
    pub format: u8,
    /// Length of the content in bytes.
    pub body: u32,
    /// The save it belongs to.
    pub sequence: u64,
    /// How much the record saw; of an end mark, how many entries its save has.
    pub richness: u64,
    /// XXH3 of the content; of an end mark, of all entries of its save.
    pub check: u64,
    /// The key; empty for an end mark.
    pub key: Box<[u8]>,
}

impl FrameHeader {
    /// Bytes from the beginning of the entry to its content.
    pub fn to_body(&self) -> u64 {
        (HEAD + self.key.len() + CHECK) as u64
    }

    /// Bytes of the whole entry.
    pub fn length(&self) -> u64 {
        self.to_body() + u64::from(self.body)
    }

    /// Whether this is the content that the head speaks of.
    pub fn matches_checksum(&self, body: &[u8]) -> bool {
        body.len() as u64 == u64::from(self.body) && XxHash3_64::oneshot(body) == self.check
    }

    /// Appends the entry. `body` must be what `self.body` and `self.check` were made from.
    pub fn write(&self, body: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.push(match self.kind {
            FrameKind::Record => 1,
            FrameKind::Removal => 2,
            FrameKind::End => 3,
        });
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

    /// Reads the head of the entry that begins at `offset`; `None` when no whole head begins there.
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

/// The check of these bytes.
pub fn check(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Whether an entry may begin with these bytes.
pub fn starts_with_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// A little-endian number of up to eight bytes.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
