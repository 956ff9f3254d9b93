//! HTML reports in a browser: nothing is requested, nothing is logged, tables work with and without scripts, in light and dark
//! and on narrow screens.

mod deep;
mod large_snapshot;
mod page_access;
mod pictures;
pub(crate) mod sample_backtest;
pub(crate) mod sample_report;
mod sample_snapshot;
mod web_page;
mod web_requests;

use std::{fs, path::Path};

use plimsoll::report::{backtest, recommend::html};
use plimsoll_core::{backtest::report::BacktestReport, rightsizing::report::Level};
use serde_json::{Value, json};
use xtask::test_programs;

use crate::support::{browser::Browser, skipped::report_skipped};

/// The texts whose color differs too little from their background: less than 4.5 to 1.
const LOW_CONTRAST: &str = r"(() => {
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const linear = (value) => value <= 10.31 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const background = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = channels(getComputedStyle(one).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const low = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    const text = texts.currentNode.data.trim();
    if (!text || element.closest('script, svg, [hidden]')) continue;
    const [one, other] = [channels(getComputedStyle(element).color), background(element)].map(luminance);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) low.add(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return [...low];
})()";

/// The visible rows of all containers, as the names of workloads.
const SHOWN: &str = "[...document.querySelectorAll('#all tbody tr')].filter((row) => row.offsetHeight > 0)\
                     .map((row) => row.querySelector('b').textContent)";

const TABLES: &str = "[...document.querySelectorAll('tbody')].map((body) => body.innerText)";

/// Messages in the console, exceptions, violations of the policy, and requests for anything but the file itself.
fn complaints(events: &[Value], url: &str) -> Vec<String> {
    let is_complaint = |event: &&Value| match event["method"].as_str() {
        Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded") => true,
        Some("Network.requestWillBeSent") => {
            let requested = event["params"]["request"]["url"].as_str().unwrap_or_default();
            requested != url && requested != "data:,"
        }
        _ => false,
    };
    events.iter().filter(is_complaint).map(ToString::to_string).collect()
}

/// Controls, tables and pictures without a name for screen readers.
fn nameless(browser: &mut Browser, least: usize) -> Vec<String> {
    let tree = browser.call("Accessibility.getFullAXTree", &json!({}));
    let nodes = tree["nodes"].as_array().expect("nodes");
    let roles = ["button", "searchbox", "combobox", "link", "table", "image", "img", "region"];
    let of_interest = |node: &&Value| {
        node["ignored"] == false
            && node["role"]["value"].as_str().is_some_and(|role| roles.contains(&role))
    };
    let of_interest: Vec<&Value> = nodes.iter().filter(of_interest).collect();
    assert!(of_interest.len() >= least, "only {} controls, tables and pictures", of_interest.len());
    let is_nameless =
        |node: &&&Value| node["name"]["value"].as_str().unwrap_or_default().trim().is_empty();
    of_interest.iter().filter(is_nameless).map(ToString::to_string).collect()
}

fn keep_picture(browser: &mut Browser, name: &str) {
    let picture = browser.screenshot();
    if let Some(folder) = std::env::var_os("PLIMSOLL_PICTURES") {
        fs::write(Path::new(&folder).join(format!("{name}.png")), picture)
            .expect("a writable folder");
    }
}

