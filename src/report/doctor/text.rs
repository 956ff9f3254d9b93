//! The report for people: plain lines that read well in 80 columns, without colour and in a pipe.

use super::report::{DoctorReport, Evidence, Finding, Level, Topic};
use crate::report::style::{BOLD, DIM, GREEN, RED, Style, YELLOW, push_line};

/// Where the text of a finding begins.
const INDENT: usize = 7;

/// The whole report; with every question that was asked, or only those that say something.
pub fn render(report: &DoctorReport, look: &Style, every: bool) -> String {
    let mut out = String::new();
    let server = &report.server;
    let release = server.version.as_deref().map(|version| format!(" {version}"));
    push_line(
        &mut out,
        format_args!(
            "{}  {}{}",
            look.paint(BOLD, &server.address),
            server.kind.name(),
            release.unwrap_or_default()
        ),
    );
    // Several findings may rest on the same questions: they are told once.
    let mut told: Vec<&[Evidence]> = Vec::new();
    for topic in Topic::ALL {
        let findings: Vec<_> = report.findings.iter().filter(|one| one.topic == topic).collect();
        if findings.is_empty() {
            continue;
        }
        look.heading(&mut out, topic.heading(), "");
        for (at, finding) in findings.iter().enumerate() {
            render_finding(&mut out, finding, look);
            let next = findings.get(at + 1).map(|next| &next.evidence);
            let evidence = &*finding.evidence;
            if next != Some(&finding.evidence)
                && !told.contains(&evidence)
                && (every || shows_queries(finding))
            {
                render_queries(&mut out, evidence, look);
                told.push(evidence);
            }
        }
    }
    summary(&mut out, report, look, every);
    render_suggested_flags(&mut out, report, look);
    out
}

/// Whether the questions behind a finding say more than it does itself: those for history, which will be asked again
/// and again, and the few that something is wrong with. That one failed says nothing: some ask whether they do.
fn shows_queries(finding: &Finding) -> bool {
    let evidence = &finding.evidence;
    evidence.iter().any(|one| one.range.is_some())
        || (finding.level > Level::Ok && evidence.len() <= 2)
}

fn render_finding(out: &mut String, finding: &Finding, look: &Style) {
    let (colour, mark) = match finding.level {
        Level::Ok => (GREEN, "ok"),
        Level::Warning => (YELLOW, "warn"),
        Level::Problem => (RED, "bad"),
    };
    let text = match finding.level {
        Level::Ok => finding.message.clone(),
        _ => format!("{} [{}]", finding.message, finding.code),
    };
    for (index, line) in look.wrap(&text, INDENT).iter().enumerate() {
        let mark = if index == 0 { mark } else { "" };
        let mark = look.paint(colour, &format!("{mark:<4}"));
        push_line(out, format_args!("  {mark} {line}"));
    }
}

fn render_queries(out: &mut String, evidence: &[Evidence], look: &Style) {
    let bullet = look.choose_glyphs("·", "-");
    for question in merged(evidence) {
        let lines = wrap_query(&question.asked, look.width - INDENT - 2);
        for (index, line) in lines.iter().enumerate() {
            let bullet = if index == 0 { bullet } else { " " };
            push_line(out, format_args!("       {}", look.paint(DIM, &format!("{bullet} {line}"))));
        }
        for line in look.wrap(&took(&question), INDENT + 4) {
            push_line(out, format_args!("           {}", look.paint(DIM, &line)));
        }
    }
}

/// The same question about several times as one.
fn merged(evidence: &[Evidence]) -> Vec<Evidence> {
    let mut all: Vec<Evidence> = Vec::new();
    for one in evidence {
        let same = |other: &&mut Evidence| {
            other.asked == one.asked && other.about == one.about && other.error == one.error
        };
        match all.iter_mut().find(same) {
            Some(known) => {
                known.millis += one.millis;
                known.requests += one.requests;
                known.series = known.series.max(one.series);
                known.points += one.points;
                known.bytes += one.bytes;
            }
            None => all.push(one.clone()),
        }
    }
    all
}

