//! Sums over workloads, of namespaces and of the values of a label.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_core::rightsizing::{
    report::{Level, ResourceTotals, Totals},
    survey::Resource,
    totals::TotalsBuilder,
};
use serde::Serialize;

use crate::{
    report::recommend::html::{
        amounts::{money, number, total},
        markup::Markup,
    },
    ui::{
        access::Scope,
        layout::{self, Column},
        rows::WorkloadRow,
        snapshot::Snapshot,
    },
};

/// Labels to choose from: those that most workloads have.
const MAX_LABELS: usize = 40;
/// A label with more values than this identifies workloads and does not group them.
const MAX_VALUES: usize = 200;
/// Kinds whose pods run for a part of the time: their requests are in no sum by label.
const JOB_KINDS: [&str; 2] = ["CronJob", "Job"];

/// Sums over workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceTotals {
    pub workloads: usize,
    pub containers: usize,
    /// CPU in millicores.
    pub cpu: ResourceTotals,
    /// Memory in bytes.
    pub memory: ResourceTotals,
    /// Containers by their highest risk.
    pub risk: BTreeMap<Level, usize>,
}

impl NamespaceTotals {
    pub(super) fn add(&mut self, totals: &Totals) {
        self.workloads += totals.workloads;
        self.containers += totals.containers;
        add(&mut self.cpu, &totals.cpu);
        add(&mut self.memory, &totals.memory);
        for (level, containers) in &totals.risk {
            *self.risk.entry(*level).or_default() += containers;
        }
    }

    /// What requests cost a month, and what targets would cost.
    pub(super) fn costs(&self) -> Option<(f64, f64)> {
        let of = |totals: &ResourceTotals| Some((totals.cost?, totals.needed_cost?));
        let costs = [of(&self.cpu), of(&self.memory)];
        costs.into_iter().flatten().reduce(|one, other| (one.0 + other.0, one.1 + other.1))
    }
}

fn add(sum: &mut ResourceTotals, totals: &ResourceTotals) {
    sum.requested = sum.requested.saturating_add(totals.requested);
    sum.needed = sum.needed.saturating_add(totals.needed);
    sum.without_price += totals.without_price;
    let add = |sum: &mut Option<f64>, cost: Option<f64>| {
        if let Some(cost) = cost {
            *sum = Some(sum.unwrap_or(0.0) + cost);
        }
    };
    add(&mut sum.cost, totals.cost);
    add(&mut sum.needed_cost, totals.needed_cost);
}

impl From<&Totals> for NamespaceTotals {
    fn from(totals: &Totals) -> Self {
        let mut sum = Self::default();
        sum.add(totals);
        sum
    }
}

/// Sums by the values of a label.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelTotals {
    pub label: String,
    /// The sums by value.
    pub values: BTreeMap<String, NamespaceTotals>,
    /// The sums of workloads without the label.
    pub without: NamespaceTotals,
}

impl LabelTotals {
    /// The sums of the workloads that may be seen; `None` if none of them has the label.
    pub(super) fn of(snapshot: &Snapshot, scope: &Scope, label: &str) -> Option<Self> {
        let has_label =
            |row: &WorkloadRow| snapshot.reports.labels(row.index()).any(|(name, _)| name == label);
        // All reports are made again, but not for a label that nothing has.
        if !visible(snapshot, scope).any(has_label) {
            return None;
        }
        let mut values: BTreeMap<String, TotalsBuilder> = BTreeMap::new();
        let mut without = TotalsBuilder::default();
        let mut indexes = visible(snapshot, scope).map(WorkloadRow::index);
        snapshot.reports.visit(&snapshot.parts.vpas, &mut indexes, &mut |workload| {
            let of_value = match workload.labels.get(label) {
                Some(value) => values.entry(value.clone()).or_default(),
                None => &mut without,
            };
            let is_job = JOB_KINDS.contains(&&*workload.kind);
            of_value.add(&workload, workload.replicas.map(f64::from).filter(|_| !is_job));
        });
        let sums = |builder: TotalsBuilder| NamespaceTotals::from(&builder.totals());
        let values: BTreeMap<String, NamespaceTotals> =
            values.into_iter().map(|(value, builder)| (value, sums(builder))).collect();
        let without = sums(without);
        (!values.is_empty()).then(|| Self { label: label.to_owned(), values, without })
    }
}

fn visible<'a>(snapshot: &'a Snapshot, scope: &'a Scope) -> impl Iterator<Item = &'a WorkloadRow> {
    snapshot.rows.iter().filter(|one| scope.allows(&one.namespace))
}

/// The labels that group the workloads which may be seen, sorted.
pub(super) fn grouping_labels(snapshot: &Snapshot, scope: &Scope) -> Vec<String> {
    let mut labels: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    let all = visible(snapshot, scope).flat_map(|row| snapshot.reports.labels(row.index()));
    for (label, value) in all {
        let (workloads, values) = labels.entry(label).or_default();
        *workloads += 1;
        if values.len() <= MAX_VALUES {
            values.insert(value);
        }
    }
    let mut common: Vec<(usize, &str)> = labels
        .into_iter()
        .filter(|(_, (_, values))| values.len() <= MAX_VALUES)
        .map(|(label, (workloads, _))| (workloads, label))
        .collect();
    common.sort_by_key(|(workloads, label)| (std::cmp::Reverse(*workloads), *label));
    let mut common: Vec<String> =
        common.into_iter().take(MAX_LABELS).map(|(_, label)| label.to_owned()).collect();
    common.sort_unstable();
    common
}

/// A table of sums: a heading of its first column, and its rows with what the first cell has.
pub(super) struct TotalsTable<'a> {
    pub caption: &'a str,
    pub heading: &'a str,
    pub currency: Option<&'a str>,
}

impl TotalsTable<'_> {
    /// Starts the table.
    pub fn open(&self, html: &mut Markup) {
        let mut columns: Vec<Column<'_>> =
            vec![(self.heading, ""), ("Workloads", ""), ("CPU", ""), ("Memory", "")];
        if self.currency.is_some() {
            columns.push(("A month", ""));
        }
        layout::open_list(html, self.caption, &columns, true);
    }

    /// Writes a row. `name` writes what is in its first cell.
    pub fn row(&self, html: &mut Markup, totals: &NamespaceTotals, name: impl FnOnce(&mut Markup)) {
        html.raw("<tr><th scope=\"row\">");
        name(html);
        html.raw("</th>");
        let workloads = totals.workloads as f64;
        layout::number_cell(html, "Workloads", Some(workloads), number(workloads));
        let of =
            [("CPU", Resource::Cpu, &totals.cpu), ("Memory", Resource::Memory, &totals.memory)];
        for (label, resource, of) in of {
            let text =
                format!("{} → {}", total(resource, of.requested), total(resource, of.needed));
            layout::number_cell(html, label, Some((of.requested - of.needed) as f64), text);
        }
        if let Some(currency) = self.currency {
            let costs = totals.costs();
            let text = costs.map_or_else(
                || "unknown".to_owned(),
                |(cost, needed)| format!("{} → {}", money(currency, cost), money(currency, needed)),
            );
            layout::number_cell(html, "A month", costs.map(|(cost, needed)| cost - needed), text);
        }
        html.raw("</tr>\n");
    }
}
