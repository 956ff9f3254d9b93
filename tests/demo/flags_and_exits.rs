//! Flags and exits of `plimsoll demo`: invalid values, stores, signals, closed pipes, full disks.

use std::{
    fs,
    future::ready,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use plimsoll_storage::local::LocalStorage;
use serde_json::Value;

use super::{plimsoll, refused, run, text};
use crate::support::{tier, wait};

#[test]
fn invalid_flags_give_one_line_and_exit_code_2() {
    for (arguments, words) in [
        (&["demo", "--days", "0"][..], "'0' for '--days <DAYS>': give a whole number from 1 to 90"),
        (&["demo", "--days", "91"], "give a whole number from 1 to 90"),
        (&["demo", "--days", "many"], "give a whole number from 1 to 90"),
        (&["demo", "--seed", "-1"], "'-1'"),
        (&["demo", "--recommendation-margin-fraction", "1e14"], "from 0 to 10"),
        (
            &["demo", "--container-recommendation-max-allowed-memory=-5Mi"],
            "'-5Mi' for '--container-recommendation-max-allowed-memory",
        ),
        (
            &["demo", "--container-recommendation-max-allowed-memory", "-5Mi"],
            "a maximum must not be negative: use a quantity such as 2 or 4Gi, or omit the flag",
        ),
        (&["demo", "--output", "yaml"], "[possible values: text, json]"),
        (&["demo", "--dyas", "2"], "'--days'"),
        (&["demo", "stray"], "'stray'"),
        (&["dmo"], "'demo'"),
    ] {
        let stderr = refused(&run(arguments), 2);
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
    let nothing = run(&[]);
    assert_eq!((nothing.status.code(), nothing.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("Usage: plimsoll"));
}

#[test]
fn huge_requests_do_not_overflow_and_keep_columns_apart() {
    let absurd = [
        "demo",
        "--days",
        "1",
        "--pod-recommendation-min-cpu-millicores",
        "1e14",
        "--pod-recommendation-min-memory-mb",
        "1e14",
    ];
    let printed = text(&run(&absurd));
    let row = printed.lines().find(|line| line.starts_with("  requested CPU, mean"));
    let words = row.expect("a row of sums").split_whitespace().count();
    assert!(words >= 9, "columns run together: {row:?}");
    let rows: Vec<&str> = printed.lines().filter(|line| line.starts_with("  memory ")).collect();
    assert_eq!(rows.len(), 7, "{printed}");
    for row in rows {
        // Resource, request, target, its change with a percent sign, both bounds, and the reason.
        assert!(row.split_whitespace().count() >= 8, "columns run together: {row}");
    }
    let data = run(&[&absurd[..], &["--output", "json"]].concat());
    let report: Value = serde_json::from_str(&text(&data)).expect("JSON");
    let sum = &report["lives"]["with"]["requestedByteMinutes"];
    assert!(sum.as_f64().is_some_and(|sum| sum > 1e18), "{sum}");
}

#[test]
fn the_environment_sets_flags_and_the_command_line_takes_precedence() {
    let days = |arguments: &[&str]| {
        let output = plimsoll(arguments).env("PLIMSOLL_FLAG_DAYS", "1").output();
        text(&output.expect("the program starts")).lines().next().unwrap_or_default().to_owned()
    };
    assert!(days(&["demo"]).contains("one virtual day,"));
    assert!(days(&["demo", "--days", "2"]).contains("2 virtual days,"));
    let empty = plimsoll(&["demo", "--days", "1"])
        .envs([("PLIMSOLL_FLAG_SEED", ""), ("PLIMSOLL_FLAG_NO_COLOR", "")])
        .output();
    assert!(text(&empty.expect("the program starts")).contains("(seed 42)"), "empty is not set");
    let bad = plimsoll(&["demo"]).env("PLIMSOLL_FLAG_DAYS", "0").output();
    refused(&bad.expect("the program starts"), 2);
}

#[test]
fn help_and_version_go_to_standard_output() {
    let help = text(&run(&["--help"]));
    assert!(help.contains("plimsoll demo") && help.contains("PLIMSOLL_FLAG_"), "{help}");
    assert!(text(&run(&["demo", "--help"])).contains("PLIMSOLL_FLAG_SEED"));
    assert_eq!(text(&run(&["--version"])), concat!("plimsoll ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn an_unusable_store_is_named_and_nothing_is_overwritten() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "precious").expect("writes");
    for place in [file.clone(), file.join("below")] {
        let place = place.to_str().expect("UTF-8");
        let output = run(&["demo", "--days", "1", "--keep-store", place]);
        let stderr = refused(&output, 1);
        assert!(stderr.contains(file.to_str().expect("UTF-8")), "{stderr}");
    }
    assert_eq!(fs::read_to_string(&file).expect("still there"), "precious");

    let missing = directory.path().join("not-there");
    let output = plimsoll(&["demo", "--days", "1"]).env("TMPDIR", &missing).output();
    let stderr = refused(&output.expect("the program starts"), 1);
    assert!(stderr.contains("not-there") && stderr.contains("TMPDIR"), "{stderr}");
}

#[test]
fn a_kept_store_is_not_mixed_with_a_second_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("store");
    let arguments = ["demo", "--days", "1", "--keep-store", place.to_str().expect("UTF-8")];
    text(&run(&arguments));
    let (_, report) = LocalStorage::open(&place).expect("the store opens");
    assert_eq!(report.records, 7);
    let stderr = refused(&run(&arguments), 1);
    assert!(stderr.contains("7 records") && stderr.contains("empty"), "{stderr}");
}

/// Days of a run that is interrupted: its history appears after the first of two simulations, and the second has to
/// last until the signal arrives.
#[cfg(unix)]
fn long() -> &'static str {
    tier::cases("45", "90")
}

#[tokio::test]
#[cfg(unix)]
async fn two_concurrent_demos_cannot_share_a_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("store");
    let with_store =
        |days| ["demo", "--days", days, "--keep-store", place.to_str().expect("UTF-8")];
    let mut first = plimsoll(&with_store(long()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    wait::until("a history appears", || ready((entries_if_there(&place) > 0).then_some(()))).await;
    let stderr = refused(&run(&with_store("1")), 1);
    // While the first run restarts, its store is not locked, and the lock of the directory refuses the second one.
    let refusals = ["its own directory", "in use by another demo"];
    assert!(refusals.iter().any(|refusal| stderr.contains(refusal)), "{stderr}");
    assert!(first.try_wait().expect("a status").is_none(), "the first run continues");
    let id = first.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().expect("kill runs");
    assert!(sent.success());
    assert_eq!(first.wait().expect("it ends").code(), Some(130));
}

fn entries_if_there(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).expect("the directory is there").count()
}

#[test]
fn a_run_leaves_no_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = plimsoll(&["demo", "--days", "1"]).env("TMPDIR", directory.path()).output();
    text(&output.expect("the program starts"));
    assert_eq!(entries(directory.path()), 0);
}

#[tokio::test]
#[cfg(unix)]
async fn an_interrupted_run_leaves_no_files() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut child = plimsoll(&["demo", "--days", long()])
            .env("TMPDIR", directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        // Its directory is created before its signal handlers, so wait until it contains a history.
        let filled = || {
            let place = fs::read_dir(directory.path()).ok()?.next()?.ok()?.path();
            fs::read_dir(place).ok()?.next()
        };
        wait::until("a history appears", || ready(filled().map(drop))).await;
        let id = child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status();
        assert!(sent.expect("kill runs").success());
        let status = child.wait().expect("it ends");
        let mut stderr = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("reads");
        assert_eq!((status.code(), &*stderr), (Some(code), "plimsoll: interrupted\n"), "{signal}");
        assert_eq!(entries(directory.path()), 0, "{signal}");
    }
}

#[test]
fn the_first_line_is_printed_before_the_simulation() {
    // Enough days that the run is not over when its first line is read.
    let mut child = plimsoll(&["demo", "--days", "90"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let first = first_line(&mut child);
    let is_computing = child.try_wait().expect("a status").is_none();
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    assert!(first.starts_with("Plimsoll demo"), "{first}");
    assert!(is_computing, "it printed nothing before the result");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = plimsoll(&["demo", "--days", tier::cases("2", "30")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // Both simulations are still to come when the reader closes the pipe.
    first_line(&mut child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

/// The first line of its output; no more is read.
fn first_line(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    lines.next().expect("a line").expect("reads")
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_under_the_output_is_a_one_line_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = plimsoll(&["demo", "--days", "1"]).stdout(full).output();
    let stderr = refused(&output.expect("the program starts"), 1);
    assert!(stderr.starts_with("plimsoll: standard output: "), "{stderr}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_under_the_store_is_a_one_line_error_with_the_remaining_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("store");
    // A file size limit fails like a full disk and needs no permissions.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""])
        .args([env!("CARGO_BIN_EXE_plimsoll"), "demo", "--days", "1", "--keep-store"])
        .arg(&place)
        .output();
    let stderr = refused(&output.expect("a shell starts"), 1);
    assert!(stderr.contains("remove them before the next run"), "{stderr}");
    assert!(!stderr.contains("retr"), "{stderr}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_gets_color_and_a_progress_bar_unless_disabled() {
    let printed = |variables: &[(&str, &str)]| {
        // `script`, from util-linux, runs a command in a new terminal.
        let output = Command::new("script")
            .args(["-qec", concat!(env!("CARGO_BIN_EXE_plimsoll"), " demo --days 1"), "/dev/null"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .output()
            .expect("script starts");
        text(&output)
    };
    let (bold, clear) = ("\x1b[1m", "\r\x1b[K");
    let plain = printed(&[("TERM", "xterm")]);
    assert!(plain.contains(bold) && plain.contains(clear), "{plain}");
    let uncoloured = printed(&[("TERM", "xterm"), ("NO_COLOR", "1")]);
    assert!(!uncoloured.contains(bold) && uncoloured.contains(clear), "{uncoloured}");
    let dumb = printed(&[("TERM", "dumb")]);
    assert!(!dumb.contains('\x1b') && dumb.contains("BEFORE / AFTER"), "{dumb}");
}
