//! `local` where it cannot work: one clear line each, and nothing is lost.

use std::{
    env, fs,
    io::{Write, stderr, stdout},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use plimsoll_storage::{Local, Writer, local::tamper};

use super::place::{Granted, assert_same, by_key, load, open, place, records, run, save};

const DIRECTORY: &str = "PLIMSOLL_TEST_FILLS";

fn refusal(directory: &Path) -> String {
    let error = Local::open(directory).expect_err("this cannot work").to_string();
    assert!(!error.contains('\n'), "one line: {error}");
    let at = directory.display().to_string();
    error.strip_prefix(&at).unwrap_or_else(|| panic!("{error} names {at}")).to_string()
}

#[test]
fn a_missing_directory_is_made_but_not_the_one_above_it() {
    let above = place();
    let directory = above.path().join("history");
    save(&open(&directory), &records(1, 1));
    assert_same(&load(&open(&directory)).0, &by_key(&records(1, 1)));
    assert_eq!(
        refusal(&above.path().join("missing/history")),
        ": the directory above it does not exist: create it, or mount the volume"
    );
}

#[test]
fn a_file_in_place_of_the_directory_is_refused_and_left_alone() {
    let above = place();
    let file = above.path().join("history");
    fs::write(&file, "precious").expect("the directory is writable");
    assert_eq!(refusal(&file), ": it is not a directory: name a directory for the history");
    assert_eq!(fs::read(&file).expect("it is there"), b"precious");
}

#[test]
fn a_directory_in_place_of_the_history_file_is_refused() {
    let directory = place();
    fs::create_dir(directory.path().join("history.plimsoll")).expect("the directory is writable");
    assert_eq!(
        refusal(directory.path()),
        ": history cannot be opened: Is a directory (os error 21)"
    );
}

#[test]
fn a_directory_that_another_process_uses_is_refused_and_that_one_is_not_disturbed() {
    let directory = place();
    let first = open(directory.path());
    save(&first, &records(2, 1));
    assert_eq!(
        refusal(directory.path()),
        ": another process uses it, and local storage is for one alone: stop the other, or give \
         each its own directory"
    );
    save(&first, &records(2, 2));
    drop(first);
    assert_same(&load(&open(directory.path())).0, &by_key(&records(2, 2)));
}

#[test]
fn a_history_of_a_later_layout_is_refused_and_left_untouched() {
    let directory = place();
    save(&open(directory.path()), &records(2, 1));
    tamper::claim_layout(directory.path(), 2).expect("the history can be written");
    let path = directory.path().join("history.plimsoll");
    let before = fs::read(&path).expect("the history is there");
    assert_eq!(
        refusal(directory.path()),
        ": history is in layout 2, which this version does not read: use the version that wrote \
         it, or another directory"
    );
    assert_eq!(fs::read(&path).expect("the history is there"), before);
}

#[test]
fn a_name_that_is_too_long_is_refused_and_the_rest_of_history_is_kept() {
    let directory = place();
    let local = open(directory.path());
    save(&local, &records(2, 1));
    let mut batch = records(2, 2);
    let mut long = batch[0].clone();
    long.key.container = "c".repeat(100_000).into();
    batch.insert(1, long);
    let report = run(local.save(&batch, &Granted)).expect("the others are saved");
    let [refused] = &*report.refused else { panic!("{report:?}") };
    assert_eq!(refused.why, "its name or its content is too long to be kept");
    assert!(refused.what.len() < 200, "{}", refused.what);
    assert_same(&load(&local).0, &by_key(&records(2, 2)));
}

#[test]
fn a_directory_without_permission_to_write_is_refused() {
    let directory = place();
    save(&open(directory.path()), &records(1, 1));
    let at = |mode| fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode));
    at(0o555).expect("the directory is ours");
    let lock = fs::remove_file(directory.path().join("lock"));
    if lock.is_ok() {
        // Root writes regardless; the read-only file system below is for it.
        at(0o755).expect("the directory is ours");
        return;
    }
    let locked = fs::Permissions::from_mode(0o444);
    fs::set_permissions(directory.path().join("lock"), locked).expect("the lock is ours");
    let said = refusal(directory.path());
    at(0o755).expect("the directory is ours");
    assert_eq!(said, ": cannot write into it: no permission: let this user write there");
}

