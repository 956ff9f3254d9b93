//! What makes a pipeline fail, with and without a baseline.

use super::*;
use crate::{
    rightsizing::{
        ReportOptions,
        evidence::ContainerEvidence,
        prices::Prices,
        report as make_report,
        survey::Survey,
        testing::{MI, amounts, container, deployment, evidence},
    },
    types::Time,
};

#[test]
fn conditions_are_parsed_and_printed() {
    for text in
        ["never", "change", "risk:high", "risk:critical", "waste:low", "score:60", "cost:1000.5"]
    {
        assert_eq!(text.parse::<FailOn>().expect(text).to_string(), text);
    }
    for (text, expected) in [
        ("", "use never, change, risk:LEVEL, waste:LEVEL, score:N or cost:N"),
        ("always", "use never, change, risk:LEVEL, waste:LEVEL, score:N or cost:N"),
        ("change:1", "use never, change, risk:LEVEL, waste:LEVEL, score:N or cost:N"),
        ("risk", "use never, change, risk:LEVEL, waste:LEVEL, score:N or cost:N"),
        ("risk:ok", "use risk:medium, risk:high or risk:critical"),
        ("risk:unsaid", "use risk:medium, risk:high or risk:critical"),
        ("waste:critical", "use waste:low, waste:medium or waste:high"),
        ("score:0", "use score:N with a number from 1 to 100"),
        ("score:101", "use score:N with a number from 1 to 100"),
        ("cost:NaN", "use cost:N with an amount of money a month"),
        ("cost:-1", "use cost:N with an amount of money a month"),
    ] {
        let error = text.parse::<FailOn>().expect_err(text).to_string();
        assert_eq!(error, format!("invalid value `{text}` of --fail-on: {expected}"));
    }
}

/// A report of one pod that requests this much CPU and needs one core, and of one that requests and needs 500
/// MiB; a core costs 73 a month and memory nothing.
fn report_of(cpu: i64) -> Report {
    let web = container(amounts(Some(cpu), Some(500 * MI)), amounts(None, None));
    let workloads = vec![deployment("web", 1, vec![web]).into()];
    let survey = Survey { workloads, ..Survey::default() };
    let evidence: ContainerEvidence = evidence([900, 1000, 1500], [400 * MI, 500 * MI, 600 * MI]);
    let prices = Prices::parse("cpuCoreHour: 0.1\nmemoryGiBHour: 0").expect("prices");
    let options = ReportOptions { prices: Some(prices), ..ReportOptions::default() };
    make_report(&survey, &|_, _| Some(&evidence), &options, Time::EPOCH)
}

fn baseline_of(report: &Report) -> Baseline {
    Baseline::from_json(&serde_json::to_string(report).expect("JSON")).expect("a baseline")
}

#[test]
fn conditions_hold_or_not() {
    let (small, fits, large) = (report_of(500), report_of(1000), report_of(4000));
    let row = |report: &Report| {
        let workload = &report.workloads[0];
        let container = &workload.containers[0];
        vec![Failure::Row(RowKey::of(workload, container, &container.resources[0]))]
    };
    for (condition, report, expected) in [
        ("never", &small, vec![]),
        ("change", &small, row(&small)),
        ("change", &fits, vec![]),
        ("risk:high", &small, row(&small)),
        ("risk:critical", &small, vec![]),
        ("risk:medium", &fits, vec![]),
        ("waste:high", &large, row(&large)),
        ("waste:low", &small, vec![]),
        // Three of four cores are wasted, and memory has no cost, so both count equally: 100 x (1 - 0.75 / 2)
        // = 62.5.
        ("score:63", &large, vec![]),
        ("score:64", &large, vec![Failure::Score { score: 63, least: 64 }]),
        ("score:100", &fits, vec![]),
        ("cost:292", &large, vec![]),
        ("cost:291", &large, vec![Failure::Cost { cost: 292.0, most: 291.0 }]),
    ] {
        let condition: FailOn = condition.parse().expect("a condition");
        assert_eq!(condition.failures(report, None), expected, "{condition}");
    }
}

