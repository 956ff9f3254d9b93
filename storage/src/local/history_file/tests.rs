//! Tests of failed compactions.

use std::fs;

use tempfile::TempDir;

use super::*;
use plimsoll_core::{
    history::{Record, SampleStats, Snapshot},
    types::ObjectKey,
};

fn open(directory: &TempDir) -> HistoryFile {
    let (history, damage) = HistoryFile::open(directory.path()).expect("the directory is writable");
    assert_eq!(damage, None);
    history
}

fn unsyncable() -> File {
    let file = File::open("/dev/null").expect("exists on Linux");
    file.sync_all().expect_err("has no disk below it");
    file
}

fn record(richness: u64) -> EncodedRecord {
    let owner = "x".repeat(3 * COMPACTION_SLACK as usize / 4);
    let memory_seen = SampleStats { count: richness, ..SampleStats::default() };
    let snapshot = Snapshot { owner: Some(owner.into()), memory_seen, ..Snapshot::default() };
    let key = ContainerKey::new(ObjectKey::new("shop", "web"), "app");
    EncodedRecord::new(&Record::new(key, snapshot)).expect("fits")
}

fn richness(history: &HistoryFile) -> Vec<u64> {
    history.entries.values().map(|entry| entry.richness).collect()
}

#[test]
fn a_compaction_that_fails_after_the_rename_loses_no_later_save() {
    let directory = TempDir::new().expect("a temporary directory");
    let mut history = open(&directory);
    let handle = history.directory.replace_handle(unsyncable());
    let mut saved = 0;
    while !history.needs_rewrite {
        saved += 1;
        assert!(saved < 10, "no compaction was tried");
        history.save(&[record(saved)]).expect("is on disk before the compaction");
    }
    // The current file is the one that a restart opens.
    assert!(history.save(&[record(saved + 1)]).is_err(), "a save that may be lost is not reported");
    history.directory.replace_handle(handle);
    history.save(&[record(saved + 2)]).expect("the directory can be synced again");
    assert!(!history.needs_rewrite);
    history.save(&[record(saved + 3)]).expect("saves go on");
    drop(history);
    assert_eq!(richness(&open(&directory)), [saved + 3]);
}

#[test]
fn a_compaction_that_fails_before_the_rename_stops_no_save() {
    let directory = TempDir::new().expect("a temporary directory");
    let mut history = open(&directory);
    // The compaction cannot open its output file.
    let unfinished = directory.path().join("history.plimsoll.new");
    fs::create_dir(&unfinished).expect("the directory is writable");
    for number in 1..10 {
        history.save(&[record(number)]).expect("the file in use is complete");
        assert!(!history.needs_rewrite);
    }
    drop(history);
    fs::remove_dir(&unfinished).expect("is empty");
    assert_eq!(richness(&open(&directory)), [9]);
}
