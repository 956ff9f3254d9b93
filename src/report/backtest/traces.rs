//! The comparison of rules on trace files, as a table, Markdown, CSV and JSON.

use std::fmt::Write as _;

use plimsoll_core::backtest::{
    report::Interval,
    trace::{TraceDifference, TraceReport, TraceRow},
};

use super::BacktestForm;
use crate::report::{
    recommend::{
        csv::{protected, push_cell},
        escape::{in_glyphs, one_line},
    },
    style::{BOLD, DIM, Page, Style},
};

const HEADINGS: [&str; 6] =
    ["rule", "slack", "shortfall", "time above", "changes/day", "asked/used"];

/// Renders a form. Forms that need workloads are rendered as a table.
pub fn render(
    form: BacktestForm,
    report: &TraceReport,
    style: &Style,
) -> Result<String, serde_json::Error> {
    Ok(match form {
        BacktestForm::Json => serde_json::to_string_pretty(report)? + "\n",
        BacktestForm::Csv => csv(report),
        BacktestForm::Markdown => markdown(report),
        _ => table(report, style),
    })
}

/// A share with its interval: `53.3 % [41.5, 65.2]`.
fn share(of: Interval, digits: usize) -> String {
    let Interval { estimate, lower, upper } = of;
    format!(
        "{:.digits$} % [{:.digits$}, {:.digits$}]",
        estimate * 100.0,
        lower * 100.0,
        upper * 100.0
    )
}

fn number(of: Interval) -> String {
    let Interval { estimate, lower, upper } = of;
    format!("{estimate:.2} [{lower:.2}, {upper:.2}]")
}

fn cells(row: &TraceRow) -> [String; 6] {
    [
        row.title.clone(),
        share(row.slack, 1),
        share(row.shortfall, 2),
        share(row.time_above, 1),
        number(row.changes_per_day),
        format!("{:.2}", row.requested_by_used),
    ]
}

fn signed(of: Interval, digits: usize, scale: f64) -> String {
    let Interval { estimate, lower, upper } = of;
    let [estimate, lower, upper] = [estimate, lower, upper].map(|value| value * scale);
    format!("{estimate:+.digits$} [{lower:+.digits$}, {upper:+.digits$}]")
}

/// The differences of a rule to the first one, in points.
fn difference(of: &TraceDifference) -> String {
    format!(
        "slack {}, shortfall {}, above {}, changes {}",
        signed(of.slack, 1, 100.0),
        signed(of.shortfall, 2, 100.0),
        signed(of.time_above, 1, 100.0),
        signed(of.changes_per_day, 2, 1.0)
    )
}

fn title<'a>(report: &'a TraceReport, rule: &'a str) -> &'a str {
    report.rows.iter().find(|row| row.rule == rule).map_or(rule, |row| &row.title)
}

fn table(report: &TraceReport, style: &Style) -> String {
    let mut page = Page::new(style);
    let names = in_glyphs(&report.series.join(", "), page.glyphs);
    page.block(0, BOLD, &format!("{} series of CPU: {names}", report.series.len()));
    for name in &report.too_short {
        let name = in_glyphs(name, page.glyphs);
        page.block(0, DIM, &format!("{name} is left out: it is shorter than 25 hours"));
    }
    page.line("");
    let rows: Vec<[String; 6]> = report.rows.iter().map(cells).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADINGS[column].len()]).max().unwrap_or_default()
    };
    let line = |cells: [&str; 6]| {
        let mut text = String::new();
        for (column, cell) in cells.into_iter().enumerate() {
            let width = width(column);
            let _ = if column == 0 {
                write!(text, "{cell:<width$}")
            } else {
                write!(text, "  {cell:>width$}")
            };
        }
        text
    };
    let head = line(HEADINGS);
    let head = page.paint(DIM, &head);
    page.line(head);
    for row in &rows {
        let row: [&str; 6] = std::array::from_fn(|column| &*row[column]);
        page.line(line(row));
    }
    if let Some(first) = report.rows.first().filter(|_| !report.differences.is_empty()) {
        page.heading(&format!("DIFFERENCE TO {}", first.title), "points; negative is better");
        for of in &report.differences {
            page.block(2, "", &format!("{}: {}", title(report, &of.rule), difference(of)));
        }
    }
    page.finish()
}

