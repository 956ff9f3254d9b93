//! The overview: totals, what is at risk, what is held back, and the namespaces.

use std::collections::BTreeMap;

use plimsoll_core::{
    rightsizing::{report::Level, survey::Resource},
    types::Time,
};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{
    PageHead,
    totals::{LabelTotals, NamespaceTotals, TotalsTable, grouping_labels},
    workloads::{namespace_link, write_row},
};
use crate::{
    report::recommend::html::{
        amounts::{count, money, number, resource_name, time, total},
        markup::Markup,
        notes::level_word,
    },
    ui::{
        access::Scope,
        layout::{self, Place},
        quota::{QuotaFacts, quotas},
        rows::WorkloadRow,
        snapshot::Snapshot,
    },
};

/// Workloads in the short lists.
const SHORT_LIST: usize = 8;
/// Namespaces in the table.
const MAX_NAMESPACES: usize = 100;

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OverviewPage {
    /// What the page says about itself.
    #[serde(flatten)]
    pub head: PageHead,
    /// When workloads and history were read; absent if they have not been read yet.
    pub history_at: Option<Time>,
    /// Why there is no history.
    pub history_error: Option<String>,
    /// The currency, if prices are known.
    pub currency: Option<String>,
    /// The sums over all namespaces that may be seen.
    pub totals: NamespaceTotals,
    /// Workloads with a VPA.
    pub with_vpa: usize,
    /// VPAs whose updates are held back, by reason.
    pub held_back: BTreeMap<String, usize>,
    /// Autoscalers of replicas.
    pub autoscalers: usize,
    /// Of these, autoscalers with findings.
    pub autoscalers_with_findings: usize,
    /// The workloads with the highest risk.
    pub at_risk: Vec<WorkloadRow>,
    /// The workloads that would save most.
    pub overprovisioned: Vec<WorkloadRow>,
    /// The sums by namespace.
    pub namespaces: BTreeMap<String, NamespaceTotals>,
    /// The ResourceQuotas, those nearest to their limits first.
    pub quotas: Vec<QuotaFacts>,
    /// The labels to sum by.
    pub labels: Vec<String>,
    /// The sums by the label of the query.
    pub by_label: Option<LabelTotals>,
    /// Remarks about the numbers.
    pub remarks: Vec<String>,
}

impl OverviewPage {
    /// The overview of what may be seen. `label` is the one to sum by; empty for none.
    pub fn of(snapshot: &Snapshot, scope: &Scope, label: &str) -> Self {
        let parts = &snapshot.parts;
        let (mut totals, mut namespaces) = (NamespaceTotals::default(), BTreeMap::new());
        for (name, of_namespace) in &parts.report.namespaces {
            if scope.allows(name) {
                totals.add(of_namespace);
                let own: &mut NamespaceTotals = namespaces.entry(name.clone()).or_default();
                own.add(of_namespace);
            }
        }
        let visible = || snapshot.rows.iter().filter(|row| scope.allows(&row.namespace));
        let mut at_risk: Vec<&WorkloadRow> =
            visible().filter(|row| row.risk >= Level::Medium).collect();
        at_risk.sort_by_key(|row| std::cmp::Reverse(row.risk));
        let mut overprovisioned: Vec<&WorkloadRow> =
            visible().filter(|row| row.waste >= Level::Low).collect();
        overprovisioned.sort_by(|one, other| {
            let key = |row: &WorkloadRow| row.saving().unwrap_or(0.0);
            other.waste.cmp(&one.waste).then(key(other).total_cmp(&key(one)))
        });
        let short = |rows: Vec<&WorkloadRow>| rows.into_iter().take(SHORT_LIST).cloned().collect();
        let mut held_back = BTreeMap::new();
        let vpas = parts.vpas.values().filter(|vpa| scope.allows(&vpa.namespace));
        for held in vpas.filter_map(|vpa| vpa.held_back.as_ref()) {
            *held_back.entry(held.reason.as_ref().to_owned()).or_default() += 1;
        }
        let autoscalers: Vec<_> =
            parts.autoscalers.iter().filter(|one| scope.allows(&one.namespace)).collect();
        Self {
            head: PageHead::new("overview", snapshot, scope),
            history_at: parts.history_at,
            history_error: parts.history_error.clone(),
            currency: parts.report.currency.clone(),
            totals,
            with_vpa: visible().filter(|row| row.vpa.is_some()).count(),
            held_back,
            autoscalers: autoscalers.len(),
            autoscalers_with_findings: autoscalers
                .iter()
                .filter(|one| !one.findings.is_empty())
                .count(),
            at_risk: short(at_risk),
            overprovisioned: short(overprovisioned),
            namespaces,
            quotas: quotas(snapshot, scope, None),
            labels: grouping_labels(snapshot, scope),
            by_label: if label.is_empty() { None } else { LabelTotals::of(snapshot, scope, label) },
            // Remarks may name servers and clusters.
            remarks: if scope.is_all() { parts.report.remarks.clone() } else { Vec::new() },
        }
    }
}

