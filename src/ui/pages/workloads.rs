//! The list of workloads: filtered and sorted by the query, in pages of 100.

use std::cmp::{Ordering, Reverse};

use plimsoll_core::rightsizing::{report::Level, survey::Resource};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{PageHead, csv::Csv};
use crate::{
    report::recommend::html::{
        amounts::{count, money, number, signed},
        markup::Markup,
        notes::level_word,
    },
    ui::{
        access::Scope,
        layout::{self, Place},
        list_query::{ListQuery, Sort},
        quota::{QuotaFacts, quotas},
        router::Route,
        rows::WorkloadRow,
        snapshot::Snapshot,
    },
};

/// Rows on one page.
const PAGE_SIZE: usize = 100;
/// Namespaces to choose from.
const MAX_NAMESPACES: usize = 500;

/// A list of workloads.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadsPage {
    /// What the page says about itself.
    #[serde(flatten)]
    pub head: PageHead,
    /// The namespace, if the page is about one.
    pub namespace: Option<String>,
    /// The currency, if prices are known.
    pub currency: Option<String>,
    /// The number of workloads that may be seen.
    pub total: usize,
    /// The number of those that the filters leave.
    pub matching: usize,
    /// This page, from 1.
    pub page: usize,
    pub pages: usize,
    pub workloads: Vec<WorkloadRow>,
    /// The namespaces to choose from.
    pub namespaces: Vec<String>,
    /// Why there is no history.
    pub history_error: Option<String>,
    /// The ResourceQuotas of the namespace, if the page is about one.
    pub quotas: Vec<QuotaFacts>,
}

impl WorkloadsPage {
    /// The workloads that the query selects. `None` if the namespace has nothing.
    pub fn of(
        snapshot: &Snapshot,
        scope: &Scope,
        namespace: Option<&str>,
        query: &ListQuery,
        all_rows: bool,
    ) -> Option<Self> {
        if namespace.is_some_and(|name| !scope.allows(name) || !snapshot.has_namespace(name)) {
            return None;
        }
        let chosen = namespace.or(Some(&*query.namespace).filter(|name| !name.is_empty()));
        let is_visible = |row: &&WorkloadRow| scope.allows(&row.namespace);
        let visible = snapshot.rows.iter().filter(is_visible);
        let visible = visible.filter(|row| chosen.is_none_or(|name| *row.namespace == *name));
        let words = query.words();
        let (mut total, mut matching) = (0, Vec::new());
        for row in visible {
            total += 1;
            if matches(row, query, &words) {
                matching.push(row);
            }
        }
        matching.sort_by(|one, other| order(query.sort, one, other));
        let size = if all_rows { usize::MAX } else { PAGE_SIZE };
        let pages = matching.len().div_ceil(size).max(1);
        let page = if all_rows { 1 } else { query.page.min(pages) };
        let rows = matching.iter().skip((page - 1).saturating_mul(size)).take(size);
        let namespaces = snapshot.namespaces().into_iter().filter(|name| scope.allows(name));
        let parts = &snapshot.parts;
        Some(Self {
            head: PageHead::new("workloads", snapshot, scope),
            namespace: namespace.map(ToOwned::to_owned),
            currency: parts.report.currency.clone(),
            total,
            matching: matching.len(),
            page,
            pages,
            workloads: rows.map(|row| (*row).clone()).collect(),
            namespaces: namespaces.take(MAX_NAMESPACES).map(ToOwned::to_owned).collect(),
            history_error: parts.history_error.clone(),
            quotas: namespace.map(|name| quotas(snapshot, scope, Some(name))).unwrap_or_default(),
        })
    }
}

fn matches(row: &WorkloadRow, query: &ListQuery, words: &[String]) -> bool {
    let contains = |word: &String| {
        [&*row.name, &*row.namespace, &*row.kind, &*row.why]
            .iter()
            .any(|text| text.to_lowercase().contains(&**word))
    };
    row.risk >= query.risk
        && query.vpa.is_none_or(|has_vpa| row.vpa.is_some() == has_vpa)
        && words.iter().all(contains)
}

