//! The table of policies, what no other beats, and containers that need a look.

use plimsoll_core::backtest::report::{BacktestReport, PolicyReport};

use super::{Cell, open_section, write_table};
use crate::report::{
    backtest::words::{
        amount, differences, frontier_names, frontier_steps, is_yardstick, policy_name, replicas,
        small_share, unknown, whole_share,
    },
    recommend::{
        amounts::{counted, grouped, money},
        html::markup::Markup,
    },
};

/// How many containers are listed.
const MAX_WORST: usize = 100;

/// Writes what concerns all policies.
pub(super) fn write(page: &mut Markup, report: &BacktestReport) {
    if let Some(unknown) = unknown(report) {
        page.raw("<p class=\"problem\">Unknown: ");
        page.text(format_args!("{unknown}. Policies that differ only there are equal."));
        page.raw("</p>\n");
    }
    page.raw("<p>Assumed: ");
    page.text(format_args!("{}.", replicas(report)));
    page.raw("</p>\n");
    for remark in &report.remarks {
        page.raw("<p class=\"problem\">");
        page.text(remark);
        page.raw("</p>\n");
    }
    open_section(page, "policies", "Policies");
    write_policies(page, report);
    if !report.frontier.is_empty() {
        page.raw("<p class=\"not-beaten\"><b>Not beaten</b> by any other: ");
        page.text(format_args!("{}. {}", frontier_names(report), frontier_steps(report).join(" ")));
        page.raw("</p>\n");
    }
    let compared: Vec<(&PolicyReport, String)> = report
        .policies
        .iter()
        .filter_map(|policy| Some((policy, differences(report, policy.against_current.as_ref()?))))
        .collect();
    if !compared.is_empty() {
        page.raw("<p>Against what was requested in fact, with 95 % intervals of a bootstrap over workloads (~ is no difference):</p>\n<ul>\n");
        for (policy, text) in compared {
            page.raw("<li>");
            page.element("b", &policy.name);
            page.text(format_args!(": {text}"));
            page.raw("</li>\n");
        }
        page.raw("</ul>\n");
    }
    page.raw("</section>\n");
}

fn write_policies(page: &mut Markup, report: &BacktestReport) {
    let has_memory = report.policies.iter().any(|policy| policy.memory_requested.is_some());
    let mut headings = vec!["Policy", "Applied", "CPU requested, cores", "Slack", "Short, time"];
    headings.extend(["Short, use", "Bad CPU days", "At the CPU limit"]);
    if has_memory {
        headings.extend(["Memory requested, GiB", "Memory slack", "Over the request", "OOM kills"]);
        headings.extend(["OOM-days", "Serious"]);
    }
    headings.extend(["Changes a day", "Evictions", "Resizes", "First, h"]);
    let cost = report.currency.as_ref().map(|currency| format!("A month, {currency}"));
    headings.extend(cost.as_deref());
    headings.push("Not beaten");
    let rows: Vec<Vec<Cell>> =
        report.policies.iter().map(|policy| row(report, policy, has_memory)).collect();
    let caption = "Policies: ratios are ratios of sums over all containers and days";
    write_table(page, caption, &headings, &rows);
}

fn row(report: &BacktestReport, policy: &PolicyReport, has_memory: bool) -> Vec<Cell> {
    let number = |value: f64, text: String| Cell::Number(Some(value), text);
    let count = |value: u64| number(value as f64, grouped(value as f64, 0));
    let optional = |value: Option<f64>, text: &dyn Fn(f64) -> String| {
        Cell::Number(value, value.map_or_else(|| "unknown".to_owned(), text))
    };
    let share = |value: Option<f64>| optional(value, &|value| whole_share(Some(value)));
    let small = |value: Option<f64>| optional(value, &small_share);
    let mut cells = vec![
        Cell::Text(policy_name(policy, false)),
        Cell::Text(policy.apply.clone()),
        number(policy.cpu_requested, amount(policy.cpu_requested)),
        share(policy.cpu_slack),
        small(policy.cpu_short_time),
        small(policy.cpu_short_volume),
        if is_yardstick(policy) {
            Cell::Number(None, "not judged".to_owned())
        } else {
            count(policy.bad_cpu_days)
        },
        small(policy.throttled),
    ];
    if has_memory {
        cells.push(optional(policy.memory_requested, &amount));
        cells.push(share(policy.memory_slack));
        cells.push(small(policy.memory_over_request));
        cells.extend([policy.oom_kills, policy.oom_days, policy.serious_days].map(count));
    }
    cells.push(number(policy.changes_per_day, grouped(policy.changes_per_day, 1)));
    cells.extend([policy.evicted, policy.resized].map(count));
    cells.push(Cell::Number(
        policy.first_recommendation_hours,
        policy.first_recommendation_hours.map_or_else(|| "-".to_owned(), |hours| grouped(hours, 1)),
    ));
    if report.currency.is_some() {
        cells.push(optional(policy.monthly_cost, &money));
    }
    cells.push(Cell::Text(
        match policy.is_on_frontier {
            Some(true) => "yes",
            Some(false) => "no",
            None if is_yardstick(policy) => "-",
            None => "unknown",
        }
        .to_owned(),
    ));
    cells
}

/// Writes the containers that are killed or short.
pub(super) fn write_worst(page: &mut Markup, report: &BacktestReport) {
    open_section(page, "worst", "Worst containers");
    if report.worst.is_empty() {
        page.raw("<p>No container was killed or short of CPU under any policy.</p>\n</section>\n");
        return;
    }
    let count = |value: u64| Cell::Number(Some(value as f64), grouped(value as f64, 0));
    let rows: Vec<Vec<Cell>> = report
        .worst
        .iter()
        .take(MAX_WORST)
        .map(|worst| {
            vec![
                Cell::Text(worst.workload.clone()),
                Cell::Text(worst.container.clone()),
                Cell::Text(worst.policy.clone()),
                count(worst.oom_days),
                count(worst.bad_cpu_days),
                Cell::Text(worst.remark.clone()),
            ]
        })
        .collect();
    let headings = ["Workload", "Container", "Policy", "OOM-days", "Bad CPU days", "Remark"];
    write_table(page, "Containers with bad days, the worst first", &headings, &rows);
    if report.worst.len() > MAX_WORST {
        page.raw("<p>");
        page.text(format_args!(
            "and {}",
            counted(report.worst.len() - MAX_WORST, "more container")
        ));
        page.raw(" in the JSON of this report.</p>\n");
    }
    page.raw("</section>\n");
}
