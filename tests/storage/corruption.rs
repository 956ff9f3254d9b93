//! Corrupts a history file, as disks, crashes and other versions do. The layout is that of `storage/src/local/frame.rs`
//! and `commit_marker.rs`.

use std::{fs, io, path::Path};

use plimsoll_core::types::ContainerKey;
use plimsoll_storage::codec::encode_key;
use twox_hash::XxHash3_64;

const FILE: &str = "history.plimsoll";
/// Offsets of the commit markers, and their length without the checksum.
const MARKERS: [usize; 2] = [0, 512];
const MARKER_LENGTH: usize = 34;
/// Length of the fixed part of an entry, before the key.
const HEAD: usize = 38;
const MAGIC: [u8; 4] = [0xA7, b'P', b'l', 0x1E];

fn number<const N: usize>(bytes: &[u8]) -> u64 {
    let mut number = [0; 8];
    number[..N].copy_from_slice(&bytes[..N]);
    u64::from_le_bytes(number)
}

fn entry(kind: u8, format: u8, sequence: u64, key: &[u8], content: &[u8], check: u64) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &[kind, format]].concat();
    bytes.extend((key.len() as u32).to_le_bytes());
    bytes.extend((content.len() as u32).to_le_bytes());
    bytes.extend([sequence, 1, check].iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend(key);
    bytes.extend(XxHash3_64::oneshot(&bytes).to_le_bytes());
    [&bytes, content].concat()
}

/// Appends a save with one record of this format and content, as another version might.
pub fn write_raw_record(
    directory: &Path,
    key: &ContainerKey,
    format: u8,
    content: &[u8],
) -> io::Result<()> {
    let path = directory.join(FILE);
    let mut bytes = fs::read(&path)?;
    let sequence = MARKERS.map(|marker| number::<8>(&bytes[marker + 10..])).into_iter().max();
    let sequence = sequence.unwrap_or_default() + 1;
    let check = XxHash3_64::oneshot(content);
    let record = entry(1, format, sequence, &encode_key(key), content, check);
    bytes.extend(&record);
    bytes.extend(entry(3, 1, sequence, &[], &[], XxHash3_64::oneshot(&record)));
    fs::write(&path, bytes)
}

/// Flips one bit in the stored content of a key. Returns whether the key exists.
pub fn flip_bit(directory: &Path, key: &ContainerKey) -> io::Result<bool> {
    let path = directory.join(FILE);
    let (mut bytes, key) = (fs::read(&path)?, encode_key(key));
    let Some(at) = bytes.windows(key.len()).rposition(|window| window == key) else {
        return Ok(false);
    };
    assert!(bytes[at - HEAD..].starts_with(&MAGIC), "the key of an entry");
    let content = number::<4>(&bytes[at - HEAD + 10..]) as usize;
    bytes[at + key.len() + 8 + content - 1] ^= 0x10;
    fs::write(&path, bytes)?;
    Ok(true)
}

/// Sets the layout version of the file, as a later version would.
pub fn set_layout_version(directory: &Path, version: u16) -> io::Result<()> {
    let path = directory.join(FILE);
    let mut bytes = fs::read(&path)?;
    for marker in MARKERS {
        bytes[marker + 8..marker + 10].copy_from_slice(&version.to_le_bytes());
        let (guarded, check) = bytes[marker..].split_at_mut(MARKER_LENGTH);
        check[..8].copy_from_slice(&XxHash3_64::oneshot(guarded).to_le_bytes());
    }
    fs::write(&path, bytes)
}
