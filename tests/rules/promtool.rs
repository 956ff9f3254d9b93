//! Tests the rules with promtool of both releases, and checks that every alert is tested both firing and silent.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;
use serde_json::Value;
use xtask::test_programs::{self, PrometheusRelease};

use super::{FILES, ROOT, alerts, folder, groups, known_metrics::KnownMetrics, rules, stems, text};
use crate::support::skipped::report_skipped;

/// Folder of the promtool tests.
const TESTS: &str = "tests/rules";
/// A healthy cluster.
const HEALTHY: &str = "healthy";
/// The recording rules.
const RECORDED: &str = "recorded";

/// The parts of a promtool test file that are used here.
#[derive(Deserialize)]
struct RuleTestFile {
    rule_files: Vec<String>,
    group_eval_order: Vec<String>,
    tests: Vec<Test>,
}

#[derive(Deserialize)]
struct Test {
    name: String,
    input_series: Vec<Series>,
    #[serde(default, rename = "alert_rule_test")]
    alerts: Vec<AlertTest>,
    #[serde(default, rename = "promql_expr_test")]
    queries: Vec<ExprTest>,
}

#[derive(Deserialize)]
struct Series {
    series: String,
}

#[derive(Deserialize)]
struct AlertTest {
    alertname: String,
    #[serde(default)]
    exp_alerts: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct ExprTest {
    expr: String,
}

fn read_rule_test(stem: &str) -> RuleTestFile {
    let path = Path::new(ROOT).join(TESTS).join(format!("{stem}.yaml"));
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{stem}: {error}"))
}

fn run(release: PrometheusRelease, arguments: &[&str], files: &[PathBuf]) {
    let tool = match test_programs::prometheus(release) {
        Ok(programs) => programs.tool,
        Err(error) => return report_skipped(error),
    };
    let output = Command::new(tool).args(arguments).args(files).output().expect("promtool starts");
    let output_text = [output.stdout, output.stderr].concat();
    let output_text = String::from_utf8_lossy(&output_text);
    assert!(output.status.success(), "{release:?}: {output_text}");
    assert!(output_text.contains("SUCCESS"), "{release:?}: promtool tested nothing: {output_text}");
}

fn rule_tests() -> Vec<PathBuf> {
    let stems = stems(TESTS, "yaml");
    stems.into_iter().map(|stem| Path::new(ROOT).join(TESTS).join(format!("{stem}.yaml"))).collect()
}

#[test]
fn promtool_of_both_releases_accepts_the_rules() {
    let mut files: Vec<PathBuf> = FILES.map(|file| folder().join(file)).into();
    files.push(Path::new(ROOT).join("deploy/recommender/rules.yaml"));
    for release in [PrometheusRelease::V2, PrometheusRelease::V3] {
        run(release, &["check", "rules"], &files);
    }
}

/// Each test file is about one alert, and no alert depends on another. Evaluating only that alert takes a tenth of the
/// CPU time of all rules.
#[test]
fn alerts_fire_exactly_as_expected_in_prometheus_3() {
    let scratch = tempfile::tempdir().expect("temporary directory");
    let alerts: Value = serde_saphyr::from_str(&text("alerts.yaml")).expect("YAML");
    let files: Vec<PathBuf> = rule_tests()
        .iter()
        .map(|trial| with_its_alert_only(trial, &alerts, scratch.path()))
        .collect();
    run(PrometheusRelease::V3, &["test", "rules"], &files);
}

/// Copies a promtool test file, with rules whose only alert is the one that the file is named after.
fn with_its_alert_only(trial: &Path, alerts: &Value, scratch: &Path) -> PathBuf {
    let stem = trial.file_stem().and_then(|stem| stem.to_str()).expect("a name");
    let mut alerts = alerts.clone();
    let is_wanted = |rule: &Value| stem == HEALTHY || stem == RECORDED || rule["alert"] == stem;
    for group in alerts["groups"].as_array_mut().expect("groups") {
        group["rules"].as_array_mut().expect("rules").retain(is_wanted);
    }
    let rules = scratch.join(format!("{stem}.rules.json"));
    fs::write(&rules, alerts.to_string()).expect("the folder is writable");
    let recording = folder().join(FILES[0]).display().to_string();
    let text = fs::read_to_string(trial)
        .expect("listed")
        .replace("../../deploy/monitoring/recording.yaml", &recording)
        .replace("../../deploy/monitoring/alerts.yaml", &rules.display().to_string());
    let own = scratch.join(format!("{stem}.yaml"));
    fs::write(&own, text).expect("the folder is writable");
    own
}

mod deep {
    use super::{PrometheusRelease, rule_tests, run};