/// What a question took.
fn took(question: &Evidence) -> String {
    let Evidence { about, millis, requests, series, points, bytes, .. } = question;
    let about = if about.is_empty() { String::new() } else { format!("{about}: ") };
    let times = if *requests > 1 { format!("{requests} times, ") } else { String::new() };
    let came = match &question.error {
        Some(error) => format!("no answer: {error}"),
        None if *points == 0 && *series == 0 => format!("{bytes} bytes"),
        None => format!("{series} series, {}", count(*points, "point", "points")),
    };
    format!("{about}{times}{millis} ms, {came}")
}

/// A query in lines that fit: it is broken behind commas and blanks, and anywhere if there are none.
fn wrap_query(query: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut pieces: Vec<String> =
        query.split_inclusive([',', ' ']).map(ToOwned::to_owned).collect();
    pieces.reverse();
    while let Some(piece) = pieces.pop() {
        let room = width.saturating_sub(lines.last().map_or(0, |line| line.chars().count()));
        let length = piece.chars().count();
        match lines.last_mut() {
            Some(line) if length <= room => line.push_str(&piece),
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

fn summary(out: &mut String, report: &DoctorReport, look: &Style, every: bool) {
    let of = |level| report.findings.iter().filter(|finding| finding.level == level).count() as u64;
    let (problems, warnings) = (of(Level::Problem), of(Level::Warning));
    let (colour, text) = match (problems, warnings) {
        (0, 0) => (GREEN, "Nothing to look at.".to_owned()),
        (0, warnings) => (YELLOW, format!("{}.", count(warnings, "warning", "warnings"))),
        (problems, 0) => (RED, format!("{}.", count(problems, "problem", "problems"))),
        (problems, warnings) => {
            let problems = count(problems, "problem", "problems");
            (RED, format!("{problems}, {}.", count(warnings, "warning", "warnings")))
        }
    };
    push_line(out, format_args!("\n{}", look.paint(colour, &text)));
    let mut asked: Vec<&Evidence> = Vec::new();
    for evidence in report.findings.iter().flat_map(|finding| &finding.evidence) {
        if !asked.contains(&evidence) {
            asked.push(evidence);
        }
    }
    let requests = count(asked.iter().map(|one| one.requests).sum(), "request", "requests");
    let millis: u64 = asked.iter().map(|one| one.millis).sum();
    let hint = if every { "" } else { "; --queries shows each of them" };
    let text = format!("{requests} to the server in {millis} ms{hint}.");
    push_line(out, format_args!("{}", look.paint(DIM, &text)));
}

fn render_suggested_flags(out: &mut String, report: &DoctorReport, look: &Style) {
    look.heading(out, "FLAGS TO USE", "");
    let end = report.flags.len();
    push_line(out, format_args!("  plimsoll recommender \\"));
    for (at, flag) in report.flags.iter().enumerate() {
        push_line(out, format_args!("    {flag}{}", if at + 1 < end { " \\" } else { "" }));
    }
    if !report.secrets.is_empty() {
        let text = format!(
            "And the secrets that you gave with {}, from a file or the environment: they are not repeated here.",
            report.secrets.join(", ")
        );
        for line in look.wrap(&text, 2) {
            push_line(out, format_args!("  {line}"));
        }
    }
}

fn count(number: u64, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::style::Glyphs;

    #[test]
    fn queries_are_folded_into_lines_that_fit_and_lose_nothing() {
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
    fn colours_change_nothing_but_colour_and_ascii_is_seven_bits() {
        let sample = include_str!("../../../tests/data/doctor-prometheus.json");
        let report: DoctorReport = serde_json::from_str(sample).expect("a report");
        let look = |colour, glyphs| Style { width: 80, colour, glyphs, command: String::new() };
        let plain = render(&report, &look(false, Glyphs::Ascii), true);
        assert!(plain.is_ascii() && !plain.contains('\x1b'), "{plain}");
        let painted = render(&report, &look(true, Glyphs::Ascii), true);
        assert_ne!(painted, plain);
        let mut stripped = String::new();
        for (index, part) in painted.split('\x1b').enumerate() {
            let rest = if index == 0 { part } else { part.split_once('m').map_or("", |it| it.1) };
            stripped.push_str(rest);
        }
        assert_eq!(stripped, plain);
    }
}
