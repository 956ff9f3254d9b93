//! What `--watch` writes: a screen that is redrawn, paragraphs, or lines of JSON.

use std::{fmt::Display, time::Duration};

use plimsoll_core::types::Time;
use serde::Serialize;
use serde_json::Value;

use crate::{
    cli::{
        Exit,
        output::{CliError, OutputFormat, escape_to_one_line},
    },
    report::{
        changes::changed_fields,
        style::{BOLD, DIM, RED, Style, format_span},
    },
};

/// The number of changed fields to name; others are counted.
const MOST_NAMED_CHANGES: usize = 3;
/// Moves the cursor to the top left corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// What to write for one reading.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// For standard output; can be empty.
    pub result: String,
    /// A warning for standard error.
    pub warning: Option<String>,
}

/// Turns readings into what is written: a screen that is redrawn, paragraphs, or lines of JSON.
#[derive(Debug)]
pub struct WatchView {
    interval: Duration,
    format: OutputFormat,
    last: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    time: Time,
    report: Value,
    text: String,
}

impl WatchView {
    pub const fn new(interval: Duration, format: OutputFormat) -> Self {
        Self { interval, format, last: None }
    }

    /// Renders a reading. `screen` is the style and the number of rows of a terminal that can be redrawn.
    pub fn frame<R: Serialize, E: Display>(
        &mut self,
        now: Time,
        reading: Result<R, E>,
        (style, screen): (&Style, Option<usize>),
        render: impl FnOnce(&R, &Style) -> String,
    ) -> Result<Frame, CliError> {
        let now = Time::from_secs(now.as_secs());
        let report = match reading {
            Ok(report) => report,
            Err(error) => return Ok(self.failure(now, &error.to_string(), style, screen)),
        };
        let value = serde_json::to_value(&report)
            .map_err(|error| CliError::new(Exit::Internal, format!("report: {error}")))?;
        if self.format == OutputFormat::Json {
            return Ok(Frame { result: format!("{value}\n"), warning: None });
        }
        let changes = self.last.as_ref().map(|last| changed_fields(&last.report, &value));
        let changes = changes.as_deref().map_or_else(String::new, describe);
        let text = render(&report, style);
        let result = match screen {
            Some(rows) => {
                let head = self.head(now, &changes, style);
                format!("{CLEAR}{}", fit(&[&head, ""], &text, rows, style))
            }
            None => format!("{}\n{text}", join_parts(&[&format!("--- {now}"), &changes])),
        };
        self.last = Some(Reading { time: now, report: value, text });
        Ok(Frame { result, warning: None })
    }

    fn failure(&self, now: Time, error: &str, style: &Style, screen: Option<usize>) -> Frame {
        let error = escape_to_one_line(error);
        let interval = format_span(self.interval);
        let message = format!("{error}; trying again every {interval}");
        let (Some(rows), OutputFormat::Text) = (screen, self.format) else {
            return Frame { result: String::new(), warning: Some(message) };
        };
        let mut lines = vec![self.head(now, "", style)];
        lines.extend(style.wrap(&message, 0).iter().map(|line| style.paint(RED, line)));
        lines.push(String::new());
        let text = self.last.as_ref().map_or("", |last| {
            lines.push(style.paint(DIM, &format!("Last reading: {}", last.time)));
            &last.text
        });
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let result = format!("{CLEAR}{}", fit(&lines, text, rows, style));
        Frame { result, warning: None }
    }

    /// The first line of a screen: when it was read, and what changed.
    fn head(&self, now: Time, changes: &str, style: &Style) -> String {
        let interval = format!("every {}", format_span(self.interval));
        let time = now.to_string();
        let left = style.width.saturating_sub(time.len());
        let rest: String = join_parts(&["", &interval, changes]).chars().take(left).collect();
        format!("{}{}", style.paint(BOLD, &time), style.paint(DIM, &rest))
    }
}

/// Joins the parts of a line, the first of which may be empty.
fn join_parts(parts: &[&str]) -> String {
    let (first, others) = parts.split_first().unwrap_or((&"", &[]));
    let others = others.iter().filter(|part| !part.is_empty());
    others.fold((*first).to_owned(), |line, part| line + "  " + part)
}

fn describe(changed: &[String]) -> String {
    if changed.is_empty() {
        return "no change".to_owned();
    }
    let shown = changed.len().min(MOST_NAMED_CHANGES);
    let names: Vec<String> = changed[..shown].iter().map(|name| escape_to_one_line(name)).collect();
    let names = names.join(", ");
    match changed.len() - shown {
        0 => format!("changed: {names}"),
        more => format!("changed: {names} and {more} more"),
    }
}

