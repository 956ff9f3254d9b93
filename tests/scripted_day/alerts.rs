//! Evaluates the rules with promtool on the metrics of the day.

use std::{fs, path::Path, process::Command, time::Duration};

use serde_json::{Value, json};
use xtask::test_programs::{self, PrometheusRelease};

use super::{fixture::SCRAPE, script::ScriptedDay};
use crate::support::skipped::report_skipped;
use crate::support::tier;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/monitoring");
/// In evaluation order.
const FILES: [&str; 2] = ["recording.yaml", "alerts.yaml"];

/// An alert during a part of the day, and whether it fires or is only pending.
pub struct Expected {
    alert: &'static str,
    /// The only object that it is about; `None` if it may be about several.
    object: Option<&'static str>,
    is_firing: bool,
    /// Since the start of the day.
    from: Duration,
    to: Duration,
    /// Scrapes closer than this to either end are not checked.
    leeway: Duration,
}

impl Expected {
    /// Pending exactly while a series has a value: evictions depend on when pods are ready.
    pub fn pending_while(alert: &'static str, (from, to): (Duration, Duration)) -> Self {
        Self { leeway: Duration::ZERO, ..Self::pending(alert, (from, to)) }
    }

    /// Pending from the first of these scrapes until before the second. One scrape more or less is accepted: each
    /// object has its own offset within a period.
    pub fn pending(alert: &'static str, (from, to): (Duration, Duration)) -> Self {
        let scrape = Duration::try_from(SCRAPE).expect("a positive duration");
        Self { alert, object: None, is_firing: false, from, to, leeway: 2 * scrape }
    }

    /// Limits the expectation to this object.
    pub fn of(self, object: &'static str) -> Self {
        Self { object: Some(object), ..self }
    }

    /// Pending for `waits`, then firing.
    pub fn fires(
        alert: &'static str,
        (from, to): (Duration, Duration),
        waits: Duration,
    ) -> [Self; 2] {
        let firing = Self { is_firing: true, ..Self::pending(alert, (from + waits, to)) };
        [Self::pending(alert, (from, from + waits)), firing]
    }

    fn is_near(&self, at: Duration) -> bool {
        let near = |end: Duration| at.abs_diff(end) < self.leeway;
        near(self.from) || near(self.to)
    }
}

/// The groups of a file of rules, in order.
fn groups(text: &str) -> Vec<String> {
    let file: Value = serde_saphyr::from_str(text).expect("YAML");
    let groups = file["groups"].as_array().expect("groups");
    groups.iter().map(|group| group["name"].as_str().expect("a name").to_owned()).collect()
}

/// The expected alerts at each scrape, pending or firing, as a promtool test.
fn promtool_test(day: &ScriptedDay, expected: &[Expected]) -> Value {
    let texts = FILES
        .map(|file| fs::read_to_string(Path::new(FOLDER).join(file)).expect("the file is there"));
    let is_wanted = |name: &str| texts.iter().any(|text| text.contains(name));
    let step = Duration::try_from(SCRAPE).expect("a positive duration");
    let scrapes = u32::try_from(day.record.scrapes()).expect("fits");
    let mut alerts: Vec<&str> = expected.iter().map(|one| one.alert).collect();
    alerts.sort_unstable();
    alerts.dedup();
    let others = format!("alertname!~{:?}", alerts.join("|"));
    let mut queries = Vec::new();
    // For promtool, each check costs as much as the whole day. The gate checks every seventh scrape, which is at a
    // different offset of every period and window.
    for at in (1..scrapes).step_by(tier::cases(7, 1)).map(|scrape| step * scrape) {
        for alert in &alerts {
            let own: Vec<&Expected> = expected.iter().filter(|one| one.alert == *alert).collect();
            if own.iter().any(|one| one.is_near(at)) {
                continue;
            }
            let now = own.iter().filter(|one| (one.from..one.to).contains(&at));
            let samples: Vec<Value> = now
                .map(|one| {
                    let state = if one.is_firing { "firing" } else { "pending" };
                    let object = one.object.map(|name| format!(", name={name:?}"));
                    let object = object.unwrap_or_default();
                    let labels = format!("{{alertname={alert:?}, alertstate={state:?}{object}}}");
                    json!({"labels": labels, "value": 1})
                })
                .collect();
            // Alerts of other objects are checked only if all objects are known.
            let is_known = own.iter().all(|one| one.object.is_some());
            let by = if is_known { "alertname, alertstate, name" } else { "alertname, alertstate" };
            queries.push(query(&format!("alertname={alert:?}"), by, at, &samples));
        }
        queries.push(query(&others, "alertname, alertstate", at, &[]));
    }
    json!({
        "rule_files": FILES.map(|file| format!("{FOLDER}/{file}")),
        "evaluation_interval": "1m",
        "group_eval_order": texts.iter().flat_map(|text| groups(text)).collect::<Vec<_>>(),
        "tests": [{
            "name": "a day",
            "start_timestamp": day.record.start().to_string(),
            "interval": format!("{}s", SCRAPE.as_secs()),
            "input_series": day.record.promtool_input(is_wanted),
            "promql_expr_test": queries,
        }],
    })
}

/// A check of the states of alerts at a time.
fn query(which: &str, by: &str, at: Duration, samples: &[Value]) -> Value {
    json!({
        "expr": format!("count by ({by}) (ALERTS{{{which}}}) > bool 0"),
        "eval_time": format!("{}s", at.as_secs()),
        "exp_samples": samples,
    })
}

/// Compares the alerts of the whole day with the expected ones, with promtool.
pub async fn check(day: &ScriptedDay, expected: &[Expected]) {
    let tool = match test_programs::prometheus(PrometheusRelease::V3) {
        Ok(programs) => programs.tool,
        Err(why) => return report_skipped(why),
    };
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = folder.path().join("day.yaml");
    // JSON is YAML.
    fs::write(&file, promtool_test(day, expected).to_string()).expect("writable");
    let run = move || {
        let output = Command::new(tool).args(["test", "rules"]).arg(&file).output();
        drop(folder);
        output.expect("promtool starts")
    };
    let output = tokio::task::spawn_blocking(run).await.expect("no panic");
    let output_text =
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // There is a message for each wrong scrape: the first few suffice.
    let output_text: String = output_text.trim().chars().take(4_000).collect();
    assert!(output.status.success() && output_text.contains("SUCCESS"), "{output_text}");
}
