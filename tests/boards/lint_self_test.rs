//! Every board passes the rules, and each rule detects its defect.

use serde_json::{Value, json};

use super::{board_rules, boards, lint};

fn all_rules() -> Vec<lint::Rule> {
    lint::RULES.into_iter().chain(board_rules::RULES).collect()
}

#[test]
fn the_linter_finds_nothing_in_the_boards() {
    for (name, board) in boards() {
        let findings = lint::findings(&board, &all_rules());
        let findings: Vec<String> =
            findings.iter().map(|(rule, finding)| format!("{name}: {rule}: {finding}")).collect();
        assert!(findings.is_empty(), "\n{}", findings.join("\n"));
    }
}

/// The Overview board with a defect.
fn spoil_overview(spoil: impl Fn(&mut Value)) -> Value {
    let (_, mut board) =
        boards().into_iter().find(|(name, _)| name == "overview").expect("Overview exists");
    spoil(&mut board);
    board
}

fn variable<'a>(board: &'a mut Value, name: &str) -> &'a mut Value {
    let variables = board["templating"]["list"].as_array_mut().expect("variables");
    variables.iter_mut().find(|variable| variable["name"] == name).expect("a variable")
}

/// A panel of this type.
fn panel<'a>(board: &'a mut Value, kind: &str) -> &'a mut Value {
    let panels = board["panels"].as_array_mut().expect("panels");
    panels.iter_mut().find(|panel| panel["type"] == kind).expect("a panel")
}

/// Replaces text in the first query that contains it.
fn query(board: &mut Value, from: &str, to: &str) {
    let panels = board["panels"].as_array_mut().expect("panels");
    let targets = panels.iter_mut().filter_map(|panel| panel["targets"].as_array_mut()).flatten();
    let matches =
        |target: &&mut Value| target["expr"].as_str().is_some_and(|expr| expr.contains(from));
    let target =
        targets.into_iter().find(matches).unwrap_or_else(|| panic!("no query contains {from}"));
    target["expr"] = json!(target["expr"].as_str().expect("a text").replace(from, to));
}

/// A rule, and a defect that it must detect.
type SpoiledBoard = (&'static str, fn(&mut Value));

const FAULTS: [SpoiledBoard; 43] = [
    ("template-datasource", |board| variable(board, "datasource")["name"] = json!("source")),
    ("template-datasource", |board| variable(board, "datasource")["type"] = json!("custom")),
    ("template-datasource", |board| variable(board, "datasource")["label"] = json!("Source")),
    ("template-datasource", |board| variable(board, "datasource")["query"] = json!("loki")),
    ("template-job", |board| variable(board, "job")["name"] = json!("jobs")),
    ("template-job", |board| variable(board, "job")["allValue"] = json!(".*")),
    ("template-job", |board| variable(board, "job")["multi"] = json!(false)),
    ("template-job", |board| variable(board, "job")["label"] = json!("job")),
    ("template-job", |board| variable(board, "job")["datasource"]["uid"] = json!("abc")),
    ("template-instance", |board| variable(board, "instance")["type"] = json!("custom")),
    ("template-instance", |board| variable(board, "instance")["includeAll"] = json!(false)),
    ("template-label-promql", |board| {
        variable(board, "job")["query"] = json!("label_values(a{, job)");
    }),
    ("template-label-promql", |board| variable(board, "job")["query"] = json!("values(a, job)")),
    ("template-on-time-change-reload", |board| variable(board, "job")["refresh"] = json!(1)),
    ("panel-datasource", |board| panel(board, "stat")["datasource"]["uid"] = json!("abc")),
    ("panel-datasource", |board| {
        panel(board, "table")["targets"][0]["datasource"]["type"] = json!("loki");
    }),
    ("panel-title-description", |board| panel(board, "stat")["title"] = json!("")),
    ("panel-title-description", |board| panel(board, "stat")["description"] = json!("")),
    ("panel-units", |board| {
        panel(board, "stat")["fieldConfig"]["defaults"]["unit"] = json!("cores");
    }),
    ("panel-units", |board| panel(board, "stat")["fieldConfig"]["defaults"]["unit"] = json!(null)),
    ("panel-units", |board| {
        let unit = json!([{"matcher": {}, "properties": [{"id": "unit", "value": "cores"}]}]);
        panel(board, "timeseries")["fieldConfig"]["overrides"] = unit;
    }),
    ("panel-no-targets", |board| panel(board, "stat")["targets"] = json!([])),
    ("target-promql", |board| query(board, "sum by", "sum of")),
    ("target-rate-interval", |board| query(board, "[$__rate_interval]", "[5m]")),
    ("target-job", |board| query(board, "job=~\"$job\"", "job=\"$job\"")),
    ("target-job", |board| query(board, ", job=~\"$job\"", "")),
    ("target-instance", |board| query(board, "instance=~\"$instance\"", "instance=~\"$pod\"")),
    ("target-counter-agg", |board| {
        query(board, "rate(plimsoll_updater", "max_over_time(plimsoll_updater");
    }),
    ("uneditable-dashboard", |board| board["editable"] = json!(true)),
    ("links-lead-somewhere", |board| {
        board["links"][1]["url"] = json!("/d/plimsoll-other/x?${job:queryparam}");
    }),
    ("links-lead-somewhere", |board| {
        board["links"][1]["url"] = json!("/d/plimsoll-vertical/x?${pod:queryparam}");
    }),
    ("links-lead-somewhere", |board| {
        board["links"][1]["url"] = json!("/d/plimsoll-vertical/x?var-reason=a");
    }),
    ("links-lead-somewhere", |board| {
        let names = json!(["name", "Value #A"]);
        panel(board, "table")["transformations"][1]["options"]["include"]["names"] = names;
    }),
    ("variables-are-used", |board| variable(board, "reason")["name"] = json!("reasons")),
    ("panels-do-not-overlap", |board| panel(board, "stat")["gridPos"]["x"] = json!(23)),
    ("panels-do-not-overlap", |board| panel(board, "stat")["gridPos"]["w"] = json!(9)),
    ("panels-do-not-overlap", |board| panel(board, "table")["id"] = json!(1)),
    ("no-made-up-data", |board| query(board, "sum by", "vector(0) or sum by")),
    ("clusters-stay-apart", |board| query(board, "cluster=~\"$cluster\", ", "")),
    ("steps-are-no-shorter-than-scrapes", |board| {
        panel(board, "stat")["targets"][0]["interval"] = json!("");
    }),
    ("lines-have-names", |board| {
        panel(board, "timeseries")["targets"][0]["legendFormat"] = json!("");
    }),
    ("options-are-of-something", |board| {
        panel(board, "table")["options"]["sortBy"][0]["displayName"] = json!("x");
    }),
    ("identity", |board| board["uid"] = json!("overview")),
];

#[test]
fn every_lint_rule_finds_its_defects() {
    for (number, (name, fault)) in FAULTS.iter().enumerate() {
        let rule = all_rules().into_iter().find(|(known, _)| known == name);
        let rule = rule.unwrap_or_else(|| panic!("there is no rule {name}"));
        let found = lint::findings(&spoil_overview(fault), &[rule]);
        assert!(!found.is_empty(), "{name} does not detect defect {number}");
    }
    for (rule, _) in all_rules() {
        assert!(FAULTS.iter().any(|(known, _)| *known == rule), "no defect tests {rule}");
    }
}
