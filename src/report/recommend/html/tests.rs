//! Tests of the whole page: escaping, no requests, tables that are complete without scripts, and an empty report.

use std::collections::BTreeMap;

use plimsoll_core::rightsizing::report::{Level, Report};
use strum::IntoEnumIterator as _;

use super::{
    render,
    sample_report::{HOSTILE, empty, sample},
};

/// The page without its styles and its script.
fn body(page: &str) -> &str {
    let (_, body) = page.split_once("<body>").expect("a body");
    body.split_once("<script>").expect("the script").0
}

/// The part of a section.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, section) = page.split_once(&format!(" id=\"{id}\">")).expect("the section");
    section.split_once("</section>").expect("its end").0
}

/// The rows of a section's table.
fn rows<'a>(page: &'a str, id: &str) -> Vec<&'a str> {
    section(page, id).split("<tr data-risk=").skip(1).collect()
}

/// The tags of a page, by name and in order, checked for balance. Void elements have no end.
fn tags(html: &str) -> BTreeMap<&str, usize> {
    let mut open: Vec<&str> = Vec::new();
    let mut counts = BTreeMap::new();
    for part in html.split('<').skip(1) {
        let (tag, _) = part.split_once('>').expect("the end of a tag");
        let name = tag.split([' ', '\n', '/']).next().expect("a name");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !tag.ends_with('/') && !["wbr", "input"].contains(&name) {
            *counts.entry(name).or_default() += 1;
            open.push(name);
        }
    }
    assert_eq!(open, ["body"; 0], "open at the end");
    counts
}

#[test]
fn every_text_is_escaped() {
    let page = render(&sample());
    assert!(!page.contains(HOSTILE) && !body(&page).contains("<img"));
    assert_eq!(page.matches("<script").count(), 1, "the script of the page");
    let escaped = "&quot;&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;";
    assert!(section(&page, "all").matches(escaped).count() >= 3, "name, container and remark");
    assert!(page.contains("deployments in namespace &lt;secret&gt;"));
    assert!(tags(body(&page).trim_end())["tr"] > 30);
}

#[test]
fn each_choice_of_the_filter_hides_the_levels_below_it() {
    let page = render(&sample());
    let (_, choices) = page.split_once("<select id=\"least\">").expect("the filter");
    let (choices, _) = choices.split_once("</select>").expect("its end");
    let choices = choices.split("<option value=\"").skip(1).map(|choice| {
        let (least, words) = choice.split_once("\">").expect("a value");
        let shown =
            Level::iter().filter(|level| *level as u8 >= least.parse::<u8>().expect("a number"));
        (words.trim_end_matches("</option>"), shown.collect::<Vec<_>>())
    });
    let (medium, high, critical) = (Level::Medium, Level::High, Level::Critical);
    assert_eq!(
        choices.collect::<Vec<_>>(),
        [
            ("any", Level::iter().collect()),
            ("medium or higher", vec![medium, high, critical]),
            ("high or higher", vec![high, critical]),
            ("critical", vec![critical]),
        ]
    );
    let levels: Vec<_> = Level::iter().map(|level| format!("\"{}\"", level as u8)).collect();
    let has_level = |row: &&str| levels.iter().any(|level| row.starts_with(level));
    assert!(rows(&page, "all").iter().all(has_level), "rows have the numbers of levels");
}

#[test]
fn every_field_of_text_is_escaped() {
    // Every text of the report becomes hostile.
    let mut json = serde_json::to_value(sample()).expect("JSON");
    for field in ["version", "strategy", "currency"] {
        json[field] = HOSTILE.into();
    }
    json["settings"] = serde_json::json!([HOSTILE]);
    json["remarks"] = serde_json::json!([HOSTILE]);
    for field in ["cluster", "server", "product"] {
        json["sources"][0][field] = HOSTILE.into();
    }
    for workload in json["workloads"].as_array_mut().expect("workloads") {
        for field in ["cluster", "namespace", "kind", "name", "vpa", "shape"] {
            workload[field] = HOSTILE.into();
        }
        for container in workload["containers"].as_array_mut().expect("containers") {
            for resource in container["resources"].as_array_mut().expect("resources") {
                if resource["change"]["held"].is_string() {
                    resource["change"]["held"] = HOSTILE.into();
                }
            }
        }
    }
    json["namespaces"] = serde_json::json!({(HOSTILE): json["totals"]});
    let report: Report = serde_json::from_value(json).expect("a report");
    let page = render(&report);
    assert!(!page.contains(HOSTILE) && !page.contains("<img") && !page.contains("alert('x')"));
    assert_eq!(page.matches("<script").count(), 1, "the script of the page");
    tags(body(&page).trim_end());
}

#[test]
fn the_page_refers_to_nothing_outside() {
    let mut report = sample();
    report.workloads.retain(|workload| workload.name != HOSTILE);
    let page = render(&report);
    for outside in
        ["http:", "https:", "url(", "@import", " src=", "fetch(", "XMLHttpRequest", "//cdn"]
    {
        assert!(!page.contains(outside), "{outside}");
    }
    let links =
        page.split("href=\"").skip(1).map(|link| link.split('"').next().unwrap_or_default());
    for link in links {
        let target = link.strip_prefix('#').map(|id| format!(" id=\"{id}\""));
        assert!(link == "data:," || target.is_some_and(|target| page.contains(&target)), "{link}");
    }
    assert!(page.contains("content=\"default-src &#39;none&#39;; style-src &#39;sha256-"));
    assert!(!body(&page).contains(" style=") && !body(&page).contains(" onclick="));
}

