//! `local` over a long time: the file does not grow without bound, and a load is a consistent snapshot during saves.

use std::{fs, path::Path};

use plimsoll_core::{
    history::{Sample, Sink, Snapshot},
    types::ContainerKey,
};
use plimsoll_storage::{LoadRequest, LocalStorage, Storage};

use super::temp_store::{
    LoadedSnapshots, assert_same, by_key, load, open, records, run, save, temp_directory,
};

fn size(directory: &Path) -> u64 {
    fs::metadata(directory.join("history.plimsoll")).expect("the history is there").len()
}

#[test]
fn repeated_overwrites_do_not_grow_the_file_without_bound() {
    const RECORDS: usize = 100;
    let directory = temp_directory();
    let local = open(directory.path());
    save(&local, &records(RECORDS, 1));
    let one_save = size(directory.path());
    let (mut largest, mut compactions, mut before) = (0, 0, one_save);
    for generation in 2..=200 {
        save(&local, &records(RECORDS, generation));
        let now = size(directory.path());
        compactions += usize::from(now < before);
        largest = largest.max(now);
        before = now;
    }
    assert!(200 * one_save > 6_000_000, "too little was written: {one_save} bytes per save");
    assert!(compactions >= 3, "{compactions} compactions");
    assert!(largest <= 2 * one_save + (1 << 20), "it grew to {largest} bytes");
    assert_same(&load(&local).0, &by_key(&records(RECORDS, 200)));
    drop(local);
    assert_same(&load(&open(directory.path())).0, &by_key(&records(RECORDS, 200)));
    let files = fs::read_dir(directory.path()).expect("the directory can be read").count();
    assert_eq!(files, 2, "only the history and its lock file");
}

/// Saves repeatedly while a load is in progress.
struct SavingSink<'a> {
    local: &'a LocalStorage,
    loaded: LoadedSnapshots,
}

impl Sink for SavingSink<'_> {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        if self.loaded.0.len() == 10 {
            std::thread::scope(|scope| {
                scope.spawn(|| (2..40).for_each(|n| save(self.local, &records(200, n))));
            });
        }
        self.loaded.snapshot(key, snapshot);
    }

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        self.loaded.sample(key, sample);
    }
}

#[test]
fn a_load_is_consistent_during_saves_and_a_compaction() {
    let directory = temp_directory();
    let local = open(directory.path());
    save(&local, &records(200, 1));
    let first = size(directory.path());
    let mut sink = SavingSink { local: &local, loaded: LoadedSnapshots::default() };
    let report = run(local.load(&LoadRequest::All, &mut sink)).expect("local loads");
    assert_eq!(report.skipped, []);
    assert_same(&sink.loaded.0, &by_key(&records(200, 1)));
    assert!(size(directory.path()) < 30 * first, "a compaction happened meanwhile");
    assert_same(&load(&local).0, &by_key(&records(200, 39)));
}
