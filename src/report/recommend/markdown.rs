//! Markdown for issues and pull requests: tables within the length that GitHub accepts, the rest counted.

use std::fmt::Write as _;

use plimsoll_core::rightsizing::{
    report::{Report, ResourceReport},
    survey::Resource,
};

use super::{
    amounts::{
        amount, and_more, change_percent, count, counted, minute, money_change, percent_change,
    },
    escape::{is_plain_argument, one_line},
    forms::FormOptions,
    names,
    selection::{Entry, Selection, is_at_risk, order_in_words},
    totals_table, words,
};

/// The longest body of an issue or comment on GitHub, in characters. Bytes are counted, which are at least as many.
const MAX_LENGTH: usize = 65_536;
/// What remains for the sections after the tables.
const TAIL: usize = 12_000;
/// The share of the space for tables that containers at risk may take.
const AT_RISK_SHARE: f64 = 0.6;
/// The maximum of entries in a list of sources or messages, and of their bytes.
const MAX_ITEMS: usize = 20;
const MAX_LIST: usize = 5_000;

/// Renders the report.
pub(super) fn render(report: &Report, options: &FormOptions) -> String {
    let selection = Selection::new(report, options.sort);
    let top = options.top.unwrap_or(usize::MAX);
    let mut text = head(report);
    totals(&mut text, report);
    let space = (MAX_LENGTH - TAIL).saturating_sub(text.len());
    let at_risk_space = (space as f64 * AT_RISK_SHARE) as usize;
    let before = text.len();
    at_risk(&mut text, report, &selection, top, at_risk_space);
    let space = space.saturating_sub(text.len() - before);
    overprovisioned(&mut text, report, options, &selection, top, space);
    without(&mut text, &selection);
    let unread = report.unread.iter().map(|unread| format!("{}: {}", unread.what, unread.why));
    messages(&mut text, "Incomplete", report.unread.len(), unread);
    messages(&mut text, "Notes", report.remarks.len(), report.remarks.iter().cloned());
    text
}

/// Writing into a string cannot fail.
fn line(text: &mut String, line: impl std::fmt::Display) {
    let _ = writeln!(text, "{line}");
}

fn head(report: &Report) -> String {
    let mut text = String::new();
    let of = names::clusters(report).map(|name| format!(": {}", name_text(&name)));
    line(&mut text, format_args!("## Resource recommendations{}\n", of.unwrap_or_default()));
    line(&mut text, format_args!("{}. {}.\n", minute(report.at), names::extent(report)));
    let sources = report.sources.iter().map(|source| names::source(report, source));
    items(&mut text, report.sources.len(), "source", sources);
    if let Some(settings) = names::settings(report) {
        line(&mut text, format_args!("- {}", prose(&settings)));
    }
    text
}

fn totals(text: &mut String, report: &Report) {
    let rows = totals_table::rows(report);
    let has_costs = rows.iter().any(|row| row.cost.is_some());
    let (cost_head, cost_rule) = if has_costs { (" cost per month |", "---:|") } else { ("", "") };
    line(text, format_args!("\n| | requested | recommended | change |{cost_head}"));
    line(text, format_args!("|---|---:|---:|---:|{cost_rule}"));
    let currency = prose(report.currency.as_deref().unwrap_or_default());
    for row in rows {
        let change = if row.difference.is_empty() || row.percent.is_empty() {
            format!("{}{}", row.difference, row.percent)
        } else {
            format!("{} ({})", row.difference, row.percent)
        };
        let cost = match row.cost {
            Some([now, then]) => format!(" {currency} {now} → {then} |"),
            None if has_costs => " |".to_owned(),
            None => String::new(),
        };
        line(
            text,
            format_args!(
                "| {} | {} | {} | {change} |{cost}",
                row.label, row.requested, row.recommended
            ),
        );
    }
    if let Some((score, words)) = totals_table::score(report) {
        line(text, format_args!("\n**Score {score} of 100**: {words}."));
    }
    if let Some(words) = totals_table::without_price(report) {
        line(text, format_args!("\n{words}."));
    }
}