fn markdown(report: &TraceReport) -> String {
    let mut text = format!("| {} |\n| ---{} |\n", HEADINGS.join(" | "), " | ---:".repeat(5));
    for row in &report.rows {
        let _ = writeln!(text, "| {} |", cells(row).join(" | "));
    }
    if let Some(first) = report.rows.first().filter(|_| !report.differences.is_empty()) {
        let _ = writeln!(text, "\nDifference to {} (points; negative is better):\n", first.title);
        for of in &report.differences {
            let _ = writeln!(text, "- {}: {}", title(report, &of.rule), difference(of));
        }
    }
    text
}

/// A row for each rule and series.
fn csv(report: &TraceReport) -> String {
    let mut text =
        "rule,series,slack,shortfall,time_above,changes_per_day,requested_by_used\r\n".to_owned();
    for row in &report.rows {
        for (series, figures) in report.series.iter().zip(&row.by_series) {
            push_cell(&mut text, &protected(&one_line(&row.rule)), ',');
            text.push(',');
            push_cell(&mut text, &protected(&one_line(series)), ',');
            let figures = [
                figures.slack,
                figures.shortfall,
                figures.time_above,
                figures.changes_per_day,
                figures.requested_by_used,
            ];
            for figure in figures {
                let _ = write!(text, ",{figure}");
            }
            text.push_str("\r\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use plimsoll_core::backtest::trace::TraceFigures;

    use super::*;
    use crate::report::backtest::test_reports::{assert_golden, style};

    fn sample() -> TraceReport {
        let of = |estimate: f64, by: f64| Interval {
            estimate,
            lower: estimate - by,
            upper: estimate + by,
        };
        let row = |rule: &str, title: &str, slack: f64| TraceRow {
            rule: rule.to_owned(),
            title: title.to_owned(),
            slack: of(slack, 0.118),
            shortfall: of(0.1175, 0.112),
            time_above: of(0.044, 0.03),
            changes_per_day: of(0.65, 0.42),
            requested_by_used: 2.17,
            by_series: vec![TraceFigures { slack, shortfall: 0.1, ..TraceFigures::default() }; 2],
        };
        TraceReport {
            series: vec!["input0".to_owned(), "=input10".to_owned()],
            too_short: vec!["short".to_owned()],
            rows: vec![
                row("vpa", "VPA 1.8.1 (25m floor)", 0.533),
                row("krr", "KRR simple (10m floor)", 0.44),
            ],
            differences: vec![TraceDifference {
                rule: "krr".to_owned(),
                slack: of(-0.094, 0.047),
                shortfall: of(0.0174, 0.07),
                time_above: of(0.046, 0.033),
                changes_per_day: of(0.14, 0.4),
            }],
        }
    }

    #[test]
    fn the_table_has_intervals_and_differences() {
        assert_golden(
            "traces.txt",
            &render(BacktestForm::Table, &sample(), &style(96)).expect("a table"),
        );
        let markdown = render(BacktestForm::Markdown, &sample(), &style(96)).expect("Markdown");
        assert!(markdown.contains("| VPA 1.8.1 (25m floor) | 53.3 % [41.5, 65.1] |"), "{markdown}");
    }

    #[test]
    fn data_is_read_back() {
        let json = render(BacktestForm::Json, &sample(), &style(96)).expect("JSON");
        assert_eq!(serde_json::from_str::<TraceReport>(&json).expect("a report"), sample());
        let csv = render(BacktestForm::Csv, &sample(), &style(96)).expect("CSV");
        let rows = ::csv::Reader::from_reader(csv.as_bytes()).into_records();
        let rows: Vec<_> = rows.map(|row| row.expect("a row")).collect();
        assert_eq!((rows.len(), &rows[1][1], &rows[3][2]), (4, "'=input10", "0.44"));
    }
}
