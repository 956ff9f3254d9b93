//! A table of policies for terminals.

use std::fmt::Write as _;

use plimsoll_core::backtest::report::{BacktestReport, PolicyReport};

use super::words::{
    amount, differences, extent, frontier_names, frontier_steps, is_profile, is_yardstick,
    policy_name, replicas, small_share, time, unknown, whole_share,
};
use crate::report::{
    recommend::{
        amounts::{counted, grouped, money},
        escape::in_glyphs,
    },
    style::{BOLD, DIM, GREEN, Page, RED, Style, YELLOW},
};

/// How many containers are named.
const MAX_WORST: usize = 5;
/// The longest name of a policy that is printed.
const MAX_NAME: usize = 28;

struct Column {
    heading: [&'static str; 2],
    /// Those with the largest number are left out first if the terminal is too narrow.
    rank: u8,
    cells: Vec<String>,
}

impl Column {
    fn new(
        heading: [&'static str; 2],
        rank: u8,
        report: &BacktestReport,
        cell: impl Fn(&PolicyReport) -> String,
    ) -> Self {
        Self { heading, rank, cells: report.policies.iter().map(cell).collect() }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count());
        cells.chain(self.heading.map(str::len)).max().unwrap_or_default()
    }
}

pub(super) fn render(report: &BacktestReport, style: &Style) -> String {
    let mut page = Page::new(style);
    write_head(&mut page, report);
    write_policies(&mut page, report);
    write_findings(&mut page, report);
    page.finish()
}

/// What was replayed, and what is unknown about it.
pub(super) fn write_head(page: &mut Page<'_>, report: &BacktestReport) {
    let dot = page.choose_glyphs("·", "-");
    let scope = in_glyphs(&report.scope, page.glyphs);
    let head = format!("{scope} {dot} {} {dot} {}", time(report), extent(report));
    page.block(0, BOLD, &head);
    if let Some(unknown) = unknown(report) {
        page.block(0, DIM, &format!("unknown: {unknown}"));
    }
    page.block(0, DIM, &replicas(report));
    for remark in &report.remarks {
        page.block(0, YELLOW, &in_glyphs(remark, page.glyphs));
    }
    page.line("");
}

pub(super) fn write_policies(page: &mut Page<'_>, report: &BacktestReport) {
    let names: Vec<String> = report
        .policies
        .iter()
        .enumerate()
        .map(|(index, policy)| {
            let name = policy_name(policy, is_profile(report, index));
            in_glyphs(&name, page.glyphs).chars().take(MAX_NAME).collect()
        })
        .collect();
    let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(6).max(6);
    let mut columns = columns(report);
    while name_width + columns.iter().map(|column| column.width() + 2).sum::<usize>() > page.width {
        let Some(least) = columns.iter().map(|column| column.rank).max().filter(|rank| *rank > 0)
        else {
            break;
        };
        columns.retain(|column| column.rank != least);
    }
    for line in 0..2 {
        let first = if line == 0 { "POLICY" } else { "" };
        let mut text = format!("{first:<name_width$}");
        for column in &columns {
            let _ = write!(text, "  {:>width$}", column.heading[line], width = column.width());
        }
        let text = page.paint(DIM, text.trim_end());
        page.line(text);
    }
    for (index, policy) in report.policies.iter().enumerate() {
        let name = format!("{:<name_width$}", names[index]);
        let color = if policy.is_on_frontier == Some(true) { GREEN } else { "" };
        let mut text = page.paint(color, &name);
        for column in &columns {
            let _ = write!(text, "  {:>width$}", column.cells[index], width = column.width());
        }
        page.line(text);
    }
}

fn columns(report: &BacktestReport) -> Vec<Column> {
    let of = |heading, rank, cell: &dyn Fn(&PolicyReport) -> String| {
        Column::new(heading, rank, report, cell)
    };
    // A yardstick is not judged.
    let judged = |policy: &PolicyReport, count: u64| {
        if is_yardstick(policy) { "-".to_owned() } else { grouped(count as f64, 0) }
    };
    let mut columns = vec![
        of(["CPU req", "cores"], 0, &|policy| amount(policy.cpu_requested)),
        of(["slack", "of it"], 3, &|policy| whole_share(policy.cpu_slack)),
        of(["short", "time"], 2, &|policy| {
            policy.cpu_short_time.map_or_else(|| "-".to_owned(), small_share)
        }),
        of(["bad", "days"], 0, &|policy| judged(policy, policy.bad_cpu_days)),
    ];
    if report.policies.iter().any(|policy| policy.memory_requested.is_some()) {
        let memory =
            |policy: &PolicyReport| policy.memory_requested.map_or_else(|| "-".to_owned(), amount);
        columns.push(of(["mem req", "GiB"], 0, &memory));
        columns.push(of(["slack", "of it"], 3, &|policy| whole_share(policy.memory_slack)));
        columns.push(of(["OOM-days", ""], 0, &|policy| grouped(policy.oom_days as f64, 0)));
    }
    columns.push(of(["changes", "per day"], 1, &|policy| {
        if is_yardstick(policy) { "-".to_owned() } else { grouped(policy.changes_per_day, 1) }
    }));
    if report.currency.is_some() {
        let cost =
            |policy: &PolicyReport| policy.monthly_cost.map_or_else(|| "-".to_owned(), money);
        columns.push(of(["A MONTH", currency(report)], 0, &cost));
    }
    columns
}

/// The currency, if it is one of three letters that a heading can have.
fn currency(report: &BacktestReport) -> &'static str {
    const KNOWN: [&str; 9] = ["USD", "EUR", "GBP", "JPY", "CHF", "INR", "CAD", "AUD", "CNY"];
    let known = report.currency.as_deref();
    KNOWN.into_iter().find(|code| Some(*code) == known).unwrap_or("money")
}

