//! The report about a pod for people: plain lines that read well in 80 columns, without colour and in a pipe.

use plimsoll_core::types::Time;

use super::report::{
    Container, ContainerAmounts, Guards, LeaseState, Need, ObjectName, Order, PodReport,
    RequestPosition,
};
use crate::report::{
    explain::{resource_text::ago, text::render_findings_and_notes},
    style::{BOLD, DIM, GREEN, RED, Style, YELLOW, push_line},
};
use plimsoll_core::types::quantity::Quantity;

/// The whole report.
pub fn render(report: &PodReport, look: &Style) -> String {
    let mut out = String::new();
    head(&mut out, report, look);
    verdict(&mut out, report, look);
    if let Some(need) = &report.need {
        render_need(&mut out, need, look);
    }
    for container in &report.containers {
        render_container(&mut out, container, look);
    }
    render_order(&mut out, report, look);
    if let Some(guards) = &report.guards {
        look.heading(&mut out, "GUARDS", "");
        render_guards(&mut out, report, guards, look);
    }
    render_findings_and_notes(&mut out, &report.findings, &report.notes, look);
    out
}

fn head(out: &mut String, report: &PodReport, look: &Style) {
    let named = |it: &ObjectName| format!("{} {}", it.kind, it.name);
    let mut words = Vec::new();
    match (&report.controller, &report.workload) {
        (Some(direct), Some(top)) if direct != top => {
            words.push(format!("{} of {}", named(direct), named(top)));
        }
        (Some(one), _) | (None, Some(one)) => words.push(named(one)),
        (None, None) => words.push("no controller".to_owned()),
    }
    words.push(match &report.vpa {
        Some(vpa) => format!("VPA {}, update mode {}", vpa.name, vpa.update_mode),
        None => "no VPA".to_owned(),
    });
    let name = format!("{}/{}", report.namespace, report.name);
    push_line(out, format_args!("{}", look.paint(BOLD, &name)));
    for line in look.wrap(&words.join(", "), 2) {
        push_line(out, format_args!("  {line}"));
    }
    let words = "Decided now by the updater's own code, on the pod, its VPA and what is stored about \
                 their last changes. Flags have to be those of the updater.";
    for line in look.wrap(words, 0) {
        push_line(out, format_args!("{}", look.paint(DIM, &line)));
    }
}

fn verdict(out: &mut String, report: &PodReport, look: &Style) {
    let verdict = &report.verdict;
    let (code, title) = match &*verdict.action {
        "none" if verdict.held_back => (RED, "HELD BACK"),
        "none" => (BOLD, "LEFT AS IT IS"),
        "evict" => (GREEN, "EVICTED"),
        "resize" => (GREEN, "RESIZED"),
        "unboost" => (GREEN, "TAKEN BACK"),
        _ => (YELLOW, "PREPARED"),
    };
    let word = verdict.reason.as_ref().map_or_else(String::new, |word| format!("  {word}"));
    push_line(out, format_args!("\n{}{}", look.paint(code, title), look.paint(DIM, &word)));
    for line in look.wrap(&verdict.message, 4) {
        push_line(out, format_args!("    {line}"));
    }
    if let Some(held) = report.vpa.as_ref().and_then(|vpa| vpa.held_back.as_ref()) {
        let since = held.since.map_or_else(String::new, |at| format!(", {}", ago(at, report.at)));
        let text = format!("{}: {}{since}", held.reason, held.message.trim_end_matches('.'));
        look.paragraph(out, "updater", &format!("says of this VPA: {text}"));
    }
}

fn render_need(out: &mut String, need: &Need, look: &Style) {
    let (title, word) = match (&need.word, &need.why_not) {
        (Some(word), _) => ("WANTED", word.as_str()),
        (None, Some(word)) => ("NOT WANTED", word.as_str()),
        (None, None) => ("NOT WANTED", ""),
    };
    look.heading(out, title, word);
    let range = if need.outside_range { "a request is out of its bounds" } else { "within bounds" };
    let grows = if need.grows { ", and is to grow" } else { "" };
    let far = format!("{:.0} % from the targets in all; {range}{grows}", need.difference * 100.0);
    look.paragraph(out, "difference", &far);
}

fn render_container(out: &mut String, container: &Container, look: &Style) {
    look.heading(out, &format!("CONTAINER {}", container.name), "");
    let columns = format!("{:>12}{:>13}{:>13}{:>13}", "requested", "target", "lower", "upper");
    push_line(out, format_args!("    {:<10}{}", "", look.paint(DIM, &columns)));
    let text =
        |number: Option<Quantity>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
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
        let [request, target, lower, upper] = [request, target, lower, upper].map(text);
        let line = format!("    {label:<10}{request:>12}{target:>13}{lower:>13}{upper:>13}");
        let word = look.paint(code, word);
        push_line(out, format_args!("{}", format!("{line}  {word}").trim_end()));
    }
}

