//! The text output of the report: plain lines that fit 80 columns and do not depend on colour.

use super::{
    report::{Container, Finding, OmittedContainer, RecordForm, StoredRecord, VpaReport},
    resource_text::{ago, render_resource, since},
};
use crate::report::style::{BOLD, DIM, RED, Style, YELLOW, push_line};
use plimsoll_core::recommender::{estimate::Resource as Kind, explanation_annotation};

/// Renders the report.
pub fn render(report: &VpaReport, style: &Style) -> String {
    let mut out = String::new();
    head(&mut out, report, style);
    for container in &report.containers {
        render_container(&mut out, report, container, style);
    }
    left_out(&mut out, report, style);
    conditions(&mut out, report, style);
    render_findings_and_notes(&mut out, &report.findings, &notes(report), style);
    out
}

fn head(out: &mut String, report: &VpaReport, style: &Style) {
    let target = &report.target;
    push_line(
        out,
        format_args!(
            "{}  {} {}, {}, update mode {}",
            style.paint(BOLD, &report.header.object()),
            target.kind,
            target.name,
            pods(report.pods),
            report.update_mode
        ),
    );
    let words = if report.history.is_from_annotation() {
        annotation_source_text(report)
    } else {
        recomputed_text(report)
    };
    style.block(out, 0, DIM, &words);
    if let Some(message) = &target.message {
        push_line(out, format_args!(""));
        style.block(out, 0, YELLOW, message);
    }
}

/// Introduces numbers that come from the explanation annotation, because the history is not available here.
fn annotation_source_text(report: &VpaReport) -> String {
    let written = report.history.records.iter().find_map(|record| record.written);
    format!(
        "As explained by the recommender {:?} in the annotation {} of the VPA when it wrote the status{}. Its history \
         is not available here; pods and their requests are current.",
        report.recommender,
        explanation_annotation::ANNOTATION,
        since(" ", written, report.header.at),
    )
}

fn recomputed_text(report: &VpaReport) -> String {
    format!(
        "Recomputed by the recommender's own code from the {}, the VPA and its current pods. Pass the flags of the \
         recommender {:?}.",
        if report.history.storage == "checkpoint" {
            "checkpoints".to_owned()
        } else {
            format!("{} history", report.history.storage)
        },
        report.recommender,
    )
}

fn pods(count: usize) -> String {
    match count {
        0 => "no pods".to_owned(),
        1 => "1 pod".to_owned(),
        more => format!("{more} pods"),
    }
}

fn render_container(out: &mut String, report: &VpaReport, container: &Container, style: &Style) {
    style.heading(
        out,
        &format!("CONTAINER {}", container.name),
        &format!("in {}", pods(container.pods)),
    );
    let record = report.history.records.iter().find(|record| record.container == container.name);
    style.paragraph(
        out,
        "history",
        &record.map_or_else(no_history_text, |record| stored(record, report)),
    );
    for kill in &container.kills {
        let counted = match kill.counted {
            Some(true) => ": counted",
            Some(false) => ": not in the stored history",
            None => "",
        };
        let text = format!("of {}, {}{counted}", kill.pod, ago(kill.at, report.header.at));
        style.paragraph(out, "OOM kill", &text);
    }
    for (kind, resource) in [(Kind::Cpu, &container.cpu), (Kind::Memory, &container.memory)] {
        if let Some(resource) = resource {
            render_resource(out, style, kind, resource, report.header.at);
        }
    }
}

fn no_history_text() -> String {
    "not stored yet: the container exists, but there is no data".to_owned()
}

fn stored(record: &StoredRecord, report: &VpaReport) -> String {
    let storage = if report.history.storage == "checkpoint" { "checkpoint" } else { "record" };
    let mut text = vec![match record.form {
        RecordForm::Exact => format!("exact {storage}"),
        RecordForm::Upstream => {
            format!("{storage} in upstream's form, without open memory windows and exact weights")
        }
        RecordForm::Explanation => {
            "not available; the steps below are those that the recommender explained".to_owned()
        }
    }];
    if !record.own {
        text.push(", left by another VPA for this workload".to_owned());
    }
    if let Some(written) = record.written.filter(|_| record.form != RecordForm::Explanation) {
        text.push(format!(", written {}", ago(written, report.header.at)));
    }
    if let Some(created) = record.created {
        text.push(format!("; history began {}", ago(created, report.header.at)));
    }
    if record.outcome != "used" {
        text.push("; it is too old and is not used".to_owned());
    }
    text.concat()
}

