//! Compares the command lines with those of upstream's programs: same flags, same defaults, same syntax.
//!
//! The gate compares with the recorded output of upstream's programs; deep runs them.

mod deep;
mod kubectl_plugin;

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Output},
};

use crate::support::{flags, upstream_recording::UpstreamOutput};

/// Help texts of upstream's programs.
const HELPS: [(&str, UpstreamOutput); 3] = [
    ("recommender", help("help/recommender.txt")),
    ("updater", help("help/updater.txt")),
    ("admission-controller", help("help/admission-controller.txt")),
];

const fn help(name: &'static str) -> UpstreamOutput {
    UpstreamOutput { name, part: "command_line" }
}

/// Intended differences, with the reason.
const EXPECTED_DIFFERENCES: [(&str, &str, &str); 2] = [
    ("storage", "checkpoint", "upstream's empty string means checkpoints"),
    ("leader-elect", "", "unset, it depends on --compat: on here, and off as upstream has it"),
];

/// Normalizes a default for the comparison.
fn normalize_default(default: &str) -> String {
    let text = default.trim_matches('"').replace("\\\"", "\"");
    let zero = matches!(&*text, "" | "0" | "false" | "0s");
    // Go prints all units of a duration below the largest one.
    let short =
        text.strip_suffix("m0s").map_or(text.clone(), |rest| match rest.strip_suffix("h0") {
            Some(hours) => format!("{hours}h"),
            None => format!("{rest}m"),
        });
    if zero { String::new() } else { short }
}

/// Flags and defaults in the help of a Go program.
fn printed(help: &str) -> BTreeMap<String, String> {
    let lines = help.lines().filter_map(|line| {
        let rest = line.trim_start();
        let flag = rest.strip_prefix("-v, --").or_else(|| rest.strip_prefix("--"))?;
        let name = flag.split_whitespace().next()?;
        // The last one: some descriptions contain another default before it. Some descriptions use a colon.
        let default = flag.rsplit_once("(default").and_then(|(_, rest)| rest.strip_suffix(')'));
        let default = default.unwrap_or_default().trim_start_matches(':').trim_start();
        Some((name.to_owned(), default.to_owned()))
    });
    lines.collect()
}

fn start(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .env_clear()
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the program starts")
}