#[test]
fn tables_are_complete_without_scripts() {
    let report = sample();
    let page = render(&report);
    let containers = report.workloads.iter().flat_map(|workload| &workload.containers);
    let all = rows(&page, "all");
    assert_eq!(all.len(), containers.clone().count());
    assert_eq!(all.len(), 12);
    for (row, container) in all.iter().zip(containers).filter(|(_, one)| one.name != HOSTILE) {
        assert!(row.contains(&container.name), "{}: {row}", container.name);
    }
    let checkout = all.iter().find(|row| row.contains(">checkout<")).expect("a row");
    for text in [
        "prod-eu",
        "×6",
        "512Mi → 844Mi",
        "+65 %",
        "level critical",
        "9 OOM kills, the last 2 d ago",
        "limit 512Mi → 844Mi",
        "HorizontalPodAutoscaler checkout: target of memory 70 % → 42 %",
        "<title>memory: request 512Mi, target 844Mi, peak 760Mi</title>",
    ] {
        assert!(checkout.contains(text), "{text}: {checkout}");
    }
    let agent = all.iter().find(|row| row.contains(">agent<")).expect("a row");
    assert!(
        agent.contains("60 pods on nodes node.kubernetes.io/instance-type=m6i.large: CPU 60m"),
        "{agent}"
    );
    let search = all.iter().find(|row| row.contains(">search<")).expect("a row");
    assert!(
        search.contains(">held<") && search.contains("CPU: not changed: Horizontal"),
        "{search}"
    );
}

#[test]
fn the_short_tables_are_sorted_by_risk_and_by_money() {
    let page = render(&sample());
    let order = |id: &str| -> Vec<String> {
        let name = |row: &&str| {
            let name = row.split_once("<b>").expect("a name").1;
            name.split_once("</b>").expect("its end").0.to_owned()
        };
        rows(&page, id).iter().map(name).collect()
    };
    assert_eq!(order("at-risk"), ["checkout", "reindex", "kafka", "reindex"]);
    assert_eq!(order("overprovisioned"), ["embed", "logs", "search", "billing"]);
    assert_eq!(
        order("without-recommendation"),
        ["import-2026-11-26-with-a-name-of-63-characters-aaaaaaaaaaaaaaaaa", "billing"]
    );
    let too_much = section(&page, "overprovisioned");
    assert!(
        too_much.contains("USD −1,036") && too_much.contains("aria-sort=\"descending\">A month"),
        "{too_much}"
    );
}

#[test]
fn without_prices_the_order_is_by_amount_and_no_money_is_shown() {
    let mut report = sample();
    report.currency = None;
    let page = render(&report);
    let body = body(&page);
    assert!(!body.contains("USD") && !body.contains("A month") && !body.contains("save money"));
    assert!(rows(body, "overprovisioned")[0].contains("embed"));
    assert!(section(body, "summary").contains("of the requests is for what is not needed"));
}

#[test]
fn unknown_is_not_zero() {
    let page = render(&sample());
    let unknown = rows(&page, "all").into_iter().find(|row| row.contains(">job<")).expect("a row");
    assert!(
        unknown.contains("none known</span> <span class=\"difference\">no number"),
        "{unknown}"
    );
    assert!(
        unknown.contains("class=\"cpu\" data-v=\"\"") && !unknown.contains("<svg"),
        "{unknown}"
    );
    assert!(unknown.contains("class=\"cost\" data-v=\"\">unknown"), "{unknown}");
    let reasons = unknown.matches("no number: no series").count();
    assert_eq!(reasons, 1, "both resources have the same reason: {unknown}");
}

#[test]
fn the_summary_has_totals_and_both_parts_of_the_score() {
    let page = render(&sample());
    let summary = section(&page, "summary");
    for text in [
        "Score <b>58</b> of 100",
        "Waste: 42 % of the money",
        "Risk: 2 % (1 critical, 2 high",
        "The newest samples are 3 minutes old.",
        "save money only when",
    ] {
        assert!(summary.contains(text), "{text}: {summary}");
    }
    let sources = section(&page, "sources");
    for text in [
        "8 d until 2026-11-26 13:40 UTC",
        "through the API server",
        "260, 94 MB in 12 s",
        "--profile=cost",
    ] {
        assert!(sources.contains(text), "{text}: {sources}");
    }
    assert!(page.contains("This report is incomplete"));
}

#[test]
fn an_empty_report_is_a_page() {
    let page = render(&empty());
    tags(body(&page).trim_end());
    for text in [
        "0 workloads, 0 containers",
        "There is no score",
        "No container has too little",
        "There are no containers",
        "No history was read",
        "Each container has a number",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(
        !page.contains("incomplete")
            && !page.contains("NaN")
            && !page.contains("<svg class=\"chart\" role=\"img\" width=\"0\"")
    );
}

#[test]
fn short_tables_name_how_many_rows_they_leave_out() {
    let mut report = sample();
    report.workloads.retain(|workload| workload.name == "checkout");
    let one = report.workloads[0].clone();
    report.workloads = vec![one; 150];
    let page = render(&report);
    assert_eq!(rows(&page, "at-risk").len(), 100);
    assert!(section(&page, "at-risk").contains("50 more are in the table of"));
    assert_eq!(rows(&page, "all").len(), 300);
    assert!(report.workloads[0].containers[0].resources[1].risk == Level::Critical);
}
