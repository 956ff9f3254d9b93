//! The report in the Markdown of GitHub and GitLab.

use std::fmt::Write as _;

use plimsoll_core::backtest::report::{BacktestReport, PolicyReport};

use super::words::{
    amount, differences, extent, frontier_names, frontier_steps, is_yardstick, policy_name,
    replicas, small_share, time, unknown, whole_share,
};
use crate::report::recommend::{
    amounts::{counted, grouped, money},
    escape::one_line,
};

/// How many containers are named.
const MAX_WORST: usize = 20;

pub(super) fn render(report: &BacktestReport) -> String {
    let mut text = String::new();
    let mut line = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    line(&format!("**{}**: {} · {}", escape(&report.scope), time(report), extent(report)));
    if let Some(unknown) = unknown(report) {
        line(&format!("\nUnknown: {unknown}."));
    }
    line(&format!("\nAssumed: {}.", replicas(report)));
    for remark in &report.remarks {
        line(&format!("\n> {}", escape(remark)));
    }
    line("");
    let mut head = vec!["Policy", "CPU requested, cores", "slack", "short, time", "bad days"];
    head.extend(["Memory requested, GiB", "slack", "OOM-days", "changes a day"]);
    let cost = report.currency.as_ref().map(|currency| format!("A month, {}", escape(currency)));
    head.extend(cost.as_deref());
    line(&format!("| {} |", head.join(" | ")));
    line(&format!("| --- |{}", " ---: |".repeat(head.len() - 1)));
    for policy in &report.policies {
        line(&format!("| {} |", row(report, policy).join(" | ")));
    }
    if !report.frontier.is_empty() {
        let steps = frontier_steps(report).join(" ");
        line(&format!("\n**Not beaten**: {}. {}", escape(&frontier_names(report)), escape(&steps)));
    }
    let compared = report
        .policies
        .iter()
        .filter_map(|policy| Some((policy, differences(report, policy.against_current.as_ref()?))));
    for (index, (policy, text)) in compared.enumerate() {
        if index == 0 {
            line("\n**Against current** (95 % intervals; ~ is no difference)\n");
        }
        line(&format!("- {}: {}", escape(&policy.name), text.replace('~', "\\~")));
    }
    for (index, worst) in report.worst.iter().take(MAX_WORST).enumerate() {
        if index == 0 {
            line("\n**Look at**\n");
        }
        line(&format!(
            "- {} {} under {}: {}",
            escape(&worst.workload),
            escape(&worst.container),
            escape(&worst.policy),
            escape(&worst.remark)
        ));
    }
    if report.worst.len() > MAX_WORST {
        line(&format!("- and {}", counted(report.worst.len() - MAX_WORST, "more container")));
    }
    text
}

fn row(report: &BacktestReport, policy: &PolicyReport) -> Vec<String> {
    let is_judged = !is_yardstick(policy);
    let dash = || "-".to_owned();
    let name = escape(&policy_name(policy, false));
    let name = if policy.is_on_frontier == Some(true) { format!("**{name}**") } else { name };
    let mut cells = vec![
        name,
        amount(policy.cpu_requested),
        whole_share(policy.cpu_slack),
        policy.cpu_short_time.map_or_else(dash, small_share),
        if is_judged { grouped(policy.bad_cpu_days as f64, 0) } else { dash() },
        policy.memory_requested.map_or_else(dash, amount),
        whole_share(policy.memory_slack),
        grouped(policy.oom_days as f64, 0),
        if is_judged { grouped(policy.changes_per_day, 1) } else { dash() },
    ];
    if report.currency.is_some() {
        cells.push(policy.monthly_cost.map_or_else(dash, money));
    }
    cells
}

/// Escapes everything that Markdown gives a meaning, so that a name is a text.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            // Without a space a name cannot mention anybody or anything.
            '@' | '#' => {
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '!' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::backtest::test_reports::{assert_golden, named, sample};

    #[test]
    fn the_sample_of_the_documentation_is_printed() {
        assert_golden("sample.md", &render(&sample()));
    }

    #[test]
    fn names_are_texts() {
        let text = render(&named("a|b](x)<img>@all #1 `x`"));
        assert!(
            !text.contains("<img>") && !text.contains("@all") && !text.contains(" #1"),
            "{text}"
        );
        let table = text.lines().find(|line| line.contains("img") && line.starts_with("| "));
        let table = table.expect("a row");
        assert_eq!(table.replace("\\|", "").matches('|').count(), 11, "{table}");
    }
}
