//! The text output of the pod report: plain lines that fit 80 columns and do not depend on colour.

use plimsoll_core::types::Time;

use super::report::{
    ChangesMade, Container, ContainerAmounts, Guards, LeaseState, Need, ObjectName, Order,
    PodReport, RequestPosition, Rollout, Windows,
};
use crate::report::{
    explain::report_parts::{ago, columns, render_findings_and_notes, row, since},
    style::{BOLD, DIM, GREEN, PLAIN, Page, RED, Style, YELLOW},
};

pub fn render(report: &PodReport, style: &Style) -> String {
    let mut page = Page::new(style);
    head(&mut page, report);
    verdict(&mut page, report);
    if let Some(need) = &report.need {
        render_need(&mut page, need);
    }
    for container in &report.containers {
        render_container(&mut page, container);
    }
    render_order(&mut page, report);
    if let Some(guards) = &report.guards {
        page.heading("GUARDS", "");
        render_guards(&mut page, report, guards);
    }
    render_findings_and_notes(&mut page, &report.findings, &report.notes);
    page.finish()
}

fn head(page: &mut Page<'_>, report: &PodReport) {
    let named = |object: &ObjectName| format!("{} {}", object.kind, object.name);
    let mut words = Vec::new();
    match (&report.controller, &report.workload) {
        (Some(direct), Some(top)) if direct != top => {
            words.push(format!("{} of {}", named(direct), named(top)));
        }
        (Some(object), _) | (None, Some(object)) => words.push(named(object)),
        (None, None) => words.push("no controller".to_owned()),
    }
    words.push(match &report.vpa {
        Some(vpa) => format!("VPA {}, update mode {}", vpa.name, vpa.update_mode),
        None => "no VPA".to_owned(),
    });
    page.line(format_args!("{}", page.paint(BOLD, &report.header.object())));
    page.block(2, PLAIN, &words.join(", "));
    let words = "Decided now by the updater's own code, based on the pod, its VPA and the stored state of \
                 their last changes. Pass the flags of the updater.";
    page.block(0, DIM, words);
}

fn verdict(page: &mut Page<'_>, report: &PodReport) {
    let verdict = &report.verdict;
    let (code, title) = match &*verdict.action {
        "none" if verdict.held_back => (RED, "BLOCKED"),
        "none" => (BOLD, "SKIPPED"),
        "evict" => (GREEN, "EVICT"),
        "resize" => (GREEN, "RESIZE"),
        "unboost" => (GREEN, "REMOVE STARTUP BOOST"),
        _ => (YELLOW, "PREPARE"),
    };
    let word = verdict.reason.as_ref().map_or_else(String::new, |word| format!("  {word}"));
    page.line(format_args!("\n{}{}", page.paint(code, title), page.paint(DIM, &word)));
    page.block(4, PLAIN, &verdict.message);
    if let Some(paused) = report.vpa.as_ref().and_then(|vpa| vpa.held_back.as_ref()) {
        let since = since(", ", paused.since, report.header.at);
        let text = format!("{}: {}{since}", paused.reason, paused.message.trim_end_matches('.'));
        page.paragraph("updater", &format!("reports on this VPA: {text}"));
    }
}

fn render_need(page: &mut Page<'_>, need: &Need) {
    let (title, word) = match (&need.word, &need.why_not) {
        (Some(word), _) => ("UPDATE NEEDED", word.as_str()),
        (None, Some(word)) => ("NO UPDATE NEEDED", word.as_str()),
        (None, None) => ("NO UPDATE NEEDED", ""),
    };
    page.heading(title, word);
    let range =
        if need.outside_range { "a request is outside its bounds" } else { "within bounds" };
    let grows = if need.grows { ", and a request would grow" } else { "" };
    let far = format!("{:.0} % from the targets in total; {range}{grows}", need.difference * 100.0);
    page.paragraph("difference", &far);
}

fn render_container(page: &mut Page<'_>, container: &Container) {
    page.heading(&format!("CONTAINER {}", container.name), "");
    let columns = columns(page, ["requested", "target", "lower", "upper"]);
    page.line(format_args!("    {:<10}{columns}", ""));
    for (label, amounts) in [("cpu", container.cpu), ("memory", container.memory)] {
        let Some(ContainerAmounts { request, target, lower, upper, standing }) = amounts else {
            continue;
        };
        let (code, word) = match standing {
            RequestPosition::Unasked | RequestPosition::Within => (DIM, ""),
            RequestPosition::Missing => (YELLOW, "not set"),
            RequestPosition::Below => (YELLOW, "below"),
            RequestPosition::Above => (YELLOW, "above"),
        };
        let note = format!(" {}", page.paint(code, word));
        row(page, label, [request, target, lower, upper], &note);
    }
}

