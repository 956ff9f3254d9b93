//! `plimsoll demo` as a person and as a program meet it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use plimsoll::{
    demo::{self, Config, Life, Witness},
    sim::{Amount, Kind, Step},
};
use plimsoll_storage::{Storage, local::Local};
use serde_json::Value;

use crate::schema::{faults, schema};

/// The program, cut off from what this machine would tell it.
fn plimsoll(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments).env_clear().env("LANG", "C.UTF-8").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    plimsoll(arguments).output().expect("the program starts")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn json(arguments: &[&str]) -> Value {
    let arguments = [&["demo", "--output", "json"], arguments].concat();
    serde_json::from_str(&text(&run(&arguments))).expect("standard output is JSON and nothing else")
}

fn refused(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let said = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("plimsoll: "), "{said}");
    said
}

#[test]
fn the_same_seed_prints_the_same_and_another_seed_does_not() {
    let of = |seed| text(&run(&["demo", "--days", "2", "--seed", seed]));
    let (first, again, other) = (of("1"), of("1"), of("2"));
    assert_eq!(first, again);
    let rest = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_ne!(rest(&first), rest(&other));
}

#[test]
fn a_pipe_gets_at_most_eighty_columns_and_no_escape_codes() {
    for variables in [
        &[("TERM", "xterm-256color"), ("COLUMNS", "200")][..],
        &[("TERM", "dumb")],
        &[("LANG", "C"), ("CARGO_MANIFEST_DIR", "/somewhere")],
    ] {
        let output = plimsoll(&["demo", "--days", "3"]).envs(variables.iter().copied()).output();
        let printed = text(&output.expect("the program starts"));
        assert!(printed.lines().count() > 40, "{printed}");
        for line in printed.lines() {
            assert!(line.chars().count() <= 80, "{variables:?}: {line}");
            assert!(!line.contains(['\x1b', '\r']), "{variables:?}: {line:?}");
        }
        assert_eq!(printed.is_ascii(), variables[0] != ("TERM", "xterm-256color"), "{variables:?}");
    }
}

#[test]
fn standard_error_is_quiet_in_a_pipe_and_carries_no_result() {
    let output = run(&["demo", "--days", "1"]);
    assert_eq!(output.stderr, b"", "no progress bar off a terminal");
    let output = run(&["demo", "--days", "1", "-o", "json"]);
    assert_eq!(output.stderr, b"living 1 virtual days twice, seed 42\n");
}

#[test]
fn json_follows_the_schema_in_the_repository() {
    let schema = schema("demo.v1.json");
    let report = json(&["--days", "2"]);
    assert_eq!(faults(&schema, &report), Vec::<String>::new());
    let mut wrong = report.clone();
    wrong["containers"][0]["recommendation"]["target"]["cpuMillicores"] = "1".into();
    assert_eq!(faults(&schema, &wrong).len(), 1, "the schema says nothing about amounts");
    let mut more = report;
    more["containers"][0]["surprise"] = 1.into();
    assert_eq!(faults(&schema, &more).len(), 1, "a new field must be written into the schema");
}

#[test]
fn the_numbers_in_the_table_are_those_in_the_json() {
    let printed = text(&run(&["demo", "--days", "3"]));
    let report = json(&["--days", "3"]);
    let table: Vec<&str> = printed
        .lines()
        .skip_while(|line| !line.starts_with("RECOMMENDATIONS"))
        .take_while(|line| !line.starts_with("USAGE"))
        .collect();
    let mebibytes = |bytes: &Value| {
        let rounded = (bytes.as_f64().expect("a number") / 1_048_576.0).round() as i64;
        format!("{rounded}Mi")
    };
    let millicores = |cpu: &Value| format!("{cpu}m");
    let containers = report["containers"].as_array().expect("containers");
    assert_eq!(containers.len(), 7);
    for container in containers {
        let name = container["container"].as_str().expect("a name");
        let at = table
            .iter()
            .position(|line| line.split_whitespace().next() == Some(name))
            .unwrap_or_else(|| panic!("{name} is not in the table"));
        let said = &container["recommendation"];
        let rows = [
            ("cpu", "cpuMillicores", &millicores as &dyn Fn(&Value) -> String),
            ("memory", "memoryBytes", &mebibytes),
        ];
        for (row, (resource, field, print)) in rows.into_iter().enumerate() {
            let line = table[at + 1 + row];
            let words: Vec<&str> = line.split_whitespace().collect();
            let of = |part: &str| print(&said[part][field]);
            let request = print(&container["template"]["request"][field]);
            assert_eq!(words[..3], [resource, &request, &of("target")], "{name}: {line}");
            assert!(words.contains(&&*of("lower")) && words.contains(&&*of("upper")), "{line}");
            let why = said["why"][resource].as_str().expect("a reason");
            assert!(line.ends_with(why), "{line} does not end with {why}");
        }
    }
    let kills = format!(
        "{} {}",
        report["lives"]["without"]["oomKills"], report["lives"]["with"]["oomKills"]
    );
    let line = printed.lines().find(|line| line.contains("OOM kills")).expect("a line of kills");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[2..4].join(" "), kills);
}

