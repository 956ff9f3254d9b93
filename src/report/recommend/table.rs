//! The table for terminals: totals, containers at risk, overprovisioned containers, and what is missing.
//!
//! A terminal that is too narrow gets a block of lines for each container.

use plimsoll_core::rightsizing::report::{Level, Report, ResourceReport};

use super::{
    amounts::{amount, and_more, change_percent, count, counted, minute, percent_change},
    escape::in_glyphs,
    forms::FormOptions,
    names,
    overprovisioned::overprovisioned,
    selection::{Entry, Selection, is_at_risk},
    totals_table::{self, TotalsRow},
    words,
};
use crate::report::style::{BOLD, DIM, PLAIN, Page, RED, Style, YELLOW};

/// The width that tables need; below, each container is a block.
pub(super) const TABLE_WIDTH: usize = 80;
/// The containers of a section, unless `--top` says otherwise.
const DEFAULT_TOP: usize = 20;
/// The sources in the head of the report.
const MAX_SOURCES: usize = 16;
/// The entries of a list of messages.
const MAX_MESSAGES: usize = 50;
/// The width that a name may take in a column beside numbers; a longer one has its own line.
pub(super) const MAX_NAME: usize = 48;

pub(super) fn render(report: &Report, style: &Style, options: &FormOptions) -> String {
    let mut page = Page::new(style);
    let selection = Selection::new(report, options.sort);
    let top = options.top.unwrap_or(DEFAULT_TOP);
    head(&mut page, report);
    totals(&mut page, report);
    at_risk(&mut page, report, &selection, top);
    overprovisioned(&mut page, report, options, &selection, top);
    without(&mut page, &selection);
    messages(
        &mut page,
        "INCOMPLETE",
        RED,
        report.unread.len(),
        report.unread.iter().map(|unread| format!("{}: {}", unread.what, unread.why)),
    );
    messages(&mut page, "NOTES", PLAIN, report.remarks.len(), report.remarks.iter().cloned());
    next_steps(&mut page, &selection);
    page.finish()
}

/// The colour of a level of risk or waste.
pub(super) fn level_colour(level: Level) -> &'static str {
    match level {
        Level::Unsaid | Level::Ok => PLAIN,
        Level::Low => DIM,
        Level::Medium => YELLOW,
        Level::High | Level::Critical => RED,
    }
}

fn head(page: &mut Page<'_>, report: &Report) {
    let dot = page.choose_glyphs(" · ", ", ");
    let mut title = Vec::new();
    title.extend(names::clusters(report).map(|name| in_glyphs(&name, page.glyphs)));
    title.push(minute(report.at));
    title.push(names::extent(report));
    let title = title.join(dot);
    page.block(0, BOLD, &title);
    for source in report.sources.iter().take(MAX_SOURCES) {
        let text = in_glyphs(&names::source(report, source), page.glyphs);
        page.block(0, DIM, &text);
    }
    if report.sources.len() > MAX_SOURCES {
        let more = and_more(report.sources.len() - MAX_SOURCES, "source");
        page.block(0, DIM, &more);
    }
    if let Some(settings) = names::settings(report) {
        let text = in_glyphs(&settings, page.glyphs);
        page.block(0, DIM, &text);
    }
}

fn totals(page: &mut Page<'_>, report: &Report) {
    let rows = totals_table::rows(report);
    let currency = currency(page, report);
    let has_costs = rows.iter().any(|row| row.cost.is_some());
    let lines = totals_lines(&rows, &currency);
    let fits = lines.iter().all(|line| line.chars().count() <= page.width);
    if fits && page.width >= TABLE_WIDTH {
        let cost_head = if has_costs { "cost per month" } else { "" };
        let heads = format!(
            "{:<8}{:>17}{:>15}{:>8}{:>9}   {cost_head}",
            "TOTAL", "requested", "recommended", "change", ""
        );
        page.heading(heads.trim_end(), "");
        for line in lines {
            page.line(line);
        }
    } else {
        page.heading("TOTAL", "");
        for row in &rows {
            page.block(2, PLAIN, &totals_sentence(row, &currency));
        }
    }
    if let Some((score, text)) = totals_table::score(report) {
        let label = format!("SCORE {score} of 100:");
        if page.width < TABLE_WIDTH {
            page.block(2, PLAIN, &format!("{label} {text}"));
        } else {
            page.marked(&page.paint(BOLD, &label), label.len(), &text);
        }
    }
    if let Some(text) = totals_table::without_price(report) {
        page.block(2, DIM, &text);
    }
}

