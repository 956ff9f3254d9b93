//! The report as one HTML file with charts: complete without scripts, and with the report as data in it.
//!
//! ```text
//!   BacktestReport ─▶ tables ─┐
//!       └──────────▶ charts ──┴─▶ Markup of recommend ─▶ its styles and its script, by hash ─▶ String
//! ```
//!
//! The file requests nothing from anywhere. Each chart has its values as a table below it.

mod charts;
mod definitions;
mod overview;
#[cfg(test)]
mod tests;

use plimsoll_core::backtest::report::BacktestReport;

use super::words::{extent, time};
use crate::report::recommend::html::{SCRIPT, STYLES, content_security_policy, markup::Markup};

const BACKTEST_STYLES: &str = include_str!("html/page.css");

/// Renders the report as a complete HTML document.
pub fn render(report: &BacktestReport) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(report)?;
    let mut page = Markup::default();
    page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.raw("<meta http-equiv=\"Content-Security-Policy\"");
    let styles = [plimsoll_charts::STYLESHEET, STYLES, BACKTEST_STYLES];
    page.attribute("content", content_security_policy(&styles, SCRIPT));
    page.raw(">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.raw("<meta name=\"color-scheme\" content=\"light dark\">\n");
    page.raw("<meta name=\"referrer\" content=\"no-referrer\">\n<title>");
    page.text(format_args!("Backtest of {}", report.scope));
    // Without an icon of its own, browsers request one.
    page.raw("</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>");
    page.raw(plimsoll_charts::STYLESHEET);
    page.raw("</style>\n<style>");
    page.raw(STYLES);
    page.raw("</style>\n<style>");
    page.raw(BACKTEST_STYLES);
    page.raw(
        "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the tables</a>\n",
    );
    write_header(&mut page, report);
    page.raw("<main id=\"main\" tabindex=\"-1\">\n");
    overview::write(&mut page, report);
    charts::write_frontier(&mut page, report);
    charts::write_days(&mut page, report);
    overview::write_worst(&mut page, report);
    charts::write_slack(&mut page, report);
    definitions::write(&mut page, report);
    page.raw("</main>\n<footer>");
    page.text(format_args!("Plimsoll {}", report.version));
    page.raw("</footer>\n");
    page.data("report", &json);
    page.raw("<script>");
    page.raw(SCRIPT);
    page.raw("</script>\n</body>\n</html>\n");
    Ok(page.finish())
}

fn write_header(page: &mut Markup, report: &BacktestReport) {
    page.raw("<header>\n<h1>Backtest of policies</h1>\n<p>");
    page.element("b", &report.scope);
    page.text(format_args!(" · {} · {}", time(report), extent(report)));
    page.raw("</p>\n<nav aria-label=\"Sections\"><ul>");
    page.raw("<li><a href=\"#policies\">Policies</a></li><li><a href=\"#frontier\">Cost and risk</a></li>");
    page.raw(
        "<li><a href=\"#days\">By day</a></li><li><a href=\"#worst\">Worst containers</a></li>",
    );
    page.raw("<li><a href=\"#slack\">Slack</a></li><li><a href=\"#definitions\">Settings and formulas</a></li>");
    page.raw("</ul></nav>\n</header>\n");
}

/// Opens a section with a heading.
fn open_section(page: &mut Markup, id: &'static str, title: &'static str) {
    page.raw("<section");
    page.attribute("aria-labelledby", format_args!("{id}-title"));
    page.attribute("id", id);
    page.raw(">\n<h2");
    page.attribute("id", format_args!("{id}-title"));
    page.raw(">");
    page.text(title);
    page.raw("</h2>\n");
}

/// A cell of a table: a number with its text, or a text.
enum Cell {
    Text(String),
    /// `None` is unknown, and stays last when the table is sorted.
    Number(Option<f64>, String),
}

/// Writes a table. The class is that of sortable ones.
fn write_table(page: &mut Markup, caption: &str, headings: &[&str], rows: &[Vec<Cell>]) {
    page.raw("<div class=\"scroll\"><table class=\"namespaces\">\n<caption>");
    page.text(caption);
    page.raw("</caption>\n<thead><tr>");
    let is_number = |column: usize| {
        rows.first().is_some_and(|row| matches!(row.get(column), Some(Cell::Number(..))))
    };
    for (column, heading) in headings.iter().enumerate() {
        page.raw("<th scope=\"col\"");
        if is_number(column) {
            page.attribute("class", "number");
        }
        page.raw(">");
        page.text(heading);
        page.raw("</th>");
    }
    page.raw("</tr></thead>\n<tbody>\n");
    for row in rows {
        page.raw("<tr>");
        for (column, cell) in row.iter().enumerate() {
            match cell {
                Cell::Text(text) if column == 0 => {
                    page.raw("<th scope=\"row\">");
                    page.text(text);
                    page.raw("</th>");
                }
                Cell::Text(text) => page.element("td", text),
                Cell::Number(value, text) => {
                    page.raw("<td");
                    page.attribute("class", "number");
                    let value = value.filter(|value| value.is_finite());
                    page.attribute(
                        "data-v",
                        value.map_or(String::new(), |value| value.to_string()),
                    );
                    page.raw(">");
                    page.text(text);
                    page.raw("</td>");
                }
            }
        }
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n");
}

/// The values of a chart, which are hidden until they are asked for.
fn write_details(page: &mut Markup, caption: &str, headings: &[&str], rows: &[Vec<Cell>]) {
    page.raw("<details><summary>");
    page.text(format_args!("Values of {caption}"));
    page.raw("</summary>\n");
    write_table(page, caption, headings, rows);
    page.raw("</details>\n");
}