fn render_order(out: &mut String, report: &PodReport, look: &Style) {
    if report.order.is_none() && report.group.is_none() {
        return;
    }
    look.heading(out, "TURN", "");
    if let Some(order) = &report.order {
        look.paragraph(out, "order", &turn(order));
    }
    if let Some(group) = &report.group {
        let more = if group.allows_one_more { "one more may go" } else { "no more may go" };
        let few = if group.below_minimum { "; there are fewer than minReplicas" } else { "" };
        let text = format!(
            "{} live pods of {} wanted, {} of them up; {} may be down at once, {more}{few}",
            group.live, group.wanted, group.up, group.may_be_down
        );
        look.paragraph(out, "replicas", &text);
    }
}

fn turn(order: &Order) -> String {
    let mut text = vec![match (order.place, order.candidates) {
        (Some(place), all) => format!("{place} of {all} pods that are worth a change"),
        (None, 0) => "no pod of the VPA is worth a change, or may have one".to_owned(),
        (None, all) => format!("not among the {all} pods that are worth a change"),
    }];
    for (index, earlier) in order.before.iter().enumerate() {
        let begin = if index == 0 { "; before it " } else { ", " };
        text.push(format!("{begin}{} ({})", earlier.pod, earlier.action));
    }
    text.concat()
}

/// A moment, and how far away it is.
fn moment(at: Time, now: Time) -> String {
    format!("{} ({})", Time::from_secs(at.as_secs()), ago(at, now))
}

fn render_guards(out: &mut String, report: &PodReport, guards: &Guards, look: &Style) {
    let now = report.at;
    let mut line = |label: &str, text: &str| look.paragraph(out, label, text);
    let recommender = report.vpa.as_ref().map_or("default", |vpa| &vpa.recommender);
    line("recommender", &lease_line(recommender, &guards.recommender, now));
    line("admission", admission(&guards.admission_controller));
    line(
        "windows",
        &match (guards.windows.limited, guards.windows.open, guards.windows.next) {
            (false, ..) => "none: at any time".to_owned(),
            (_, true, _) => "open now".to_owned(),
            (_, false, Some(next)) => format!("closed until {}", moment(next, now)),
            (_, false, None) => "closed, and never open".to_owned(),
        },
    );
    line(
        "workload",
        &guards.rollout.map_or_else(
            || "no change is known of".to_owned(),
            |it| {
                format!(
                    "last changed {}; since one pod went first {} evicted, {} changed in all; change {} in a row",
                    ago(it.last, now),
                    it.evicted,
                    it.touched,
                    it.streak.saturating_add(1)
                )
            },
        ),
    );
    if let Some(changed) = &guards.last_change {
        line("this pod", &format!("{} {}", changed.what, ago(changed.at, now)));
    }
    if let Some(breaker) = &guards.breaker {
        let until = moment(breaker.until, now);
        let state = if breaker.open { format!("stopped until {until}") } else { "over".to_owned() };
        line("breaker", &format!("{} [{}]: {state}", breaker.message, breaker.harm));
    }
    if let Some(since) = guards.rewritten_since {
        line("rewritten", &format!("somebody else wrote other values {}", ago(since, now)));
    }
    for spent in &guards.changes {
        let of = spent.allowed.map_or_else(|| "any number".to_owned(), |most| most.to_string());
        let plural = if spent.made == 1 { "" } else { "s" };
        line(
            &spent.within,
            &format!("{} {}{plural} within the hour, of {of}", spent.made, spent.charge),
        );
    }
    if let Some(until) = guards.cluster_stopped_until {
        line("cluster", &format!("nothing is changed until {}", moment(until, now)));
    }
    if let Some(most) = guards.unproven_allowed {
        let text =
            format!("{} evictions without a sign of their effect, of {most}", guards.unproven);
        line("effect", &text);
    }
}

fn lease_line(name: &str, seen: &LeaseState, now: Time) -> String {
    let renewed = seen.renewed.map_or_else(String::new, |at| {
        format!("; by this machine's clock it was renewed {}", ago(at, now))
    });
    let words = match &*seen.state {
        "fresh" => "alive",
        "loading" => "alive, and has not read its history yet",
        "stale" => "gives no sign of life",
        "absent" => "no Lease of it is there, as with upstream's",
        "notAsked" => "not asked for",
        "unreadable" => "you may not read its Lease",
        _ => "its Lease cannot be read",
    };
    format!("{name}: {words}{renewed}")
}

fn admission(seen: &LeaseState) -> &'static str {
    match &*seen.state {
        "ready" => "it is there to size new pods",
        "stale" => "its Lease is too old: new pods would be as the old ones",
        "notAsked" => "not asked for",
        "unreadable" => "you may not read its Lease",
        _ => "its Lease is not there, or cannot be read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::style::Glyphs;

    #[test]
    fn the_sample_reads_well_in_eighty_columns_of_seven_bits() {
        let sample = include_str!("../../../../tests/data/explain-pod.json");
        let report: PodReport = serde_json::from_str(sample).expect("a report");
        let look =
            Style { width: 80, colour: false, glyphs: Glyphs::Ascii, command: String::new() };
        let printed = render(&report, &look);
        assert!(printed.is_ascii() && !printed.contains('\x1b'), "{printed}");
        for line in printed.lines() {
            assert!(line.len() <= 80 && line.trim_end() == line, "{line:?}");
        }
        for words in ["HELD BACK  cool_down", "CONTAINER main", "GUARDS", "[cool_down]"] {
            assert!(printed.contains(words), "{words} is not in\n{printed}");
        }
    }
}
