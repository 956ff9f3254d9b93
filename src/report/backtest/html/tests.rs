//! Tests of the page: complete and escaped, and its tables equal the report. See tests/html_reports.rs for a browser.

use super::*;
use crate::report::backtest::test_reports::{named, sample, without_prices};

fn page(report: &BacktestReport) -> String {
    render(report).expect("a page")
}

#[test]
fn the_report_is_in_the_page_as_data() {
    let page = page(&sample());
    let (_, rest) = page.split_once("id=\"report\">").expect("the data");
    let (json, _) = rest.split_once("</script>").expect("its end");
    assert_eq!(serde_json::from_str::<BacktestReport>(json).expect("a report"), sample());
}

#[test]
fn nothing_is_requested_and_each_chart_has_a_title_and_a_table() {
    let page = page(&sample());
    for text in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(text), "{text}");
    }
    let policies = sample().policies.len();
    let charts = page.matches("<svg class=\"chart\"").count();
    assert_eq!(charts, 2 + 2 * policies);
    assert_eq!(page.matches("<details>").count(), charts);
    assert_eq!(page.matches("role=\"img\"").count(), charts);
    assert_eq!(page.matches("<desc>").count(), charts);
    assert!(!page.contains("NaN"));
}

#[test]
fn every_number_of_a_chart_is_in_its_table() {
    let report = sample();
    let page = page(&report);
    for policy in &report.policies {
        for day in &policy.days {
            assert!(page.contains(&format!("data-v=\"{}\"", day.cpu_requested)), "{}", policy.name);
        }
        if policy.is_on_frontier.is_some() {
            let cost = policy.monthly_cost.expect("prices");
            assert!(page.contains(&format!("data-v=\"{cost}\"")), "{}", policy.name);
        }
    }
}

#[test]
fn names_are_texts() {
    let page = page(&named("\"><img src=x onerror=alert(1)>"));
    assert!(!page.contains("<img") && page.contains("&lt;img"), "a name became markup");
}

#[test]
fn a_report_without_prices_compares_cores() {
    let page = page(&without_prices());
    assert!(page.contains("requested cores against OOM-days"));
    assert!(!page.contains("A month, "), "{page}");
}
