//! The pages about alerts: a list generated from the rules, and a runbook for each alert.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{alerts, known_metrics, known_metrics::KnownMetrics, rules, stems};
use crate::{
    docs::{generated, page},
    support::flags,
};

/// Folder of the runbooks.
const RUNBOOKS: &str = "docs/runbooks";
/// Chapters of each runbook, in this order.
const CHAPTERS: [&str; 4] =
    ["What it means", "How to diagnose", "What to do", "When to silence it"];
/// Prefixes of third-party metrics in runbooks: kube-state-metrics, cAdvisor, the API server, Prometheus itself.
const OF_OTHERS: [&str; 5] = ["ALERTS", "apiserver_", "container_", "kube_", "up"];
/// Prometheus flags that runbooks name.
const OF_SERVERS: [&str; 1] = ["query.max-samples"];

#[test]
fn the_documented_alerts_match_the_rules() {
    let mut table = String::from(
        "| alert | severity | for | what it means | with upstream's |\n|---|---|---|---|---|\n",
    );
    for rule in rules() {
        let Some(name) = &rule.alert else { continue };
        let (severity, lasts) =
            (&rule.labels["severity"], rule.lasts.as_deref().unwrap_or_default());
        let summary = &rule.annotations["summary"];
        let others = if known_metrics::holds_for_others(&rule.expr) { "yes" } else { "" };
        writeln!(
            table,
            "| [{name}](runbooks/{name}.md) | {severity} | {lasts} | {summary} | {others} |"
        )
        .expect("fits");
    }
    generated("docs/alerts.md", "alerts", &table);
}

#[test]
fn exactly_the_recorded_series_are_documented() {
    let page = page("docs/alerts.md");
    let (_, chapter) = page.split_once("\n## What is recorded\n").expect("a chapter");
    let documented: BTreeSet<&str> = chapter
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.starts_with("plimsoll:"))
        .collect();
    let recorded: Vec<String> = rules().into_iter().filter_map(|rule| rule.record).collect();
    let recorded: BTreeSet<&str> = recorded.iter().map(String::as_str).collect();
    assert_eq!(documented, recorded);
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let alerts = alerts();
    let runbooks = stems(RUNBOOKS, "md");
    assert!(runbooks.iter().eq(alerts.keys()), "{runbooks:?}, want {:?}", alerts.keys());
}

#[test]
fn every_runbook_starts_with_its_alert_and_has_all_sections() {
    for (name, alert) in alerts() {
        let text = page(&format!("{RUNBOOKS}/{name}.md"));
        let (severity, lasts) = (&alert.labels["severity"], alert.lasts.unwrap_or_default());
        let summary = &alert.annotations["summary"];
        let begin = format!("# {name}\n\n{summary} ({severity}, after {lasts})\n\n## ");
        assert!(text.starts_with(&begin), "{name} does not begin with:\n{begin}");
        let chapters: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(chapters, CHAPTERS, "{name}");
        let short = text.split("\n## ").skip(1).find(|chapter| chapter.lines().count() < 3);
        assert_eq!(short, None, "{name}: empty chapter");
    }
}

#[test]
fn queries_in_runbooks_use_only_exported_series() {
    let known = KnownMetrics::read();
    for name in alerts().keys() {
        let text = page(&format!("{RUNBOOKS}/{name}.md"));
        let blocks = text.split("\n```promql\n").skip(1);
        let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("\n```").next()).collect();
        assert!(!blocks.is_empty(), "{name} has no query");
        for query in blocks.iter().flat_map(|block| block.split("\n\n")) {
            let unknown = known.unknown_names(query);
            let is_of_others = unknown.iter().any(|unknown_name| {
                let family = unknown_name.strip_prefix("there is no ").unwrap_or_default();
                OF_OTHERS.iter().any(|start| family.starts_with(start))
            });
            // Queries about third-party metrics may have labels unknown here.
            assert!(unknown.is_empty() || is_of_others, "{name}: {unknown:?}");
        }
    }
}

/// Command lines are tested with those of all pages; this test checks flags in the text.
#[test]
fn flags_in_runbooks_exist() {
    let roles = ["recommender", "admission-controller", "updater", "watermark", "horizontal"]
        .map(flags::of_role);
    let known: BTreeSet<String> = roles.into_iter().flatten().map(|flag| flag.name).collect();
    let mut named = 0;
    for name in alerts().keys() {
        let text = page(&format!("{RUNBOOKS}/{name}.md"));
        for code in text.split('`').skip(1).step_by(2) {
            let Some(flag) = code.strip_prefix("--") else { continue };
            let flag = flag.split('=').next().unwrap_or_default();
            assert!(known.contains(flag) || OF_SERVERS.contains(&flag), "{name}: --{flag}");
            named += 1;
        }
    }
    assert!(named > 20, "only {named} flags are named");
}

#[test]
fn no_rule_uses_a_family_that_the_metrics_page_suggests_to_drop() {
    let page = page("docs/metrics.md");
    let dropped =
        page.split("    regex: plimsoll_(").nth(1).and_then(|rest| rest.split(')').next());
    let dropped: Vec<&str> = dropped.expect("an example").split('|').collect();
    assert!(dropped.contains(&"confidence"), "{dropped:?}");
    for rule in rules() {
        for word in &dropped {
            let family = format!("plimsoll_{word}");
            let name = rule.alert.as_ref().or(rule.record.as_ref());
            assert!(!rule.expr.contains(&family), "{name:?} uses {family}");
        }
    }
    // The page describes the metrics correctly.
    for (alert, families) in [
        ("VpaUnderRequested", ["plimsoll_low", "plimsoll_request_min"]),
        ("VpaCappedByMaxAllowed", ["plimsoll_proposal", "plimsoll_target"]),
    ] {
        let expr = &alerts()[alert].expr;
        assert!(families.iter().all(|family| expr.contains(family)), "{alert}: {expr}");
    }
}
