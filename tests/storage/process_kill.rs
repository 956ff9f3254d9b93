//! SIGKILL during saves: a load returns the last completed save, or one that completed without being reported. It
//! never returns a mixture.
//!
//! The child runs the same test with an environment variable for its directory; callers of [`kill_during_saves`] and
//! [`save_until_killed`] decide what it saves.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use plimsoll_core::{
    history::{Record, Snapshot},
    types::ContainerKey,
};
use plimsoll_storage::LocalStorage;

use super::temp_store::{SeededRandom, assert_same, by_key, load, records, save, temp_directory};
use crate::support::{random, tier};

/// The directory of the child.
const DIRECTORY: &str = "PLIMSOLL_TEST_SAVES_IN";

/// Kills the child when dropped.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The directory to save to, in a process that [`kill_during_saves`] started.
pub fn child_directory() -> Option<PathBuf> {
    env::var_os(DIRECTORY).map(PathBuf::from)
}

/// The child: saves one generation after another and reports each.
pub fn save_until_killed(
    directory: &Path,
    latest: impl Fn(&BTreeMap<ContainerKey, Snapshot>) -> u64,
    generate: impl Fn(u64) -> Vec<Record>,
) {
    let mut out = std::io::stdout();
    // These writes fail if the parent is gone, which ends the child.
    writeln!(out, "opening").expect("the parent listens");
    let (local, report) =
        LocalStorage::open(directory).expect("the lock of a killed process is free");
    assert_eq!(report.damage, None, "a kill is not damage");
    for generation in latest(&load(&local).0) + 1.. {
        save(&local, &generate(generation));
        writeln!(out, "saved {generation}").expect("the parent listens");
    }
}

/// The parent: starts its own `test` repeatedly as a child, kills it at random moments, and passes the stored data to
/// `check`, with the number of the last save that is known to be complete. `check` returns the number of the save that
/// it found. Returns the last of them.
pub fn kill_during_saves(
    directory: &Path,
    test: &str,
    kills: u32,
    mut check: impl FnMut(BTreeMap<ContainerKey, Snapshot>, u64) -> u64,
) -> u64 {
    let mut seeded = SeededRandom(random::seed(9));
    let mut completed = 0;
    for kill in 0..kills {
        let mut child = ChildGuard(
            Command::new(env::current_exe().expect("this binary has a path"))
                .args([test, "--exact", "--nocapture"])
                .env(DIRECTORY, directory)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("this binary can be started again"),
        );
        let out = BufReader::new(child.0.stdout.take().expect("stdout is piped"));
        let (sender, lines) = mpsc::channel();
        let listening = thread::spawn(move || {
            for line in out.lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let opening = lines.iter().any(|line| line.ends_with("opening"));
        assert!(opening, "the child of kill {kill} starts");
        // After some saves, and then at any moment of opening or of the next save.
        for line in lines.iter().take(seeded.below(8) as usize) {
            completed = saved(&line).unwrap_or(completed);
        }
        thread::sleep(Duration::from_micros(seeded.below(3_000)));
        drop(child);
        listening.join().expect("listener does not panic");
        for line in &lines {
            completed = saved(&line).unwrap_or(completed);
        }
        let (local, report) =
            LocalStorage::open(directory).expect("the lock of a killed process is free");
        assert_eq!(report.damage, None, "kill {kill} is not damage");
        // A save that completed without being reported must not get lost from now on.
        completed = completed.max(check(load(&local).0, completed));
    }
    completed
}

fn saved(line: &str) -> Option<u64> {
    let generation = line.strip_prefix("saved ")?;
    Some(generation.parse().expect("lines are written atomically"))
}

const RECORDS: usize = 40;

fn generation(loaded: &BTreeMap<ContainerKey, Snapshot>) -> u64 {
    loaded.values().next().map_or(0, |snapshot| snapshot.cpu_seen.count)
}

#[test]
fn crashes_during_saves_lose_no_completed_save_and_mix_none() {
    if let Some(directory) = child_directory() {
        return save_until_killed(&directory, generation, |generation| {
            records(RECORDS, generation)
        });
    }
    let directory = temp_directory();
    let kills = tier::cases(25, 500);
    let completed = kill_during_saves(
        directory.path(),
        "storage::process_kill::crashes_during_saves_lose_no_completed_save_and_mix_none",
        kills,
        |loaded, completed| {
            let found = generation(&loaded);
            assert!(found >= completed, "save {completed} had completed, found {found}");
            assert!(found <= completed + 1, "found save {found}, the last one was {completed}");
            if found > 0 {
                assert_same(&loaded, &by_key(&records(RECORDS, found)));
            }
            found
        },
    );
    assert!(
        completed > 2 * u64::from(kills),
        "{completed} saves in {kills} runs: too few, the kills came too early"
    );
    let files = fs::read_dir(directory.path()).expect("the directory can be read").count();
    assert!(files <= 3, "no damaged file was set aside");
}