/// Starts a test of this binary again, through a shell that first sets the stage. `{}` in the stage is
/// the directory.
fn on_stage(shell: &[&str], stage: &str, child: &str, directory: &Path) -> Output {
    let exe = env::current_exe().expect("this binary has a path");
    Command::new(shell[0])
        .args(&shell[1..])
        .arg("-c")
        .arg(format!("{stage}; exec \"$0\" \"$@\"").replace("{}", &directory.display().to_string()))
        .arg(exe)
        .args([child, "--exact", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::null())
        .output()
        .expect("a shell can be started")
}

/// Whether this user may mount something in a world of its own.
fn may_mount() -> bool {
    let tried = Command::new("unshare").args(["-rm", "true"]).output();
    let may = tried.is_ok_and(|output| output.status.success());
    if !may {
        let _ = writeln!(stderr(), "not run in full: this user may not mount (unshare -rm)");
    }
    may
}

fn said(output: &Output, prefix: &str) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let all = || format!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the child went well:\n{}", all());
    let line = text.lines().find_map(|line| line.split_once(prefix));
    line.unwrap_or_else(|| panic!("a line with {prefix:?}:\n{}", all())).1.to_string()
}

const FILLS: &str = "storage::faults::saves_until_nothing_fits";

#[test]
#[ignore = "the child of the tests of full disks, which start it"]
fn saves_until_nothing_fits() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let local = open(directory);
    let mut size = 1;
    let error = loop {
        assert!(size < 100_000, "the disk never filled up");
        match run(local.save(&records(size, size as u64), &Granted)) {
            Ok(_) => size += 1,
            Err(error) => break error.to_string(),
        }
    };
    let last = by_key(&records(size - 1, size as u64 - 1));
    // The last completed save is there.
    assert_same(&load(&local).0, &last);
    // A smaller save goes through still, and after it everything is as if nothing had been.
    let filler = directory.join("filler");
    if filler.exists() {
        fs::remove_file(filler).expect("the filler can be removed");
        save(&local, &records(size, size as u64));
        assert_same(&load(&local).0, &by_key(&records(size, size as u64)));
    }
    let now = load(&local).0;
    drop(local);
    assert_same(&load(&open(directory)).0, &now);
    writeln!(stdout(), "size {}", size - 1).expect("the parent listens");
    writeln!(stdout(), "error {error}").expect("the parent listens");
}

#[test]
fn a_file_that_may_not_grow_costs_the_save_that_does_not_fit_and_nothing_else() {
    let directory = place();
    let stage = "trap '' XFSZ; ulimit -f 200";
    let output = on_stage(&["sh"], stage, FILLS, directory.path());
    let at = directory.path().display();
    assert_eq!(
        said(&output, "error "),
        format!(
            "{at}: nothing of this save is kept, what was saved before is: the file may not grow: \
             raise the limit on file sizes (will be tried again)"
        )
    );
    let size: usize = said(&output, "size ").parse().expect("a number");
    assert_same(&load(&open(directory.path())).0, &by_key(&records(size, size as u64)));
}

#[test]
fn a_full_disk_costs_the_save_that_does_not_fit_and_with_space_again_saves_go_on() {
    if !may_mount() {
        return;
    }
    let directory = place();
    let stage = "mount -t tmpfs -o size=400k tmpfs {} && head -c 100000 /dev/zero > {}/filler";
    let output = on_stage(&["unshare", "-rm", "sh"], stage, FILLS, directory.path());
    let error = said(&output, "error ");
    let expected = "nothing of this save is kept, what was saved before is: no space left: free some \
                    or give it more (will be tried again)";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
#[ignore = "the child of the tests of disks where nothing can begin, which start it"]
fn says_why_it_cannot_open() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    let why = refusal(Path::new(&directory));
    writeln!(stdout(), "why {why}").expect("the parent listens");
}

const REFUSED: &str = "storage::faults::says_why_it_cannot_open";

#[test]
fn a_read_only_file_system_is_refused_and_the_history_on_it_is_untouched() {
    if !may_mount() {
        return;
    }
    let directory = place();
    save(&open(directory.path()), &records(2, 1));
    let before = fs::read(directory.path().join("history.plimsoll")).expect("it is there");
    let stage = "mount --bind {} {} && mount -o remount,bind,ro {}";
    let output = on_stage(&["unshare", "-rm", "sh"], stage, REFUSED, directory.path());
    assert_eq!(
        said(&output, "why "),
        ": cannot write into it: the file system is read-only: mount it for writing"
    );
    let after = fs::read(directory.path().join("history.plimsoll")).expect("it is there");
    assert_eq!(before, after);
}

#[test]
fn a_disk_without_space_for_even_the_beginning_is_refused() {
    if !may_mount() {
        return;
    }
    let directory = place();
    let stage = "mount -t tmpfs -o size=4k tmpfs {} && head -c 4096 /dev/zero > {}/filler";
    let output = on_stage(&["unshare", "-rm", "sh"], stage, REFUSED, directory.path());
    assert_eq!(
        said(&output, "why "),
        ": history cannot be begun: no space left: free some or give it more"
    );
}
