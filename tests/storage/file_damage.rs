//! `local` with a truncated file or a flipped bit: either all data, or one line that says what is lost. It never
//! panics and never loads a state that was not saved.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    ops::Range,
    path::Path,
};

use plimsoll_core::{history::Snapshot, types::ContainerKey};
use plimsoll_storage::{LocalStorage, Writer};
use proptest::{collection::vec, prelude::*};

use super::temp_store::{
    AlwaysPermitted, SeededRandom, assert_same, by_key, load, memory_directory, open, record,
    records, run, save, temp_directory,
};
use crate::support::{random, tier};

const HISTORY: &str = "history.plimsoll";
/// Bytes before the first entry.
const HEADER: usize = 1024;
/// Records of these tests are at least this long; removals and commit markers are shorter.
const SHORTEST_RECORD: usize = 100;

/// A file with several saves and a removal, and everything that was saved into it.
struct UndamagedFile {
    bytes: Vec<u8>,
    last: BTreeMap<ContainerKey, Snapshot>,
    ever: HashMap<ContainerKey, Vec<Snapshot>>,
}

fn original(keys: usize, saves: u64) -> UndamagedFile {
    let directory = memory_directory();
    let local = open(directory.path());
    let mut ever = Vec::new();
    for generation in 1..=saves {
        let batch = records(keys - generation as usize % 3, generation);
        save(&local, &batch);
        ever.extend(batch);
    }
    let gone = record(0, 1).key.vpa;
    let living: HashSet<_> =
        ever.iter().map(|r| r.key.vpa.clone()).filter(|v| *v != gone).collect();
    run(local.collect_garbage(&|key| !living.contains(&key.vpa), &AlwaysPermitted))
        .expect("local collects");
    let batch = [record(1, saves + 1)];
    save(&local, &batch);
    ever.extend(batch);
    let (last, _) = load(&local);
    assert!(!last.contains_key(&record(0, 1).key), "the removed record is gone");
    drop(local);
    let bytes = fs::read(directory.path().join(HISTORY)).expect("the history is there");
    let mut states: HashMap<ContainerKey, Vec<Snapshot>> = HashMap::new();
    for record in ever {
        states.entry(record.key).or_default().push(record.snapshot);
    }
    UndamagedFile { bytes, last, ever: states }
}

impl UndamagedFile {
    /// Opens these bytes and checks all invariants of the result. Returns how many keys are lost or outdated.
    fn check(&self, directory: &Path, damaged: &[u8], how: &str) -> usize {
        fs::write(directory.join(HISTORY), damaged).expect("the directory is writable");
        let (local, report) =
            LocalStorage::open(directory).unwrap_or_else(|e| panic!("{how}: {e}"));
        let (loaded, loading) = load(&local);
        assert_eq!(report.records, loaded.len(), "{how}: the report has the right count");
        for (key, snapshot) in &loaded {
            let saved = self.ever.get(key).is_some_and(|states| states.contains(snapshot));
            assert!(saved, "{how}: {key} has a state that was never saved");
        }
        let differs = |key: &&ContainerKey| loaded.get(*key) != self.last.get(*key);
        let keys: HashSet<&ContainerKey> = self.last.keys().chain(loaded.keys()).collect();
        let lost = keys.into_iter().filter(|key| differs(key)).count();

        let Some(damage) = report.damage else {
            assert_eq!(lost, 0, "{how}: {lost} records are lost silently");
            return 0;
        };
        let line = damage.to_string();
        assert!(!line.contains('\n'), "{how}: more than one line: {line}");
        assert!(line.starts_with(&directory.display().to_string()), "{how}: no path: {line}");
        assert_eq!(loading.skipped, damage.lost, "{how}: open and load report the same");
        if lost > 0 {
            assert!(!damage.lost.is_empty(), "{how}: {lost} lost, but the report is: {line}");
        }
        match damage.damaged_copy {
            Some(name) => {
                let aside = directory.join(name);
                assert_eq!(
                    fs::read(&aside).expect("stored"),
                    damaged,
                    "{how}: damaged file is preserved"
                );
                fs::remove_file(aside).expect("removed");
            }
            None => assert_eq!(damage.lost, [], "{how}: lost data is preserved"),
        }
        drop(local);
        let (again, loading) = load(&open(directory));
        assert_same(&again, &loaded);
        assert_eq!(loading.skipped, [], "{how}: repaired");
        lost
    }

