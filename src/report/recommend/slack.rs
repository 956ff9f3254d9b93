//! A message for a webhook of Slack, in Block Kit: `curl -d @-` sends it.

use std::fmt::Write as _;

use plimsoll_core::rightsizing::{report::Report, survey::Resource};
use serde_json::{Value, json};

use super::{
    amounts::{
        amount, and_more, change_percent, count, counted, minute, money_change, percent_change,
    },
    escape::one_line,
    forms::FormOptions,
    names,
    selection::{Entry, Selection, is_at_risk, order_in_words},
    totals_table, words,
};

/// The maximum of characters in the text of a section. Slack's limit is 3,000.
const MAX_TEXT: usize = 2_900;
/// The maximum of characters in a header. Slack's limit is 150.
const MAX_HEADER: usize = 140;
/// The maximum of blocks with containers in each of the two lists. With the others they stay below Slack's 50.
const MAX_LIST_BLOCKS: usize = 15;
/// The containers of a list, unless `--top` says otherwise.
const DEFAULT_TOP: usize = 10;
const MAX_MESSAGES: usize = 10;

pub(super) fn render(report: &Report, options: &FormOptions) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&message(report, options)).map(|json| json + "\n")
}

fn message(report: &Report, options: &FormOptions) -> Value {
    let selection = Selection::new(report, options.sort);
    let top = options.top.unwrap_or(DEFAULT_TOP);
    let of = names::clusters(report).map(|name| format!(": {}", one_line(&name)));
    let title = cut(&format!("Resource recommendations{}", of.unwrap_or_default()), MAX_HEADER);
    let mut blocks = vec![
        json!({"type": "header", "text": {"type": "plain_text", "text": title, "emoji": false}}),
        section(&totals(report)),
    ];
    let at_risk: Vec<String> =
        selection.at_risk.iter().take(top).map(|entry| at_risk(report, entry)).collect();
    let head = format!("*At risk: {}*", counted(selection.at_risk.len(), "container"));
    blocks.extend(list(&head, &at_risk, selection.at_risk.len()));
    let waste: Vec<String> = selection
        .overprovisioned
        .iter()
        .take(top)
        .map(|entry| overprovisioned(report, entry))
        .collect();
    let head = format!(
        "*Overprovisioned: {}, {}*",
        counted(selection.overprovisioned.len(), "container"),
        order_in_words(options.sort, report)
    );
    blocks.extend(list(&head, &waste, selection.overprovisioned.len()));
    blocks.extend(remainder(report, &selection));
    // Notifications and clients without blocks show the text alone.
    json!({"text": mrkdwn(&format!("{title}: {}", summary(report, &selection))), "blocks": blocks})
}

fn section(text: &str) -> Value {
    json!({"type": "section", "text": plain(text)})
}

/// Text in which Slack makes no links and mentions.
fn plain(text: &str) -> Value {
    json!({"type": "mrkdwn", "text": cut(text, MAX_TEXT), "verbatim": true})
}

fn summary(report: &Report, selection: &Selection<'_>) -> String {
    let score = report.totals.score.map(|score| format!("score {} of 100, ", score.value));
    format!(
        "{}{} at risk, {} overprovisioned",
        score.unwrap_or_default(),
        counted(selection.at_risk.len(), "container"),
        count(selection.overprovisioned.len())
    )
}

fn totals(report: &Report) -> String {
    let mut lines = vec![format!("{}, {}", minute(report.at), names::extent(report))];
    let currency = mrkdwn(report.currency.as_deref().unwrap_or_default());
    let mut has_costs = false;
    for row in totals_table::rows(report) {
        let mut line = format!("*{}*", row.label);
        if !row.requested.is_empty() {
            let _ = write!(line, ": {} → {}", row.requested, row.recommended);
        }
        if !row.percent.is_empty() {
            let _ = write!(line, " ({})", row.percent);
        }
        if let Some([now, then]) = row.cost {
            has_costs = true;
            let _ = write!(line, ", {currency} {now} → {then} a month");
        }
        lines.push(line);
    }
    if let Some((score, words)) = totals_table::score(report) {
        lines.push(format!("*Score {score} of 100*: {words}"));
    }
    lines.extend(totals_table::without_price(report));
    if has_costs && report.currency.is_some() {
        lines.push(words::COST_NOTE.to_owned());
    }
    lines.join("\n")
}