fn totals_lines(rows: &[TotalsRow], currency: &str) -> Vec<String> {
    let width = |index: usize| {
        let costs = rows.iter().filter_map(|row| row.cost.as_ref());
        costs.map(|cost| cost[index].len()).max().unwrap_or_default()
    };
    let (now_width, then_width) = (width(0), width(1));
    let line = |row: &TotalsRow| {
        let TotalsRow { label, requested, recommended, difference, percent, cost } = row;
        let cost = cost
            .as_ref()
            .map(|[now, then]| format!("   {currency}{now:>now_width$} -> {then:>then_width$}"));
        let line = format!(
            "  {label:<8}{requested:>15}{recommended:>15}{difference:>8}{percent:>9}{}",
            cost.unwrap_or_default()
        );
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A row of the totals for narrow terminals.
fn totals_sentence(row: &TotalsRow, currency: &str) -> String {
    let requested = format!("{} -> {}", row.requested, row.recommended);
    let cost = row.cost.as_ref().map(|[now, then]| format!("{currency}{now} -> {then} a month"));
    let parts: Vec<String> =
        (!row.requested.is_empty()).then_some(requested).into_iter().chain(cost).collect();
    let percent =
        if row.percent.is_empty() { String::new() } else { format!(" ({})", row.percent) };
    format!("{}: {}{percent}", row.label, parts.join(", "))
}

/// The currency and a space.
pub(super) fn currency(style: &Style, report: &Report) -> String {
    let name = report.currency.as_deref().unwrap_or_default();
    if name.is_empty() { String::new() } else { format!("{} ", in_glyphs(name, style.glyphs)) }
}

/// A title with its note, which has a line of its own if there is no space beside the title.
pub(super) fn section(page: &mut Page<'_>, title: &str, note: &str) {
    if title.len() + 2 + note.len() <= page.width {
        page.heading(title, note);
    } else {
        page.heading(title, "");
        page.block(2, DIM, note);
    }
}

pub(super) fn section_note(shown: usize, all: usize, order: &str) -> String {
    if shown == all {
        counted(all, "container")
    } else {
        format!("the first {} of {}, {order}", count(shown), counted(all, "container"))
    }
}

fn at_risk(page: &mut Page<'_>, report: &Report, selection: &Selection<'_>, top: usize) {
    let all = &selection.at_risk;
    if all.is_empty() {
        return;
    }
    let shown = &all[..top.min(all.len())];
    section(page, "AT RISK", &section_note(shown.len(), all.len(), "the highest risk first"));
    let width = shown.iter().map(|entry| label(page, entry).chars().count()).max();
    let width = width.unwrap_or_default().min(MAX_NAME);
    for entry in shown {
        name_line(page, entry, width);
        for resource in &entry.container.resources {
            if is_at_risk(resource.risk) {
                risk_lines(page, report, resource);
            }
        }
        notes(page, entry);
    }
}

/// The name of a workload and its replicas.
pub(super) fn label(style: &Style, entry: &Entry<'_>) -> String {
    let name = in_glyphs(&names::workload(entry.workload), style.glyphs);
    match entry.workload.replicas {
        Some(replicas) => format!("{name} {}{replicas}", style.choose_glyphs("×", "x")),
        None => name,
    }
}

pub(super) fn name_line(page: &mut Page<'_>, entry: &Entry<'_>, width: usize) {
    let label = label(page, entry);
    let container = in_glyphs(&entry.container.name, page.glyphs);
    let padding = width.saturating_sub(label.chars().count());
    let line_width = 4 + label.chars().count() + padding + container.chars().count();
    let label = page.paint(BOLD, &label);
    if page.width < TABLE_WIDTH || line_width > page.width {
        page.line(format_args!("  {label}\n  {container}"));
    } else {
        page.line(format_args!("  {label}{:padding$}  {container}", ""));
    }
}

fn risk_lines(page: &mut Page<'_>, report: &Report, resource: &ResourceReport) {
    let name = words::resource(resource.resource);
    let change = changed(resource);
    let (from, to, percent) = match &change {
        Changed::To { from, to, percent } => (from.as_str(), format!(" -> {to}"), percent.as_str()),
        Changed::Keep(request) => (request.as_str(), "    keep".to_owned(), ""),
        Changed::Nothing(why) => ("", (*why).to_owned(), ""),
    };
    let level = words::level(resource.risk);
    let reasons = in_glyphs(&words::risk_and_limit(resource, report.at), page.glyphs);
    let colour = level_colour(resource.risk);
    if page.width < TABLE_WIDTH {
        let numbers = format!("{name} {from}{to} {percent}");
        page.block(4, PLAIN, &numbers);
        page.block(6, colour, &format!("{level}: {reasons}"));
        return;
    }
    let numbers = format!("  {name:<6} {from:>7}{to:<11} {percent:>9}");
    let mark = format!("{numbers}  {}", page.paint(colour, &format!("{level:<9}")));
    if reasons.is_empty() {
        page.line(format_args!("  {mark}"));
        return;
    }
    page.marked(&mark, numbers.chars().count() + 11, &reasons);
}

/// What happens to a request.
pub(super) enum Changed {
    To {
        from: String,
        to: String,
        percent: String,
    },
    /// It stays as it is.
    Keep(String),
    /// There is none, or no recommendation.
    Nothing(&'static str),
}

pub(super) fn changed(report: &ResourceReport) -> Changed {
    let of = |value: i64| amount(report.resource, value);
    match (report.request, report.new_request()) {
        (Some(from), Some(to)) => Changed::To {
            from: of(from),
            to: of(to),
            percent: change_percent(from, to).map(percent_change).unwrap_or_default(),
        },
        (None, Some(to)) => {
            Changed::To { from: "none".to_owned(), to: of(to), percent: String::new() }
        }
        (_, None) if report.target.is_none() => Changed::Nothing("no data"),
        (Some(request), None) => Changed::Keep(of(request)),
        (None, None) => Changed::Nothing("none"),
    }
}

/// Notes of a workload and its container, which are not about one number.
pub(super) fn notes(page: &mut Page<'_>, entry: &Entry<'_>) {
    let notes = words::workload_notes(entry.workload)
        .into_iter()
        .chain(words::container_notes(entry.container));
    for note in notes {
        let note = in_glyphs(&note, page.glyphs);
        page.block(4, DIM, &note);
    }
}

fn without(page: &mut Page<'_>, selection: &Selection<'_>) {
    if !selection.without.is_empty() {
        let all = counted(selection.without_recommendation(), "container");
        section(page, "WITHOUT RECOMMENDATION", &all);
        for (gap, containers) in &selection.without {
            let name: &str = (*gap).into();
            let mark = format!("{:>4}", count(*containers));
            page.marked(&mark, mark.len(), &format!("{} [{name}]", words::gap(*gap)));
        }
    }
    if selection.others > 0 {
        section(page, "NO CHANGE NEEDED", &counted(selection.others, "container"));
    }
}

fn messages(
    page: &mut Page<'_>,
    title: &str,
    colour: &str,
    all: usize,
    messages: impl Iterator<Item = String>,
) {
    if all == 0 {
        return;
    }
    page.heading(title, "");
    let bullet = page.choose_glyphs("•", "-");
    for message in messages.take(MAX_MESSAGES) {
        let text = in_glyphs(&message, page.glyphs);
        page.marked(&page.paint(colour, bullet), 1, &text);
    }
    if all > MAX_MESSAGES {
        page.marked(bullet, 1, &and_more(all - MAX_MESSAGES, "message"));
    }
}

fn next_steps(page: &mut Page<'_>, selection: &Selection<'_>) {
    let mut first = selection.at_risk.iter().chain(&selection.overprovisioned);
    let example = first.find_map(|entry| names::why_argument(entry.workload));
    let command = page.command.clone();
    let mut steps = Vec::new();
    if let Some(example) = example {
        steps.push((format!("recommend --why {example}"), "how its numbers were computed"));
    }
    if !selection.at_risk.is_empty() || !selection.overprovisioned.is_empty() {
        steps.push(("recommend --diff DIRECTORY".to_owned(), "the change to your manifests"));
    }
    if !selection.without.is_empty() {
        steps.push(("doctor --cluster".to_owned(), "what the cluster lacks"));
    }
    if steps.is_empty() {
        return;
    }
    page.heading("NEXT STEPS", "");
    let lines: Vec<(String, &str)> =
        steps.into_iter().map(|(step, what)| (format!("{command} {step}"), what)).collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or_default();
    for (line, what) in lines {
        if width + what.len() + 6 <= page.width {
            let what = page.paint(DIM, what);
            page.line(format_args!("  {line:<width$}  {what}"));
        } else {
            page.line(format_args!("  {line}"));
            page.block(4, DIM, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::report::{
        recommend::test_reports::{ascii, assert_golden, named, sample, unicode, without_prices},
        style::tests::plain_output,
    };

    fn table(report: &Report, style: &Style) -> String {
        render(report, style, &FormOptions::default())
    }

    #[test]
    fn the_sample_with_prices() {
        let printed = table(&sample(), &unicode(96));
        assert_golden("table-96.txt", &printed);
        assert!(printed.lines().all(|line| line.chars().count() <= 96));
    }

    #[test]
    fn the_sample_without_prices() {
        let printed = table(&without_prices(), &ascii(80));
        assert_golden("table-80-without-prices.txt", &printed);
        assert!(printed.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn a_narrow_terminal_gets_a_block_for_each_container() {
        let printed = table(&sample(), &ascii(40));
        assert_golden("table-40.txt", &printed);
        assert!(printed.lines().all(|line| line.chars().count() <= 40));
    }

    #[test]
    fn colours_change_nothing_else() {
        plain_output(|style| table(&sample(), style));
        plain_output(|style| {
            let narrow = Style { width: 50, ..style.clone() };
            table(&sample(), &narrow)
        });
    }

    #[test]
    fn top_limits_each_section_and_the_rest_is_counted() {
        let options = FormOptions { top: Some(1), ..Default::default() };
        let printed = render(&sample(), &ascii(96), &options);
        assert!(printed.contains("AT RISK  the first 1 of 3 containers, the highest risk first\n"));
        assert!(printed.contains("OVERPROVISIONED  the first 1 of 3 containers, by cost\n"));
        assert!(!printed.contains("kafka") && !printed.contains("search"));
    }

    #[test]
    fn a_name_that_would_need_quotes_is_not_part_of_a_command() {
        let printed = table(&named("$(reboot)"), &ascii(96));
        assert!(!printed.contains("--why"), "{printed}");
        assert!(printed.contains("shop/Deployment/$(reboot)"), "{printed}");
    }

    #[test]
    fn an_empty_report_is_only_a_head_and_totals() {
        let mut report = sample();
        report.workloads.clear();
        report.totals = plimsoll_core::rightsizing::report::Totals::default();
        report.namespaces = BTreeMap::new();
        report.unread.clear();
        report.remarks.clear();
        report.currency = None;
        let printed = table(&report, &ascii(80));
        assert!(printed.contains("0 workloads, 0 containers, 0 namespaces"), "{printed}");
        assert!(
            printed.ends_with("  memory         0.00 GiB       0.00 GiB    0.00\n"),
            "{printed}"
        );
    }
}