/// Writes rows as long as there is space, and returns how many.
fn rows<'a>(
    text: &mut String,
    entries: &[Entry<'a>],
    space: usize,
    row: impl Fn(&Entry<'a>) -> String,
) -> usize {
    let start = text.len();
    for (index, entry) in entries.iter().enumerate() {
        let row = row(entry);
        if text.len() - start + row.len() > space {
            return index;
        }
        text.push_str(&row);
    }
    entries.len()
}

fn rest(text: &mut String, shown: usize, all: usize) {
    if shown < all {
        line(text, format_args!("\n{}", and_more(all - shown, "container")));
    }
}

fn at_risk(
    text: &mut String,
    report: &Report,
    selection: &Selection<'_>,
    top: usize,
    space: usize,
) {
    let all = &selection.at_risk;
    if all.is_empty() {
        return;
    }
    line(text, format_args!("\n### At risk: {}\n", counted(all.len(), "container")));
    line(
        text,
        "| workload | container | resource | request | recommended | change | risk | reasons |\n\
         |---|---|---|---:|---:|---:|---|---|",
    );
    let shown = rows(text, &all[..top.min(all.len())], space, |entry| {
        let mut rows = String::new();
        for resource in &entry.container.resources {
            if is_at_risk(resource.risk) {
                rows.push_str(&at_risk_row(report, entry, resource));
            }
        }
        rows
    });
    rest(text, shown, all.len());
}

fn at_risk_row(report: &Report, entry: &Entry<'_>, resource: &ResourceReport) -> String {
    let of = |value: Option<i64>| {
        value.map_or_else(|| "none".to_owned(), |value| amount(resource.resource, value))
    };
    let new = match (resource.new_request(), resource.target) {
        (Some(new), _) => of(Some(new)),
        (None, Some(_)) => "keep".to_owned(),
        (None, None) => "no data".to_owned(),
    };
    let percent = resource
        .request
        .zip(resource.new_request())
        .and_then(|(from, to)| change_percent(from, to))
        .map(percent_change);
    format!(
        "| {} | {} | {} | {} | {new} | {} | {} | {} |\n",
        label(entry),
        name_text(&entry.container.name),
        words::resource(resource.resource),
        of(resource.request),
        percent.unwrap_or_default(),
        words::level(resource.risk),
        prose(&words::risk_and_limit(resource, report.at)),
    )
}

fn overprovisioned(
    text: &mut String,
    report: &Report,
    options: &FormOptions,
    selection: &Selection<'_>,
    top: usize,
    space: usize,
) {
    let all = &selection.overprovisioned;
    if all.is_empty() {
        return;
    }
    let order = order_in_words(options.sort, report);
    line(
        text,
        format_args!("\n### Overprovisioned: {}, {order}\n", counted(all.len(), "container")),
    );
    let has_costs = report.currency.is_some();
    let (cost_head, cost_rule) = if has_costs { (" cost per month |", "---:|") } else { ("", "") };
    line(text, format_args!("| workload | container | CPU | memory | waste |{cost_head}"));
    line(text, format_args!("|---|---|---|---|---|{cost_rule}"));
    let currency = prose(report.currency.as_deref().unwrap_or_default());
    let shown = rows(text, &all[..top.min(all.len())], space, |entry| {
        let cost = entry.cost_change().map(|change| format!("{currency} {}", money_change(change)));
        let cost =
            if has_costs { format!(" {} |", cost.unwrap_or_default()) } else { String::new() };
        format!(
            "| {} | {} | {} | {} | {} |{cost}\n",
            label(entry),
            name_text(&entry.container.name),
            change(entry, Resource::Cpu),
            change(entry, Resource::Memory),
            words::level(entry.waste()),
        )
    });
    rest(text, shown, all.len());
}

/// The change of one resource in a cell.
fn change(entry: &Entry<'_>, wanted: Resource) -> String {
    let Some(resource) = entry.resource(wanted) else { return String::new() };
    let of = |value: i64| amount(wanted, value);
    let notes = words::held(resource).into_iter().chain(words::limit_change(resource));
    let notes = notes.map(|note| format!("; {}", prose(&note))).collect::<Vec<_>>().concat();
    let change = match (resource.request, resource.new_request()) {
        (Some(from), Some(to)) => {
            let percent = change_percent(from, to).map(percent_change).unwrap_or_default();
            format!("{} → {} ({percent})", of(from), of(to))
        }
        (None, Some(to)) => format!("none → {}", of(to)),
        (_, None) if resource.target.is_none() => "no data".to_owned(),
        (Some(_), None) => "keep".to_owned(),
        (None, None) => "none".to_owned(),
    };
    change + &notes
}

fn label(entry: &Entry<'_>) -> String {
    let mut text = name_text(&names::workload(entry.workload));
    if let Some(replicas) = entry.workload.replicas {
        let _ = write!(text, " ×{replicas}");
    }
    for note in words::workload_notes(entry.workload) {
        let _ = write!(text, "; {}", prose(&note));
    }
    text
}

fn without(text: &mut String, selection: &Selection<'_>) {
    if !selection.without.is_empty() {
        let all = counted(selection.without_recommendation(), "container");
        line(text, format_args!("\n### Without recommendation: {all}\n"));
        for (gap, containers) in &selection.without {
            line(text, format_args!("- {}: {}", count(*containers), words::gap(*gap)));
        }
    }
    if selection.others > 0 {
        let others = counted(selection.others, "container");
        let verb = if selection.others == 1 { "needs" } else { "need" };
        line(text, format_args!("\n{others} {verb} no change."));
    }
}

fn messages(text: &mut String, title: &str, all: usize, messages: impl Iterator<Item = String>) {
    if all == 0 {
        return;
    }
    line(text, format_args!("\n### {title}\n"));
    items(text, all, "message", messages);
}

/// Writes a list as long as there is space.
fn items(text: &mut String, all: usize, what: &str, items: impl Iterator<Item = String>) {
    let mut space = MAX_LIST;
    let mut shown = 0;
    for item in items.take(MAX_ITEMS) {
        let item = prose(&item);
        if item.len() > space {
            break;
        }
        space -= item.len();
        shown += 1;
        line(text, format_args!("- {item}"));
    }
    if shown < all {
        line(text, format_args!("- {}", and_more(all - shown, what)));
    }
}

/// A name as code, which GitHub neither formats nor links.
fn name_text(name: &str) -> String {
    let is_plain = name.split('/').all(is_plain_argument);
    if is_plain { format!("`{name}`") } else { format!("<code>{}</code>", entities(name)) }
}

/// A sentence. Characters with a meaning in Markdown are escaped, and mentions and links are none.
fn prose(text: &str) -> String {
    let line = one_line(text);
    let mut escaped = String::with_capacity(line.len());
    for (index, c) in line.char_indices() {
        match c {
            // GitHub looks for mentions after it has resolved entities, but not across elements.
            '@' | '#' => {
                escaped.push(c);
                escaped.push_str("<!-- -->");
            }
            ':' if line[index..].starts_with("://") => escaped.push_str("&#58;"),
            '>' if line[..index].ends_with('-') => escaped.push(c),
            '.' if line[..index].ends_with("www") => escaped.push_str("&#46;"),
            c if is_markup(c) => {
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

const fn is_markup(c: char) -> bool {
    matches!(
        c,
        '\\' | '`'
            | '*'
            | '_'
            | '{'
            | '}'
            | '['
            | ']'
            | '<'
            | '>'
            | '|'
            | '~'
            | '&'
            | '!'
            | '"'
            | '$'
    )
}

fn entities(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len() * 2);
    for c in one_line(name).chars() {
        if c.is_ascii_punctuation() || c == ' ' {
            let _ = write!(escaped, "&#{};", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

    use super::*;
    use crate::report::recommend::test_reports::{
        assert_golden, large, named, sample, without_prices,
    };

    /// The cells of all tables, and everything that a browser would run or follow.
    fn rendered(markdown: &str) -> (Vec<Vec<Vec<String>>>, Vec<String>) {
        let (mut tables, mut foreign) = (Vec::<Vec<Vec<String>>>::new(), Vec::new());
        let mut cell: Option<String> = None;
        for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Table(_)) => tables.push(Vec::new()),
                Event::Start(Tag::TableHead | Tag::TableRow) => {
                    tables.last_mut().expect("in a table").push(Vec::new());
                }
                Event::Start(Tag::TableCell) => cell = Some(String::new()),
                Event::End(TagEnd::TableCell) => {
                    let row = tables.last_mut().and_then(|rows| rows.last_mut());
                    row.expect("in a row").extend(cell.take());
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(cell) = &mut cell {
                        cell.push_str(&text);
                    }
                }
                Event::InlineHtml(html) if ["<code>", "</code>", "<!-- -->"].contains(&&*html) => {}
                Event::InlineHtml(html) | Event::Html(html) => foreign.push(html.to_string()),
                Event::Start(tag @ (Tag::Link { .. } | Tag::Image { .. })) => {
                    foreign.push(format!("{tag:?}"));
                }
                _ => {}
            }
        }
        (tables, foreign)
    }

    #[test]
    fn the_sample() {
        assert_golden("sample.md", &render(&sample(), &FormOptions::default()));
        let without = render(&without_prices(), &FormOptions::default());
        assert!(!without.contains("cost") && !without.contains("USD"), "{without}");
    }

    #[test]
    fn tables_are_tables() {
        let (tables, foreign) = rendered(&render(&sample(), &FormOptions::default()));
        assert_eq!(foreign, [""; 0]);
        let sizes: Vec<(usize, usize)> =
            tables.iter().map(|rows| (rows.len(), rows[0].len())).collect();
        assert_eq!(sizes, [(4, 5), (4, 8), (4, 6)]);
        for rows in &tables {
            assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{rows:?}");
        }
        assert!(tables[1][1][0].starts_with("shop/Deployment/checkout ×6; "));
    }

    #[test]
    fn hostile_names_stay_text_in_their_cell() {
        for name in [
            "a|b",
            "`code`",
            "``",
            "<script>alert(1)</script>",
            "<!--",
            "![x](http://example.org/x.png)",
            "[link](http://example.org)",
            "http://example.org",
            "@everyone",
            "#1",
            "**bold** _it_ ~~no~~",
            "&lt;b&gt;",
            "\\",
            "$x$",
        ] {
            let text = render(&named(name), &FormOptions::default());
            let (tables, foreign) = rendered(&text);
            assert_eq!(foreign, [""; 0], "{name}");
            let cell = &tables[1][1][0];
            assert_eq!(cell, &format!("shop/Deployment/{name} ×6"), "{name}");
            assert!(tables[1][1][7].contains(name), "{name} in the reasons: {:?}", tables[1][1]);
            assert!(!text.contains("](") && !text.contains(" @e"), "{text}");
        }
    }

    #[test]
    fn a_large_report_is_cut_and_the_rest_counted() {
        for containers in [1, 50, 3000] {
            let report = large(containers);
            let text = render(&report, &FormOptions::default());
            assert!(text.len() <= MAX_LENGTH, "{} bytes", text.len());
            let (tables, _) = rendered(&text);
            let rest = |title: &str| {
                let (_, section) = text.split_once(title).expect("the section");
                let section = section.split("\n### ").next().unwrap_or_default();
                let more = section.lines().find_map(|line| {
                    line.strip_prefix("and ")?.split(' ').next()?.replace(',', "").parse().ok()
                });
                more.unwrap_or(0)
            };
            assert_eq!(tables[1].len() - 1 + rest("### At risk"), containers);
            assert_eq!(tables[2].len() - 1 + rest("### Overprovisioned"), containers);
            assert_eq!(rest("### At risk") > 0, containers > 1000);
        }
    }
}
