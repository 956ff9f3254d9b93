//! Settings of the policies, and how figures are computed.

use plimsoll_core::backtest::report::BacktestReport;

use super::{Cell, open_section, write_table};
use crate::report::recommend::html::markup::Markup;

/// Terms and their formulas.
const FORMULAS: [(&str, &str); 11] = [
    (
        "Container-day",
        "A UTC day with at least 12 hours of samples of a container, all of its pods together.",
    ),
    (
        "Slack",
        "The mean of the request minus the 95th percentile of use in five minutes (CPU), or minus the largest peak \
         (memory); never below zero. Shares are the sum of slack over the sum of requests.",
    ),
    ("Short, time", "Minutes in which more CPU was used than requested, over all minutes."),
    ("Short, use", "CPU used above the request, over all CPU used."),
    ("Bad CPU day", "A container-day with more than 5 % of its minutes above the request."),
    (
        "At the CPU limit",
        "Minutes in which use reaches the limit. A minute hides bursts, so this is a lower bound.",
    ),
    (
        "OOM kill",
        "Five minutes whose peak of memory is above the limit; the next one counts ten minutes later at the earliest. \
         The policy receives it as an event.",
    ),
    ("OOM-day", "A container-day with at least one OOM kill; serious with at least four."),
    (
        "Changes",
        "Pods that get another request: evicted, resized in place, or born with it; per workload and day.",
    ),
    (
        "Unknown",
        "Minutes in which the container was throttled in fact, so that it may have wanted more, and windows in which it \
         was killed, which count as 1.2 times its limit.",
    ),
    (
        "Not beaten",
        "No other policy costs no more and has no more OOM-days and no more bad CPU days, and less of one of them.",
    ),
];

/// Writes settings and formulas.
pub(super) fn write(page: &mut Markup, report: &BacktestReport) {
    open_section(page, "definitions", "Settings and formulas");
    let rows: Vec<Vec<Cell>> = report
        .policies
        .iter()
        .map(|policy| {
            let settings = match &*policy.settings {
                "" => "defaults",
                settings => settings,
            };
            let cells = [&*policy.name, settings, &*policy.apply];
            cells.map(|text| Cell::Text(text.to_owned())).into()
        })
        .collect();
    write_table(page, "Settings of the policies", &["Policy", "Settings", "Applied"], &rows);
    page.raw("<dl>\n");
    for (term, formula) in FORMULAS {
        page.element("dt", term);
        page.element("dd", formula);
        page.raw("\n");
    }
    page.raw("</dl>\n<p>What was recorded is use and not demand: replicas, and use after a virtual eviction, stay as they were.</p>\n</section>\n");
}