fn render_order(page: &mut Page<'_>, report: &PodReport) {
    if report.order.is_none() && report.group.is_none() {
        return;
    }
    page.heading("ORDER", "");
    if let Some(order) = &report.order {
        page.paragraph("order", &order_text(order));
    }
    if let Some(group) = &report.group {
        let more = if group.allows_one_more {
            "one more may be disrupted"
        } else {
            "no more may be disrupted"
        };
        let few = if group.below_minimum { "; there are fewer than minReplicas" } else { "" };
        let text = format!(
            "{} live pods of {} desired, {} of them available; {} may be unavailable at once, {more}{few}",
            group.live, group.wanted, group.up, group.may_be_down
        );
        page.paragraph("replicas", &text);
    }
}

fn order_text(order: &Order) -> String {
    let mut text = vec![match (order.place, order.candidates) {
        (Some(place), total) => format!("{place} of {total} pods that need an update"),
        (None, 0) => "no pod of the VPA needs an update, or none may be updated".to_owned(),
        (None, total) => format!("not among the {total} pods that need an update"),
    }];
    for (index, earlier) in order.before.iter().enumerate() {
        let prefix = if index == 0 { "; before it " } else { ", " };
        text.push(format!("{prefix}{} ({})", earlier.pod, earlier.action));
    }
    text.concat()
}

/// Formats a time, and how far away it is.
fn moment(at: Time, now: Time) -> String {
    format!("{} ({})", Time::from_secs(at.as_secs()), ago(at, now))
}

fn render_guards(page: &mut Page<'_>, report: &PodReport, guards: &Guards) {
    let now = report.header.at;
    let mut line = |label: &str, text: &str| page.paragraph(label, text);
    let recommender = report.vpa.as_ref().map_or("default", |vpa| &vpa.recommender);
    line("recommender", &lease_line(recommender, &guards.recommender, now));
    line("admission", admission(&guards.admission_controller));
    let Windows { limited, open, next } = guards.windows;
    let windows = match next {
        _ if !limited => "none: changes are allowed at any time".to_owned(),
        _ if open => "open now".to_owned(),
        Some(next) => format!("closed until {}", moment(next, now)),
        None => "closed, and never opens".to_owned(),
    };
    line("windows", &windows);
    let rollout = |Rollout { last, touched, evicted, streak, .. }: Rollout| {
        format!(
            "last changed {}; since the canary pod {evicted} evicted, {touched} changed in total; rollout {} in a row",
            ago(last, now),
            streak.saturating_add(1)
        )
    };
    let workload = guards.rollout.map_or_else(|| "no change recorded".to_owned(), rollout);
    line("workload", &workload);
    if let Some(changed) = &guards.last_change {
        line("this pod", &format!("{} {}", changed.what, ago(changed.at, now)));
    }
    if let Some(breaker) = &guards.breaker {
        let until = moment(breaker.until, now);
        let state = if breaker.open { format!("open until {until}") } else { "closed".to_owned() };
        line("breaker", &format!("{} [{}]: {state}", breaker.message, breaker.harm));
    }
    if let Some(since) = guards.rewritten_since {
        let since = ago(since, now);
        line("rewritten", &format!("another writer overwrote the recommended values {since}"));
    }
    for ChangesMade { within, charge, made, allowed } in &guards.changes {
        let limit = allowed.map_or_else(|| "no limit".to_owned(), |most| most.to_string());
        let plural = if *made == 1 { "" } else { "s" };
        line(within, &format!("{made} {charge}{plural} within the last hour, limit: {limit}"));
    }
    if let Some(until) = guards.cluster_stopped_until {
        line("cluster", &format!("all changes are blocked until {}", moment(until, now)));
    }
    if let Some(most) = guards.unproven_allowed {
        let text =
            format!("{} evictions without an observed effect, limit: {most}", guards.unproven);
        line("effect", &text);
    }
}

fn lease_line(name: &str, lease: &LeaseState, now: Time) -> String {
    let renewed = lease.renewed.map_or_else(String::new, |at| {
        format!("; renewed {} by this machine's clock", ago(at, now))
    });
    let words = match &*lease.state {
        "fresh" => "alive",
        "loading" => "alive, history not loaded yet",
        "stale" => "its Lease is stale",
        "absent" => "has no Lease, like upstream's",
        "notAsked" => "not checked",
        "unreadable" => "you are not allowed to read its Lease",
        _ => "its Lease cannot be read",
    };
    format!("{name}: {words}{renewed}")
}

fn admission(lease: &LeaseState) -> &'static str {
    match &*lease.state {
        "ready" => "ready to size new pods",
        "stale" => "its Lease is stale: new pods would not be resized",
        "notAsked" => "not checked",
        "unreadable" => "you are not allowed to read its Lease",
        _ => "its Lease does not exist, or cannot be read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::style::tests::plain_output;

    #[test]
    fn the_sample_is_printed_in_80_columns_of_ascii() {
        let sample = include_str!("../../../../tests/data/explain-pod.json");
        let report: PodReport = serde_json::from_str(sample).expect("a report");
        let printed = plain_output(|style| render(&report, style));
        for line in printed.lines() {
            assert!(line.len() <= 80 && line.trim_end() == line, "{line:?}");
        }
        for words in ["BLOCKED  cool_down", "CONTAINER main", "GUARDS", "[cool_down]"] {
            assert!(printed.contains(words), "{words} is not in\n{printed}");
        }
    }
}
