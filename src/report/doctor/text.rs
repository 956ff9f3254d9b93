//! The text output of the report: plain lines that fit 80 columns and do not depend on colour.

use strum::VariantArray as _;

use super::report::{DoctorReport, Evidence, Finding, Level, Topic};
use crate::report::style::{BOLD, DIM, GREEN, PLAIN, Page, RED, Style, YELLOW};

/// The column at which the text of a finding starts.
const INDENT: usize = 7;

/// Renders the report, with all queries if `every`, and otherwise only with those that add information.
pub fn render(report: &DoctorReport, style: &Style, every: bool) -> String {
    let mut page = Page::new(style);
    let server = &report.server;
    let release = server.version.as_deref().map(|version| format!(" {version}"));
    page.line(format_args!(
        "{}  {}{}",
        page.paint(BOLD, &server.address),
        server.kind.name(),
        release.unwrap_or_default()
    ));
    // Several findings may share the same queries. They are printed once.
    let mut printed: Vec<&[Evidence]> = Vec::new();
    for topic in Topic::VARIANTS {
        let findings: Vec<_> =
            report.findings.iter().filter(|finding| finding.topic == *topic).collect();
        if findings.is_empty() {
            continue;
        }
        page.heading(&topic.to_string(), "");
        for (at, finding) in findings.iter().enumerate() {
            render_finding(&mut page, finding);
            let next = findings.get(at + 1).map(|next| &next.evidence);
            let evidence = &*finding.evidence;
            if next != Some(&finding.evidence)
                && !printed.contains(&evidence)
                && (every || shows_queries(finding))
            {
                render_queries(&mut page, evidence);
                printed.push(evidence);
            }
        }
    }
    summary(&mut page, report, every);
    render_suggested_flags(&mut page, report);
    page.finish()
}

/// Whether the queries of a finding add information: queries for history, which the recommender repeats, and queries of a
/// warning or problem if there are few. A failed query alone is not a reason: some probes expect failures.
fn shows_queries(finding: &Finding) -> bool {
    let evidence = &finding.evidence;
    evidence.iter().any(|query| query.range.is_some())
        || (finding.level > Level::Ok && evidence.len() <= 2)
}

fn render_finding(page: &mut Page<'_>, finding: &Finding) {
    let (colour, mark) = match finding.level {
        Level::Ok => (GREEN, "ok  "),
        Level::Warning => (YELLOW, "warn"),
        Level::Problem => (RED, "bad "),
    };
    let text = match finding.level {
        Level::Ok => finding.message.clone(),
        _ => format!("{} [{}]", finding.message, finding.code),
    };
    page.marked(&page.paint(colour, mark), mark.len(), &text);
}

fn render_queries(page: &mut Page<'_>, evidence: &[Evidence]) {
    let bullet = page.choose_glyphs("·", "-");
    for query in merged(evidence) {
        let lines = wrap_query(&query.asked, page.width - INDENT - 2);
        for (index, line) in lines.iter().enumerate() {
            let bullet = if index == 0 { bullet } else { " " };
            page.line(format_args!("       {}", page.paint(DIM, &format!("{bullet} {line}"))));
        }
        page.block(INDENT + 4, DIM, &cost(&query));
    }
}

fn merged(evidence: &[Evidence]) -> Vec<Evidence> {
    let mut merged_queries: Vec<Evidence> = Vec::new();
    for query in evidence {
        let same = |other: &&mut Evidence| {
            other.asked == query.asked && other.about == query.about && other.error == query.error
        };
        match merged_queries.iter_mut().find(same) {
            Some(existing) => {
                existing.millis += query.millis;
                existing.requests += query.requests;
                existing.series = existing.series.max(query.series);
                existing.points += query.points;
                existing.bytes += query.bytes;
            }
            None => merged_queries.push(query.clone()),
        }
    }
    merged_queries
}