fn combined_output(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

/// Differences between our flags and this help.
fn differences(role: &str, help: &str) -> Vec<String> {
    let ours = flags::of_role(role).into_iter();
    let ours: BTreeMap<_, _> = ours.map(|flag| (flag.name, flag.default)).collect();
    let theirs = printed(help).into_iter().filter(|(name, _)| name != "help");
    let differing = theirs.filter_map(|(name, default)| {
        let Some(found) = ours.get(&name) else { return Some(format!("--{name} is missing")) };
        let otherwise = EXPECTED_DIFFERENCES.iter().find(|(known, ..)| *known == name);
        let wanted = otherwise.map_or(&*default, |(_, ours, _)| ours);
        (normalize_default(found) != normalize_default(wanted))
            .then(|| format!("--{name}: {found} is not {wanted}"))
    });
    differing.collect()
}

#[test]
fn every_flag_of_upstream_exists_with_its_default() {
    for (role, help) in HELPS {
        let help = help.read();
        assert!(printed(&help).len() > 40, "{role}: {help}");
        assert_eq!(differences(role, &help), Vec::<String>::new(), "{role}");
    }
}

#[test]
fn a_missing_flag_or_another_default_is_reported_as_a_difference() {
    let (role, help) = HELPS[0];
    let help = help.read();
    let altered =
        help.replace("(default 0.9)", "(default 0.91)") + "\n      --another string   more";
    let found = differences(role, &altered);
    assert!(found.contains(&"--another is missing".to_owned()), "{found:?}");
    assert_eq!(found.iter().filter(|line| line.ends_with("is not 0.91")).count(), 2, "{found:?}");
}

/// Arguments, and whether they are accepted.
const FORMS: [(&[&str], bool); 62] = [
    (&["--address=:1"], true),
    (&["--address", ":1"], true),
    (&["--recommender_name=x"], true),
    (&["--recommender-name", "-x"], true),
    (&["--recommender-name="], true),
    (&["--Recommender-name=x"], false),
    (&["-recommender-name=x"], false),
    (&["-x"], false),
    (&["---v=4"], false),
    (&["--=4"], false),
    (&["--memory-saver"], true),
    (&["--memory_saver=F"], true),
    (&["--memory-saver=TRUE"], true),
    (&["--memory-saver=tRUE"], false),
    (&["--memory-saver=yes"], false),
    (&["--memory-saver="], false),
    (&["--memory-saver", "false"], true),
    (&["--memory-saver", "--memory-saver=0"], true),
    (&["--memory-saver=2", "--memory-saver"], false),
    (&["--leader-elect"], true),
    (&["--leader-elect=false"], true),
    (&["--logtostderr=false"], true),
    (&["stray", "-", "--v=4"], true),
    (&["-v4"], true),
    (&["-v=4"], true),
    (&["-v", "4"], true),
    (&["--v", "-3"], true),
    (&["-v0x4"], false),
    (&["--v=2.0"], false),
    (&["--update-worker-count=0x10"], true),
    (&["--update-worker-count=0o7"], true),
    (&["--update-worker-count=010"], true),
    (&["--update-worker-count=0b11"], true),
    (&["--update-worker-count=1_000"], true),
    (&["--update-worker-count=+5"], true),
    (&["--update-worker-count=08"], false),
    (&["--update-worker-count=1__0"], false),
    (&["--update-worker-count=1e1"], false),
    (&["--update-worker-count=1.0"], false),
    (&["--recommender-interval=1h30m"], true),
    (&["--recommender-interval=24h0m0s"], true),
    (&["--recommender-interval=1.5h30m"], true),
    (&["--recommender-interval=100ms"], true),
    (&["--recommender-interval=2us"], true),
    (&["--recommender-interval=1d"], false),
    (&["--recommender-interval=60"], false),
    (&["--recommender-interval="], false),
    (&["--checkpoints-gc-interval=0"], true),
    (&["--kube-api-burst=1e3"], true),
    (&["--kube-api-qps=-1"], true),
    (&["--target-cpu-percentile=.95"], true),
    (&["--target-cpu-percentile=many"], false),
    (&["--container-recommendation-max-allowed-cpu=1500m"], true),
    (&["--container-recommendation-max-allowed-memory=4Gi"], true),
    (&["--container-recommendation-max-allowed-cpu=abc"], false),
    (&["--feature-gates=PerVPAConfig=true,InPlace=false", "--feature-gates=AllAlpha=T"], true),
    (&["--feature-gates=NoSuch=true"], false),
    (&["--feature-gates=PerVPAConfig=maybe"], false),
    (&["--stderrthreshold=WARNING", "--vmodule=a=1,b=2", "--log-backtrace-at=a.go:7"], true),
    (&["--stderrthreshold=foo"], false),
    (&["--vmodule=x"], false),
    (&["--log-file-max-size=-1"], false),
];

/// Whether a program accepts these arguments: an unknown flag follows, and the first error is reported.
fn accepts(program: &Path, first: &[&str], form: &[&str]) -> bool {
    let arguments: Vec<&str> =
        first.iter().chain(form).copied().chain(["--no-such-flag"]).collect();
    let output = start(program, &arguments);
    let text = combined_output(&output);
    assert_eq!(output.status.code(), Some(2), "{form:?}: {text}");
    text.contains("--no-such-flag")
}

#[test]
fn flag_syntax_is_accepted_and_rejected_as_upstream_does() {
    let ours = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    for (form, taken) in FORMS {
        assert_eq!(accepts(ours, &["recommender"], form), taken, "ours: {form:?}");
    }
}

fn run_plimsoll(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("recommender")
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the program starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_invalid_command_line_is_a_one_line_error_that_names_the_remedy() {
    for (arguments, code, remedy) in [
        (&["--recomender-name=x"][..], 2, "--recommender-name"),
        (&["--recommender_intervall=1m"], 2, "--recommender-interval"),
        (&["-leader-elect"], 2, "--leader-elect"),
        (&["--recommender-interval=-5s"], 2, "90s"),
        (&["--recommender-interval=0"], 2, "above 0"),
        (&["--update-worker-count=0"], 2, "from 1"),
        (&["--storage=etcd"], 2, "checkpoint (the default), prometheus or local[:DIR]"),
        (&["--storage=prometheus:http://p:9090"], 2, "--prometheus-address"),
        (&["--usage-source=prometheus", "--use-external-metrics"], 1, "set one of them"),
        (&["--storage=prometheus", "--history-memory=1k"], 2, "at least 1Mi"),
        (&["--prometheus-queries=0"], 2, "from 1 to 100"),
        (&["--shard=0/3"], 2, "1/3"),
        (&["--feature-gates=NoSuch=true"], 2, "PerVPAConfig"),
        (&["--leader-elect-resource-lock=endpoints"], 2, "leases"),
        (&["--vpa-object-namespace=a", "--ignored-vpa-object-namespaces=b"], 1, "set one of them"),
        (&["--leader-elect-lease-duration=5s"], 1, "--leader-elect-renew-deadline"),
        (
            &["--prometheus-bearer-token-file=/nonexistent"],
            1,
            "--prometheus-bearer-token-file: /nonexistent",
        ),
        (&["--prometheus-matcher=cluster=qa"], 2, "its value has no quotes"),
        (&["--metric-for-pod-labels=kube_pod_labels{"], 2, "--metric-for-pod-labels: "),
        (&["--prometheus-auth=aws"], 2, "--prometheus-aws-region"),
        (&["--prometheus-header=hunter"], 2, "'NAME: VALUE'"),
    ] {
        let (found, stderr) = run_plimsoll(arguments, &[]);
        assert_eq!(found, Some(code), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert!(
            stderr.starts_with("plimsoll: ") && stderr.contains(remedy),
            "{arguments:?}: {stderr}"
        );
    }
}

#[test]
fn repeated_flags_add_up_and_an_environment_variable_has_one_value_per_line() {
    let flags = [r#"--prometheus-matcher=cluster="qa""#, r#"--prometheus-matcher=env!="x,y""#];
    let config = plimsoll::cli::recommender_config(&flags).expect("valid flags");
    assert_eq!(config.prometheus.series_options.matchers.to_string(), r#"cluster="qa",env!="x,y""#);
    let lines = [("PLIMSOLL_FLAG_PROMETHEUS_MATCHER", "cluster=\"qa\"\nenv=x")];
    let (code, stderr) = run_plimsoll(&[], &lines);
    assert!(code == Some(2) && stderr.contains("invalid matcher \"env=x\""), "{stderr}");
}

/// The process fails soon, because this file does not exist; before that it logs the configuration.
const UNREACHABLE_API_SERVER: &str = "--kubeconfig=/nonexistent/kubeconfig";

fn log(arguments: &[&str], variables: &[(&str, &str)]) -> Vec<serde_json::Value> {
    let arguments: Vec<&str> =
        arguments.iter().copied().chain([UNREACHABLE_API_SERVER, "--log-format=json"]).collect();
    let (code, stderr) = run_plimsoll(&arguments, variables);
    assert_eq!(code, Some(1), "{stderr}");
    stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn warnings(log: &[serde_json::Value]) -> Vec<&str> {
    let warned = log
        .iter()
        .filter(|line| line["level"] == "WARN" && line["target"] == "plimsoll::cli::daemon");
    warned.filter_map(|line| line["message"].as_str()).collect()
}

#[test]
fn a_command_line_of_upstream_starts_and_flags_without_effect_are_logged_once() {
    let log = log(
        &[
            "stray",
            "--memory-saver",
            "false",
            "--v=4",
            "--stderrthreshold=info",
            "--vmodule=a=1",
            "--profiling",
            "--min-checkpoints=5",
            "--prometheus-address=http://prometheus:9090",
            "--prometheus-cadvisor-job-name=cadvisor",
            "--history-length=14d",
            "--password=hunter2",
            "--pod-label-prefix=label_",
        ],
        &[],
    );
    assert!(
        log.iter()
            .any(|line| line["message"] == "starting recommender" && line["name"] == "default")
    );
    let warnings = warnings(&log);
    let [strays, secret, labels, idle] = warnings[..] else { panic!("{warnings:?}") };
    assert!(
        strays.starts_with("ignoring 2 arguments that are not flags")
            && strays.contains("--memory-saver=false"),
        "{strays}"
    );
    assert!(secret.starts_with("--password on the command line"), "{secret}");
    assert!(
        idle.ends_with(
            ": --memory-saver, --min-checkpoints, --profiling, --stderrthreshold, --vmodule"
        ),
        "{idle}"
    );
    assert!(
        labels.starts_with("no effect without --metric-for-pod-labels: --pod-label-prefix: "),
        "{labels}"
    );
    assert!(!format!("{log:?}").contains("hunter2"), "the log shows the password");
}

#[test]
fn pod_labels_are_queried_only_if_the_query_is_set() {
    let config = |flags: &[&str]| plimsoll::cli::recommender_config(flags).expect("valid flags");
    assert_eq!(config(&["--pod-name-label=pod"]).prometheus.pod_labels, None);
    let query = "--metric-for-pod-labels=kube_pod_labels[8d]";
    let labels = config(&[query, "--pod-name-label=pod"]).prometheus.pod_labels.expect("named");
    assert_eq!((&*labels.query, labels.pod.as_deref()), ("kube_pod_labels[8d]", Some("pod")));
    assert_eq!((labels.prefix, labels.namespace), (None, None), "these are detected");
}

#[test]
fn the_environment_sets_flags_and_the_command_line_takes_precedence() {
    let set = [
        ("PLIMSOLL_FLAG_RECOMMENDER_NAME", "frugal"),
        ("PLIMSOLL_FLAG_HUMANIZE_MEMORY", "true"),
        ("PLIMSOLL_FLAG_STORAGE", ""),
        ("PLIMSOLL_FLAG_PASSWORD", "hunter2"),
    ];
    let name = |log: &[serde_json::Value]| {
        log.iter().find_map(|line| Some(line.get("name")?.as_str()?.to_owned()))
    };
    let typed = log(&["--recommender-name=lavish"], &set);
    let untyped = log(&[], &set);
    assert_eq!(name(&typed).as_deref(), Some("lavish"));
    assert_eq!(name(&untyped).as_deref(), Some("frugal"));
    assert_eq!(warnings(&untyped), Vec::<&str>::new(), "other users cannot read the environment");
}

#[test]
fn the_log_is_appended_to_a_file_and_optionally_removed_from_standard_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let file = format!("--log-file={}", path.display());
    let (_, both) = run_plimsoll(&[UNREACHABLE_API_SERVER, &file], &[]);
    assert!(both.contains("starting recommender"), "{both}");
    let (_, alone) = run_plimsoll(&[UNREACHABLE_API_SERVER, &file, "--logtostderr=false"], &[]);
    assert!(!alone.contains("starting recommender"), "{alone}");
    let written = std::fs::read_to_string(path).expect("it was written");
    assert_eq!(written.matches("starting recommender").count(), 2, "{written}");
    assert!(!written.contains('\u{1b}'), "{written}");
}

#[cfg(unix)]
#[test]
fn a_program_named_recommender_runs_the_recommender() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("recommender");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plimsoll"), &program).expect("is linked");
    let started = combined_output(&start(&program, &[UNREACHABLE_API_SERVER]));
    assert!(started.contains("starting recommender"), "{started}");
    let refused = start(&program, &["--no-such-flag"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(combined_output(&start(&program, &["-h"])).contains("--recommender-name"));
}
