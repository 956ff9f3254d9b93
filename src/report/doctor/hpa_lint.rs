//! The report of `plimsoll doctor hpa`: likely mistakes in HorizontalPodAutoscalers.

use plimsoll_core::{hpa::lint::Warning, types::Time};
use serde::{Deserialize, Serialize};

use crate::report::style::{BOLD, GREEN, Page, Style, YELLOW};

const SCHEMA_VERSION: u32 = 1;

/// Likely mistakes in the objects of a cluster or namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HpaLintReport {
    pub schema_version: u32,
    pub kind: String,
    pub version: String,
    /// When the objects were read.
    pub at: Time,
    pub objects: usize,
    /// Likely mistakes, by object.
    pub findings: Vec<HpaFinding>,
    /// What could not be checked.
    pub notes: Vec<String>,
}

/// A likely mistake in one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HpaFinding {
    pub namespace: String,
    pub name: String,
    /// A stable identifier, independent of the message.
    pub code: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl HpaFinding {
    pub(crate) fn new((namespace, name): (&str, &str), warning: Warning) -> Self {
        let Warning { code, message } = warning;
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { namespace, name, code: code.to_owned(), message }
    }
}

impl HpaLintReport {
    pub(crate) fn new(
        at: Time,
        objects: usize,
        findings: Vec<HpaFinding>,
        notes: Vec<String>,
    ) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            kind: "doctor-hpa".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at,
            objects,
            findings,
            notes,
        }
    }
}

pub fn render(report: &HpaLintReport, style: &Style) -> String {
    let mut page = Page::new(style);
    page.line(format_args!("{} HorizontalPodAutoscalers checked", report.objects));
    let mut object = None;
    for finding in &report.findings {
        let current = (&finding.namespace, &finding.name);
        if object != Some(current) {
            object = Some(current);
            let title = format!("{}/{}", finding.namespace, finding.name);
            page.line(format_args!("\n{}", page.paint(BOLD, &title)));
        }
        let text = format!("{} [{}]", finding.message, finding.code);
        page.marked(&page.paint(YELLOW, "warn"), 4, &text);
    }
    if report.findings.is_empty() && report.objects > 0 {
        page.marked(&page.paint(GREEN, "ok  "), 4, "nothing found");
    }
    if !report.notes.is_empty() {
        page.heading("NOT CHECKED", "");
        let bullet = page.choose_glyphs("•", "-");
        for note in &report.notes {
            page.marked(bullet, 1, note);
        }
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::style::Glyphs;

    #[test]
    fn findings_are_grouped_by_object() {
        let warning = |code| Warning { code, message: format!("message of {code}") };
        let findings = vec![
            HpaFinding::new(("shop", "web"), warning("min_equals_max")),
            HpaFinding::new(("shop", "web"), warning("missing_request")),
            HpaFinding::new(("shop", "zoo"), warning("min_equals_max")),
        ];
        let notes = vec!["the scale of shop/api".to_owned()];
        let report = HpaLintReport::new(Time::from_secs(0), 4, findings, notes);
        let style = Style {
            width: 80,
            colour: false,
            glyphs: Glyphs::Ascii,
            command: "plimsoll".to_owned(),
        };
        let text = render(&report, &style);
        assert_eq!(text.matches("shop/web").count(), 1, "{text}");
        assert!(text.contains("message of missing_request [missing_request]"), "{text}");
        assert!(text.contains("NOT CHECKED\n  - the scale of shop/api"), "{text}");
        let fine = HpaLintReport::new(Time::from_secs(0), 4, Vec::new(), Vec::new());
        assert!(render(&fine, &style).contains("nothing found"));
    }
}
