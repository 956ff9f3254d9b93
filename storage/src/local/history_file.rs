//! The history file: saves are appended, committed by a marker, and compacted when most of the file is obsolete.

#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

use super::{
    commit_marker::{self, CommitMarker},
    damage_report::DamageReport,
    directory::{Directory, explain},
    frame::{self, END_MARK, EncodedRecord, FrameHeader, FrameKind},
    record_reader::{RecordReader, read_entry},
    scan::{self, LostRecord, RecordLocation, ScanResult},
};
use crate::{Error, LoadRequest, SaveDecision, SaveReport, codec};
use plimsoll_core::types::ContainerKey;

/// Amount of obsolete data to tolerate before a small history is compacted.
const COMPACTION_SLACK: u64 = 1 << 20;

#[derive(Debug)]
pub struct HistoryFile {
    pub directory: Directory,
    file: Arc<File>,
    pub entries: HashMap<Box<[u8]>, RecordLocation>,
    /// Offset of the next save.
    end: u64,
    /// Total length of the current entries in bytes.
    live_bytes: u64,
    sequence: u64,
    /// Whether a write failed, so that the state on disk is unknown. The next save starts with a new file.
    needs_rewrite: bool,
    /// Lost records, until they are saved again.
    lost: Vec<LostRecord>,
}

impl HistoryFile {
    /// Opens the history of a directory, or creates one.
    pub fn open(path: &Path) -> Result<(Self, Option<DamageReport>), Error> {
        let directory = Directory::lock_exclusive(path)?;
        let place = directory.location();
        let failed = |action: &str, error: &io::Error| unusable(&place, action, error);
        let Some(file) = directory.open_history().map_err(|e| failed("open", &e))? else {
            let created =
                Self::empty(directory).and_then(|mut history| history.rewrite().map(|()| history));
            return Ok((created.map_err(|e| failed("create", &e))?, None));
        };
        let (mut history, damage, markers_outdated) = Self::read(directory, file)?;
        let Some(mut damage) = damage else {
            history.recover_tail(markers_outdated).map_err(|e| failed("open", &e))?;
            return Ok((history, None));
        };
        if !damage.lost.is_empty() {
            let copy = history.directory.keep_damaged_copy();
            damage.damaged_copy = Some(copy.map_err(|e| failed("repair", &e))?);
        }
        history.rewrite().map_err(|e| failed("repair", &e))?;
        Ok((history, Some(damage)))
    }

    /// Opens the history of a directory read-only. Does not repair damage.
    pub fn open_read_only(path: &Path) -> Result<(Self, Option<DamageReport>), Error> {
        let directory = Directory::take_read_only(path)?;
        let place = directory.location();
        let failed = |error: &io::Error| unusable(&place, "open", error);
        if let Some(file) = directory.open_history().map_err(|e| failed(&e))? {
            return Self::read(directory, file).map(|(history, damage, _)| (history, damage));
        }
        Ok((Self::empty(directory).map_err(|e| failed(&e))?, None))
    }

    /// A history without records and without a file: that of the directory is never read, because there are no entries.
    fn empty(directory: Directory) -> io::Result<Self> {
        let file = directory.handle.try_clone()?;
        let scan = ScanResult { end: commit_marker::FIRST_FRAME_OFFSET, ..ScanResult::default() };
        Ok(Self::from_scan(directory, file, scan))
    }

    /// Reads a history file. Also returns its damage, and whether its markers are outdated.
    fn read(directory: Directory, file: File) -> Result<(Self, Option<DamageReport>, bool), Error> {
        let place = directory.location();
        let scan = scan::scan(&file).map_err(|e| unusable(&place, "read", &e))?;
        let scan = scan.map_err(|version| Error::Unusable {
            place: place.clone(),
            why: format!(
                "history has layout {version}, which this version does not support: use the version that wrote it, or \
                 another directory"
            ),
        })?;
        let is_damaged = !(scan.lost.is_empty() && scan.harmless.is_empty());
        let damage = is_damaged.then(|| DamageReport {
            location: place,
            intact_records: scan.entries.len(),
            lost: scan.lost.iter().map(|loss| loss.skipped.clone()).collect(),
            harmless: scan.harmless.clone(),
            damaged_copy: None,
        });
        let markers_outdated = scan.markers_outdated;
        Ok((Self::from_scan(directory, file, scan), damage, markers_outdated))
    }

    fn from_scan(directory: Directory, file: File, scan: ScanResult) -> Self {
        Self {
            directory,
            file: Arc::new(file),
            live_bytes: scan.entries.values().map(|entry| entry.length).sum(),
            entries: scan.entries,
            end: scan.end,
            sequence: scan.sequence,
            needs_rewrite: false,
            lost: scan.lost,
        }
    }