fn order(sort: Sort, one: &WorkloadRow, other: &WorkloadRow) -> Ordering {
    // What is unknown comes last.
    let largest = |one: Option<f64>, other: Option<f64>| {
        let key = |value: Option<f64>| value.unwrap_or(f64::NEG_INFINITY);
        key(other).total_cmp(&key(one))
    };
    let gap = |row: &WorkloadRow, resource| row.gap(resource).map(|gap| gap.unsigned_abs() as f64);
    let by = match sort {
        Sort::Risk => Reverse((one.risk, one.waste))
            .cmp(&Reverse((other.risk, other.waste)))
            .then_with(|| largest(one.saving(), other.saving())),
        Sort::Name => Ordering::Equal,
        Sort::Cpu => largest(gap(one, Resource::Cpu), gap(other, Resource::Cpu)),
        Sort::Memory => largest(gap(one, Resource::Memory), gap(other, Resource::Memory)),
        Sort::Money => largest(one.saving(), other.saving()),
    };
    by.then_with(|| identity(one).cmp(&identity(other)))
}

fn identity(row: &WorkloadRow) -> [&str; 3] {
    [&row.namespace, &row.name, &row.kind]
}

pub(super) fn render(page: &WorkloadsPage, place: Place<'_>) -> String {
    let title = match &page.namespace {
        Some(namespace) => format!("Workloads in {namespace}"),
        None => "Workloads".to_owned(),
    };
    layout::page(place, &page.head, &title, |html| {
        html.raw("<h1>");
        html.text(&title);
        html.raw(" <small>");
        html.text(count(page.total, "workload"));
        html.raw("</small></h1>\n");
        if let Some(why) = &page.history_error {
            html.raw("<p class=\"note\">");
            html.text(format_args!(
                "Without a Prometheus only workloads with a VPA have a target: {why}"
            ));
            html.raw("</p>\n");
        }
        filters(html, page, place);
        if page.workloads.is_empty() {
            layout::paragraph(html, "No workload matches.");
        } else {
            rows(html, page, place);
            links(html, page, place);
        }
        super::quotas::render(html, &page.quotas, place.route.root());
    })
}

fn filters(html: &mut Markup, page: &WorkloadsPage, place: Place<'_>) {
    let query = place.query;
    html.raw("<form role=\"search\" method=\"get\"");
    html.attribute("action", place.route.last_segment());
    html.raw("><label>Search <input type=\"search\" name=\"q\"");
    html.attribute("value", &query.search);
    html.raw("></label>");
    if page.namespace.is_none() {
        html.raw("<label>Namespace <select name=\"namespace\">");
        layout::option(html, "", "all", query.namespace.is_empty());
        for name in &page.namespaces {
            layout::option(html, name, name, *name == query.namespace);
        }
        html.raw("</select></label>");
    }
    html.raw("<label>Risk <select name=\"risk\">");
    layout::option(html, "", "any", query.risk == Level::Unsaid);
    for level in [Level::Low, Level::Medium, Level::High, Level::Critical] {
        let text = format!("{} or higher", level_word(level));
        let text = if level == Level::Critical { level_word(level) } else { &text };
        layout::option(html, level.into(), text, query.risk == level);
    }
    html.raw("</select></label><label>VPA <select name=\"vpa\">");
    layout::option(html, "", "any", query.vpa.is_none());
    layout::option(html, "with", "with", query.vpa == Some(true));
    layout::option(html, "without", "without", query.vpa == Some(false));
    html.raw("</select></label>");
    if query.sort != Sort::default() {
        html.raw("<input type=\"hidden\" name=\"sort\"");
        html.attribute("value", <&str>::from(query.sort));
        html.raw(">");
    }
    html.raw("<button type=\"submit\">Apply</button></form>\n");
}

fn rows(html: &mut Markup, page: &WorkloadsPage, place: Place<'_>) {
    let (root, query) = (place.route.root(), place.query);
    let from = (page.page - 1) * PAGE_SIZE + 1;
    html.raw("<div class=\"scroll\"><table class=\"list\">\n<caption>");
    html.text(format_args!(
        "{}–{} of {}. Amounts are those of one pod: request → target",
        number(from as f64),
        number((from + page.workloads.len() - 1) as f64),
        number(page.matching as f64)
    ));
    html.raw("</caption>\n<thead><tr>");
    let columns = [
        ("Workload", Some(Sort::Name)),
        ("Risk", Some(Sort::Risk)),
        ("CPU", Some(Sort::Cpu)),
        ("Memory", Some(Sort::Memory)),
        ("A month", Some(Sort::Money).filter(|_| page.currency.is_some())),
        ("Reason", None),
    ];
    for (heading, sort) in columns {
        if heading == "A month" && page.currency.is_none() {
            continue;
        }
        html.raw("<th scope=\"col\"");
        if sort == Some(query.sort) {
            let order = if query.sort == Sort::Name { "ascending" } else { "descending" };
            html.attribute("aria-sort", order);
        }
        html.raw(">");
        match sort {
            Some(sort) => {
                let link = query.sorted(sort).text();
                let link = format!("{}{link}", place.route.last_segment());
                layout::link(html, &link, heading);
            }
            None => html.text(heading),
        }
        html.raw("</th>");
    }
    html.raw("</tr></thead>\n<tbody>\n");
    for row in &page.workloads {
        write_row(html, row, root, page.currency.as_deref());
    }
    html.raw("</tbody></table></div>\n");
}