#[test]
fn with_a_baseline_only_what_is_new_counts() {
    let (small, fits, large) = (report_of(500), report_of(1000), report_of(4000));
    for (condition, report, baseline, fails) in [
        ("change", &small, &small, false),
        ("change", &small, &fits, true),
        ("change", &large, &small, false),
        ("risk:high", &small, &small, false),
        ("risk:high", &small, &large, true),
        ("waste:high", &large, &large, false),
        ("waste:high", &large, &fits, true),
        ("score:100", &large, &large, false),
        ("score:100", &large, &fits, true),
        // 4 cores are 3 more than before: 219 a month.
        ("cost:219", &large, &fits, false),
        ("cost:218", &large, &fits, true),
        ("cost:0", &fits, &large, false),
    ] {
        let condition: FailOn = condition.parse().expect("a condition");
        let failures = condition.failures(report, Some(&baseline_of(baseline)));
        assert_eq!(!failures.is_empty(), fails, "{condition}: {failures:?}");
    }
    let empty = Baseline::default();
    let risk = FailOn::Risk(Level::High);
    assert_eq!(risk.failures(&small, Some(&empty)).len(), 1, "everything is new");
}

#[test]
fn a_level_that_rose_since_the_baseline_counts() {
    let report = report_of(500);
    let json = serde_json::to_string(&report).expect("JSON");
    let risk = FailOn::Risk(Level::Medium);
    for (before, fails) in [("unsaid", 1), ("ok", 1), ("medium", 1), ("high", 0), ("critical", 0)] {
        let json = json.replace(r#""risk":"high""#, &format!(r#""risk":"{before}""#));
        let baseline = Baseline::from_json(&json).expect("a baseline");
        assert_eq!(risk.failures(&report, Some(&baseline)).len(), fails, "{before}");
    }
}

#[test]
fn a_baseline_without_the_cost_is_not_free() {
    let report = report_of(1000);
    let with = |currency: Option<&str>, cost| {
        let mut baseline = baseline_of(&report);
        baseline.cost = cost;
        baseline.currency = currency.map(str::to_owned);
        baseline
    };
    let currency = report.currency.as_deref();
    for (baseline, expected) in [
        (with(currency, None), vec![Failure::Unknown("cost of the baseline")]),
        (with(None, None), vec![Failure::Unknown("cost of the baseline")]),
        (
            with(Some("francs"), Some(1e9)),
            vec![Failure::Unknown("cost of the baseline in this currency")],
        ),
        (with(currency, Some(73.0)), vec![]),
    ] {
        assert_eq!(FailOn::Cost(0.0).failures(&report, Some(&baseline)), expected, "{baseline:?}");
    }
}

#[test]
fn what_is_unknown_is_not_fine() {
    let nothing =
        make_report(&Survey::default(), &|_, _| None, &ReportOptions::default(), Time::EPOCH);
    assert_eq!(FailOn::Score(1).failures(&nothing, None), [Failure::Unknown("score")]);
    assert_eq!(FailOn::Cost(1.0).failures(&nothing, None), [Failure::Unknown("cost")]);
    assert_eq!(Failure::Unknown("cost").to_string(), "the cost is unknown");
    assert!(FailOn::Cost(1.0).needs_prices() && !FailOn::Score(1).needs_prices());
}

#[test]
fn failures_are_one_line() {
    let report = report_of(500);
    let failures = FailOn::Change.failures(&report, None);
    assert_eq!(failures[0].to_string(), "shop/Deployment/web main cpu");
    let score = Failure::Score { score: 58, least: 60 };
    assert_eq!(score.to_string(), "the score is 58, below 60");
    let cost = Failure::Cost { cost: 10.5, most: 10.0 };
    assert_eq!(cost.to_string(), "requests cost 10.50 a month, more than 10.00");
}
