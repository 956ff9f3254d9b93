//! The forms of `plimsoll backtest` as other programs read them: JSON by its schema.

use plimsoll::report::{
    backtest::{self, BacktestForm},
    style::{Glyphs, Style},
};
use plimsoll_core::backtest::report::BacktestReport;
use serde_json::Value;

use crate::{
    html_reports::sample_backtest::sample,
    schema::{faults, schema},
};

fn printed(report: &BacktestReport) -> Value {
    let glyphs = Glyphs::Unicode;
    let style = Style { width: 96, colour: false, glyphs, command: "plimsoll".to_owned() };
    let text = backtest::render(BacktestForm::Json, report, &[], &style).expect("JSON");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn json_follows_the_schema() {
    let schema = schema("backtest.v1.json");
    let report = printed(&sample());
    assert_eq!(faults(&schema, &report), Vec::<String>::new());
    let mut wrong = report.clone();
    wrong["policies"][0]["oomDays"] = "2".into();
    wrong["policies"][1]["apply"] = "hourly".into();
    assert_eq!(faults(&schema, &wrong).len(), 2, "the schema does not describe figures");
    let mut more = report;
    more["policies"][0]["surprise"] = 1.into();
    assert_eq!(faults(&schema, &more).len(), 1, "a new field must be written into the schema");
}

#[test]
fn unknown_figures_are_absent_and_follow_the_schema() {
    let mut report = sample();
    report.currency = None;
    report.worst.clear();
    report.frontier.clear();
    for policy in &mut report.policies {
        (policy.monthly_cost, policy.memory_requested, policy.memory_slack) = (None, None, None);
        (policy.memory_over_request, policy.cpu_slack, policy.is_on_frontier) = (None, None, None);
        policy.against_current = None;
    }
    let report = printed(&report);
    assert_eq!(faults(&schema("backtest.v1.json"), &report), Vec::<String>::new());
    assert_eq!(report["policies"][0].get("cpuSlack"), None, "unknown is not zero");
}
