//! The report of `plimsoll doctor --cluster`, as data and as text.

use plimsoll_core::{
    diagnosis::{ClusterFacts, Finding, Level},
    types::Time,
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::report::style::{BOLD, DIM, GREEN, PLAIN, Page, RED, Style, YELLOW};

const SCHEMA_VERSION: u32 = 1;
/// The width of a mark and the space around it.
const INDENT: usize = 7;

/// What is wrong with autoscaling in a cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    pub schema_version: u32,
    pub kind: String,
    pub version: String,
    pub at: Time,
    /// The URL of the API server.
    pub cluster: String,
    /// The version of the API server; absent if unknown.
    pub api_version: Option<String>,
    /// The Prometheus; absent if none was found.
    pub prometheus: Option<String>,
    /// One finding for each check.
    pub findings: Vec<Finding>,
}

impl ClusterReport {
    pub fn new(facts: &ClusterFacts, cluster: String, findings: Vec<Finding>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            kind: "doctor-cluster".to_owned(),
            version: facts.version.clone(),
            at: facts.now,
            cluster,
            api_version: facts.api_version.as_ref().ok().cloned(),
            prometheus: facts.series.as_ref().ok().map(|series| series.server.clone()),
            findings,
        }
    }

    pub fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    /// Whether there is a finding of this level or above. Unknown is not ok, but nothing that was found.
    pub fn has(&self, level: Level) -> bool {
        self.findings.iter().any(|finding| finding.level >= level)
    }
}

/// Renders the report. The last line names the exit code.
pub fn render(report: &ClusterReport, style: &Style, exit_code: u8) -> String {
    let mut page = Page::new(style);
    let version = report.api_version.as_deref().unwrap_or("version unknown");
    let title = format!("{}  Kubernetes {version}", report.cluster);
    page.line(format_args!("{}", page.paint(BOLD, &title)));
    let mut topic = None;
    for finding in &report.findings {
        if topic != Some(finding.topic) {
            topic = Some(finding.topic);
            page.heading(&finding.topic.to_string(), "");
        }
        render_finding(&mut page, finding);
    }
    let (found, unknown) =
        (report.count(Level::Warning) + report.count(Level::Problem), report.count(Level::Unknown));
    let unknown = match unknown {
        0 => String::new(),
        unknown => format!(" {unknown} not known."),
    };
    let (colour, text) = match found {
        0 => (PLAIN, "Nothing found.".to_owned()),
        found => (RED, format!("{found} to look at.")),
    };
    let text = format!("{text}{unknown} Exit code {exit_code}.");
    page.line(format_args!("\n{}", page.paint(colour, &text)));
    page.finish()
}

fn render_finding(page: &mut Page<'_>, finding: &Finding) {
    let (mark, colour) = match finding.level {
        Level::Ok => ("ok  ", GREEN),
        Level::Unknown => ("?   ", YELLOW),
        Level::Warning => ("warn", YELLOW),
        Level::Problem => ("bad ", RED),
    };
    let mark = page.paint(colour, mark);
    if finding.level == Level::Ok {
        page.marked(&mark, 4, &finding.message);
        return;
    }
    page.marked(&mark, 4, &format!("{} [{}]", finding.message, finding.id));
    if let (Some(measured), Some(wanted)) = (&finding.measured, &finding.wanted) {
        page.block(INDENT, PLAIN, &format!("found {measured}, wanted {wanted}"));
    }
    if !finding.objects.is_empty() {
        let more = finding.object_count.saturating_sub(finding.objects.len());
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        page.block(INDENT, PLAIN, &format!("{}{more}", finding.objects.join("; ")));
    }
    if let Some(next) = &finding.next {
        page.block(INDENT, DIM, &format!("next: {next}"));
    }
    page.block(INDENT, DIM, &format!("see {}", finding.runbook));
}

#[cfg(test)]
mod tests {
    use plimsoll_core::diagnosis::CheckId;

    use super::*;
    use crate::report::style::tests::plain_output;

    fn report() -> ClusterReport {
        let findings = vec![
            Finding::ok(CheckId::ApiVersion, "The API server is Kubernetes v1.36.3."),
            Finding::unknown(CheckId::NodesPsi, "no Prometheus was found"),
            Finding::problem(CheckId::HpaSameMetric, "1 HPA aims at a percentage.")
                .measured("1 contested", "AverageValue")
                .objects((0..12).map(|number| format!("shop/web-{number}")))
                .next("plimsoll recommend --hpa=joint"),
        ];
        ClusterReport {
            schema_version: SCHEMA_VERSION,
            kind: "doctor-cluster".to_owned(),
            version: "1.0.0".to_owned(),
            at: Time::EPOCH,
            cluster: "https://prod-eu".to_owned(),
            api_version: Some("v1.36.3".to_owned()),
            prometheus: None,
            findings,
        }
    }

    #[test]
    fn findings_are_grouped_and_ok_lines_are_short() {
        let text = plain_output(|style| render(&report(), style, 1));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "https://prod-eu  Kubernetes v1.36.3");
        assert_eq!(lines[2..4], ["CLUSTER", "  ok   The API server is Kubernetes v1.36.3."]);
        for words in [
            "  ?    no Prometheus was found [nodes_psi]",
            "AUTOSCALERS\n  bad  1 HPA aims at a percentage. [hpa_same_metric]",
            "       found 1 contested, wanted AverageValue",
            "and 2 more",
            "       next: plimsoll recommend --hpa=joint",
            "       see docs/runbooks/HpaVpaSameResource.md",
            "1 to look at. 1 not known. Exit code 1.",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn unknown_is_below_warnings() {
        let mut report = report();
        assert!(report.has(Level::Problem));
        report.findings.pop();
        assert!(!report.has(Level::Warning) && report.has(Level::Unknown));
    }
}
