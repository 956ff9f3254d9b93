//! The texts of the pages are the numbers of their JSON forms.

use plimsoll_core::{manifests::amount_text, rightsizing::survey::Resource};
use serde_json::{Value, json};

use super::{
    WebPage,
    large_cluster::{name, namespace},
};
use crate::support::browser::Browser;

/// The cells of each row of a table, chosen by its caption or its heading.
const CELLS: &str = "(table) => [...table.querySelectorAll('tbody tr')]\
                     .map((row) => [...row.cells].map((cell) => cell.innerText.trim()))";

/// Compares lists, a workload with its timeline, and an autoscaler.
pub async fn compare(page: &WebPage<'_>, browser: &mut Browser) {
    browser.set(1280, "light", true);
    workloads(page, browser).await;
    for index in [0, 2] {
        workload(page, browser, index).await;
    }
    autoscalers(page, browser).await;
    for path in ["held", "preview"] {
        texts(page, browser, path).await;
    }
    status(page, browser).await;
}

/// The rows of the first table of the page, or of the tables whose caption has this beginning.
fn rows(browser: &mut Browser, caption: &str) -> Vec<Vec<String>> {
    let tables = format!(
        "[...document.querySelectorAll('main table')]\
         .filter((table) => table.caption.textContent.startsWith({caption:?})).flatMap({CELLS})"
    );
    serde_json::from_value(browser.evaluate(&tables)).expect("rows of texts")
}

fn amount(resource: Resource, amount: &Value, missing: &str) -> String {
    amount.as_i64().map_or_else(|| missing.to_owned(), |amount| amount_text(resource, amount))
}

/// The cell of a list: `512Mi → 844Mi ▲`.
fn request_and_target(resource: Resource, amounts: &Value) -> String {
    let (request, target) = (&amounts["request"], &amounts["target"]);
    if target.is_null() {
        return amount(resource, request, "none known");
    }
    let sign = match target.as_i64().cmp(&request.as_i64()) {
        std::cmp::Ordering::Greater => " ▲",
        std::cmp::Ordering::Less => " ▼",
        std::cmp::Ordering::Equal => "",
    };
    let [request, target] = [request, target].map(|one| amount(resource, one, "none"));
    format!("{request} → {target}{sign}")
}

async fn workloads(page: &WebPage<'_>, browser: &mut Browser) {
    for query in ["", "?page=2&sort=memory", "?q=checkout&risk=low"] {
        browser.open(&format!("{}workloads{query}", page.origin));
        let shown = rows(browser, "");
        let list = page.json(&format!("workloads.json{query}")).await;
        let expected = list["workloads"].as_array().expect("rows");
        assert_eq!(shown.len(), expected.len(), "{query}");
        assert!(!shown.is_empty(), "{query}");
        for (shown, row) in shown.iter().zip(expected) {
            let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
            let name = format!("{}/{}", text("namespace"), text("name"));
            assert!(shown[0].starts_with(&name), "{shown:?}: {row}");
            let replicas = format!("×{}", row["replicas"]);
            assert!(shown[0].ends_with(&replicas), "{shown:?}: {row}");
            let (cpu, memory) = (&row["cpu"], &row["memory"]);
            assert_eq!(shown[2], request_and_target(Resource::Cpu, cpu), "{row}");
            assert_eq!(shown[3], request_and_target(Resource::Memory, memory), "{row}");
            assert!(shown[5].starts_with(&text("why")), "{shown:?}: {row}");
            assert!(shown[5].contains(&text("heldBack")), "{shown:?}: {row}");
        }
    }
}