    /// Truncates an unfinished save, and commits a complete one whose marker is missing.
    fn recover_tail(&self, markers_outdated: bool) -> io::Result<()> {
        if self.file.metadata()?.len() > self.end {
            self.file.set_len(self.end)?;
        }
        if markers_outdated {
            let records = self.entries.len() as u64;
            self.commit(CommitMarker { sequence: self.sequence, length: self.end, records })?;
        }
        Ok(())
    }

    pub fn location(&self) -> String {
        self.directory.location()
    }

    /// The result of saving this batch: the report, and the indices of the records to write. A record is compared to the
    /// stored one, or to an earlier one of the batch.
    pub fn compare(&self, batch: &[EncodedRecord]) -> (SaveReport, Vec<usize>) {
        let mut report = SaveReport::default();
        let mut changes = Vec::new();
        let mut earlier: HashMap<&[u8], &FrameHeader> = HashMap::new();
        for (n, EncodedRecord { key, head, supersede, .. }) in batch.iter().enumerate() {
            let stored = match earlier.get(&*head.key) {
                Some(earlier) => Some(RecordLocation::at(0, earlier)),
                None => self.entries.get(&head.key).copied(),
            };
            let same = stored.is_some_and(|stored| {
                (stored.format, stored.body, stored.check) == (head.format, head.body, head.check)
            });
            let stored = stored.map(|stored| stored.richness);
            match SaveDecision::decide(head.richness, *supersede, stored, same) {
                SaveDecision::Write => {
                    earlier.insert(&head.key, head);
                    changes.push(n);
                }
                SaveDecision::Unchanged => report.unchanged += 1,
                SaveDecision::StoredIsRicher => report.stored_richer.push(key.clone()),
            }
        }
        report.written = changes.len();
        (report, changes)
    }

    /// Saves a batch completely or not at all.
    pub fn save(&mut self, batch: &[EncodedRecord]) -> Result<SaveReport, Error> {
        let (report, changes) = self.compare(batch);
        let changes =
            changes.into_iter().map(|n| (batch[n].head.clone(), batch[n].body.as_slice()));
        self.append(changes.collect())?;
        Ok(report)
    }

    /// The keys of all records, with their encoded form. Records in other formats are omitted: they belong to another
    /// version.
    pub fn keys(&self) -> Vec<(ContainerKey, Box<[u8]>)> {
        let readable = self.entries.iter().filter(|(_, entry)| entry.format == codec::FORMAT);
        readable
            .filter_map(|(bytes, _)| Some((codec::decode_key(bytes).ok()?, bytes.clone())))
            .collect()
    }

    /// Removes these keys, and returns how many existed.
    pub fn remove(&mut self, mut keys: Vec<Box<[u8]>>) -> Result<usize, Error> {
        keys.retain(|key| self.entries.contains_key(key));
        let removed = keys.len();
        let removal = |key| FrameHeader {
            kind: FrameKind::Removal,
            format: codec::FORMAT,
            body: 0,
            sequence: 0,
            richness: 0,
            check: frame::check(&[]),
            key,
        };
        self.append(keys.into_iter().map(|key| (removal(key), &[][..])).collect())?;
        Ok(removed)
    }

    fn append(&mut self, changes: Vec<(FrameHeader, &[u8])>) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        if self.directory.is_read_only {
            let why = "it was opened read-only".to_owned();
            return Err(Error::Unusable { place: self.location(), why });
        }
        if self.needs_rewrite {
            self.rewrite().map_err(|e| self.unavailable(&e))?;
        }
        // A failed save uses up its sequence number too, so that its leftovers are never mistaken for a part of the
        // next one.
        self.sequence += 1;
        let count = changes.len() as u64;
        let mut bytes = Vec::new();
        let mut written = Vec::with_capacity(changes.len());
        for (mut head, body) in changes {
            head.sequence = self.sequence;
            let offset = self.end + bytes.len() as u64;
            head.write(body, &mut bytes);
            written.push((offset, head));
        }
        let end = FrameHeader {
            kind: FrameKind::End,
            format: codec::FORMAT,
            body: 0,
            sequence: self.sequence,
            richness: count,
            check: frame::check(&bytes),
            key: Box::default(),
        };
        end.write(&[], &mut bytes);
        debug_assert_eq!(end.length(), END_MARK, "readers know end marks by their length");

