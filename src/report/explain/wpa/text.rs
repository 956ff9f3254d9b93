//! The report about a watermark autoscaler for people: plain lines that read well in 80 columns, without colour and in a
//! pipe.

use plimsoll_core::types::Time;

use super::report::WpaReport;
use crate::report::{
    explain::{resource_text::ago, text::render_findings_and_notes},
    style::{BOLD, DIM, GREEN, RED, Style, YELLOW, push_line},
};
use plimsoll_core::{
    api::scale_decision::{MetricDecision, ScaleDecision},
    watermark::conditions,
};

/// The whole report.
pub fn render(report: &WpaReport, look: &Style) -> String {
    let mut out = String::new();
    let name = format!("{}/{}", report.namespace, report.name);
    push_line(&mut out, format_args!("{}", look.paint(BOLD, &name)));
    let (min, max) = report.bounds;
    let dry = if report.dry_run { ", dry run: nothing is changed" } else { "" };
    push_line(&mut out, format_args!("  {}, {min} to {max} replicas{dry}", report.target));
    verdict(&mut out, report, look);
    if let Some(decision) = &report.decision {
        for source in &decision.sources {
            render_source(&mut out, source, &decision.sources, report.at, look);
        }
        steps(&mut out, report, decision, look);
    }
    render_conditions(&mut out, report, look);
    render_findings_and_notes(&mut out, &report.findings, &report.notes, look);
    out
}

fn verdict(out: &mut String, report: &WpaReport, look: &Style) {
    let Some(decision) = &report.decision else {
        let (current, desired) = report.replicas;
        push_line(out, format_args!("\n{}", look.paint(BOLD, "NO DECISION ON THE OBJECT")));
        push_line(out, format_args!("    {current} pods, {desired} replicas wanted"));
        return;
    };
    let (code, title) = match decision.to.cmp(&decision.from) {
        std::cmp::Ordering::Greater => (GREEN, "MORE REPLICAS"),
        std::cmp::Ordering::Less => (GREEN, "FEWER REPLICAS"),
        std::cmp::Ordering::Equal if decision.restrictions.is_empty() => {
            (BOLD, "AS MANY AS ARE ASKED FOR")
        }
        std::cmp::Ordering::Equal => (YELLOW, "LEFT AS THEY ARE"),
    };
    let words = look.paint(DIM, &format!("  {}", decision.restrictions.join(", ")));
    push_line(out, format_args!("\n{}{words}", look.paint(code, title)));
    let at = decision.at.as_ref().map(conditions::from_timestamp);
    let when = at.map_or_else(String::new, |at| format!(", decided {}", ago(at, report.at)));
    push_line(out, format_args!("    {} -> {} replicas{when}", decision.from, decision.to));
}

/// Whether a source is the one that holds, or why another is.
fn source_status(source: &MetricDecision, all: &[MetricDecision]) -> &'static str {
    let Some(chosen) = all.iter().find(|one| one.chosen) else { return "" };
    match source.proposal {
        _ if source.chosen => "this one holds",
        Some(own) if chosen.proposal > Some(own) => "another asks for more",
        Some(_) => "another that asks for as many comes first",
        None => "",
    }
}

fn render_source(
    out: &mut String,
    source: &MetricDecision,
    all: &[MetricDecision],
    now: Time,
    look: &Style,
) {
    look.heading(out, &source.name, source_status(source, all));
    let since = source.since.as_ref().map(conditions::from_timestamp);
    let since = since.map_or_else(String::new, |since| format!(", since {}", ago(since, now)));
    if !source.unknown.is_empty() {
        let message = format!("{}{since}", source.message);
        look.paragraph(out, &look.paint(RED, "unknown"), &message);
        return;
    }
    let shown = |amount: Option<plimsoll_core::types::quantity::Quantity>| {
        amount.map_or_else(|| "none".to_owned(), |amount| amount.to_string())
    };
    let value =
        format!("{}, which is {}{since}", shown(source.value), band_position(&source.position));
    look.paragraph(out, "value", &value);
    let marks = format!("{} to {}, tolerance included", shown(source.low), shown(source.high));
    look.paragraph(out, "marks", &marks);
    if let Some(proposal) = source.proposal {
        look.paragraph(out, "proposal", &format!("{proposal} replicas"));
    }
}

fn band_position(position: &str) -> &str {
    match position {
        "above" => "above them",
        "below" => "below them",
        _ => "between them",
    }
}

fn steps(out: &mut String, report: &WpaReport, decision: &ScaleDecision, look: &Style) {
    look.heading(out, "FROM PROPOSAL TO REPLICAS", "");
    let count =
        |count: Option<i32>| count.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
    look.paragraph(out, "asked for", &count(decision.proposal));
    look.paragraph(out, "in limits", &count(decision.limited));
    let (up, down) = report.left;
    let window = format!("more in {up} s, fewer in {down} s, for all that the last change says");
    look.paragraph(out, "windows", &window);
    if let Some(until) = decision.held_until.as_ref().map(conditions::from_timestamp)
        && until > report.at
    {
        look.paragraph(out, "held", &format!("until {}", ago(until, report.at)));
    }
    let (times, last) = report.changes;
    let last = last.map_or_else(|| "never".to_owned(), |last| ago(last, report.at));
    look.paragraph(out, "changed", &format!("{times} times, the last time {last}"));
}

fn render_conditions(out: &mut String, report: &WpaReport, look: &Style) {
    if report.conditions.is_empty() {
        return;
    }
    look.heading(out, "CONDITIONS", "");
    for condition in &report.conditions {
        let since = condition.last_transition_time.as_ref().map(conditions::from_timestamp);
        let since = since.map_or_else(String::new, |at| format!(", since {}", ago(at, report.at)));
        let text =
            format!("{} ({}){since}: {}", condition.status, condition.reason, condition.message);
        push_line(out, format_args!("  {}", condition.kind));
        for line in look.wrap(&text, 4) {
            push_line(out, format_args!("    {}", look.paint(DIM, &line)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_sources_each_says_why_it_is_the_one_or_another_is() {
        let one =
            |proposal, chosen| MetricDecision { proposal, chosen, ..MetricDecision::default() };
        let all = [one(Some(3), false), one(Some(5), true), one(Some(5), false), one(None, false)];
        let said = all.each_ref().map(|source| source_status(source, &all));
        let expected = [
            "another asks for more",
            "this one holds",
            "another that asks for as many comes first",
            "",
        ];
        assert_eq!(said, expected);
        assert_eq!(source_status(&all[0], &all[..1]), "", "nothing was decided");
    }
}
