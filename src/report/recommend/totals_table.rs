//! The totals of all workloads: one row for each resource, and the score.

use plimsoll_core::rightsizing::{
    report::{Level, Report, ResourceTotals},
    survey::Resource,
};

use super::{
    amounts::{Sums, change_percent, counted, money, percent_change, share, sums},
    words,
};

/// A row of the totals.
pub(super) struct TotalsRow {
    pub(super) label: &'static str,
    pub(super) requested: String,
    pub(super) recommended: String,
    pub(super) difference: String,
    pub(super) percent: String,
    /// The cost of a month now and then, if prices are known.
    pub(super) cost: Option<[String; 2]>,
}

/// The rows of the totals; the last one sums up costs, if they are known for both resources.
pub(super) fn rows(report: &Report) -> Vec<TotalsRow> {
    let totals = [(Resource::Cpu, report.totals.cpu), (Resource::Memory, report.totals.memory)];
    let mut rows: Vec<TotalsRow> =
        totals.iter().map(|(resource, totals)| row(*resource, totals)).collect();
    let costs: Option<Vec<(f64, f64)>> =
        totals.iter().map(|(_, totals)| totals.cost.zip(totals.needed_cost)).collect();
    if let Some(costs) = costs {
        let (now, then) = costs
            .iter()
            .fold((0.0, 0.0), |(now, then), (cost, needed)| (now + cost, then + needed));
        let percent =
            if now > 0.0 { percent_change((then - now) * 100.0 / now) } else { String::new() };
        rows.push(TotalsRow {
            label: "cost",
            requested: String::new(),
            recommended: String::new(),
            difference: String::new(),
            percent,
            cost: Some([money(now), money(then)]),
        });
    }
    rows
}

fn row(resource: Resource, totals: &ResourceTotals) -> TotalsRow {
    let ResourceTotals { requested, needed, cost, needed_cost, .. } = *totals;
    let Sums { before, after, difference, unit } = sums(resource, requested, needed);
    TotalsRow {
        label: words::resource(resource),
        requested: format!("{before} {unit}"),
        recommended: format!("{after} {unit}"),
        difference,
        percent: change_percent(requested, needed).map(percent_change).unwrap_or_default(),
        cost: cost.zip(needed_cost).map(|(now, then)| [money(now), money(then)]),
    }
}

/// The score in a sentence; `None` if no container has a recommendation.
pub(super) fn score(report: &Report) -> Option<(u32, String)> {
    let score = report.totals.score?;
    let wasted = if report.currency.is_some() {
        "of the cost is for requests that are not needed"
    } else {
        "of requests are not needed"
    };
    let at_risk: usize = report
        .totals
        .risk
        .iter()
        .filter(|(level, _)| **level >= Level::High)
        .fold(0, |sum, (_, containers)| sum.saturating_add(*containers));
    let text =
        format!("{} {wasted}; {} at high risk", share(score.wasted), counted(at_risk, "container"));
    Some((score.value, text))
}