/// Adds up what matters, in its own way, straight from the steps.
#[derive(Default)]
struct Auditor {
    requested: BTreeMap<Life, (f64, f64)>,
    kills: BTreeMap<(Life, String), i64>,
    steps: BTreeMap<Life, u64>,
    advised: BTreeMap<Life, u64>,
    pods: BTreeMap<(Life, String), BTreeSet<String>>,
}

impl Witness for Auditor {
    fn step(&mut self, life: Life, step: &Step) {
        let sums = self.requested.entry(life).or_default();
        sums.0 += step.share.request.cpu.0 as f64 / 1000.0 / 60.0;
        sums.1 += step.share.request.memory.0 as f64 / f64::from(1 << 30) / 60.0;
        *self.kills.entry((life, step.container.to_string())).or_default() +=
            i64::from(step.oom_killed);
        *self.steps.entry(life).or_default() += 1;
        let workload = (life, step.workload.to_string());
        self.pods.entry(workload).or_default().insert(step.pod.to_string());
        *self.advised.entry(life).or_default() += u64::from(step.advice.is_some());
    }
}

#[tokio::test]
async fn savings_and_kills_are_the_measured_difference_of_the_two_lives() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config {
        seed: 42,
        days: 3,
        store: None,
        settings: plimsoll::recommend::Settings::default(),
    };
    let open = || {
        let (local, _) = Local::open(directory.path())?;
        Ok(Box::new(local) as Box<dyn Storage>)
    };
    let mut auditor = Auditor::default();
    demo::run(&config, &open, &mut auditor).await.expect("the demo runs");
    let printed = json(&["--days", "3"]);

    let (without, with) = (auditor.requested[&Life::Without], auditor.requested[&Life::With]);
    for (field, measured) in [("coreHours", without.0 - with.0), ("gibHours", without.1 - with.1)] {
        let said = printed["savings"][field].as_f64().expect("a number");
        assert!((said - measured).abs() < 1e-6, "{field}: said {said}, measured {measured}");
    }
    for (life, field) in [(Life::Without, "without"), (Life::With, "with")] {
        let kills: i64 =
            auditor.kills.iter().filter(|((of, _), _)| *of == life).map(|(_, n)| n).sum();
        assert_eq!(printed["lives"][field]["oomKills"], kills, "{field}");
    }
    let replicas: BTreeMap<String, usize> = demo::fleet()
        .into_iter()
        .filter_map(|member| match member.workload.kind {
            Kind::Deployment { replicas } => {
                Some((member.workload.name.to_string(), replicas as usize))
            }
            Kind::CronJob { .. } => None,
        })
        .collect();
    for (life, field) in [(Life::Without, "without"), (Life::With, "with")] {
        let replaced: usize = replicas
            .iter()
            .map(|(name, replicas)| auditor.pods[&(life, name.clone())].len() - replicas)
            .sum();
        assert_eq!(printed["lives"][field]["replacedPods"], replaced, "{field}");
        assert_eq!(replaced > 0, life == Life::With, "{field}: {replaced}");
    }
    for ((life, container), kills) in &auditor.kills {
        if *life == Life::Without {
            assert_eq!(*kills > 0, container == "worker", "{container}: {kills} kills");
        }
    }
    assert_eq!(auditor.advised[&Life::Without], 0, "nobody recommends in the first life");
    assert!(auditor.advised[&Life::With] > auditor.steps[&Life::With] * 9 / 10);
}

