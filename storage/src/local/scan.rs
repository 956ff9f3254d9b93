//! Reads a history file from beginning to end and says what is whole, what is damaged and what is unfinished.
//!
//! Nothing is believed without its check. A place that cannot be read is passed over up to the next
//! entry that proves itself, so damage costs the entries that it touches and no others.

use std::{collections::HashMap, fs::File, io, os::unix::fs::FileExt};

use super::{
    frame::{self, END_MARK, Head, Kind},
    mark::{self, Found, Mark},
};
use crate::codec;
use plimsoll_core::{history::Skipped, types::Key};

/// Where the current record of a key lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where its entry begins.
    pub offset: u64,
    /// Bytes of its entry.
    pub length: u64,
    /// Encoding of its content.
    pub format: u8,
    /// How much it saw.
    pub richness: u64,
    /// Length of its content.
    pub body: u32,
    /// XXH3 of its content.
    pub check: u64,
}

impl Entry {
    /// The entry of this head at this place.
    pub fn at(offset: u64, head: &Head) -> Self {
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

/// Something that is lost or set back to an older state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Whose it was, when that could be read.
    pub key: Option<Key>,
    /// What it is, and why.
    pub skipped: Skipped,
}

impl Loss {
    /// Why most are lost.
    pub const FAILS: &str = "it fails its check";

    /// The loss of a record.
    pub fn of_record(key: &[u8], why: &str) -> Self {
        let key = codec::decode_key(key).ok();
        let what = key.as_ref().map_or("a record without a name".into(), Key::to_string);
        Self { key, skipped: skipped(&what, why) }
    }

    fn of_place(what: &str, why: &str) -> Self {
        Self { key: None, skipped: skipped(what, why) }
    }
}

/// What a history file holds.
#[derive(Debug, Default)]
pub struct Scan {
    /// The current record of each key.
    pub entries: HashMap<Box<[u8]>, Entry>,
    /// Where the next save goes.
    pub end: u64,
    /// Number of the latest save.
    pub sequence: u64,
    /// What is lost or set back to an older state, and why.
    pub lost: Vec<Loss>,
    /// Damage that cost nothing.
    pub harmless: Vec<Skipped>,
    /// Whether the marks at the beginning must be written anew: a complete save lies behind the
    /// committed end.
    pub overtaken: bool,
}

/// Reads the whole file. `Err(version)` inside: it was written by a version with another layout.
pub fn scan(file: &File) -> io::Result<Result<Scan, u16>> {
    let length = file.metadata()?.len();
    let mut window = Window { file, length, bytes: Vec::new(), start: 0 };
    let mut scan = Scan::default();

    let first = window.bytes(0, mark::LENGTH)?.map_or(Found::Damaged, Mark::decode);
    let second = window.bytes(mark::SECOND, mark::LENGTH)?.map_or(Found::Damaged, Mark::decode);
    if let (Found::Version(version), _) | (_, Found::Version(version)) = (first, second) {
        return Ok(Err(version));
    }
    let committed = match (first, second) {
        (Found::Whole(a), Found::Whole(b)) => Some(if a.sequence > b.sequence { a } else { b }),
        (Found::Whole(one), _) | (_, Found::Whole(one)) => {
            scan.harmless.push(skipped("one of the two marks", "it fails its check"));
            Some(one)
        }
        _ => None,
    };

    let Some(committed) = committed else {
        scan.lost.push(Loss::of_place("the beginning of the file", "both marks fail their checks"));
        scan.read_committed(&mut window, length, u64::MAX)?;
        return Ok(Ok(scan));
    };
    scan.sequence = committed.sequence;
    scan.read_committed(&mut window, committed.length, committed.sequence)?;
    if length > committed.length {
        let unfinished = scan.read_tail(&mut window, &committed)?;
        if unfinished && !scan.harmless.is_empty() {
            // With both marks whole this is a save that was cut short and was never promised to anybody.
            scan.lost.push(Loss::of_place("perhaps the last save", "its mark is damaged"));
        }
    }
    Ok(Ok(scan))
}

impl Scan {
    /// Of a history that begins.
    pub fn empty() -> Self {
        Self { end: mark::ENTRIES, ..Self::default() }
    }

