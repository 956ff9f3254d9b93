//! The table of ResourceQuotas, on the overview and on the page of a namespace.

use crate::{
    report::recommend::html::{amounts::total, markup::Markup},
    ui::{layout, pages::workloads::namespace_link, quota::QuotaFacts},
};

/// Rows of the table.
const MAX_ROWS: usize = 20;

/// Renders the quotas, if there are any. `root` is the path to the overview.
pub(super) fn render(html: &mut Markup, quotas: &[QuotaFacts], root: &str) {
    if quotas.is_empty() {
        return;
    }
    html.raw("<h2>Quotas</h2>\n");
    let columns = [
        ("Quota", ""),
        ("Resource", ""),
        ("Used", "n"),
        ("Needed", "n"),
        ("Limit", "n"),
        ("State", ""),
    ];
    layout::open_table(html, "ResourceQuotas, those nearest to their limits first", &columns);
    let rows = quotas.iter().flat_map(|quota| quota.amounts.iter().map(move |one| (quota, one)));
    let count = rows.clone().count();
    for (quota, amount) in rows.take(MAX_ROWS) {
        html.raw("<tr><th scope=\"row\">");
        layout::link(html, &namespace_link(root, &quota.namespace), &quota.namespace);
        html.text(format_args!("/{}", quota.name));
        html.raw("</th>");
        layout::cell(html, "Resource", &amount.name);
        let text = |value: Option<i64>, missing: &str| {
            value.map_or_else(|| missing.to_owned(), |value| total(amount.resource, value))
        };
        layout::cell(html, "Used", text(amount.used, "unknown"));
        let missing = if quota.is_scoped { "counts some pods only" } else { "" };
        layout::cell(html, "Needed", text(amount.needed, missing));
        layout::cell(html, "Limit", total(amount.resource, amount.hard));
        let is_short = amount.needed.is_some_and(|needed| needed > amount.hard);
        let state = match amount.share() {
            _ if is_short => "too small for the targets".to_owned(),
            Some(share) if share.is_finite() => format!("{:.0}%", share * 100.0),
            Some(_) => "no room".to_owned(),
            None => "unknown".to_owned(),
        };
        layout::cell(html, "State", state);
        html.raw("</tr>\n");
    }
    layout::close_table(html);
    if count > MAX_ROWS {
        let left = count - MAX_ROWS;
        layout::paragraph(html, format_args!("{left} more are in the JSON form."));
    }
}
