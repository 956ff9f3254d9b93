//! Damage on purpose, for tests: what disks, crashes and foreign hands do to a history file.

use std::{fs, io, path::Path};

use super::{
    HistoryFile, commit_marker,
    encoded_record::EncodedRecord,
    frame::check,
    scan::{RecordLocation, scan},
};
use crate::{Error, codec};
use plimsoll_core::types::ContainerKey;

/// Puts bytes of this format under a key, as another version might have written them.
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

/// Flips one bit inside the stored content of a key. Answers whether the key was there.
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

/// Makes the file claim another layout, as a later version would write it.
pub fn set_layout_version(directory: &Path, version: u16) -> io::Result<()> {
    let path = directory.join("history.plimsoll");
    let mut bytes = fs::read(&path)?;
    for place in [0, commit_marker::SECOND_MARKER_OFFSET as usize] {
        let one = &mut bytes[place..place + commit_marker::LENGTH];
        one[8..10].copy_from_slice(&version.to_le_bytes());
        let guard = check(&one[..commit_marker::LENGTH - 8]);
        one[commit_marker::LENGTH - 8..].copy_from_slice(&guard.to_le_bytes());
    }
    fs::write(&path, bytes)
}
