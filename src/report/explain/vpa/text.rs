//! The text output of the report: plain lines that fit 80 columns and do not depend on colour.

use super::{
    report::{Container, OmittedContainer, RecordForm, StoredRecord, VpaReport},
    resource_text::render_resource,
};
use crate::report::{
    explain::report_parts::{ago, render_findings_and_notes, since},
    style::{BOLD, DIM, Page, Style, YELLOW},
};
use plimsoll_core::recommender::{estimate::Resource as Kind, explanation_annotation};

pub fn render(report: &VpaReport, style: &Style) -> String {
    let mut page = Page::new(style);
    head(&mut page, report);
    for container in &report.containers {
        render_container(&mut page, report, container);
    }
    left_out(&mut page, report);
    conditions(&mut page, report);
    render_findings_and_notes(&mut page, &report.findings, &notes(report));
    page.finish()
}

fn head(page: &mut Page<'_>, report: &VpaReport) {
    let target = &report.target;
    page.line(format_args!(
        "{}  {} {}, {}, update mode {}",
        page.paint(BOLD, &report.header.object()),
        target.kind,
        target.name,
        pods(report.pods),
        report.update_mode
    ));
    let words = if report.history.is_from_annotation() {
        annotation_source_text(report)
    } else {
        recomputed_text(report)
    };
    page.block(0, DIM, &words);
    if let Some(message) = &target.message {
        page.line(format_args!(""));
        page.block(0, YELLOW, message);
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
    let history = match &*report.history.storage {
        "checkpoint" => "checkpoints",
        storage => &format!("{storage} history"),
    };
    format!(
        "Recomputed by the recommender's own code from the {history}, the VPA and its current pods. Pass the flags of the \
         recommender {:?}.",
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

fn render_container(page: &mut Page<'_>, report: &VpaReport, container: &Container) {
    page.heading(&format!("CONTAINER {}", container.name), &format!("in {}", pods(container.pods)));
    let record = report.history.records.iter().find(|record| record.container == container.name);
    let no_history = || "not stored yet: the container exists, but there is no data".to_owned();
    page.paragraph("history", &record.map_or_else(no_history, |record| stored(record, report)));
    for kill in &container.kills {
        let counted = match kill.counted {
            Some(true) => ": counted",
            Some(false) => ": not in the stored history",
            None => "",
        };
        let text = format!("of {}, {}{counted}", kill.pod, ago(kill.at, report.header.at));
        page.paragraph("OOM kill", &text);
    }
    for (kind, resource) in [(Kind::Cpu, &container.cpu), (Kind::Memory, &container.memory)] {
        if let Some(resource) = resource {
            render_resource(page, kind, resource, report.header.at);
        }
    }
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

fn left_out(page: &mut Page<'_>, report: &VpaReport) {
    if report.left_out.is_empty() {
        return;
    }
    page.heading("WITHOUT RECOMMENDATION", "");
    for OmittedContainer { container, why } in &report.left_out {
        let why = match &**why {
            "off" => "disabled by the container policy (mode Off)",
            "stale" => "no live pod has this container any more (stale)",
            "unexplained" => "in the status, but the annotation had no space left to explain it",
            _ => "in the status, but without stored history, and no pod has it now",
        };
        page.paragraph(container, why);
    }
}

fn conditions(page: &mut Page<'_>, report: &VpaReport) {
    if report.conditions.is_empty() {
        return;
    }
    page.heading("CONDITIONS", "");
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
        for (index, line) in page.wrap(&text.concat(), 6).iter().enumerate() {
            page.line(format_args!("  {}{line}", if index == 0 { "" } else { "  " }));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{explain::Finding, style::tests::plain_output};

    #[test]
    fn color_changes_nothing_else_and_ascii_output_is_pure_ascii() {
        let sample = include_str!("../../../../tests/data/explain-vpa.json");
        let mut report: VpaReport = serde_json::from_str(sample).expect("a report");
        report.notes.push("This is good to know.".to_owned());
        report.findings.push(Finding::new("code", "Look at this."));
        report.left_out.push(OmittedContainer { container: "old".into(), why: "stale".to_owned() });
        let plain = plain_output(|style| render(&report, style));
        for words in
            ["Look at this. [code]", "- This is good to know.", "no live pod has this container"]
        {
            assert!(plain.contains(words), "{words} is not in\n{plain}");
        }
    }
}