/// Writes the row of a workload, with the columns workload, risk, CPU, memory, money and reason.
pub(super) fn write_row(html: &mut Markup, row: &WorkloadRow, root: &str, currency: Option<&str>) {
    html.raw("<tr><th scope=\"row\">");
    let path = layout::workload_path(&row.namespace, &row.kind, &row.name);
    layout::link(html, &format!("{root}{path}"), format_args!("{}/{}", row.namespace, row.name));
    html.raw(" <small>");
    html.text(&row.kind);
    if let Some(replicas) = row.replicas {
        html.text(format_args!(" ×{replicas}"));
    }
    html.raw("</small></th><td data-l=\"Risk\">");
    layout::level(html, row.risk);
    html.raw("</td><td class=\"n\" data-l=\"CPU\">");
    html.text(layout::request_and_target(Resource::Cpu, row.cpu));
    html.raw("</td><td class=\"n\" data-l=\"Memory\">");
    html.text(layout::request_and_target(Resource::Memory, row.memory));
    html.raw("</td>");
    if let Some(currency) = currency {
        html.raw("<td class=\"n\" data-l=\"A month\">");
        match row.saving() {
            Some(saving) => html.text(signed(&money(currency, -saving), saving < 0.0)),
            None => html.raw("unknown"),
        }
        html.raw("</td>");
    }
    html.raw("<td>");
    html.text(&row.why);
    if let Some(held) = &row.held_back {
        let separator = if row.why.is_empty() { "" } else { "; " };
        html.text(format_args!("{separator}held back: {held}"));
    }
    html.raw("</td></tr>\n");
}

fn links(html: &mut Markup, page: &WorkloadsPage, place: Place<'_>) {
    if page.pages < 2 {
        return;
    }
    let to = |number: usize| {
        let query = ListQuery { page: number, ..place.query.clone() };
        format!("{}{}", place.route.last_segment(), query.text())
    };
    html.raw("<nav class=\"pages\" aria-label=\"More workloads\">");
    if page.page > 1 {
        layout::link(html, &to(page.page - 1), "previous page");
    }
    html.raw("<span>");
    html.text(format_args!("page {} of {}", page.page, page.pages));
    html.raw("</span>");
    if page.page < page.pages {
        layout::link(html, &to(page.page + 1), "next page");
    }
    html.raw("</nav>\n");
}

/// The list as CSV: amounts of one pod in millicores and bytes.
pub(super) fn csv(page: &WorkloadsPage) -> String {
    let mut csv = Csv::new(&[
        "namespace",
        "kind",
        "name",
        "replicas",
        "vpa",
        "update_mode",
        "held_back",
        "risk",
        "waste",
        "cpu_request_millicores",
        "cpu_target_millicores",
        "memory_request_bytes",
        "memory_target_bytes",
        "cost",
        "needed_cost",
        "reason",
    ]);
    for row in &page.workloads {
        csv.cell(&row.namespace).cell(&row.kind).cell(&row.name).optional(row.replicas);
        csv.optional(row.vpa.as_ref()).optional(row.update_mode.as_ref());
        csv.optional(row.held_back.as_ref()).cell(row.risk).cell(row.waste);
        csv.optional(row.cpu.request).optional(row.cpu.target);
        csv.optional(row.memory.request).optional(row.memory.target);
        csv.optional(row.cost).optional(row.needed_cost).cell(&row.why).end_row();
    }
    csv.finish()
}

/// The route of the list of a namespace.
pub(super) fn namespace_link(root: &str, namespace: &str) -> String {
    let route = Route::Namespace(namespace.to_owned());
    format!("{root}n/{}", route.last_segment())
}