/// The least that any pod of a Deployment asked for on its first day.
#[derive(Default)]
struct FirstDay {
    least: BTreeMap<(String, String), Amount>,
    given: bool,
}

impl Witness for FirstDay {
    fn step(&mut self, life: Life, step: &Step) {
        if life == Life::With {
            let request = step.share.request;
            let place = (step.workload.to_string(), step.container.to_string());
            let least = self.least.entry(place).or_insert(request);
            self.given |= request.cpu > least.cpu || request.memory > least.memory;
            *least = Amount {
                cpu: least.cpu.min(request.cpu),
                memory: least.memory.min(request.memory),
            };
        }
    }
}

#[tokio::test]
async fn on_the_first_day_something_is_given_and_nothing_is_taken_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || {
        let (local, _) = Local::open(directory.path())?;
        Ok(Box::new(local) as Box<dyn Storage>)
    };
    let settings = plimsoll::recommend::Settings::default();
    let config = Config { seed: 42, days: 1, store: None, settings };
    let mut day = FirstDay::default();
    demo::run(&config, &open, &mut day).await.expect("the demo runs");
    assert!(day.given, "the worker and the storefront ask for more");
    for member in demo::fleet() {
        let Kind::Deployment { .. } = member.workload.kind else { continue };
        for spec in &member.workload.containers {
            let place = (member.workload.name.to_string(), spec.name.to_string());
            assert_eq!(day.least[&place], spec.share.request, "{place:?}");
        }
    }
}

#[test]
fn the_history_survives_the_restart_half_way() {
    let report = json(&["--days", "2"]);
    let history = &report["history"];
    assert_eq!(history["backend"], "local");
    assert_eq!(history["saves"], 16);
    let restarts = history["restarts"].as_array().expect("restarts");
    assert_eq!(restarts.len(), 1);
    assert_eq!(restarts[0]["at"], "2026-01-06T00:00:00Z");
    assert_eq!(restarts[0]["compared"], 7);
    assert_eq!(restarts[0]["unchanged"], restarts[0]["compared"]);
    assert_eq!(restarts[0]["loaded"], 7);
}

#[test]
fn bad_flags_get_one_line_and_exit_code_two() {
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
            "a maximum is not negative: give one like 2 or 4Gi, or leave the flag out",
        ),
        (&["demo", "--output", "yaml"], "[possible values: text, json]"),
        (&["demo", "--dyas", "2"], "'--days'"),
        (&["demo", "stray"], "'stray'"),
        (&["dmo"], "'demo'"),
    ] {
        let said = refused(&run(arguments), 2);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let nothing = run(&[]);
    assert_eq!((nothing.status.code(), nothing.stdout.len()), (Some(2), 0));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("Usage: plimsoll"));
}

#[test]
fn absurd_requests_overflow_nothing_and_their_columns_stay_apart() {
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
        // Resource, request, target, its change and a percent sign, both bounds, and why.
        assert!(row.split_whitespace().count() >= 8, "columns run together: {row}");
    }
    let data = run(&[&absurd[..], &["--output", "json"]].concat());
    let report: Value = serde_json::from_str(&text(&data)).expect("JSON");
    let sum = &report["lives"]["with"]["requestedByteMinutes"];
    assert!(sum.as_f64().is_some_and(|sum| sum > 1e18), "{sum}");
}