    /// Positions of the entries in the file. Their format is documented in storage/src/local/frame.rs.
    fn entries(&self) -> Vec<Range<usize>> {
        let number = |at: usize| {
            let bytes = self.bytes[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes) as usize
        };
        let mut entries = Vec::new();
        let mut at = HEADER;
        while at < self.bytes.len() {
            let end = at + 38 + number(at + 6) + 8 + number(at + 10);
            entries.push(at..end);
            at = end;
        }
        assert_eq!(at, self.bytes.len(), "the entries fill the file");
        entries
    }

    /// The byte positions that a tier damages. Deep: all. Gate: the header, the first record, and everything from the
    /// last record on; of the others every seventh, with an offset that depends on the seed.
    fn cut_positions(&self) -> Vec<usize> {
        let entries = self.entries();
        let last_record = entries.iter().rposition(|entry| entry.len() > SHORTEST_RECORD);
        let last_record = &entries[last_record.expect("the history has records")];
        let offset = random::seed(0) as usize % 7;
        let is_chosen = |place: &usize| {
            tier::is_deep()
                || *place < entries[0].end
                || *place >= last_record.start
                || place % 7 == offset
        };
        (0..self.bytes.len()).filter(is_chosen).collect()
    }

    fn flipped(&self, place: usize, bit: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[place] ^= 1 << bit;
        bytes
    }
}

#[test]
fn a_small_history_truncated_at_any_byte_opens_or_reports_what_is_lost() {
    let (original, directory) = (original(4, 2), memory_directory());
    for length in original.cut_positions() {
        let how = format!("cut at {length} of {}", original.bytes.len());
        let lost = original.check(directory.path(), &original.bytes[..length], &how);
        if length < HEADER {
            assert_eq!(lost, original.last.len(), "{how}: history starts empty");
        }
    }
}

#[test]
fn a_small_history_with_any_flipped_bit_loses_at_most_one_record() {
    let (original, directory) = (original(4, 2), memory_directory());
    for place in original.cut_positions() {
        for bit in (0..8).filter(|bit| tier::is_deep() || *bit == place as u64 % 8) {
            let how = format!("bit {bit} of byte {place} flipped");
            let bytes = original.flipped(place, bit);
            let lost = original.check(directory.path(), &bytes, &how);
            assert!(lost <= 1, "{how}: {lost} records are lost");
        }
    }
}

#[test]
fn a_larger_history_survives_random_truncations_and_bit_flips() {
    let (original, directory) = (original(40, 4), memory_directory());
    for seed in random::seeds("storage-damage", 20_261_121) {
        let mut seeded = SeededRandom(seed);
        for n in 0..tier::cases(300, 20_000) {
            let place = seeded.below(original.bytes.len() as u64) as usize;
            if n % 2 == 0 {
                let bytes = original.flipped(place, seeded.below(8));
                let how = format!("byte {place} flipped");
                let lost = original.check(directory.path(), &bytes, &how);
                assert!(lost <= 1, "{how}: {lost} records are lost");
            } else {
                let how = format!("cut at {place}");
                original.check(directory.path(), &original.bytes[..place], &how);
            }
        }
    }
}

#[test]
fn a_damaged_record_is_reported_and_its_previous_state_is_used() {
    let directory = temp_directory();
    let local = open(directory.path());
    let (first, second) = (records(3, 1), records(3, 2));
    save(&local, &first);
    save(&local, &second);
    drop(local);
    let damaged = &second[1].key;
    let flipped = super::corruption::flip_bit(directory.path(), damaged);
    assert!(flipped.expect("the history can be written"), "the record is there");

    let (local, report) = LocalStorage::open(directory.path()).expect("opens");
    let line = report.damage.expect("the damage is found").to_string();
    let at = directory.path().display();
    assert_eq!(
        line,
        format!(
            "{at}: history is damaged; 3 records are intact; lost: shop/web-1/app (checksum \
             mismatch; using the previous state); the damaged file is kept as \
             history.plimsoll.damaged-1"
        )
    );
    let expected = [second[0].clone(), first[1].clone(), second[2].clone()];
    assert_same(&load(&local).0, &by_key(&expected));
}