#[test]
fn the_report_of_recommend_works_in_a_browser() {
    let chromium = match test_programs::chromium() {
        Ok(chromium) => chromium,
        Err(error) => return report_skipped(error),
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("report.html");
    let report = sample_report::sample();
    fs::write(&path, html::render(&report)).expect("a writable folder");
    let url = format!("file://{}", path.display());
    let mut browser = Browser::start(chromium);

    let mut tables = Vec::new();
    for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 320)] {
        browser.set(width, scheme, true);
        browser.open(&url);
        assert_eq!(browser.evaluate(LOW_CONTRAST), json!([]), "{scheme}");
        let fits = "document.documentElement.scrollWidth <= innerWidth";
        assert_eq!(browser.evaluate(fits), true, "{width} pixels");
        assert_eq!(nameless(&mut browser, 30), [""; 0]);
        keep_picture(&mut browser, &format!("recommend-{scheme}-{width}"));
        assert_eq!(complaints(browser.events(), &url), [""; 0], "{scheme} {width}");
        tables.push(browser.evaluate(TABLES));
    }

    let names: Vec<&str> = report
        .workloads
        .iter()
        .flat_map(|workload| workload.containers.iter().map(|_| workload.name.as_str()))
        .collect();
    assert!(names.contains(&sample_report::HOSTILE), "a name that is markup");
    assert_eq!(browser.evaluate(SHOWN), json!(names), "names are texts, whatever they contain");
    let sort = "document.querySelector('#all thead .cpu button').click()";
    browser.evaluate(sort);
    let sorted = browser.evaluate(SHOWN);
    assert_eq!((&sorted[0], &sorted[1]), (&json!("embed"), &json!("logs")), "{sorted}");
    browser.evaluate(sort);
    let sorted = browser.evaluate(SHOWN);
    assert_eq!(sorted[0], "kafka", "the largest increase: {sorted}");
    let last = sorted.as_array().expect("rows").last();
    assert_eq!(
        last,
        Some(&json!("import-2026-11-26-with-a-name-of-63-characters-aaaaaaaaaaaaaaaaa"))
    );
    let order = "document.querySelector('#all [aria-sort]').getAttribute('aria-sort')";
    assert_eq!(browser.evaluate(order), "ascending");
    let search = "new Promise((done) => {
        const found = document.getElementById('found');
        new MutationObserver(() => done(found.textContent)).observe(found, {childList: true});
        document.getElementById('words').value = 'OOM kills shop';
        document.getElementById('words').dispatchEvent(new Event('input'));
    })";
    assert_eq!(browser.evaluate(search), "1 of 12 containers");
    assert_eq!(browser.evaluate(SHOWN), json!(["checkout"]));
    let filter = |words: &str| {
        format!(
            "(() => {{
                document.getElementById('words').value = '';
                const least = document.getElementById('least');
                least.value = [...least.options].find((option) => option.text === '{words}').value;
                least.dispatchEvent(new Event('change'));
                return document.getElementById('found').textContent;
            }})()"
        )
    };
    for (words, least) in [
        ("medium or higher", Level::Medium),
        ("high or higher", Level::High),
        ("critical", Level::Critical),
        ("any", Level::Unsaid),
    ] {
        let containers = report.workloads.iter().flat_map(|workload| &workload.containers);
        let risks = containers.map(|one| one.resources.iter().map(|row| row.risk).max());
        let risks: Vec<Level> = risks.map(Option::unwrap_or_default).collect();
        let expected = risks.iter().filter(|risk| **risk >= least).count();
        assert!(least == Level::Unsaid || (1..risks.len()).contains(&expected), "{words}");
        let found = browser.evaluate(&filter(words));
        let shown = browser.evaluate(SHOWN);
        assert_eq!(shown.as_array().map(Vec::len), Some(expected), "{words}: {shown}");
        let is_all = least == Level::Unsaid;
        let text = format!("{expected} of {} containers", risks.len());
        assert_eq!(found, if is_all { String::new() } else { text }, "{words}");
    }
    assert_eq!(complaints(browser.events(), &url), [""; 0]);

    browser.set(1280, "light", false);
    browser.open(&url);
    assert_eq!(browser.evaluate("document.querySelectorAll('button').length"), 0);
    assert_eq!(browser.evaluate("document.getElementById('search').hidden"), true);
    assert_eq!(browser.evaluate(TABLES), tables[0], "the same texts without scripts");
    keep_picture(&mut browser, "recommend-without-scripts");

    browser.set(1280, "light", true);
    fs::write(&path, html::render(&sample_report::empty())).expect("a writable folder");
    browser.open(&url);
    assert_eq!(browser.evaluate("document.querySelectorAll('table').length"), 1, "totals");
    assert_eq!(complaints(browser.events(), &url), [""; 0], "an empty report");
}