#[test]
fn a_flag_can_be_set_in_the_environment_and_wins_over_it() {
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
fn help_and_version_are_results() {
    let help = text(&run(&["--help"]));
    assert!(help.contains("plimsoll demo") && help.contains("PLIMSOLL_FLAG_"), "{help}");
    assert!(text(&run(&["demo", "--help"])).contains("PLIMSOLL_FLAG_SEED"));
    assert_eq!(text(&run(&["--version"])), concat!("plimsoll ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_store_that_cannot_be_used_is_named_and_nothing_is_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "precious").expect("writes");
    for place in [file.clone(), file.join("below")] {
        let place = place.to_str().expect("UTF-8");
        let output = run(&["demo", "--days", "1", "--keep-store", place]);
        let said = refused(&output, 1);
        assert!(said.contains(file.to_str().expect("UTF-8")), "{said}");
    }
    assert_eq!(fs::read_to_string(&file).expect("still there"), "precious");

    let missing = directory.path().join("not-there");
    let output = plimsoll(&["demo", "--days", "1"]).env("TMPDIR", &missing).output();
    let said = refused(&output.expect("the program starts"), 1);
    assert!(said.contains("not-there") && said.contains("TMPDIR"), "{said}");
}

#[test]
fn a_kept_store_stays_and_is_not_mixed_with_a_second_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("store");
    let arguments = ["demo", "--days", "1", "--keep-store", place.to_str().expect("UTF-8")];
    text(&run(&arguments));
    let (_, report) = Local::open(&place).expect("the store opens");
    assert_eq!(report.records, 7);
    let said = refused(&run(&arguments), 1);
    assert!(said.contains("7 records") && said.contains("empty"), "{said}");
}

#[test]
#[cfg(unix)]
fn two_demos_do_not_share_a_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("store");
    let kept = |days| ["demo", "--days", days, "--keep-store", place.to_str().expect("UTF-8")];
    let mut first = plimsoll(&kept("90"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let deadline = Instant::now() + Duration::from_mins(1);
    while entries_if_there(&place) == 0 {
        assert!(Instant::now() < deadline, "no history appeared");
        std::thread::yield_now();
    }
    let said = refused(&run(&kept("1")), 1);
    assert!(said.contains("own directory"), "{said}");
    assert!(first.try_wait().expect("can be asked").is_none(), "the first goes on");
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
fn nothing_is_left_on_disk_after_a_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = plimsoll(&["demo", "--days", "1"]).env("TMPDIR", directory.path()).output();
    text(&output.expect("the program starts"));
    assert_eq!(entries(directory.path()), 0);
}

#[test]
#[cfg(unix)]
fn nothing_is_left_on_disk_after_an_interrupt() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut child = plimsoll(&["demo", "--days", "90"])
            .env("TMPDIR", directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        // Its directory is made before its signals are heard, so wait until a history is in it.
        let deadline = Instant::now() + Duration::from_mins(1);
        let filled = || {
            let place = fs::read_dir(directory.path()).ok()?.next()?.ok()?.path();
            fs::read_dir(place).ok()?.next()
        };
        while filled().is_none() {
            assert!(Instant::now() < deadline, "no history appeared");
            std::thread::yield_now();
        }
        let id = child.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status();
        assert!(sent.expect("kill runs").success());
        let status = child.wait().expect("it ends");
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("reads");
        assert_eq!((status.code(), &*said), (Some(code), "plimsoll: interrupted\n"), "{signal}");
        assert_eq!(entries(directory.path()), 0, "{signal}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let mut child = plimsoll(&["demo", "--days", "30"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("a line").expect("reads");
    assert!(first.starts_with("Plimsoll demo"), "{first}");
    // The two lives are still to come: it speaks before it computes.
    assert!(child.try_wait().expect("can be asked").is_none(), "it computed before it spoke");
    drop(lines);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_under_the_output_is_one_line() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = plimsoll(&["demo", "--days", "1"]).stdout(full).output();
    let said = refused(&output.expect("the program starts"), 1);
    assert!(said.starts_with("plimsoll: standard output: "), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_under_the_store_ends_the_demo_in_one_line_that_says_what_is_left() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("store");
    // A file that may not grow fails as a full disk does, and needs no rights to be set up.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""])
        .args([env!("CARGO_BIN_EXE_plimsoll"), "demo", "--days", "1", "--keep-store"])
        .arg(&place)
        .output();
    let said = refused(&output.expect("a shell starts"), 1);
    assert!(said.contains("remove it before the next run"), "{said}");
    assert!(!said.contains("tried again"), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_gets_colour_and_a_bar_unless_it_cannot_or_nobody_wants_them() {
    let printed = |variables: &[(&str, &str)]| {
        // `script`, of util-linux, runs a command in a terminal of its own.
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
    assert!(!dumb.contains('\x1b') && dumb.contains("TWO LIVES"), "{dumb}");
}
