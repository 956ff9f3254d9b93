//! The report as one HTML file: tables that are complete without scripts, and a script that sorts and searches them.
//!
//! ```text
//!   Report ─▶ rows ─▶ tables ──┐
//!     └──────▶ overview ───────┴─▶ markup: escapes every text ─▶ page.css, charts.css, page.js by hash ─▶ String
//! ```
//!
//! The file requests nothing from anywhere: its Content-Security-Policy allows only the styles and the script that it contains.

pub(crate) mod amounts;
pub(crate) mod markup;
pub(crate) mod notes;
mod overview;
pub(crate) mod rows;
#[cfg(test)]
#[path = "../../../tests/html_reports/sample_report.rs"]
pub(crate) mod sample_report;
mod tables;
#[cfg(test)]
mod tests;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use plimsoll_core::rightsizing::report::Report;
use ring::digest::{SHA256, digest};

use markup::Markup;
use rows::Row;

pub(in crate::report) const STYLES: &str = include_str!("html/page.css");
pub(in crate::report) const SCRIPT: &str = include_str!("html/page.js");

/// Renders the report as a complete HTML document.
pub fn render(report: &Report) -> String {
    let rows = Row::all(report);
    let mut page = Markup::default();
    page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.raw("<meta http-equiv=\"Content-Security-Policy\"");
    page.attribute(
        "content",
        content_security_policy(&[plimsoll_charts::STYLESHEET, STYLES], SCRIPT),
    );
    page.raw(">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.raw("<meta name=\"color-scheme\" content=\"light dark\">\n");
    page.raw("<meta name=\"referrer\" content=\"no-referrer\">\n<title>");
    page.text(overview::title(report));
    // Without an icon of its own, browsers request one.
    page.raw("</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>");
    page.raw(plimsoll_charts::STYLESHEET);
    page.raw("</style>\n<style>");
    page.raw(STYLES);
    page.raw(
        "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the tables</a>\n",
    );
    overview::write_header(&mut page, report);
    page.raw("<main id=\"main\" tabindex=\"-1\">\n");
    overview::write_problems(&mut page, report);
    overview::write_summary(&mut page, report);
    tables::write(&mut page, report, &rows);
    overview::write_details(&mut page, report);
    page.raw("</main>\n<footer>");
    page.text(format_args!("Plimsoll {}", report.version));
    page.raw("</footer>\n<script>");
    page.raw(SCRIPT);
    page.raw("</script>\n</body>\n</html>\n");
    page.finish()
}

/// Nothing may be loaded. The styles and the script of a page are allowed by their hashes.
pub(in crate::report) fn content_security_policy(styles: &[&str], script: &str) -> String {
    let hash = |text: &&str| {
        let hash = digest(&SHA256, text.as_bytes());
        format!("'sha256-{}'", BASE64_STANDARD.encode(hash.as_ref()))
    };
    format!(
        "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        styles.iter().map(hash).collect::<Vec<_>>().join(" "),
        hash(&script)
    )
}