/// The frontier, differences, and containers that need a look.
pub(super) fn write_findings(page: &mut Page<'_>, report: &BacktestReport) {
    if !report.frontier.is_empty() {
        page.line("");
        let steps = frontier_steps(report).join(" ");
        let names = in_glyphs(&frontier_names(report), page.glyphs);
        labelled(
            page,
            "NOT BEATEN",
            GREEN,
            &format!("{names}. {}", in_glyphs(&steps, page.glyphs)),
        );
    }
    let compared: Vec<(&PolicyReport, String)> = report
        .policies
        .iter()
        .filter_map(|policy| Some((policy, differences(report, policy.against_current.as_ref()?))))
        .collect();
    for (index, (policy, text)) in compared.iter().enumerate() {
        if index == 0 {
            page.line("");
        }
        let label = if index == 0 { "VS CURRENT" } else { "" };
        let name = in_glyphs(&policy.name, page.glyphs);
        labelled(page, label, BOLD, &format!("{name} {text}"));
    }
    for (index, worst) in report.worst.iter().take(MAX_WORST).enumerate() {
        if index == 0 {
            page.line("");
        }
        let label = if index == 0 { "LOOK AT" } else { "" };
        let text = format!(
            "{} {} under {}: {}",
            worst.workload, worst.container, worst.policy, worst.remark
        );
        labelled(page, label, RED, &in_glyphs(&text, page.glyphs));
    }
    if report.worst.len() > MAX_WORST {
        let more = counted(report.worst.len() - MAX_WORST, "more container");
        labelled(page, "", "", &format!("and {more}: -o json, or -o html=FILE"));
    }
}

/// A label, followed by text that is wrapped beside it.
fn labelled(page: &mut Page<'_>, label: &str, color: &str, text: &str) {
    const WIDTH: usize = 12;
    for (index, line) in page.wrap(text, WIDTH).iter().enumerate() {
        let label = if index == 0 { label } else { "" };
        let label = page.paint(color, &format!("{label:<WIDTH$}"));
        page.line(format_args!("{label}{line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        backtest::test_reports::{assert_golden, named, sample, style, without_prices},
        style::Glyphs,
    };

    #[test]
    fn the_sample_of_the_documentation_is_printed() {
        assert_golden("table-96.txt", &render(&sample(), &style(96)));
        assert_golden("table-80-without-prices.txt", &render(&without_prices(), &style(80)));
    }

    #[test]
    fn lines_fit_the_terminal() {
        for (report, widths) in [(sample(), [80, 96, 132]), (without_prices(), [80, 96, 132])] {
            for width in widths {
                for line in render(&report, &style(width)).lines() {
                    assert!(line.chars().count() <= width, "{width}: {line}");
                }
            }
        }
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        let style = Style { glyphs: Glyphs::Ascii, ..style(96) };
        let text = render(&named("\u{1b}[2Jшop\u{202e}\n"), &style);
        assert!(text.is_ascii() && !text.contains('\u{1b}'), "{text}");
    }
}
