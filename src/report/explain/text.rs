//! The report for people: plain lines that read well in 80 columns, without colour and in a pipe.

use super::{
    report::{Container, Finding, OmittedContainer, RecordForm, StoredRecord, VpaReport},
    resource_text::{ago, render_resource},
};
use crate::report::style::{BOLD, DIM, RED, Style, YELLOW, push_line};
use plimsoll_core::recommender::{estimate::Resource as Kind, explanation_annotation};

/// The whole report.
pub fn render(report: &VpaReport, look: &Style) -> String {
    let mut out = String::new();
    head(&mut out, report, look);
    for container in &report.containers {
        render_container(&mut out, report, container, look);
    }
    left_out(&mut out, report, look);
    conditions(&mut out, report, look);
    render_findings_and_notes(&mut out, &report.findings, &notes(report), look);
    out
}

fn head(out: &mut String, report: &VpaReport, look: &Style) {
    let VpaReport { namespace, name, target, .. } = report;
    push_line(
        out,
        format_args!(
            "{}  {} {}, {}, update mode {}",
            look.paint(BOLD, &format!("{namespace}/{name}")),
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
    for line in look.wrap(&words, 0) {
        push_line(out, format_args!("{}", look.paint(DIM, &line)));
    }
    if let Some(message) = &target.message {
        push_line(out, format_args!(""));
        for line in look.wrap(message, 0) {
            push_line(out, format_args!("{}", look.paint(YELLOW, &line)));
        }
    }
}

/// Where numbers come from that nobody but the recommender could work out.
fn annotation_source_text(report: &VpaReport) -> String {
    let written = report.history.records.iter().find_map(|record| record.written);
    format!(
        "As the recommender {:?} explained them on the VPA itself, in the annotation {}, when it wrote the \
         status{}. Its history is not at hand; pods and their requests are as they are now.",
        report.recommender,
        explanation_annotation::ANNOTATION,
        written.map_or_else(String::new, |written| format!(" {}", ago(written, report.at))),
    )
}

fn recomputed_text(report: &VpaReport) -> String {
    format!(
        "Worked out anew by the recommender's own code from the {}, the VPA and its pods as they are now. \
         Flags have to be those of the recommender {:?}.",
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

fn render_container(out: &mut String, report: &VpaReport, container: &Container, look: &Style) {
    look.heading(
        out,
        &format!("CONTAINER {}", container.name),
        &format!("in {}", pods(container.pods)),
    );
    let record = report.history.records.iter().find(|one| one.container == container.name);
    look.paragraph(out, "history", &record.map_or_else(no_history_text, |it| stored(it, report)));
    for kill in &container.kills {
        let counted = match kill.counted {
            Some(true) => ": counted",
            Some(false) => ": not in the stored history",
            None => "",
        };
        let text = format!("of {}, {}{counted}", kill.pod, ago(kill.at, report.at));
        look.paragraph(out, "OOM kill", &text);
    }
    for (kind, what) in [(Kind::Cpu, &container.cpu), (Kind::Memory, &container.memory)] {
        if let Some(what) = what {
            render_resource(out, look, kind, what, report.at);
        }
    }
}

fn no_history_text() -> String {
    "none is stored yet: nothing is known but that the container is there".to_owned()
}

fn stored(record: &StoredRecord, report: &VpaReport) -> String {
    let place = if report.history.storage == "checkpoint" { "checkpoint" } else { "record" };
    let mut text = vec![match record.form {
        RecordForm::Exact => format!("exact {place}"),
        RecordForm::Upstream => {
            format!("{place} in upstream's form, without open memory windows and exact weights")
        }
        RecordForm::Explanation => {
            "not at hand; what follows is what the recommender told of it".to_owned()
        }
    }];
    if !record.own {
        text.push(", left by another VPA for this workload".to_owned());
    }
    if let Some(written) = record.written.filter(|_| record.form != RecordForm::Explanation) {
        text.push(format!(", written {}", ago(written, report.at)));
    }
    if let Some(created) = record.created {
        text.push(format!("; history began {}", ago(created, report.at)));
    }
    if record.outcome != "used" {
        text.push("; it lies too far back and is not used".to_owned());
    }
    text.concat()
}

fn left_out(out: &mut String, report: &VpaReport, look: &Style) {
    if report.left_out.is_empty() {
        return;
    }
    look.heading(out, "LEFT OUT", "");
    for OmittedContainer { container, why } in &report.left_out {
        let why = match &**why {
            "off" => "the policy switches it off (mode Off)",
            "stale" => "it has left the pods, others are alive without it (stale)",
            "unexplained" => "the status has it, but the annotation had no room to explain it",
            _ => "the status has it, but nothing is stored of it and no pod has it now",
        };
        look.paragraph(out, container, why);
    }
}

fn conditions(out: &mut String, report: &VpaReport, look: &Style) {
    if report.conditions.is_empty() {
        return;
    }
    look.heading(out, "CONDITIONS", "");
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
            "outdated" => text.push(" [in the status, but no longer so]".to_owned()),
            _ => {}
        }
        for (index, line) in look.wrap(&text.concat(), 6).iter().enumerate() {
            push_line(out, format_args!("  {}{line}", if index == 0 { "" } else { "  " }));
        }
    }
}

fn notes(report: &VpaReport) -> Vec<String> {
    let room = [("CPU", report.room.cpu), ("memory", report.room.memory)];
    let room = room.into_iter().filter_map(|(what, limit)| {
        let limit = limit?;
        Some(format!("A pod may have {} of {what} ({}).", limit.amount, limit.by))
    });
    room.chain(report.notes.iter().cloned()).collect()
}

/// What every report ends with.
pub(super) fn render_findings_and_notes(
    out: &mut String,
    findings: &[Finding],
    notes: &[String],
    look: &Style,
) {
    let bullet = look.choose_glyphs("•", "-");
    if !findings.is_empty() {
        look.heading(out, "TO LOOK AT", "");
        for finding in findings {
            let text = format!("{} [{}]", finding.message, finding.code);
            bulleted(out, look, &look.paint(RED, bullet), &text);
        }
    }
    if !notes.is_empty() {
        look.heading(out, "NOTES", "");
        for note in notes {
            bulleted(out, look, bullet, note);
        }
    }
}

fn bulleted(out: &mut String, look: &Style, bullet: &str, text: &str) {
    for (index, line) in look.wrap(text, 4).iter().enumerate() {
        push_line(out, format_args!("  {} {line}", if index == 0 { bullet } else { " " }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::style::Glyphs;

    #[test]
    fn colours_change_nothing_but_colour_and_ascii_is_seven_bits() {
        let sample = include_str!("../../../tests/data/explain-vpa.json");
        let mut report: VpaReport = serde_json::from_str(sample).expect("a report");
        report.notes.push("This is good to know.".to_owned());
        report.findings.push(crate::report::explain::report::Finding::new("code", "Look at this."));
        report.left_out.push(OmittedContainer { container: "old".into(), why: "stale".to_owned() });
        let look = |colour, glyphs| Style { width: 80, colour, glyphs, command: String::new() };
        let plain = render(&report, &look(false, Glyphs::Ascii));
        assert!(plain.is_ascii() && !plain.contains('\x1b'), "{plain}");
        let painted = render(&report, &look(true, Glyphs::Ascii));
        assert_ne!(painted, plain);
        let mut stripped = String::new();
        for (index, part) in painted.split('\x1b').enumerate() {
            let rest = if index == 0 { part } else { part.split_once('m').map_or("", |it| it.1) };
            stripped.push_str(rest);
        }
        assert_eq!(stripped, plain);
        for words in ["Look at this. [code]", "- This is good to know.", "it has left the pods"] {
            assert!(plain.contains(words), "{words} is not in\n{plain}");
        }
    }
}