async fn workload(page: &WebPage<'_>, browser: &mut Browser, index: usize) {
    let (namespace, name) = (namespace(index), name(index));
    let path = format!("w/{namespace}/Deployment/{name}");
    browser.open(&format!("{}{path}", page.origin));
    browser.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true), 1");
    let data = page.json(&format!("{path}.json")).await;
    let resources = data["workload"]["containers"][0]["resources"].as_array().expect("resources");
    let expected: Vec<Vec<String>> = resources
        .iter()
        .map(|row| {
            let (resource, word) = match row["resource"].as_str() {
                Some("cpu") => (Resource::Cpu, "CPU"),
                _ => (Resource::Memory, "memory"),
            };
            let of = |field: &str, missing: &str| amount(resource, &row[field], missing);
            let bounds = format!("{} to {}", of("lower", ""), of("upper", ""));
            let risk = match row["risk"].as_str() {
                Some("ok") => "none".to_owned(),
                risk => risk.unwrap_or_default().to_owned(),
            };
            let amounts = [of("request", "none"), of("limit", "none"), of("target", "unknown")];
            let [request, limit, target] = amounts;
            vec!["main".to_owned(), word.to_owned(), request, limit, target, bounds, risk]
        })
        .collect();
    assert_eq!(rows(browser, "One pod"), expected, "{path}");

    let charts = data["timeline"]["charts"].as_array().expect("charts");
    assert_eq!(charts.len(), 2, "{path}: {}", data["timeline"]);
    for chart in charts {
        let (resource, caption) = match chart["resource"].as_str() {
            Some("cpu") => (Resource::Cpu, "CPU in cores of container main"),
            _ => (Resource::Memory, "Memory of container main"),
        };
        let usage = chart["usage"].as_array().expect("points");
        assert!(usage.len() > 400, "{path}: {} points of a day", usage.len());
        let shown = rows(browser, caption);
        // The rows are the times of the longest line, the last one of several.
        let lines = ["upper", "lower", "limit", "request", "target", "usage"];
        let lines = lines.map(|line| chart[line].as_array().expect("points"));
        let longest = lines.iter().max_by_key(|points| points.len()).expect("a line");
        let step = longest.len().div_ceil(60);
        let expected: Vec<String> = longest
            .iter()
            .rev()
            .step_by(step)
            .map(|point| {
                let Some(used) = usage.iter().find(|used| used[0] == point[0]) else {
                    return String::new();
                };
                let value = used[1].as_f64().expect("a number");
                let factor = if resource == Resource::Cpu { 1000.0 } else { 1.0 };
                amount_text(resource, (value * factor).round() as i64)
            })
            .collect();
        let of_usage: Vec<&String> = shown.iter().filter_map(|row| row.last()).collect();
        assert_eq!(of_usage, expected.iter().collect::<Vec<_>>(), "{path}: {caption}");
    }
    let events = data["timeline"]["events"].as_array().expect("events").len();
    assert_eq!(events, if index == 0 { 3 } else { 0 }, "{path}: {}", data["timeline"]["events"]);
    let marks = "document.querySelectorAll('#timeline ~ ul li').length";
    assert_eq!(browser.evaluate(marks), json!(events), "{path}");
}

async fn autoscalers(page: &WebPage<'_>, browser: &mut Browser) {
    browser.open(&format!("{}a", page.origin));
    let shown = rows(browser, "");
    let list = page.json("a.json").await;
    let expected = list["autoscalers"].as_array().expect("rows");
    // The page shows the first ones, and says how many there are.
    assert_eq!((shown.len(), expected.len()), (300, 400));
    for (shown, one) in shown.iter().zip(expected) {
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        let kind = if text("kind").starts_with('H') { "HPA" } else { "WPA" };
        let name = format!("{}/{} {kind}", text("namespace"), text("name"));
        let target = format!("{}/{}", text("targetKind"), text("targetName"));
        let replicas =
            format!("{} → {}, of {} to {}", one["current"], one["desired"], one["min"], one["max"]);
        assert_eq!((&shown[0], &shown[1], &shown[3]), (&name, &target, &replicas), "{one}");
    }
}

/// Every name and message of the JSON form is on the page.
async fn texts(page: &WebPage<'_>, browser: &mut Browser, path: &str) {
    browser.open(&format!("{}{path}", page.origin));
    let shown = browser.evaluate("document.querySelector('main').textContent");
    let shown = shown.as_str().expect("a text");
    let data = page.json(&format!("{path}.json")).await;
    let objects = if path == "held" { &data["objects"] } else { &data["workloads"] };
    let objects = objects.as_array().expect("objects");
    assert!(objects.len() > 50, "{path}: {}", objects.len());
    for one in objects.iter().take(100) {
        for field in ["name", "message"] {
            let text = one[field].as_str().unwrap_or_default();
            assert!(shown.contains(text), "{path}: {one}");
        }
    }
}

async fn status(page: &WebPage<'_>, browser: &mut Browser) {
    browser.open(&format!("{}status", page.origin));
    let shown = rows(browser, "");
    let data = page.json("status.json").await;
    let roles = data["status"]["roles"].as_array().expect("roles");
    assert_eq!(shown.len(), roles.len());
    for (shown, role) in shown.iter().zip(roles) {
        assert_eq!(json!([shown[0], shown[1]]), json!([role["role"], role["leader"]]));
        let objects: String = shown[5].chars().filter(char::is_ascii_digit).collect();
        assert_eq!(objects, role["objects"].to_string(), "{role}");
    }
}
