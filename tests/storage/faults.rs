//! `local` where it cannot work: one clear line for each fault, and no data is lost.

use std::{
    env, fs,
    io::{Write, stdout},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Output, Stdio},
};

use plimsoll_storage::{LocalStorage, Writer};

use super::corruption;
use super::temp_store::{
    AlwaysPermitted, assert_same, by_key, load, open, records, run, save, temp_directory,
};
use crate::support::skipped::report_skipped;

/// Set for a child process that runs the same test in a prepared environment: the directory to use.
const DIRECTORY: &str = "PLIMSOLL_TEST_FAULTS_IN";

fn refusal(directory: &Path) -> String {
    let error = LocalStorage::open(directory).expect_err("must fail").to_string();
    assert!(!error.contains('\n'), "one line: {error}");
    let at = directory.display().to_string();
    error.strip_prefix(&at).unwrap_or_else(|| panic!("{error} does not contain {at}")).to_string()
}

#[test]
fn a_missing_directory_is_created_but_not_its_parent() {
    let above = temp_directory();
    let directory = above.path().join("history");
    save(&open(&directory), &records(1, 1));
    assert_same(&load(&open(&directory)).0, &by_key(&records(1, 1)));
    assert_eq!(
        refusal(&above.path().join("missing/history")),
        ": its parent directory does not exist: create it, or mount the volume"
    );
}

#[test]
fn a_file_instead_of_the_directory_is_rejected_and_unchanged() {
    let above = temp_directory();
    let file = above.path().join("history");
    fs::write(&file, "precious").expect("the directory is writable");
    assert_eq!(refusal(&file), ": it is not a directory: use a directory for the history");
    assert_eq!(fs::read(&file).expect("exists"), b"precious");
}

#[test]
fn a_directory_instead_of_the_history_file_is_rejected() {
    let directory = temp_directory();
    fs::create_dir(directory.path().join("history.plimsoll")).expect("the directory is writable");
    assert_eq!(refusal(directory.path()), ": failed to open history: Is a directory (os error 21)");
}

#[test]
fn a_directory_in_use_by_another_process_is_rejected_without_disturbing_it() {
    let directory = temp_directory();
    let first = open(directory.path());
    save(&first, &records(2, 1));
    assert_eq!(
        refusal(directory.path()),
        ": another process is using it, and local storage supports only one: stop the other, or give \
         each its own directory"
    );
    save(&first, &records(2, 2));
    drop(first);
    assert_same(&load(&open(directory.path())).0, &by_key(&records(2, 2)));
}

#[test]
fn a_history_of_a_newer_format_is_rejected_and_unchanged() {
    let directory = temp_directory();
    save(&open(directory.path()), &records(2, 1));
    corruption::set_layout_version(directory.path(), 2).expect("the history can be written");
    let path = directory.path().join("history.plimsoll");
    let before = fs::read(&path).expect("the history is there");
    assert_eq!(
        refusal(directory.path()),
        ": history has layout 2, which this version does not support: use the version that wrote \
         it, or another directory"
    );
    assert_eq!(fs::read(&path).expect("the history is there"), before);
}

#[test]
fn a_name_that_is_too_long_is_rejected_and_the_rest_is_saved() {
    let directory = temp_directory();
    let local = open(directory.path());
    save(&local, &records(2, 1));
    let mut batch = records(2, 2);
    let mut long = batch[0].clone();
    long.key.container = "c".repeat(100_000).into();
    batch.insert(1, long);
    let report = run(local.save(&batch, &AlwaysPermitted)).expect("other records are saved");
    let [refused] = &*report.refused else { panic!("{report:?}") };
    assert_eq!(refused.reason, "its name or its content is too long");
    assert!(refused.record.len() < 200, "{}", refused.record);
    assert_same(&load(&local).0, &by_key(&records(2, 2)));
}

#[test]
fn a_directory_without_write_permission_is_rejected() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        return print_open_error(Path::new(&directory));
    }
    // Root ignores permissions, unless it drops that capability.
    let is_root = fs::metadata("/proc/self").expect("exists on Linux").uid() == 0;
    let plain = ["setpriv", BOUND, INHERITED, "sh"];
    let shell = if is_root { &plain[..] } else { &plain[3..] };
    if is_root && !succeeds(&["setpriv", BOUND, INHERITED, "true"]) {
        return report_skipped("root cannot drop its capabilities here (setpriv)");
    }
    let directory = temp_directory();
    save(&open(directory.path()), &records(1, 1));
    let allow = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own object");
    };
    allow(&directory.path().join("lock"), 0o444);
    allow(directory.path(), 0o555);
    let test = "storage::faults::a_directory_without_write_permission_is_rejected";
    let output = on_stage(shell, "true", test, directory.path());
    allow(directory.path(), 0o755);
    assert_eq!(
        output_value(&output, "why "),
        ": cannot write to it: permission denied: allow this user to write there"
    );
}

/// Drops root's capabilities to bypass file permissions.
const BOUND: &str = "--bounding-set=-dac_override,-dac_read_search";
const INHERITED: &str = "--inh-caps=-dac_override,-dac_read_search";