    /// Reads what is committed: `length` bytes, saves up to number `newest`.
    fn read_committed(
        &mut self,
        window: &mut Window<'_>,
        length: u64,
        newest: u64,
    ) -> io::Result<()> {
        let limit = length.min(window.length);
        let mut damaged: HashMap<Box<[u8]>, Loss> = HashMap::new();
        let (mut offset, mut oldest) = (mark::ENTRIES, 0);
        while offset < limit {
            let head = window.head(offset)?.filter(|head| {
                (oldest..=newest).contains(&head.sequence)
                    && (head.kind != Kind::End || head.key.is_empty())
            });
            let Some(head) = head else {
                let next = window.next_head(offset + 1, limit, oldest..=newest)?;
                self.pass_over(offset, next);
                offset = next;
                continue;
            };
            oldest = head.sequence;
            self.sequence = self.sequence.max(head.sequence);
            match head.kind {
                Kind::End => {}
                Kind::Removal => {
                    self.entries.remove(&head.key);
                    damaged.remove(&head.key);
                }
                Kind::Record => {
                    let body = window.bytes(offset + head.to_body(), head.body as usize)?;
                    if body.is_some_and(|body| head.vouches_for(body)) {
                        self.entries.insert(head.key.clone(), Entry::at(offset, &head));
                        damaged.remove(&head.key);
                    } else {
                        let whole = offset + head.length() <= window.length;
                        let cause = if whole { Loss::FAILS } else { "the file ends inside it" };
                        damaged.insert(head.key.clone(), Loss::of_record(&head.key, cause));
                    }
                }
            }
            offset += head.length();
        }
        for (key, mut damage) in damaged {
            if self.entries.contains_key(&key) {
                damage.skipped.why += "; the state before it is used";
            }
            self.lost.push(damage);
        }
        self.lost.sort_by(|a, b| a.skipped.what.cmp(&b.skipped.what));
        if window.length < length && newest != u64::MAX {
            self.lost.push(Loss::of_place(
                "the end of the file",
                &format!("it is cut at {} of {length} bytes", window.length),
            ));
        }
        self.end = limit.max(mark::ENTRIES);
        Ok(())
    }

    /// Notes a stretch that no entry could be read from.
    fn pass_over(&mut self, from: u64, to: u64) {
        let what = format!("bytes {from} to {to}");
        if to - from == END_MARK {
            self.harmless.push(skipped(&what, "the end mark of a save fails its check"));
        } else {
            self.lost.push(Loss::of_place(&what, "they fail their check"));
        }
    }

    /// Reads what lies behind the committed end: complete saves only, in sequence and without a flaw.
    /// Answers whether something unfinished is left.
    fn read_tail(&mut self, window: &mut Window<'_>, committed: &Mark) -> io::Result<bool> {
        let mut offset = committed.length;
        let mut begin = offset;
        let mut save: Vec<(u64, Head)> = Vec::new();
        while let Some(head) = window.head(offset)? {
            if head.sequence <= self.sequence
                || save.first().is_some_and(|(_, first)| first.sequence != head.sequence)
            {
                break;
            }
            if head.kind == Kind::End {
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
                    if head.kind == Kind::Record {
                        self.entries.insert(head.key.clone(), Entry::at(offset, &head));
                    } else {
                        self.entries.remove(&head.key);
                    }
                }
                begin = offset + head.length();
                self.end = begin;
                self.overtaken = true;
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

/// A file seen through a buffer, so that reading it in order costs few calls.
struct Window<'a> {
    file: &'a File,
    length: u64,
    bytes: Vec<u8>,
    start: u64,
}

impl Window<'_> {
    const SPAN: usize = 1 << 20;

    /// These bytes of the file; `None` when it ends before them.
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

    fn head(&mut self, offset: u64) -> io::Result<Option<Head>> {
        Head::read(offset, &mut |offset, length| {
            self.bytes(offset, length).map(|bytes| bytes.map(<[u8]>::to_vec))
        })
    }

    /// The next place from `offset` on where a whole head of one of these saves begins, or `limit`.
    fn next_head(
        &mut self,
        mut offset: u64,
        limit: u64,
        sequences: std::ops::RangeInclusive<u64>,
    ) -> io::Result<u64> {
        while offset < limit {
            if self.bytes(offset, 4)?.is_some_and(frame::begins)
                && self.head(offset)?.is_some_and(|head| sequences.contains(&head.sequence))
            {
                return Ok(offset);
            }
            offset += 1;
        }
        Ok(limit)
    }
}

fn skipped(what: &str, why: &str) -> Skipped {
    Skipped { what: what.into(), why: why.into() }
}
