//! The totals of all workloads: one row for each resource, and the score.

use plimsoll_core::rightsizing::{
    report::{Level, Report, ResourceTotals},
    score::is_weighted_by_cost,
    survey::Resource,
};

use super::{
    amounts::{Sums, change_percent, counted, money, percent_change, share, sums},
    words,
};

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

/// How many containers are in the amounts and not in the costs; `None` if all are.
pub(super) fn without_price(report: &Report) -> Option<String> {
    let totals = &report.totals;
    let containers = totals.cpu.without_price.max(totals.memory.without_price);
    let have = if containers == 1 { "has" } else { "have" };
    (containers > 0).then(|| format!("{} {have} no price", counted(containers, "container")))
}

/// The score in a sentence; `None` if no container has a recommendation.
pub(super) fn score(report: &Report) -> Option<(u32, String)> {
    let score = report.totals.score?;
    let wasted = if is_weighted_by_cost(&report.totals) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::recommend::{
        Form, FormOptions, render,
        test_reports::{sample, unicode},
    };

    #[test]
    fn containers_without_a_price_are_counted_in_each_form_with_totals() {
        let shown = |report: &Report, form| {
            render(form, report, &unicode(96), &FormOptions::default()).expect("text")
        };
        let mut report = sample();
        for (cpu, memory, expected) in [
            (0, 0, None),
            (0, 1, Some("1 container has no price")),
            (1200, 3, Some("1,200 containers have no price")),
        ] {
            (report.totals.cpu.without_price, report.totals.memory.without_price) = (cpu, memory);
            assert_eq!(without_price(&report).as_deref(), expected);
            for form in [Form::Table, Form::Markdown, Form::Slack] {
                let text = shown(&report, form);
                assert_eq!(text.contains("no price"), expected.is_some(), "{form}: {text}");
                assert!(expected.is_none_or(|expected| text.contains(expected)), "{form}: {text}");
            }
        }
    }

    #[test]
    fn the_share_is_one_of_the_cost_only_if_costs_are_its_weights() {
        let mut report = sample();
        let words = |report: &Report| score(report).expect("a score").1;
        assert!(words(&report).contains("of the cost is for requests"), "{}", words(&report));
        report.totals.memory.cost = None;
        assert!(words(&report).contains("of requests are not needed"), "{}", words(&report));
    }
}
