//! The text output of the pod report: plain lines that fit 80 columns and do not depend on colour.

use plimsoll_core::types::Time;

use super::report::{
    Container, ContainerAmounts, Guards, LeaseState, Need, ObjectName, Order, PodReport,
    RequestPosition,
};
use crate::report::{
    explain::{
        resource_text::{ago, columns, row, since},
        text::render_findings_and_notes,
    },
    style::{BOLD, DIM, GREEN, PLAIN, RED, Style, YELLOW, push_line},
};

/// Renders the report.
pub fn render(report: &PodReport, style: &Style) -> String {
    let mut out = String::new();
    head(&mut out, report, style);
    verdict(&mut out, report, style);
    if let Some(need) = &report.need {
        render_need(&mut out, need, style);
    }
    for container in &report.containers {
        render_container(&mut out, container, style);
    }
    render_order(&mut out, report, style);
    if let Some(guards) = &report.guards {
        style.heading(&mut out, "GUARDS", "");
        render_guards(&mut out, report, guards, style);
    }
    render_findings_and_notes(&mut out, &report.findings, &report.notes, style);
    out
}

fn head(out: &mut String, report: &PodReport, style: &Style) {
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
    push_line(out, format_args!("{}", style.paint(BOLD, &report.header.object())));
    style.block(out, 2, PLAIN, &words.join(", "));
    let words = "Decided now by the updater's own code, based on the pod, its VPA and the stored state of \
                 their last changes. Pass the flags of the updater.";
    style.block(out, 0, DIM, words);
}

fn verdict(out: &mut String, report: &PodReport, style: &Style) {
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
    push_line(out, format_args!("\n{}{}", style.paint(code, title), style.paint(DIM, &word)));
    style.block(out, 4, PLAIN, &verdict.message);
    if let Some(paused) = report.vpa.as_ref().and_then(|vpa| vpa.held_back.as_ref()) {
        let since = since(", ", paused.since, report.header.at);
        let text = format!("{}: {}{since}", paused.reason, paused.message.trim_end_matches('.'));
        style.paragraph(out, "updater", &format!("reports on this VPA: {text}"));
    }
}

fn render_need(out: &mut String, need: &Need, style: &Style) {
    let (title, word) = match (&need.word, &need.why_not) {
        (Some(word), _) => ("UPDATE NEEDED", word.as_str()),
        (None, Some(word)) => ("NO UPDATE NEEDED", word.as_str()),
        (None, None) => ("NO UPDATE NEEDED", ""),
    };
    style.heading(out, title, word);
    let range =
        if need.outside_range { "a request is outside its bounds" } else { "within bounds" };
    let grows = if need.grows { ", and a request would grow" } else { "" };
    let far = format!("{:.0} % from the targets in total; {range}{grows}", need.difference * 100.0);
    style.paragraph(out, "difference", &far);
}

fn render_container(out: &mut String, container: &Container, style: &Style) {
    style.heading(out, &format!("CONTAINER {}", container.name), "");
    let columns = columns(style, ["requested", "target", "lower", "upper"]);
    push_line(out, format_args!("    {:<10}{columns}", ""));
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
        let note = format!(" {}", style.paint(code, word));
        row(out, label, [request, target, lower, upper], &note);
    }
}

fn render_order(out: &mut String, report: &PodReport, style: &Style) {
    if report.order.is_none() && report.group.is_none() {
        return;
    }
    style.heading(out, "ORDER", "");
    if let Some(order) = &report.order {
        style.paragraph(out, "order", &order_text(order));
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
        style.paragraph(out, "replicas", &text);
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

fn render_guards(out: &mut String, report: &PodReport, guards: &Guards, style: &Style) {
    let now = report.header.at;
    let mut line = |label: &str, text: &str| style.paragraph(out, label, text);
    let recommender = report.vpa.as_ref().map_or("default", |vpa| &vpa.recommender);
    line("recommender", &lease_line(recommender, &guards.recommender, now));
    line("admission", admission(&guards.admission_controller));
    line(
        "windows",
        &match (guards.windows.limited, guards.windows.open, guards.windows.next) {
            (false, ..) => "none: changes are allowed at any time".to_owned(),
            (_, true, _) => "open now".to_owned(),
            (_, false, Some(next)) => format!("closed until {}", moment(next, now)),
            (_, false, None) => "closed, and never opens".to_owned(),
        },
    );
    line(
        "workload",
        &guards.rollout.map_or_else(
            || "no change recorded".to_owned(),
            |rollout| {
                format!(
                    "last changed {}; since the canary pod {} evicted, {} changed in total; rollout {} in a row",
                    ago(rollout.last, now),
                    rollout.evicted,
                    rollout.touched,
                    rollout.streak.saturating_add(1)
                )
            },
        ),
    );
    if let Some(changed) = &guards.last_change {
        line("this pod", &format!("{} {}", changed.what, ago(changed.at, now)));
    }
    if let Some(breaker) = &guards.breaker {
        let until = moment(breaker.until, now);
        let state = if breaker.open { format!("open until {until}") } else { "closed".to_owned() };
        line("breaker", &format!("{} [{}]: {state}", breaker.message, breaker.harm));
    }
    if let Some(since) = guards.rewritten_since {
        line(
            "rewritten",
            &format!("another writer overwrote the recommended values {}", ago(since, now)),
        );
    }
    for spent in &guards.changes {
        let limit = spent.allowed.map_or_else(|| "no limit".to_owned(), |most| most.to_string());
        let plural = if spent.made == 1 { "" } else { "s" };
        line(
            &spent.within,
            &format!(
                "{} {}{plural} within the last hour, limit: {limit}",
                spent.made, spent.charge
            ),
        );
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
    use crate::report::style::Glyphs;

    #[test]
    fn the_sample_is_printed_in_80_columns_of_ascii() {
        let sample = include_str!("../../../../tests/data/explain-pod.json");
        let report: PodReport = serde_json::from_str(sample).expect("a report");
        let style =
            Style { width: 80, colour: false, glyphs: Glyphs::Ascii, command: String::new() };
        let printed = render(&report, &style);
        assert!(printed.is_ascii() && !printed.contains('\x1b'), "{printed}");
        for line in printed.lines() {
            assert!(line.len() <= 80 && line.trim_end() == line, "{line:?}");
        }
        for words in ["BLOCKED  cool_down", "CONTAINER main", "GUARDS", "[cool_down]"] {
            assert!(printed.contains(words), "{words} is not in\n{printed}");
        }
    }
}
