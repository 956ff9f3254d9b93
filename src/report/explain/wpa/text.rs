//! The text output of the report about a WatermarkPodAutoscaler: plain lines that fit 80 columns and do not depend on
//! colour.

use plimsoll_core::{
    api::scale_decision::{MetricDecisionStatus, ScaleDecisionStatus},
    types::Time,
    watermark::conditions,
};

use super::report::WpaReport;
use crate::report::{
    explain::report_parts::{ago, proposal_status, render_findings_and_notes, since},
    style::{BOLD, DIM, GREEN, Page, RED, Style, YELLOW},
};

pub fn render(report: &WpaReport, style: &Style) -> String {
    let mut page = Page::new(style);
    page.line(format_args!("{}", page.paint(BOLD, &report.header.object())));
    let (min, max) = report.bounds;
    let dry = if report.dry_run { ", dry run: replicas are not changed" } else { "" };
    page.line(format_args!("  {}, {min} to {max} replicas{dry}", report.target));
    verdict(&mut page, report);
    if let Some(decision) = &report.decision {
        for source in &decision.sources {
            render_source(&mut page, source, &decision.sources, report.header.at);
        }
        steps(&mut page, report, decision);
    }
    render_conditions(&mut page, report);
    render_findings_and_notes(&mut page, &report.findings, &report.notes);
    page.finish()
}

fn verdict(page: &mut Page<'_>, report: &WpaReport) {
    let Some(decision) = &report.decision else {
        let (current, desired) = report.replicas;
        page.line(format_args!("\n{}", page.paint(BOLD, "NO DECISION IN THE STATUS")));
        page.line(format_args!("    {current} replicas, {desired} desired"));
        return;
    };
    let (code, title) = match decision.to.cmp(&decision.from) {
        std::cmp::Ordering::Greater => (GREEN, "SCALED UP"),
        std::cmp::Ordering::Less => (GREEN, "SCALED DOWN"),
        std::cmp::Ordering::Equal if decision.restrictions.is_empty() => (BOLD, "UNCHANGED"),
        std::cmp::Ordering::Equal => (YELLOW, "UNCHANGED, RESTRICTED"),
    };
    let words = page.paint(DIM, &format!("  {}", decision.restrictions.join(", ")));
    page.line(format_args!("\n{}{words}", page.paint(code, title)));
    let at = decision.at.as_ref().map(conditions::from_timestamp);
    let when = since(", decided ", at, report.header.at);
    page.line(format_args!("    {} -> {} replicas{when}", decision.from, decision.to));
}

fn render_source(
    page: &mut Page<'_>,
    source: &MetricDecisionStatus,
    sources: &[MetricDecisionStatus],
    now: Time,
) {
    let all = sources.iter().map(|source| (source.chosen, source.proposal));
    page.heading(&source.name, proposal_status((source.chosen, source.proposal), all));
    let since = since(", since ", source.since.as_ref().map(conditions::from_timestamp), now);
    if !source.unknown.is_empty() {
        let message = format!("{}{since}", source.message);
        page.paragraph(&page.paint(RED, "unknown"), &message);
        return;
    }
    let shown = |amount: Option<plimsoll_core::types::quantity::Quantity>| {
        amount.map_or_else(|| "none".to_owned(), |amount| amount.to_string())
    };
    let value =
        format!("{}, which is {}{since}", shown(source.value), band_position(&source.position));
    page.paragraph("value", &value);
    let marks = format!("{} to {}, including tolerance", shown(source.low), shown(source.high));
    page.paragraph("marks", &marks);
    if let Some(proposal) = source.proposal {
        page.paragraph("proposal", &format!("{proposal} replicas"));
    }
}

fn band_position(position: &str) -> &str {
    match position {
        "above" => "above the watermarks",
        "below" => "below the watermarks",
        _ => "between the watermarks",
    }
}

fn steps(page: &mut Page<'_>, report: &WpaReport, decision: &ScaleDecisionStatus) {
    page.heading("FROM PROPOSAL TO REPLICAS", "");
    let count = |count: Option<i32>| {
        count.map_or_else(|| "unknown".to_owned(), |replicas| replicas.to_string())
    };
    page.paragraph("proposed", &count(decision.proposal));
    page.paragraph("in limits", &count(decision.limited));
    let (up, down) = report.left;
    let window = format!("upscale allowed in {up} s, downscale in {down} s, since the last change");
    page.paragraph("windows", &window);
    if let Some(until) = decision.held_until.as_ref().map(conditions::from_timestamp)
        && until > report.header.at
    {
        page.paragraph("held", &format!("until {}", ago(until, report.header.at)));
    }
    let (times, last) = report.changes;
    let last = last.map_or_else(|| "never".to_owned(), |last| ago(last, report.header.at));
    page.paragraph("changed", &format!("{times} times, the last time {last}"));
}

fn render_conditions(page: &mut Page<'_>, report: &WpaReport) {
    if report.conditions.is_empty() {
        return;
    }
    page.heading("CONDITIONS", "");
    for condition in &report.conditions {
        let changed = condition.last_transition_time.as_ref().map(conditions::from_timestamp);
        let since = since(", since ", changed, report.header.at);
        let text =
            format!("{} ({}){since}: {}", condition.status, condition.reason, condition.message);
        page.line(format_args!("  {}", condition.kind));
        page.block(4, DIM, &text);
    }
}
