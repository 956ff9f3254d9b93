//! Corrupts a history file for tests, as disks, crashes and other programs do.

use std::{fs, io, path::Path};

use super::{
    HistoryFile, commit_marker,
    encoded_record::EncodedRecord,
    frame::check,
    scan::{RecordLocation, scan},
};
use crate::{Error, codec};
use plimsoll_core::types::ContainerKey;

/// Writes a record with this format and content, as another version might.
pub fn write_raw_record(
    directory: &Path,
    key: &ContainerKey,
    format: u8,
    content: &[u8],
) -> Result<(), Error> {
    let (mut history, _) = HistoryFile::open(directory)?;
    history
        .save(&[EncodedRecord::raw(key, format, 1, content.to_vec())
            .map_err(|skipped| Error::Unusable { place: skipped.record, why: skipped.reason })?])
        .map(|_| ())
}

/// Flips one bit in the stored content of a key. Returns whether the key exists.
pub fn flip_bit(directory: &Path, key: &ContainerKey) -> io::Result<bool> {
    let path = directory.join("history.plimsoll");
    let Ok(found) = scan(&fs::File::open(&path)?)? else { return Ok(false) };
    let Some(RecordLocation { offset, length, .. }) = found.entries.get(&*codec::encode_key(key))
    else {
        return Ok(false);
    };
    let mut bytes = fs::read(&path)?;
    if let Some(byte) = bytes.get_mut((offset + length - 1) as usize) {
        *byte ^= 0x10;
    }
    fs::write(&path, bytes)?;
    Ok(true)
}

/// Sets the layout version of the file, as a later version would.
pub fn set_layout_version(directory: &Path, version: u16) -> io::Result<()> {
    let path = directory.join("history.plimsoll");
    let mut bytes = fs::read(&path)?;
    for offset in [0, commit_marker::SECOND_MARKER_OFFSET as usize] {
        let marker = &mut bytes[offset..offset + commit_marker::LENGTH];
        marker[8..10].copy_from_slice(&version.to_le_bytes());
        let checksum = check(&marker[..commit_marker::LENGTH - 8]);
        marker[commit_marker::LENGTH - 8..].copy_from_slice(&checksum.to_le_bytes());
    }
    fs::write(&path, bytes)
}