    #[test]
    fn alerts_fire_exactly_as_expected_in_prometheus_3_with_all_rules() {
        run(PrometheusRelease::V3, &["test", "rules"], &rule_tests());
    }

    #[test]
    fn alerts_fire_exactly_as_expected_in_prometheus_2() {
        run(PrometheusRelease::V2, &["test", "rules"], &rule_tests());
    }
}

#[test]
fn every_alert_has_tests_for_firing_silence_and_missing_series() {
    let alerts = alerts();
    let mut files = stems(TESTS, "yaml");
    assert!(files.remove(HEALTHY) && files.remove(RECORDED), "{files:?}");
    assert!(files.iter().eq(alerts.keys()), "{files:?}, want {:?}", alerts.keys());
    for name in alerts.keys() {
        let tests = read_rule_test(name).tests;
        let about = |start: &str| -> Vec<&Test> {
            let start = format!("{name} {start}");
            tests.iter().filter(|test| test.name.starts_with(&start)).collect()
        };
        let (firing, silent, survives) =
            (about("fires "), about("stays quiet "), about("survives a missing series: "));
        assert_eq!(firing.len() + silent.len() + survives.len(), tests.len(), "{name}");
        let expects = |test: &Test, some: bool| {
            let own = test.alerts.iter().all(|one| one.alertname == *name);
            assert!(own, "{}: tests another alert", test.name);
            test.alerts.iter().any(|one| one.exp_alerts.is_empty() != some)
        };
        assert!(!firing.is_empty() && firing.iter().all(|test| expects(test, true)), "{name}");
        assert!(!silent.is_empty() && silent.iter().all(|test| expects(test, false)), "{name}");
        assert!(survives.iter().any(|test| expects(test, false)), "{name} {}", survives.len());
        assert!(survives.iter().all(|test| !test.alerts.is_empty()), "{name}");
    }
}

#[test]
fn every_alert_and_recording_rule_is_tested_with_a_healthy_cluster() {
    let healthy = read_rule_test(HEALTHY);
    let queries_alerts = healthy.tests.iter().all(|test| {
        !test.queries.is_empty() && test.queries.iter().all(|one| one.expr == "ALERTS")
    });
    assert!(queries_alerts);
    let within = "reason=\"within_bounds\"";
    let series = healthy.tests.iter().flat_map(|test| &test.input_series);
    assert!(series.filter(|one| one.series.contains(within)).count() > 1, "both kinds of series");
    let recorded = read_rule_test(RECORDED);
    let mut tested_alerts: BTreeMap<&str, usize> = BTreeMap::new();
    for one in recorded.tests.iter().flat_map(|test| &test.queries) {
        *tested_alerts.entry(one.expr.as_str()).or_default() += 1;
    }
    for name in rules().into_iter().filter_map(|rule| rule.record) {
        assert!(tested_alerts.contains_key(name.as_str()), "{name} is never tested");
    }
}

/// A test with series that nothing exports proves nothing.
#[test]
fn rule_tests_use_only_exported_series() {
    let known = KnownMetrics::read();
    let mut found = Vec::new();
    let mut seen = 0;
    for stem in stems(TESTS, "yaml") {
        for series in read_rule_test(&stem).tests.iter().flat_map(|test| &test.input_series) {
            seen += 1;
            let unknown = known.unknown_names(&series.series);
            found.extend(unknown.into_iter().map(|unknown_name| format!("{stem}: {unknown_name}")));
        }
    }
    assert!(seen > 300, "only {seen} series");
    assert!(found.is_empty(), "{found:#?}");
}

/// promtool evaluates groups in any order unless configured, and an alert before its recording rule sees no data.
#[test]
fn recording_rules_are_evaluated_before_the_alerts_that_use_them() {
    let order: Vec<String> = groups().into_iter().map(|group| group.name).collect();
    for stem in stems(TESTS, "yaml") {
        let trial = read_rule_test(&stem);
        assert_eq!(trial.group_eval_order, order, "{stem}");
        let files = FILES.map(|file| format!("../../deploy/monitoring/{file}"));
        assert_eq!(trial.rule_files, files, "{stem}");
    }
}
