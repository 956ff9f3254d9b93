//! The numbers of a chart as a table, for those who cannot see it and for copying.

use plimsoll_charts::time_format;

use super::{layout, timeline::Point};
use crate::report::recommend::html::markup::Markup;

/// Rows of a table. The JSON form has all points.
const MAX_ROWS: usize = 60;

/// The numbers of a chart.
pub(super) struct NumberTable<'a> {
    /// The caption.
    pub title: &'a str,
    /// What the table is behind.
    pub summary: &'a str,
    /// The lines by name. Lines without points have no column.
    pub lines: &'a [(&'a str, &'a [Point])],
    /// Writes a value.
    pub amount: &'a dyn Fn(f64) -> String,
}

/// Renders at most [`MAX_ROWS`] rows, evenly chosen, the latest first.
pub(super) fn number_table(html: &mut Markup, table: &NumberTable<'_>) {
    let lines: Vec<_> = table.lines.iter().filter(|(_, points)| !points.is_empty()).collect();
    let Some((_, longest)) = lines.iter().max_by_key(|(_, points)| points.len()) else { return };
    html.raw("<details><summary>");
    html.text(table.summary);
    html.raw("</summary>\n");
    let mut columns = vec![("Time", "")];
    columns.extend(lines.iter().map(|(name, _)| (*name, "n")));
    layout::open_table(html, table.title, &columns);
    let step = longest.len().div_ceil(MAX_ROWS).max(1);
    for (at, _) in longest.iter().rev().step_by(step) {
        html.raw("<tr><th scope=\"row\">");
        html.text(time_format::date_and_time(*at as f64));
        html.raw("</th>");
        for (name, points) in &lines {
            let place = points.binary_search_by_key(at, |(at, _)| *at);
            let value = place.ok().and_then(|place| points.get(place));
            let text = value.map_or_else(String::new, |(_, value)| (table.amount)(*value));
            layout::cell(html, name, text);
        }
        html.raw("</tr>\n");
    }
    layout::close_table(html);
    html.raw("</details>\n");
}