fn cost(query: &Evidence) -> String {
    let Evidence { about, millis, requests, series, points, bytes, .. } = query;
    let about = if about.is_empty() { String::new() } else { format!("{about}: ") };
    let times = if *requests > 1 { format!("{requests} times, ") } else { String::new() };
    let result = match &query.error {
        Some(error) => format!("failed: {error}"),
        None if *points == 0 && *series == 0 => format!("{bytes} bytes"),
        None => format!("{series} series, {}", count(*points, "point")),
    };
    format!("{about}{times}{millis} ms, {result}")
}

/// Wraps a query after commas and spaces, or anywhere if there are none.
fn wrap_query(query: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut pieces: Vec<String> =
        query.split_inclusive([',', ' ']).map(ToOwned::to_owned).collect();
    pieces.reverse();
    while let Some(piece) = pieces.pop() {
        let space = width.saturating_sub(lines.last().map_or(0, |line| line.chars().count()));
        let length = piece.chars().count();
        match lines.last_mut() {
            Some(line) if length <= space => line.push_str(&piece),
            Some(line) if line.is_empty() => {
                line.extend(piece.chars().take(width));
                pieces.push(piece.chars().skip(width).collect());
                lines.push(String::new());
            }
            _ => {
                pieces.push(piece);
                lines.push(String::new());
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

fn summary(page: &mut Page<'_>, report: &DoctorReport, every: bool) {
    let number_of =
        |level| report.findings.iter().filter(|finding| finding.level == level).count() as u64;
    let (problems, warnings) = (number_of(Level::Problem), number_of(Level::Warning));
    let (problem_count, warning_count) = (count(problems, "problem"), count(warnings, "warning"));
    let (colour, text) = match (problems, warnings) {
        (0, 0) => (GREEN, "No findings.".to_owned()),
        (0, _) => (YELLOW, format!("{warning_count}.")),
        (_, 0) => (RED, format!("{problem_count}.")),
        _ => (RED, format!("{problem_count}, {warning_count}.")),
    };
    page.line(format_args!("\n{}", page.paint(colour, &text)));
    let mut queries: Vec<&Evidence> = Vec::new();
    for evidence in report.findings.iter().flat_map(|finding| &finding.evidence) {
        if !queries.contains(&evidence) {
            queries.push(evidence);
        }
    }
    let requests = count(queries.iter().map(|query| query.requests).sum(), "request");
    let millis: u64 = queries.iter().map(|query| query.millis).sum();
    let hint = if every { "" } else { "; --queries shows each of them" };
    let text = format!("{requests} to the server in {millis} ms{hint}.");
    page.line(format_args!("{}", page.paint(DIM, &text)));
}

fn render_suggested_flags(page: &mut Page<'_>, report: &DoctorReport) {
    page.heading("SUGGESTED FLAGS", "");
    let end = report.flags.len();
    page.line(format_args!("  plimsoll recommender \\"));
    for (at, flag) in report.flags.iter().enumerate() {
        page.line(format_args!("    {flag}{}", if at + 1 < end { " \\" } else { "" }));
    }
    if !report.secrets.is_empty() {
        let text = format!(
            "Also pass the secrets that you gave with {}, from a file or the environment. They are not shown here.",
            report.secrets.join(", ")
        );
        page.block(2, PLAIN, &text);
    }
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::style::tests::plain_output;

    #[test]
    fn wrapped_queries_fit_the_width_and_lose_nothing() {
        let query = "count by (namespace) (container_memory_working_set_bytes{job=\"kubelet\",container!=\"\"})";
        for width in [10, 40, 66, 200] {
            let lines = wrap_query(query, width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            let bare = |text: &str| text.replace(' ', "");
            assert_eq!(bare(&lines.concat()), bare(query));
        }
        assert!(wrap_query("", 10).is_empty());
    }

    #[test]
    fn color_changes_nothing_else_and_ascii_output_is_pure_ascii() {
        let sample = include_str!("../../../tests/data/doctor-prometheus.json");
        let report: DoctorReport = serde_json::from_str(sample).expect("a report");
        plain_output(|style| render(&report, style, true));
    }
}
