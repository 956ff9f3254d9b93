//! Reading single entries again: for a load, a handful at a time, and for compaction.

use std::{
    cmp::Reverse,
    fs::File,
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
    sync::Arc,
};

use super::{
    directory::explain,
    frame::Head,
    scan::{Entry, Loss},
};
use crate::codec;
use plimsoll_core::{
    history::{Skipped, Snapshot},
    types::Key,
};

/// The records of one load. Saves append behind them, and compaction leaves their file as it is.
#[derive(Debug)]
pub struct Listing {
    file: Arc<File>,
    /// Last one first.
    entries: Vec<Entry>,
    /// What is known to be lost.
    pub lost: Vec<Skipped>,
}

impl Listing {
    /// These entries of this file.
    pub fn new(file: Arc<File>, mut entries: Vec<Entry>, lost: Vec<Skipped>) -> Self {
        entries.sort_by_key(|entry| Reverse(entry.offset));
        Self { file, entries, lost }
    }

    /// The next records, at most `count`; none at the end.
    pub fn next(&mut self, count: usize) -> Vec<Result<(Key, Snapshot), Skipped>> {
        let rest = self.entries.len().saturating_sub(count);
        let file = &self.file;
        self.entries.drain(rest..).rev().map(|entry| read_record(file, &entry)).collect()
    }
}

fn read_record(file: &File, entry: &Entry) -> Result<(Key, Snapshot), Skipped> {
    let unnamed =
        |why: String| Skipped { what: format!("the record at byte {}", entry.offset), why };
    let (head, bytes) = read_entry(file, entry)
        .map_err(|e| unnamed(format!("it cannot be read: {}", explain(&e))))?
        .map_err(|head| match head {
            Some(head) => Loss::of_record(&head.key, Loss::FAILS).skipped,
            None => unnamed(Loss::FAILS.into()),
        })?;
    let key = codec::decode_key(&head.key).map_err(|e| unnamed(e.to_string()))?;
    let body = &bytes[head.to_body() as usize..];
    match codec::decode_snapshot(head.format, body) {
        Ok(snapshot) => Ok((key, snapshot)),
        Err(malformed) => Err(Skipped { what: key.to_string(), why: malformed.to_string() }),
    }
}

/// The head and the bytes of an entry, or what is left of them.
pub type Whole = Result<(Head, Vec<u8>), Option<Head>>;

/// The head and the bytes of an entry; where it is damaged, the head alone if that is whole.
pub fn read_entry(file: &File, entry: &Entry) -> io::Result<Whole> {
    let mut bytes = vec![0; entry.length as usize];
    match file.read_exact_at(&mut bytes, entry.offset) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Err(None)),
        other => other?,
    }
    let head = Head::read::<io::Error>(0, &mut |from, length| {
        Ok(bytes.get(from as usize..from as usize + length).map(<[u8]>::to_vec))
    })?;
    Ok(match head {
        Some(head)
            if head.length() == entry.length
                && head.vouches_for(&bytes[head.to_body() as usize..]) =>
        {
            Ok((head, bytes))
        }
        head => Err(head),
    })
}