pub(super) fn render(page: &OverviewPage, place: Place<'_>) -> String {
    layout::page(place, &page.head, "Overview", |html| {
        html.raw("<h1>Overview</h1>\n");
        head(html, page);
        sums(html, page);
        let root = place.route.root();
        short_list(html, "At risk", &page.at_risk, page, root);
        short_list(html, "Overprovisioned", &page.overprovisioned, page, root);
        namespaces(html, page, root);
        super::quotas::render(html, &page.quotas, root);
        labels(html, page, place);
        layout::notes(html, &page.remarks);
    })
}

fn head(html: &mut Markup, page: &OverviewPage) {
    let totals = &page.totals;
    html.raw("<dl>");
    let workloads = format!(
        "{} in {}, {} with a VPA",
        count(totals.workloads, "workload"),
        count(page.namespaces.len(), "namespace"),
        number(page.with_vpa as f64)
    );
    layout::term(html, "Workloads", workloads);
    let risks = [Level::Critical, Level::High, Level::Medium, Level::Low].map(|level| {
        let containers = totals.risk.get(&level).copied().unwrap_or(0);
        format!("{} {}", number(containers as f64), level_word(level))
    });
    layout::term(html, "Containers at risk", risks.join(", "));
    let held: Vec<String> =
        page.held_back.iter().map(|(reason, vpas)| format!("{vpas} {reason}")).collect();
    let held = if held.is_empty() { "none".to_owned() } else { held.join(", ") };
    layout::term(html, "VPAs held back", held);
    let autoscalers = format!(
        "{}, {} with findings",
        number(page.autoscalers as f64),
        number(page.autoscalers_with_findings as f64)
    );
    layout::term(html, "HPAs and WPAs", autoscalers);
    let read = match (page.history_at, &page.history_error) {
        (None, None) => "being read for the first time".to_owned(),
        (Some(at), None) => format!("read at {}", time(at)),
        (Some(at), Some(why)) => format!("workloads read at {}; no history: {why}", time(at)),
        (None, Some(why)) => why.clone(),
    };
    layout::term(html, "History", read);
    html.raw("</dl>\n");
}

fn sums(html: &mut Markup, page: &OverviewPage) {
    let mut columns = vec![("Resource", ""), ("Requested", "n"), ("Needed", "n")];
    if page.currency.is_some() {
        columns.extend([("A month", "n"), ("A month, needed", "n")]);
    }
    html.raw("<h2>Requests</h2>\n");
    layout::open_table(html, "All pods whose request and target are known", &columns);
    let rows = [(Resource::Cpu, &page.totals.cpu), (Resource::Memory, &page.totals.memory)];
    for (resource, totals) in rows {
        html.raw("<tr><th scope=\"row\">");
        html.text(resource_name(resource));
        html.raw("</th>");
        layout::number_cell(html, "Requested", None, total(resource, totals.requested));
        layout::number_cell(html, "Needed", None, total(resource, totals.needed));
        if let Some(currency) = &page.currency {
            for (label, cost) in [("A month", totals.cost), ("Needed", totals.needed_cost)] {
                let text = cost.map_or_else(|| "unknown".to_owned(), |cost| money(currency, cost));
                layout::number_cell(html, label, None, text);
            }
        }
        html.raw("</tr>\n");
    }
    layout::close_table(html);
    if page.currency.is_some() {
        layout::paragraph(html, "Lower requests save money only when they lead to fewer nodes.");
    }
}