        if let Err(error) = self.file.write_all_at(&bytes, self.end) {
            // It is after the committed end and is never read. Truncate it to free the space.
            self.needs_rewrite = self.file.set_len(self.end).is_err();
            return Err(self.unavailable(&error));
        }
        let mark = CommitMarker {
            sequence: self.sequence,
            length: self.end + bytes.len() as u64,
            records: self.records_after(&written),
        };
        if let Err(error) = self.commit(mark) {
            self.needs_rewrite = true;
            return Err(self.unavailable(&error));
        }
        self.end = mark.length;
        if !self.lost.is_empty() {
            let saved_keys: HashSet<&[u8]> = written.iter().map(|(_, head)| &*head.key).collect();
            self.lost.retain(|loss| {
                let key = loss.key.as_ref().map(codec::encode_key);
                key.is_none_or(|key| !saved_keys.contains(&*key))
            });
        }
        for (offset, head) in written {
            let entry = (head.kind == FrameKind::Record).then(|| RecordLocation::at(offset, &head));
            let old = match entry {
                Some(entry) => self.entries.insert(head.key, entry),
                None => self.entries.remove(&head.key),
            };
            self.live_bytes += entry.map_or(0, |entry| entry.length);
            self.live_bytes -= old.map_or(0, |entry| entry.length);
        }
        if self.end > 2 * self.live_bytes + COMPACTION_SLACK {
            // This save is on disk. A failed compaction is retried with the next one.
            let _ = self.rewrite();
        }
        Ok(())
    }

    fn records_after(&self, written: &[(u64, FrameHeader)]) -> u64 {
        let mut changed: HashMap<&[u8], bool> = HashMap::new();
        for (_, head) in written {
            changed.insert(&head.key, head.kind == FrameKind::Record);
        }
        let before = changed.keys().filter(|key| self.entries.contains_key(**key)).count();
        let after = changed.values().filter(|record| **record).count();
        (self.entries.len() - before + after) as u64
    }

    fn commit(&self, mark: CommitMarker) -> io::Result<()> {
        // In this order: a marker must never refer to entries that are not on disk yet.
        self.file.sync_data()?;
        self.file.write_all_at(&mark.encode(), mark.offset())?;
        self.file.sync_data()
    }

    /// Writes the current records to a new file that replaces the old one. If that fails, the old file stays in use. If the
    /// directory cannot be synced afterwards, the next save rewrites the file again.
    fn rewrite(&mut self) -> io::Result<()> {
        let mut current: Vec<(&Box<[u8]>, &RecordLocation)> = self.entries.iter().collect();
        current.sort_by_key(|(_, entry)| entry.offset);
        let (old, sequence) = (Arc::clone(&self.file), self.sequence);
        let replaced = self.directory.replace_history(|file| {
            let mut out = io::BufWriter::with_capacity(1 << 16, &mut *file);
            out.write_all(&[0; commit_marker::FIRST_FRAME_OFFSET as usize])?;
            let mut entries = HashMap::with_capacity(current.len());
            let (mut offset, mut lost) = (commit_marker::FIRST_FRAME_OFFSET, Vec::new());
            for (key, entry) in current {
                match read_entry(&old, entry)? {
                    Ok((_, bytes)) => {
                        out.write_all(&bytes)?;
                        entries.insert(key.clone(), RecordLocation { offset, ..*entry });
                        offset += entry.length;
                    }
                    Err(_) => lost.push(LostRecord::of_record(key, LostRecord::CHECKSUM_MISMATCH)),
                }
            }
            out.flush()?;
            drop(out);
            let mark = CommitMarker { sequence, length: offset, records: entries.len() as u64 };
            file.write_all_at(&mark.encode(), 0)?;
            file.write_all_at(&mark.encode(), commit_marker::SECOND_MARKER_OFFSET)?;
            Ok((entries, offset, lost))
        })?;
        let (file, (entries, end, lost), synced) = replaced;
        // The old file is unlinked by now, so saves to it would be lost.
        self.file = Arc::new(file);
        self.live_bytes = entries.values().map(|entry| entry.length).sum();
        self.entries = entries;
        self.end = end;
        self.needs_rewrite = synced.is_err();
        self.lost.extend(lost);
        synced
    }

    fn unavailable(&self, error: &io::Error) -> Error {
        Error::Unavailable {
            place: self.location(),
            why: format!("save failed, earlier saves are kept: {}", explain(error)),
        }
    }

    /// A reader for the current state, which later saves do not affect.
    pub fn listing(&self, wanted: &LoadRequest) -> RecordReader {
        let mut entries: Vec<_> = self
            .entries
            .iter()
            .filter(|(key, _)| codec::decode_key(key).map_or(true, |key| wanted.includes(&key)))
            .map(|(_, entry)| *entry)
            .collect();
        entries.sort_by_key(|entry| Reverse(entry.offset));
        let is_requested = |loss: &&LostRecord| match &loss.key {
            Some(key) => wanted.includes(key),
            None => *wanted == LoadRequest::All,
        };
        let lost = self.lost.iter().filter(is_requested).map(|loss| loss.skipped.clone()).collect();
        RecordReader { file: Arc::clone(&self.file), entries, lost }
    }
}

fn unusable(place: &str, action: &str, error: &io::Error) -> Error {
    let why = format!("failed to {action} history: {}", explain(error));
    Error::Unusable { place: place.to_owned(), why }
}
