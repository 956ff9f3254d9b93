//! What all explain reports have: a header, findings and notes, rows of amounts, and relative times.

use std::time::Duration;

use plimsoll_core::{
    hpa::lint::Warning,
    types::{Time, quantity::Quantity},
};
use serde::{Deserialize, Serialize};

use crate::report::style::{DIM, Page, RED, Style, format_span};

/// The schema version of all reports. It increases when a field changes its meaning or is removed, not when a field is
/// added.
const SCHEMA_VERSION: u32 = 1;

/// The fields that every report about an object begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportHeader {
    pub schema_version: u32,
    /// The kind of report, such as `explain-vpa`.
    pub kind: String,
    pub version: String,
    pub namespace: String,
    pub name: String,
    pub at: Time,
}

impl ReportHeader {
    pub fn new(kind: &str, namespace: &str, name: &str, at: Time) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            kind: kind.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            at,
        }
    }

    pub fn object(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// A stable identifier, independent of the message.
    pub code: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Finding {
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

impl From<Warning> for Finding {
    fn from(Warning { code, message }: Warning) -> Self {
        Self::new(code, message)
    }
}

/// Whether a proposal of replicas was chosen, or why another one of these was.
pub(super) fn proposal_status(
    (is_chosen, own): (bool, Option<i32>),
    mut all: impl Iterator<Item = (bool, Option<i32>)>,
) -> &'static str {
    let Some((_, chosen)) = all.find(|(is_chosen, _)| *is_chosen) else { return "" };
    match own {
        _ if is_chosen => "chosen",
        Some(own) if chosen > Some(own) => "another metric proposes more",
        Some(_) => "another metric proposes the same and comes first",
        None => "",
    }
}

/// Renders findings and notes, which end every report.
pub(super) fn render_findings_and_notes(
    page: &mut Page<'_>,
    findings: &[Finding],
    notes: &[String],
) {
    let bullet = page.choose_glyphs("•", "-");
    if !findings.is_empty() {
        page.heading("FINDINGS", "");
        for finding in findings {
            let text = format!("{} [{}]", finding.message, finding.code);
            page.marked(&page.paint(RED, bullet), 1, &text);
        }
    }
    if !notes.is_empty() {
        page.heading("NOTES", "");
        for note in notes {
            page.marked(bullet, 1, note);
        }
    }
}

/// The heads of the columns of [`row`].
pub(crate) fn columns(style: &Style, heads: [&str; 4]) -> String {
    let [first, second, third, fourth] = heads;
    style.paint(DIM, &format!("{first:>12}{second:>13}{third:>13}{fourth:>13}"))
}

pub(crate) fn row(page: &mut Page<'_>, label: &str, amounts: [Option<Quantity>; 4], note: &str) {
    let text = |amount: Option<Quantity>| {
        amount.map_or_else(|| "-".to_owned(), |quantity| quantity.to_string())
    };
    let [first, second, third, fourth] = amounts.map(text);
    // The separating spaces stay even if a number is wider than its column.
    let line = format!("    {label:<10}{first:>12} {second:>12} {third:>12} {fourth:>12} {note}");
    page.line(format_args!("{}", line.trim_end()));
}

/// Formats how long ago a time is, after some words; empty if there is none.
pub(super) fn since(words: &str, then: Option<Time>, now: Time) -> String {
    then.map_or_else(String::new, |then| format!("{words}{}", ago(then, now)))
}

pub(crate) fn ago(then: Time, now: Time) -> String {
    let nanos = now.nanos_since(then);
    let passed = Duration::from_nanos(nanos.unsigned_abs());
    if nanos < 0 {
        format!("in {}", format_span(passed))
    } else {
        format!("{} ago", format_span(passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_has_the_reason_why_it_was_chosen_or_not() {
        let metrics = [(false, Some(3)), (true, Some(5)), (false, Some(5)), (false, None)];
        let statuses = metrics.map(|metric| proposal_status(metric, metrics.into_iter()));
        let expected = [
            "another metric proposes more",
            "chosen",
            "another metric proposes the same and comes first",
            "",
        ];
        assert_eq!(statuses, expected);
        let undecided = metrics[..1].iter().copied();
        assert_eq!(proposal_status(metrics[0], undecided), "", "nothing was decided");
    }
}