/// The lines of a screen. Those that do not fit are counted in the last one: if they scrolled, the head would
/// be lost.
fn fit(head: &[&str], text: &str, rows: usize, style: &Style) -> String {
    let mut lines: Vec<String> =
        head.iter().copied().chain(text.lines()).map(ToOwned::to_owned).collect();
    // The cursor is below the last line.
    let room = rows.saturating_sub(1).max(2);
    if lines.len() > room {
        let hidden = lines.len() + 1 - room;
        lines.truncate(room - 1);
        lines.push(style.paint(DIM, &format!("{hidden} more lines: the terminal has {rows} rows")));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::style::Glyphs;

    const NOW: Time = Time::from_secs(1_800_000_000);
    const INTERVAL: Duration = Duration::from_secs(5);

    fn style() -> Style {
        Style { width: 80, colour: false, glyphs: Glyphs::Ascii, command: "plimsoll".to_owned() }
    }

    fn frames(
        format: OutputFormat,
        screen: Option<usize>,
        readings: &[Result<Value, &str>],
    ) -> Vec<Frame> {
        let mut view = WatchView::new(INTERVAL, format);
        let frames = readings.iter().zip(0..).map(|(reading, turn)| {
            let now = NOW.later(INTERVAL * turn);
            let render = |report: &Value, _: &Style| format!("pods {}\n", report["pods"]);
            view.frame(now, reading.clone(), (&style(), screen), render)
                .expect("it can be rendered")
        });
        frames.collect()
    }

    fn pods(count: i32) -> Value {
        json!({"time": count, "pods": count})
    }

    #[test]
    fn a_pipe_gets_paragraphs_and_failures_go_to_standard_error() {
        let frames = frames(
            OutputFormat::Text,
            None,
            &[Ok(pods(1)), Ok(pods(1)), Err("re\nfused"), Ok(pods(2))],
        );
        let results: Vec<&str> = frames.iter().map(|frame| &*frame.result).collect();
        assert_eq!(
            results,
            [
                "--- 2027-01-15T08:00:00Z\npods 1\n",
                "--- 2027-01-15T08:00:05Z  no change\npods 1\n",
                "",
                "--- 2027-01-15T08:00:15Z  changed: pods\npods 2\n",
            ]
        );
        let warnings: Vec<Option<&str>> =
            frames.iter().map(|frame| frame.warning.as_deref()).collect();
        assert_eq!(warnings, [None, None, Some("re\\nfused; trying again every 5 s"), None]);
    }

    #[test]
    fn a_terminal_is_redrawn_and_keeps_the_last_reading_after_a_failure() {
        let frames =
            frames(OutputFormat::Text, Some(24), &[Ok(pods(1)), Ok(pods(2)), Err("refused")]);
        assert_eq!(frames[0].result, "\x1b[H\x1b[2J2027-01-15T08:00:00Z  every 5 s\n\npods 1\n");
        assert_eq!(
            frames[1].result,
            "\x1b[H\x1b[2J2027-01-15T08:00:05Z  every 5 s  changed: pods\n\npods 2\n"
        );
        assert_eq!(
            frames[2].result,
            "\x1b[H\x1b[2J2027-01-15T08:00:10Z  every 5 s\nrefused; trying again every 5 s\n\n\
             Last reading: 2027-01-15T08:00:05Z\npods 2\n"
        );
        assert!(frames.iter().all(|frame| frame.warning.is_none()));
    }

    #[test]
    fn json_is_one_document_per_line_also_on_a_terminal() {
        let frames =
            frames(OutputFormat::Json, Some(24), &[Ok(pods(1)), Err("refused"), Ok(pods(2))]);
        let lines: String = frames.iter().map(|frame| &*frame.result).collect();
        let documents: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(documents, [pods(1), pods(2)]);
        assert!(frames[1].warning.as_ref().is_some_and(|warning| warning.starts_with("refused; ")));
    }

    #[test]
    fn a_screen_has_no_more_lines_than_the_terminal() {
        let text = "a\nb\nc\nd\ne\n";
        assert_eq!(fit(&["head"], text, 7, &style()), "head\na\nb\nc\nd\ne\n");
        assert_eq!(
            fit(&["head"], text, 6, &style()),
            "head\na\nb\nc\n2 more lines: the terminal has 6 rows\n"
        );
        for rows in 0..9 {
            assert!(fit(&["head"], text, rows, &style()).lines().count() < rows.max(3));
        }
        let changed: Vec<String> = (0..5).map(|field| format!("field{field}")).collect();
        assert_eq!(describe(&changed), "changed: field0, field1, field2 and 2 more");
    }
}