fn succeeds(command: &[&str]) -> bool {
    let tried = Command::new(command[0]).args(&command[1..]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// Runs the same test again as a child process, through a shell that first prepares the environment. `{}` in `stage`
/// is the directory.
fn on_stage(shell: &[&str], setup: &str, test: &str, directory: &Path) -> Output {
    let exe = env::current_exe().expect("this binary has a path");
    Command::new(shell[0])
        .args(&shell[1..])
        .arg("-c")
        .arg(format!("{setup}; exec \"$0\" \"$@\"").replace("{}", &directory.display().to_string()))
        .arg(exe)
        .args([test, "--exact", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::null())
        .output()
        .expect("a shell can be started")
}

/// Whether this user may mount file systems in its own namespace; reports it if not.
fn may_mount() -> bool {
    let may = succeeds(&["unshare", "-rm", "true"]);
    if !may {
        report_skipped(
            "this user may not mount, not even in its own mount namespace (unshare -rm)",
        );
    }
    may
}

fn output_value(output: &Output, prefix: &str) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let all = || format!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the child failed:\n{}", all());
    let line = text.lines().find_map(|line| line.split_once(prefix));
    line.unwrap_or_else(|| panic!("a line with {prefix:?}:\n{}", all())).1.to_string()
}

fn save_until_nothing_fits(directory: &Path) {
    let local = open(directory);
    let mut size = 1;
    let error = loop {
        assert!(size < 100_000, "the disk never filled up");
        match run(local.save(&records(size, size as u64), &AlwaysPermitted)) {
            Ok(_) => size += 1,
            Err(error) => break error.to_string(),
        }
    };
    let last = by_key(&records(size - 1, size as u64 - 1));
    // The last completed save is there.
    assert_same(&load(&local).0, &last);
    // A smaller save still succeeds, and after it the state is as if nothing had failed.
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
fn a_file_size_limit_only_loses_the_save_that_exceeds_it() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        return save_until_nothing_fits(Path::new(&directory));
    }
    let directory = temp_directory();
    let setup = "trap '' XFSZ; ulimit -f 200";
    let test = "storage::faults::a_file_size_limit_only_loses_the_save_that_exceeds_it";
    let output = on_stage(&["sh"], setup, test, directory.path());
    let at = directory.path().display();
    assert_eq!(
        output_value(&output, "error "),
        format!(
            "{at}: save failed, earlier saves are kept: the file is too large: \
             raise the file size limit (will be retried)"
        )
    );
    let size: usize = output_value(&output, "size ").parse().expect("a number");
    assert_same(&load(&open(directory.path())).0, &by_key(&records(size, size as u64)));
}

#[test]
fn a_full_disk_only_loses_the_save_that_does_not_fit() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        return save_until_nothing_fits(Path::new(&directory));
    }
    if !may_mount() {
        return;
    }
    let directory = temp_directory();
    let setup = "mount -t tmpfs -o size=400k tmpfs {} && head -c 100000 /dev/zero > {}/filler";
    let test = "storage::faults::a_full_disk_only_loses_the_save_that_does_not_fit";
    let output = on_stage(&["unshare", "-rm", "sh"], setup, test, directory.path());
    let error = output_value(&output, "error ");
    let expected = "save failed, earlier saves are kept: no space left: free some \
                    or enlarge the volume (will be retried)";
    assert!(error.ends_with(expected), "{error}");
}

fn print_open_error(directory: &Path) {
    let why = refusal(directory);
    writeln!(stdout(), "why {why}").expect("the parent listens");
}

#[test]
fn a_read_only_file_system_is_rejected_and_its_history_is_unchanged() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        return print_open_error(Path::new(&directory));
    }
    if !may_mount() {
        return;
    }
    let directory = temp_directory();
    save(&open(directory.path()), &records(2, 1));
    let before = fs::read(directory.path().join("history.plimsoll")).expect("exists");
    let setup = "mount --bind {} {} && mount -o remount,bind,ro {}";
    let test = "storage::faults::a_read_only_file_system_is_rejected_and_its_history_is_unchanged";
    let output = on_stage(&["unshare", "-rm", "sh"], setup, test, directory.path());
    assert_eq!(
        output_value(&output, "why "),
        ": cannot write to it: the file system is read-only: mount it writable"
    );
    let after = fs::read(directory.path().join("history.plimsoll")).expect("exists");
    assert_eq!(before, after);
}

#[test]
fn a_disk_without_space_for_the_file_header_is_rejected() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        return print_open_error(Path::new(&directory));
    }
    if !may_mount() {
        return;
    }
    let directory = temp_directory();
    let setup = "mount -t tmpfs -o size=4k tmpfs {} && head -c 4096 /dev/zero > {}/filler";
    let test = "storage::faults::a_disk_without_space_for_the_file_header_is_rejected";
    let output = on_stage(&["unshare", "-rm", "sh"], setup, test, directory.path());
    assert_eq!(
        output_value(&output, "why "),
        ": failed to create history: no space left: free some or enlarge the volume"
    );
}