/// A heading, and lines in as many blocks as they need.
fn list(head: &str, lines: &[String], all: usize) -> Vec<Value> {
    if all == 0 {
        return Vec::new();
    }
    let mut texts = vec![head.to_owned()];
    let mut shown = 0;
    for line in lines {
        let line = format!("\n• {line}");
        let last = texts.len() - 1;
        if texts[last].chars().count() + line.chars().count() <= MAX_TEXT {
            texts[last].push_str(&line);
        } else if texts.len() < MAX_LIST_BLOCKS {
            texts.push(cut(line.trim_start(), MAX_TEXT));
        } else {
            break;
        }
        shown += 1;
    }
    let mut blocks = vec![json!({"type": "divider"})];
    blocks.extend(texts.iter().map(|text| section(text)));
    if shown < all {
        blocks.push(context(&and_more(all - shown, "container")));
    }
    blocks
}

fn context(text: &str) -> Value {
    json!({"type": "context", "elements": [plain(text)]})
}

fn at_risk(report: &Report, entry: &Entry<'_>) -> String {
    let resources = entry.container.resources.iter().filter(|resource| is_at_risk(resource.risk));
    let parts: Vec<String> = resources
        .map(|resource| {
            format!(
                "{}: *{}*, {}",
                change(entry, resource.resource),
                words::level(resource.risk),
                mrkdwn(&words::risk_and_limit(resource, report.at))
            )
        })
        .collect();
    format!("{} {}{}", label(entry), parts.join("; "), notes(entry))
}

fn overprovisioned(report: &Report, entry: &Entry<'_>) -> String {
    let mut parts: Vec<String> = [Resource::Cpu, Resource::Memory]
        .into_iter()
        .filter(|wanted| entry.resource(*wanted).is_some())
        .map(|wanted| change(entry, wanted))
        .collect();
    if let (Some(currency), Some(cost)) = (&report.currency, entry.cost_change()) {
        parts.push(format!("{} {} a month", mrkdwn(currency), money_change(cost)));
    }
    format!("{} {}{}", label(entry), parts.join(", "), notes(entry))
}

fn notes(entry: &Entry<'_>) -> String {
    let notes = words::workload_notes(entry.workload);
    notes.iter().map(|note| format!("; {}", mrkdwn(note))).collect::<Vec<_>>().concat()
}

fn label(entry: &Entry<'_>) -> String {
    let replicas = entry.workload.replicas.map(|replicas| format!(" ×{replicas}"));
    format!(
        "{}{} {}:",
        code(&names::workload(entry.workload)),
        replicas.unwrap_or_default(),
        code(&entry.container.name)
    )
}

fn change(entry: &Entry<'_>, wanted: Resource) -> String {
    let name = words::resource(wanted);
    let Some(resource) = entry.resource(wanted) else { return name.to_owned() };
    let of = |value: i64| amount(wanted, value);
    match (resource.request, resource.new_request()) {
        (Some(from), Some(to)) => {
            let percent = change_percent(from, to).map(percent_change).unwrap_or_default();
            format!("{name} {} → {} ({percent})", of(from), of(to))
        }
        (None, Some(to)) => format!("{name} none → {}", of(to)),
        (_, None) if resource.target.is_none() => format!("{name} no data"),
        (_, None) => format!("{name} stays"),
    }
}

fn remainder(report: &Report, selection: &Selection<'_>) -> Vec<Value> {
    let mut lines = Vec::new();
    for (gap, containers) in &selection.without {
        let containers = counted(*containers, "container");
        lines.push(format!("{containers} without recommendation: {}", words::gap(*gap)));
    }
    if selection.others > 0 {
        lines.push(format!("{} without need for a change", counted(selection.others, "container")));
    }
    let unread = report.unread.iter().map(|unread| {
        format!("*Incomplete*: {}", mrkdwn(&format!("{}: {}", unread.what, unread.why)))
    });
    let messages = report.unread.len() + report.remarks.len();
    let remarks = report.remarks.iter().map(|remark| mrkdwn(remark));
    lines.extend(unread.chain(remarks).take(MAX_MESSAGES));
    if messages > MAX_MESSAGES {
        lines.push(and_more(messages - MAX_MESSAGES, "message"));
    }
    if lines.is_empty() {
        return Vec::new();
    }
    let mut texts = vec![String::new()];
    for line in lines {
        let last = texts.len() - 1;
        if texts[last].chars().count() + line.chars().count() < MAX_TEXT {
            if !texts[last].is_empty() {
                texts[last].push('\n');
            }
            texts[last].push_str(&line);
        } else {
            texts.push(cut(&line, MAX_TEXT));
        }
    }
    let mut blocks = vec![json!({"type": "divider"})];
    blocks.extend(texts.iter().map(|text| context(text)));
    blocks
}

