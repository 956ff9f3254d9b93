//! `local` opened read-only, as by `plimsoll explain`: the files stay unchanged.

use std::{collections::BTreeMap, fs, path::Path, time::SystemTime};

use plimsoll_storage::{LocalStorage, Storage, Writer};

use super::corruption;
use super::temp_store::{
    AlwaysPermitted, assert_same, by_key, load, open, record, records, run, save, temp_directory,
};

/// The files of a directory with contents and modification times.
fn files(directory: &Path) -> BTreeMap<String, (Vec<u8>, SystemTime)> {
    let read = |entry: fs::DirEntry| {
        let changed = entry.metadata().and_then(|known| known.modified()).expect("exists");
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, (fs::read(entry.path()).expect("is readable"), changed))
    };
    let entries = fs::read_dir(directory).expect("is readable");
    entries.map(|entry| read(entry.expect("is readable"))).collect()
}

#[test]
fn opening_a_history_read_only_changes_nothing() {
    let directory = temp_directory();
    let damaged = record(1, 1);
    save(&open(directory.path()), &records(3, 1));
    assert!(corruption::flip_bit(directory.path(), &damaged.key).expect("is readable"));
    // An incomplete save, and an incomplete compaction.
    let path = directory.path().join("history.plimsoll");
    let mut bytes = fs::read(&path).expect("exists");
    bytes.extend([7; 100]);
    fs::write(&path, bytes).expect("the directory is writable");
    fs::write(directory.path().join("history.plimsoll.new"), "half").expect("writable");

    let before = files(directory.path());
    let (local, report) = LocalStorage::open_read_only(directory.path()).expect("opens");
    let damage = report.damage.expect("detected");
    assert_eq!((report.records, damage.lost.len(), damage.damaged_copy), (2, 1, None));
    let (found, loaded) = load(&local);
    assert_same(&found, &by_key(&[record(0, 1), record(2, 1)]));
    assert_eq!(loaded.skipped.len(), 1, "{:?}", loaded.skipped);
    assert!(local.writer().is_none());
    let (other, _) =
        LocalStorage::open_read_only(directory.path()).expect("readers do not block each other");
    for _ in 0..2 {
        let refused =
            run(other.save(&records(3, 2), &AlwaysPermitted)).expect_err("it cannot be written");
        assert!(refused.to_string().contains("opened read-only"), "{refused}");
    }
    assert_eq!(files(directory.path()), before);
    drop((local, other));

    // Opening it for writing repairs it.
    let (local, report) = LocalStorage::open(directory.path()).expect("opens");
    assert!(report.damage.is_some_and(|damage| damage.damaged_copy.is_some()));
    let refused =
        LocalStorage::open_read_only(directory.path()).expect_err("locked by another process");
    assert!(refused.to_string().contains("another process is using it"), "{refused}");
    drop(local);
}

#[test]
fn a_directory_without_a_history_is_read_as_empty_and_stays_empty() {
    let directory = temp_directory();
    let (local, report) = LocalStorage::open_read_only(directory.path()).expect("opens");
    assert_eq!((report.records, load(&local).0.len()), (0, 0));
    assert!(files(directory.path()).is_empty());
    let missing = directory.path().join("missing");
    LocalStorage::open_read_only(&missing).expect_err("not found");
    assert!(!missing.exists());
}
