//! The section of the table about containers that request more than they need.

use std::fmt::Write as _;

use plimsoll_core::rightsizing::{
    report::{Level, Report},
    survey::Resource,
};

use super::{
    amounts::money_change,
    escape::in_glyphs,
    forms::FormOptions,
    selection::{Entry, Selection, order_in_words},
    table::{
        Changed, MAX_NAME, TABLE_WIDTH, changed, currency, label, name_line, notes, section,
        section_note,
    },
    words,
};
use crate::report::style::{BOLD, DIM, GREEN, PLAIN, Page, Style, YELLOW};

/// Writes the section.
pub(super) fn overprovisioned(
    page: &mut Page<'_>,
    report: &Report,
    options: &FormOptions,
    selection: &Selection<'_>,
    top: usize,
) {
    let all = &selection.overprovisioned;
    if all.is_empty() {
        return;
    }
    let shown = &all[..top.min(all.len())];
    let order = order_in_words(options.sort, report);
    section(page, "OVERPROVISIONED", &section_note(shown.len(), all.len(), order));
    if page.width < TABLE_WIDTH {
        overprovisioned_blocks(page, report, shown);
    } else {
        overprovisioned_table(page, report, shown);
    }
}

const RESOURCES: [Resource; 2] = [Resource::Cpu, Resource::Memory];

/// A row of overprovisioned containers, before it is aligned.
struct WasteRow {
    label: String,
    container: String,
    /// The change and the percentage of each resource.
    cells: [(String, String); 2],
    cost: String,
}

fn waste_row(style: &Style, report: &Report, entry: &Entry<'_>) -> WasteRow {
    let cell = |wanted| {
        let Some(resource) = entry.resource(wanted) else { return <_>::default() };
        match changed(resource) {
            Changed::To { from, to, percent } => (format!("{from} -> {to}"), percent),
            Changed::Keep(_) => ("keep".to_owned(), String::new()),
            Changed::Nothing(why) => (why.to_owned(), String::new()),
        }
    };
    let cost = entry.cost_change().filter(|_| report.currency.is_some());
    WasteRow {
        label: label(style, entry),
        container: in_glyphs(&entry.container.name, style.glyphs),
        cells: RESOURCES.map(cell),
        cost: cost.map(money_change).unwrap_or_default(),
    }
}

fn overprovisioned_table(page: &mut Page<'_>, report: &Report, shown: &[Entry<'_>]) {
    let currency = currency(page, report);
    let rows: Vec<WasteRow> = shown.iter().map(|entry| waste_row(page, report, entry)).collect();
    let widest = |text: fn(&WasteRow) -> &str, head: &str| {
        rows.iter().map(|row| text(row).chars().count()).chain([head.len()]).max().unwrap_or(0)
    };
    let container = widest(|row| &row.container, "CONTAINER").min(MAX_NAME / 2);
    let change = [widest(|row| &row.cells[0].0, "CPU"), widest(|row| &row.cells[1].0, "MEMORY")];
    let percent = [widest(|row| &row.cells[0].1, ""), widest(|row| &row.cells[1].1, "")];
    let cost = widest(|row| &row.cost, "");
    let has_costs = rows.iter().any(|row| !row.cost.is_empty());
    let cost_head = if has_costs { "PER MONTH" } else { "" };
    // The name gets what the numbers leave of the line.
    let numbers: usize = change.iter().chain(&percent).sum::<usize>() + 2 * 2 + 2;
    let costs = if has_costs { 2 + currency.chars().count() + cost.max(9) } else { 0 };
    let rest = page.width.saturating_sub(2 + 2 + container + 2 + numbers + costs);
    let label = widest(|row| &row.label, "WORKLOAD").min(rest.max("WORKLOAD".len()));
    let [cpu, memory] = [change[0] + percent[0] + 1, change[1] + percent[1] + 1];
    let heads = format!(
        "  {:<label$}  {:<container$}  {:<cpu$}  {:<memory$}  {cost_head}",
        "WORKLOAD", "CONTAINER", "CPU", "MEMORY"
    );
    page.line(page.paint(DIM, heads.trim_end()));
    for (row, entry) in rows.iter().zip(shown) {
        let padding = label.saturating_sub(row.label.chars().count());
        let (name, code) = (page.paint(BOLD, &row.label), waste_colour(entry));
        let mut line = format!("  {name}");
        if row.label.chars().count() > label {
            page.line(&line);
            line = format!("  {:label$}", "");
        } else {
            line.push_str(&" ".repeat(padding));
        }
        let _ = write!(line, "  {:<container$}", row.container);
        for (index, (text, by)) in row.cells.iter().enumerate() {
            let (change, percent) = (change[index], percent[index]);
            let by = page.paint(code, &format!("{by:>percent$}"));
            let _ = write!(line, "  {text:<change$} {by}");
        }
        if !row.cost.is_empty() {
            let _ = write!(line, "  {currency}{:>cost$}", row.cost);
        }
        page.line(line.trim_end());
        notes(page, entry);
        held(page, entry);
    }
}

fn overprovisioned_blocks(page: &mut Page<'_>, report: &Report, shown: &[Entry<'_>]) {
    let currency = currency(page, report);
    for entry in shown {
        let row = waste_row(page, report, entry);
        name_line(page, entry, 0);
        for (resource, (text, by)) in RESOURCES.iter().zip(&row.cells) {
            if !text.is_empty() {
                let text = format!("{} {text} {by}", words::resource(*resource));
                page.block(4, PLAIN, &text);
            }
        }
        if !row.cost.is_empty() {
            page.block(4, GREEN, &format!("{currency}{} a month", row.cost));
        }
        notes(page, entry);
        held(page, entry);
    }
}

/// Why resources stay as they are, and how limits change.
fn held(page: &mut Page<'_>, entry: &Entry<'_>) {
    for resource in &entry.container.resources {
        let name = words::resource(resource.resource);
        let limit = words::limit_change(resource).map(|change| format!("{name}: {change}"));
        for text in words::held(resource).into_iter().chain(limit) {
            let text = in_glyphs(&text, page.glyphs);
            page.block(4, DIM, &text);
        }
    }
}

fn waste_colour(entry: &Entry<'_>) -> &'static str {
    if entry.waste() >= Level::Medium { YELLOW } else { PLAIN }
}