/// Escapes what Slack reads as links, mentions and entities.
fn mrkdwn(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in one_line(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '`' => escaped.push('\''),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A name as code, in which only backticks have a meaning.
fn code(name: &str) -> String {
    let name = one_line(name).replace('`', "'");
    let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("`{name}`")
}

/// Cuts text to a number of characters, not within an entity.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let short: String = text.chars().take(most.saturating_sub(3)).collect();
    let whole = match short.rfind('&') {
        Some(start) if !short[start..].contains(';') => &short[..start],
        _ => &short,
    };
    format!("{whole}...")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::recommend::test_reports::{large, named, sample, without_prices};

    /// The blocks, checked against the limits of Block Kit.
    fn checked(report: &Report, options: &FormOptions) -> Vec<Value> {
        let text = render(report, options).expect("JSON");
        let message: Value = serde_json::from_str(&text).expect("JSON");
        assert!(message["text"].as_str().is_some_and(|text| !text.is_empty()));
        let blocks = message["blocks"].as_array().expect("blocks").clone();
        assert!(blocks.len() <= 50, "{} blocks", blocks.len());
        for block in &blocks {
            let texts = match block["type"].as_str().expect("a type") {
                "header" => vec![(&block["text"], "plain_text", 150)],
                "section" => vec![(&block["text"], "mrkdwn", 3000)],
                "context" => {
                    let elements = block["elements"].as_array().expect("elements");
                    assert!((1..=10).contains(&elements.len()));
                    elements.iter().map(|element| (element, "mrkdwn", 3000)).collect()
                }
                "divider" => Vec::new(),
                other => panic!("{other} is not expected"),
            };
            for (text, kind, most) in texts {
                assert_eq!(text["type"], kind);
                let length = text["text"].as_str().expect("a text").chars().count();
                assert!((1..=most).contains(&length), "{length} characters in {block}");
            }
        }
        blocks
    }

    fn all_text(blocks: &[Value]) -> String {
        serde_json::to_string(blocks).expect("JSON")
    }

    #[test]
    fn the_sample_has_all_its_parts() {
        let blocks = checked(&sample(), &FormOptions::default());
        let kinds: Vec<&str> = blocks.iter().filter_map(|block| block["type"].as_str()).collect();
        assert_eq!(
            kinds,
            ["header", "section", "divider", "section", "divider", "section", "divider", "context"]
        );
        let text = all_text(&blocks);
        for words in [
            "`shop/Deployment/checkout` ×6 `main`: memory 512Mi → 844Mi (+65 %): *critical*, 9 OOM kills",
            "USD -1,044 a month",
            "Money is saved only when nodes are removed",
        ] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }

    #[test]
    fn without_prices_there_is_no_note_on_costs() {
        let text = all_text(&checked(&without_prices(), &FormOptions::default()));
        assert!(!text.contains("Costs are") && !text.contains("a month"), "{text}");
        // A report may have costs that were computed with prices of an unknown currency.
        let mut report = sample();
        report.currency = None;
        let text = all_text(&checked(&report, &FormOptions::default()));
        assert!(!text.contains("Costs are"), "{text}");
    }

    #[test]
    fn large_reports_stay_within_the_limits_and_the_rest_is_counted() {
        let options = FormOptions { top: Some(usize::MAX), ..Default::default() };
        let text = all_text(&checked(&large(5000), &options));
        let items = text.matches("• ").count();
        let rest: usize = text
            .match_indices("and ")
            .filter_map(|(index, _)| {
                let rest = &text[index + 4..];
                rest.split(' ').next()?.replace(',', "").parse::<usize>().ok()
            })
            .sum();
        assert_eq!(items + rest, 10_000);
        let text = all_text(&checked(&large(15), &FormOptions::default()));
        assert!(text.contains("and 5 more containers"), "{text}");
    }

    #[test]
    fn hostile_names_are_neither_mentions_nor_links() {
        for name in ["<!channel>", "<@U1>", "`a`", "&amp;", "<http://example.org|x>"] {
            let blocks = checked(&named(name), &FormOptions::default());
            // The header is plain text, in which nothing has a meaning.
            let text = all_text(&blocks[1..]);
            assert!(!text.contains(['<', '>']), "{text}");
            assert!(!text.contains("`a`"), "{text}");
        }
    }

    #[test]
    fn text_is_not_cut_within_an_entity() {
        assert_eq!(cut("abc&amp;def", 9), "abc...");
        assert_eq!(cut("abcdef", 6), "abcdef");
    }
}