fn left_out(out: &mut String, report: &VpaReport, style: &Style) {
    if report.left_out.is_empty() {
        return;
    }
    style.heading(out, "WITHOUT RECOMMENDATION", "");
    for OmittedContainer { container, why } in &report.left_out {
        let why = match &**why {
            "off" => "disabled by the container policy (mode Off)",
            "stale" => "no live pod has this container any more (stale)",
            "unexplained" => "in the status, but the annotation had no space left to explain it",
            _ => "in the status, but without stored history, and no pod has it now",
        };
        style.paragraph(out, container, why);
    }
}

fn conditions(out: &mut String, report: &VpaReport, style: &Style) {
    if report.conditions.is_empty() {
        return;
    }
    style.heading(out, "CONDITIONS", "");
    for condition in &report.conditions {
        let mut text = vec![format!("{} {}", condition.kind, condition.status)];
        if !condition.reason.is_empty() {
            text.push(format!(" ({})", condition.reason));
        }
        if !condition.message.is_empty() {
            text.push(format!(": {}", condition.message));
        }
        match &*condition.state {
            "new" => text.push(" [not in the status yet]".to_owned()),
            "outdated" => text.push(" [in the status, but no longer true]".to_owned()),
            _ => {}
        }
        for (index, line) in style.wrap(&text.concat(), 6).iter().enumerate() {
            push_line(out, format_args!("  {}{line}", if index == 0 { "" } else { "  " }));
        }
    }
}

fn notes(report: &VpaReport) -> Vec<String> {
    let limits = [("CPU", report.room.cpu), ("memory", report.room.memory)];
    let limits = limits.into_iter().filter_map(|(resource, limit)| {
        let limit = limit?;
        Some(format!("A pod can have at most {} of {resource} ({}).", limit.amount, limit.by))
    });
    limits.chain(report.notes.iter().cloned()).collect()
}

/// Renders findings and notes, which end every report.
pub(super) fn render_findings_and_notes(
    out: &mut String,
    findings: &[Finding],
    notes: &[String],
    style: &Style,
) {
    let bullet = style.choose_glyphs("•", "-");
    if !findings.is_empty() {
        style.heading(out, "FINDINGS", "");
        for finding in findings {
            let text = format!("{} [{}]", finding.message, finding.code);
            style.marked(out, &style.paint(RED, bullet), 1, &text);
        }
    }
    if !notes.is_empty() {
        style.heading(out, "NOTES", "");
        for note in notes {
            style.marked(out, bullet, 1, note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::style::Glyphs;

    #[test]
    fn color_changes_nothing_else_and_ascii_output_is_pure_ascii() {
        let sample = include_str!("../../../tests/data/explain-vpa.json");
        let mut report: VpaReport = serde_json::from_str(sample).expect("a report");
        report.notes.push("This is good to know.".to_owned());
        report.findings.push(crate::report::explain::report::Finding::new("code", "Look at this."));
        report.left_out.push(OmittedContainer { container: "old".into(), why: "stale".to_owned() });
        let style = |colour, glyphs| Style { width: 80, colour, glyphs, command: String::new() };
        let plain = render(&report, &style(false, Glyphs::Ascii));
        assert!(plain.is_ascii() && !plain.contains('\x1b'), "{plain}");
        let painted = render(&report, &style(true, Glyphs::Ascii));
        assert_ne!(painted, plain);
        let mut stripped = String::new();
        for (index, part) in painted.split('\x1b').enumerate() {
            let rest =
                if index == 0 { part } else { part.split_once('m').map_or("", |rest| rest.1) };
            stripped.push_str(rest);
        }
        assert_eq!(stripped, plain);
        for words in
            ["Look at this. [code]", "- This is good to know.", "no live pod has this container"]
        {
            assert!(plain.contains(words), "{words} is not in\n{plain}");
        }
    }
}