fn short_list(
    html: &mut Markup,
    title: &'static str,
    rows: &[WorkloadRow],
    page: &OverviewPage,
    root: &str,
) {
    html.element("h2", title);
    html.raw("\n");
    if rows.is_empty() {
        layout::paragraph(html, "None is known.");
        return;
    }
    let mut columns = vec![("Workload", ""), ("Risk", ""), ("CPU", ""), ("Memory", "")];
    if page.currency.is_some() {
        columns.push(("A month", ""));
    }
    columns.push(("Reason", ""));
    layout::open_table(html, "Amounts are those of one pod: request → target", &columns);
    for row in rows {
        write_row(html, row, root, page.currency.as_deref());
    }
    layout::close_table(html);
    html.raw("<p>");
    let sort = if title == "At risk" { "workloads" } else { "workloads?sort=money" };
    layout::link(html, &format!("{root}{sort}"), "All workloads");
    html.raw("</p>\n");
}

fn namespaces(html: &mut Markup, page: &OverviewPage, root: &str) {
    html.raw("<h2>Namespaces</h2>\n");
    if page.namespaces.is_empty() {
        layout::paragraph(html, "No workloads are known.");
        return;
    }
    let table = TotalsTable {
        caption: "Requested → needed",
        heading: "Namespace",
        currency: page.currency.as_deref(),
    };
    table.open(html);
    for (name, totals) in page.namespaces.iter().take(MAX_NAMESPACES) {
        table.row(html, totals, |html| layout::link(html, &namespace_link(root, name), name));
    }
    layout::close_table(html);
    if page.namespaces.len() > MAX_NAMESPACES {
        let left = page.namespaces.len() - MAX_NAMESPACES;
        layout::paragraph(html, format_args!("{left} more namespaces are in the JSON form."));
    }
}

fn labels(html: &mut Markup, page: &OverviewPage, place: Place<'_>) {
    if page.labels.is_empty() {
        return;
    }
    html.raw("<h2 id=\"labels\">By label</h2>\n<form method=\"get\"");
    html.attribute("action", format_args!("{}#labels", place.route.last_segment()));
    html.raw("><label>Label <select name=\"by\">");
    let chosen = page.by_label.as_ref().map(|totals| &*totals.label);
    // A label that was asked for by its name need not be one of the most common ones.
    let other = chosen.filter(|name| page.labels.iter().all(|label| label != name));
    for name in page.labels.iter().map(String::as_str).chain(other) {
        layout::option(html, name, name, Some(name) == chosen);
    }
    html.raw("</select></label><button type=\"submit\">Apply</button></form>\n");
    let Some(totals) = &page.by_label else { return };
    let caption = format!("Requested → needed by {}, without CronJobs and Jobs", totals.label);
    let currency = page.currency.as_deref();
    let table = TotalsTable { caption: &caption, heading: "Value", currency };
    table.open(html);
    for (value, of_value) in totals.values.iter().take(MAX_NAMESPACES) {
        table.row(html, of_value, |html| html.text(value));
    }
    if totals.without.workloads > 0 {
        table.row(html, &totals.without, |html| html.raw("<i>without this label</i>"));
    }
    layout::close_table(html);
    if totals.values.len() > MAX_NAMESPACES {
        let left = totals.values.len() - MAX_NAMESPACES;
        layout::paragraph(html, format_args!("{left} more values are in the JSON form."));
    }
}