#[test]
fn a_record_damaged_at_run_time_is_skipped_and_reported() {
    let directory = temp_directory();
    let local = open(directory.path());
    let batch = records(3, 1);
    save(&local, &batch);
    let flipped = super::corruption::flip_bit(directory.path(), &batch[1].key);
    assert!(flipped.expect("the history can be written"), "the record is there");
    let (loaded, report) = load(&local);
    assert_same(&loaded, &by_key(&[batch[0].clone(), batch[2].clone()]));
    assert_eq!(report.skipped.len(), 1);
    assert_eq!(report.skipped[0].record, "shop/web-1/app");
    assert_eq!(report.skipped[0].reason, "checksum mismatch");
}

#[test]
fn the_remains_of_an_incomplete_save_are_dropped_silently() {
    let directory = memory_directory();
    let local = open(directory.path());
    save(&local, &records(4, 1));
    let path = directory.path().join(HISTORY);
    let before = fs::read(&path).expect("the history is there");
    save(&local, &records(4, 2));
    drop(local);
    let after = fs::read(&path).expect("the history is there");

    // The old commit markers, with a part of what the second save appended.
    let (all, offset) = (after.len() - before.len(), random::seed(0) as usize % 7);
    let is_chosen = |appended: &usize| {
        let is_near_an_end = *appended < 200 || all - *appended < 200;
        tier::is_deep() || is_near_an_end || *appended % 7 == offset
    };
    for appended in (0..=all).filter(is_chosen) {
        let mut bytes = before.clone();
        bytes.extend_from_slice(&after[before.len()..before.len() + appended]);
        fs::write(&path, &bytes).expect("the history can be written");
        let complete = before.len() + appended == after.len();
        let expected = by_key(&records(4, if complete { 2 } else { 1 }));
        assert_same(&load(&open(directory.path())).0, &expected);
    }
}

#[test]
fn a_save_after_an_incomplete_one_is_not_mixed_with_its_remains() {
    let directory = temp_directory();
    let local = open(directory.path());
    save(&local, &records(2, 1));
    let path = directory.path().join(HISTORY);
    let before = fs::metadata(&path).expect("the history is there").len() as usize;
    save(&local, &records(6, 2));
    drop(local);
    let mut bytes = fs::read(&path).expect("the history is there");
    bytes.truncate(bytes.len() - 10);
    let committed = {
        let fresh = temp_directory();
        let local = open(fresh.path());
        save(&local, &records(2, 1));
        drop(local);
        fs::read(fresh.path().join(HISTORY)).expect("the history is there")
    };
    assert_eq!(committed.len(), before, "the same save writes the same bytes");
    bytes[..1024].copy_from_slice(&committed[..1024]);
    fs::write(&path, &bytes).expect("the history can be written");

    let local = open(directory.path());
    save(&local, &[record(0, 3)]);
    drop(local);
    let expected = by_key(&[record(0, 3), record(1, 1)]);
    assert_same(&load(&open(directory.path())).0, &expected);
}

proptest! {
    #![proptest_config(tier::properties(64, 4_000))]
    #[test]
    fn a_file_that_is_no_history_is_kept_aside_and_a_new_one_is_started(bytes in vec(any::<u8>(), 0..4_000)) {
        let directory = memory_directory();
        fs::write(directory.path().join(HISTORY), &bytes).expect("the directory is writable");
        let (local, report) = LocalStorage::open(directory.path()).expect("opens");
        let damage = report.damage.expect("the damage is found");
        prop_assert!(!damage.lost.is_empty());
        let aside = damage.damaged_copy.expect("stored");
        prop_assert_eq!(fs::read(directory.path().join(aside)).expect("stored"), bytes);
        save(&local, &records(2, 1));
        assert_same(&load(&local).0, &by_key(&records(2, 1)));
    }
}