/// The table of policies: names and the values that they are sorted by.
const POLICIES: &str = "[...document.querySelectorAll('#policies tbody tr')]\
                        .map((row) => [...row.cells].map((cell) => cell.dataset.v ?? cell.innerText))";

/// The values below the charts of days: requested and used cores.
const DAYS: &str = "[...document.querySelectorAll('#days figure')].map((figure) => \
                    [...figure.querySelectorAll('tbody tr')].map((row) => \
                    [1, 2].map((column) => Number(row.cells[column].dataset.v))))";

#[test]
fn the_page_of_a_backtest_works_in_a_browser() {
    let chromium = match test_programs::chromium() {
        Ok(chromium) => chromium,
        Err(error) => return report_skipped(error),
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("backtest.html");
    let report = sample_backtest::sample();
    let page = backtest::html::render(&report).expect("a page");
    fs::write(&path, page).expect("a writable folder");
    let url = format!("file://{}", path.display());
    let mut browser = Browser::start(chromium);
    for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 320)] {
        browser.set(width, scheme, true);
        browser.open(&url);
        let open = "document.querySelectorAll('details').forEach((one) => one.open = true)";
        browser.evaluate(&format!("{open}, true"));
        assert_eq!(browser.evaluate(LOW_CONTRAST), json!([]), "{scheme}");
        let fits = "document.documentElement.scrollWidth <= innerWidth";
        assert_eq!(browser.evaluate(fits), true, "{width} pixels");
        assert_eq!(nameless(&mut browser, 20), [""; 0]);
        let close = "document.querySelectorAll('details').forEach((one) => one.open = false)";
        browser.evaluate(&format!("{close}, true"));
        keep_picture(&mut browser, &format!("backtest-{scheme}-{width}"));
        assert_eq!(complaints(browser.events(), &url), [""; 0], "{scheme} {width}");
    }

    let data = browser.evaluate("JSON.parse(document.getElementById('report').textContent)");
    let data: BacktestReport = serde_json::from_value(data).expect("a report");
    assert_eq!(data, report, "the file is its own record");
    let rows = browser.evaluate(POLICIES);
    for (row, policy) in rows.as_array().expect("rows").iter().zip(&report.policies) {
        let number = |column: usize| row[column].as_str().and_then(|text| text.parse::<f64>().ok());
        assert_eq!(number(2), Some(policy.cpu_requested), "{}", policy.name);
        assert_eq!(number(3), policy.cpu_slack, "{}", policy.name);
        assert_eq!(number(8), policy.memory_requested, "{}", policy.name);
        assert_eq!(number(12), Some(policy.oom_days as f64), "{}", policy.name);
        assert_eq!(number(18), policy.monthly_cost, "{}", policy.name);
    }
    let days: Vec<Vec<[f64; 2]>> = report
        .policies
        .iter()
        .map(|policy| policy.days.iter().map(|day| [day.cpu_requested, day.cpu_used]).collect())
        .collect();
    // JavaScript has one type of numbers.
    let shown: Vec<Vec<[f64; 2]>> =
        serde_json::from_value(browser.evaluate(DAYS)).expect("numbers");
    assert_eq!(shown, days, "tables of charts");
    let worst = "[...document.querySelectorAll('#worst tbody th')].map((cell) => cell.innerText)";
    let names: Vec<&str> = report.worst.iter().map(|worst| &*worst.workload).collect();
    assert_eq!(browser.evaluate(worst), json!(names), "names are texts, whatever they contain");
    assert!(names.iter().any(|name| name.contains(sample_backtest::HOSTILE)));

    browser.evaluate("document.querySelectorAll('#policies thead button')[2].click()");
    let sorted = browser.evaluate(POLICIES);
    assert_eq!(sorted[0][0], "current", "the largest requests: {sorted}");
    assert_eq!(complaints(browser.events(), &url), [""; 0]);

    browser.set(1280, "light", false);
    browser.open(&url);
    assert_eq!(browser.evaluate("document.querySelectorAll('button').length"), 0);
    let charts = "document.querySelectorAll('svg.chart').length";
    assert_eq!(browser.evaluate(charts), json!(2 + 2 * report.policies.len()), "without scripts");
}
