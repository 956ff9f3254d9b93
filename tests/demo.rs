//! `plimsoll demo` for people and for programs.

mod flags_and_exits;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::{Command, Output, Stdio},
};

use plimsoll::report::demo::{self, Config, ProgressObserver, Scenario};
use plimsoll_core::sim::{ContainerMinute, ResourceAmounts, WorkloadKind};
use plimsoll_storage::{Storage, local::LocalStorage};
use serde_json::Value;

use crate::schema::{faults, schema};
use crate::support::tier;

/// The program without this machine's environment variables.
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
    serde_json::from_str(&text(&run(&arguments))).expect("standard output is only JSON")
}

fn refused(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let stderr = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("plimsoll: "), "{stderr}");
    stderr
}

#[test]
fn the_same_seed_gives_the_same_output_and_another_seed_differs() {
    let of = |seed| text(&run(&["demo", "--days", "2", "--seed", seed]));
    let (first, again, other) = (of("1"), of("1"), of("2"));
    assert_eq!(first, again);
    let rest = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_ne!(rest(&first), rest(&other));
}

#[test]
fn output_to_a_pipe_has_at_most_80_columns_and_no_escape_codes() {
    for variables in [
        &[("TERM", "xterm-256color"), ("COLUMNS", "200")][..],
        &[("TERM", "dumb")],
        &[("LANG", "C"), ("CARGO_MANIFEST_DIR", "/somewhere")],
    ] {
        let output = plimsoll(&["demo", "--days", tier::cases("1", "3")])
            .envs(variables.iter().copied())
            .output();
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
fn standard_error_in_a_pipe_has_no_progress_bar_and_no_results() {
    let output = run(&["demo", "--days", "1"]);
    assert_eq!(output.stderr, b"", "no progress bar off a terminal");
    let output = run(&["demo", "--days", "1", "-o", "json"]);
    assert_eq!(output.stderr, b"simulating 1 days twice, seed 42\n");
}

#[test]
fn json_output_follows_the_schema() {
    let schema = schema("demo.v1.json");
    let report = json(&["--days", "2"]);
    assert_eq!(faults(&schema, &report), Vec::<String>::new());
    let mut wrong = report.clone();
    wrong["containers"][0]["recommendation"]["target"]["cpuMillicores"] = "1".into();
    assert_eq!(faults(&schema, &wrong).len(), 1, "the schema does not describe amounts");
    let mut more = report;
    more["containers"][0]["surprise"] = 1.into();
    assert_eq!(faults(&schema, &more).len(), 1, "a new field must be written into the schema");
}

#[test]
fn the_table_shows_the_numbers_of_the_json() {
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
            .unwrap_or_else(|| panic!("the table has no {name}"));
        let recommendation = &container["recommendation"];
        let rows = [
            ("cpu", "cpuMillicores", &millicores as &dyn Fn(&Value) -> String),
            ("memory", "memoryBytes", &mebibytes),
        ];
        for (row, (resource, field, print)) in rows.into_iter().enumerate() {
            let line = table[at + 1 + row];
            let words: Vec<&str> = line.split_whitespace().collect();
            let of = |part: &str| print(&recommendation[part][field]);
            let request = print(&container["template"]["request"][field]);
            assert_eq!(words[..3], [resource, &request, &of("target")], "{name}: {line}");
            assert!(words.contains(&&*of("lower")) && words.contains(&&*of("upper")), "{line}");
            let why = recommendation["why"][resource].as_str().expect("a reason");
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

/// Computes the totals independently, directly from the steps.
#[derive(Default)]
struct TotalsCheck {
    requested: BTreeMap<Scenario, (f64, f64)>,
    kills: BTreeMap<(Scenario, String), i64>,
    steps: BTreeMap<Scenario, u64>,
    advised: BTreeMap<Scenario, u64>,
    pods: BTreeMap<(Scenario, String), BTreeSet<String>>,
}

impl ProgressObserver for TotalsCheck {
    fn step(&mut self, life: Scenario, step: &ContainerMinute) {
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
async fn savings_and_oom_kills_are_the_measured_difference_of_the_two_runs() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config {
        seed: 42,
        days: 3,
        store: None,
        settings: plimsoll_core::recommender::Settings::default(),
    };
    let open = || {
        let (local, _) = LocalStorage::open(directory.path())?;
        Ok(Box::new(local) as Box<dyn Storage>)
    };
    let mut auditor = TotalsCheck::default();
    demo::run(&config, &open, &mut auditor).await.expect("the demo runs");
    let printed = json(&["--days", "3"]);

    let (without, with) =
        (auditor.requested[&Scenario::Without], auditor.requested[&Scenario::With]);
    for (field, measured) in [("coreHours", without.0 - with.0), ("gibHours", without.1 - with.1)] {
        let reported = printed["savings"][field].as_f64().expect("a number");
        assert!(
            (reported - measured).abs() < 1e-6,
            "{field}: reported {reported}, measured {measured}"
        );
    }
    for (life, field) in [(Scenario::Without, "without"), (Scenario::With, "with")] {
        let kills: i64 =
            auditor.kills.iter().filter(|((of, _), _)| *of == life).map(|(_, n)| n).sum();
        assert_eq!(printed["lives"][field]["oomKills"], kills, "{field}");
    }
    let replicas: BTreeMap<String, usize> = demo::workloads()
        .into_iter()
        .filter_map(|member| match member.workload.workload_kind {
            WorkloadKind::Deployment { replicas } => {
                Some((member.workload.name.to_string(), replicas as usize))
            }
            WorkloadKind::CronJob { .. } => None,
        })
        .collect();
    for (life, field) in [(Scenario::Without, "without"), (Scenario::With, "with")] {
        let replaced: usize = replicas
            .iter()
            .map(|(name, replicas)| auditor.pods[&(life, name.clone())].len() - replicas)
            .sum();
        assert_eq!(printed["lives"][field]["replacedPods"], replaced, "{field}");
        assert_eq!(replaced > 0, life == Scenario::With, "{field}: {replaced}");
    }
    for ((life, container), kills) in &auditor.kills {
        if *life == Scenario::Without {
            assert_eq!(*kills > 0, container == "worker", "{container}: {kills} kills");
        }
    }
    assert_eq!(auditor.advised[&Scenario::Without], 0, "the first run has no recommendations");
    assert!(auditor.advised[&Scenario::With] > auditor.steps[&Scenario::With] * 9 / 10);
}

/// Whether any pod of the Deployments requested more on their first day.
#[derive(Default)]
struct FirstDayRequests {
    least: BTreeMap<(String, String), ResourceAmounts>,
    given: bool,
}

impl ProgressObserver for FirstDayRequests {
    fn step(&mut self, life: Scenario, step: &ContainerMinute) {
        if life == Scenario::With {
            let request = step.share.request;
            let place = (step.workload.to_string(), step.container.to_string());
            let least = self.least.entry(place).or_insert(request);
            self.given |= request.cpu > least.cpu || request.memory > least.memory;
            *least = ResourceAmounts {
                cpu: least.cpu.min(request.cpu),
                memory: least.memory.min(request.memory),
            };
        }
    }
}

#[tokio::test]
async fn requests_only_increase_on_the_first_day() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || {
        let (local, _) = LocalStorage::open(directory.path())?;
        Ok(Box::new(local) as Box<dyn Storage>)
    };
    let settings = plimsoll_core::recommender::Settings::default();
    let config = Config { seed: 42, days: 1, store: None, settings };
    let mut day = FirstDayRequests::default();
    demo::run(&config, &open, &mut day).await.expect("the demo runs");
    assert!(day.given, "the worker and the storefront request more");
    for member in demo::workloads() {
        let WorkloadKind::Deployment { .. } = member.workload.workload_kind else { continue };
        for spec in &member.workload.containers {
            let place = (member.workload.name.to_string(), spec.name.to_string());
            assert_eq!(day.least[&place], spec.resources.request, "{place:?}");
        }
    }
}

#[test]
fn history_survives_the_restart_in_the_middle_of_the_run() {
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
