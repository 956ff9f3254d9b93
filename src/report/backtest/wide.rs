//! The table, with a line for each policy and day: for one workload or for all of them.

use std::fmt::Write as _;

use plimsoll_core::backtest::report::BacktestReport;

use super::{
    table::{write_findings, write_head, write_policies},
    words::amount,
};
use crate::report::{
    recommend::{
        amounts::{day, grouped},
        escape::in_glyphs,
    },
    style::{BOLD, DIM, Page, Style},
};

pub(super) fn render(report: &BacktestReport, style: &Style) -> String {
    let mut page = Page::new(style);
    write_head(&mut page, report);
    write_policies(&mut page, report);
    write_findings(&mut page, report);
    for policy in &report.policies {
        page.line("");
        let mut title = in_glyphs(&policy.name, page.glyphs);
        if !policy.settings.is_empty() {
            let _ = write!(title, " ({})", in_glyphs(&policy.settings, page.glyphs));
        }
        let title = page.paint(BOLD, &title);
        page.line(title);
        let head = format!(
            "  {:<12}  {:>10}  {:>10}  {:>10}  {:>5}",
            "DAY", "CPU req", "CPU used", "mem req", "OOMs"
        );
        let head = page.paint(DIM, &head);
        page.line(head);
        for of in &policy.days {
            page.line(format_args!(
                "  {:<12}  {:>10}  {:>10}  {:>10}  {:>5}",
                day(of.day),
                amount(of.cpu_requested),
                amount(of.cpu_used),
                amount(of.memory_requested),
                grouped(of.oom_kills as f64, 0)
            ));
        }
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::backtest::test_reports::{sample, style};

    #[test]
    fn each_policy_has_a_line_for_each_day() {
        let report = sample();
        let text = render(&report, &style(96));
        let lines =
            text.lines().filter(|line| line.starts_with("  ") && line.contains(" Nov 2026  "));
        let days: usize = report.policies.iter().map(|policy| policy.days.len()).sum();
        assert_eq!(lines.count(), days);
        assert!(days > report.policies.len());
    }
}
