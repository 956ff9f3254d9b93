//! What all HTML pages share: head, navigation, footer, and the elements of tables and lists.

use std::fmt::Display;

use plimsoll_core::{
    rightsizing::{
        report::Level,
        survey::{Resource, Unread},
    },
    types::Time,
};

use strum::IntoEnumIterator as _;

use super::{
    assets::assets,
    facts::HeldBack,
    list_query::{ListQuery, Span},
    pages::PageHead,
    router::{PathSegment, Route},
    rows::RequestAndTarget,
};
use crate::report::{
    explain::report_parts::ago,
    recommend::html::{
        amounts::{quantity, time},
        markup::Markup,
        notes::level_word,
    },
};

/// The pages of the navigation: path and name.
const NAVIGATION: [(&str, &str, Route); 7] = [
    ("", "Overview", Route::Overview),
    ("workloads", "Workloads", Route::Workloads),
    ("held", "Held back", Route::HeldBack),
    ("a", "Autoscalers", Route::Autoscalers),
    ("preview", "Preview", Route::Preview),
    ("backtest", "Backtests", Route::Backtests),
    ("status", "Status", Route::Status),
];

/// Why there is no timeline if no server is known.
pub(super) const NO_SERVER: &str =
    "There is no timeline without a Prometheus: set --prometheus-address or --prometheus-service.";

/// Where a page is, so that it can link to others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub route: &'a Route,
    pub query: &'a ListQuery,
}

/// A column of a table: its heading and its class.
pub(super) type Column<'a> = (&'a str, &'static str);

/// Renders a whole page around its content.
pub(super) fn page(
    place: Place<'_>,
    head: &PageHead,
    title: &str,
    content: impl FnOnce(&mut Markup),
) -> String {
    let (root, assets) = (place.route.root(), assets());
    let mut html = Markup::default();
    html.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.raw("<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    html.text(format_args!("{title} · Plimsoll"));
    html.raw("</title>\n<link rel=\"icon\"");
    html.attribute("href", format_args!("{root}assets/{}", assets.icon.name()));
    html.raw(">\n<link rel=\"stylesheet\"");
    html.attribute("href", format_args!("{root}assets/{}", assets.style.name()));
    html.raw(">\n<link rel=\"alternate\" type=\"application/json\"");
    html.attribute("href", json_link(place));
    html.raw(">\n<script");
    html.attribute("src", format_args!("{root}assets/{}", assets.script.name()));
    html.raw(
        "></script>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n",
    );
    header(&mut html, place, head);
    html.raw("<main id=\"main\" tabindex=\"-1\">\n");
    content(&mut html);
    unread(&mut html, &head.unread);
    html.raw("</main>\n<footer><span>");
    html.text(format_args!("As of {}", time(head.at)));
    html.raw("</span>");
    link(&mut html, &json_link(place), "JSON");
    if place.route.has_csv() {
        let csv = format!("{}.csv{}", place.route.last_segment(), place.query.text());
        link(&mut html, &csv, "CSV");
    }
    html.raw("<span>");
    html.text(format_args!("Plimsoll {}", head.version));
    html.raw("</span></footer>\n</body>\n</html>\n");
    html.finish()
}

fn json_link(place: Place<'_>) -> String {
    format!("{}.json{}", place.route.last_segment(), place.query.text())
}

fn header(html: &mut Markup, place: Place<'_>, head: &PageHead) {
    let root = place.route.root();
    html.raw("<header>\n<p class=\"brand\">");
    link(html, root, "Plimsoll");
    html.text(format_args!(" {}", head.cluster));
    html.raw("</p>\n<nav aria-label=\"Pages\"><ul>");
    for (path, name, route) in &NAVIGATION {
        if route.needs_everything() && !head.sees_everything {
            continue;
        }
        html.raw("<li><a");
        html.attribute("href", format_args!("{root}{path}"));
        if route == place.route {
            html.raw(" aria-current=\"page\"");
        }
        html.raw(">");
        html.text(name);
        html.raw("</a></li>");
    }
    html.raw("</ul></nav>\n<div class=\"theme\" hidden><label>Theme <select id=\"theme\">");
    html.raw("<option value=\"system\">system</option><option value=\"light\">light</option>");
    html.raw("<option value=\"dark\">dark</option></select></label></div>\n</header>\n");
}

fn unread(html: &mut Markup, unread: &[Unread]) {
    if unread.is_empty() {
        return;
    }
    html.raw("<section class=\"note problem\" aria-labelledby=\"unread\">\n<h2 id=\"unread\">Not everything could be read</h2>\n<ul>\n");
    for one in unread {
        html.raw("<li>");
        html.element("b", &one.what);
        html.text(format_args!(": {}", one.why));
        html.raw("</li>\n");
    }
    html.raw("</ul>\n</section>\n");
}

pub(super) fn link(html: &mut Markup, to: &str, text: impl Display) {
    html.raw("<a");
    html.attribute("href", to);
    html.raw(">");
    html.text(text);
    html.raw("</a>");
}

/// The path of the page of a workload, from the overview. A name that ends like a form gets the form of pages.
pub(super) fn workload_path(namespace: &str, kind: &str, name: &str) -> String {
    let end = form_end(name);
    format!("w/{}/{}/{}{end}", PathSegment(namespace), PathSegment(kind), PathSegment(name))
}

/// The path of the page of an autoscaler, from the overview.
pub(super) fn autoscaler_path(namespace: &str, name: &str) -> String {
    format!("a/{}/{}{}", PathSegment(namespace), PathSegment(name), form_end(name))
}

fn form_end(name: &str) -> &'static str {
    let forms = [".json", ".csv", ".html"];
    if forms.iter().any(|form| name.ends_with(form)) { ".html" } else { "" }
}

/// Starts a table of objects that browsers can sort.
pub(super) fn open_list(html: &mut Markup, caption: &str, columns: &[Column<'_>], filters: bool) {
    html.raw("<div class=\"scroll\"><table class=\"list\" data-sort");
    if filters {
        html.raw(" data-filter");
    }
    html.raw(">\n");
    heads(html, caption, columns);
}

/// Starts a table.
pub(super) fn open_table(html: &mut Markup, caption: &str, columns: &[Column<'_>]) {
    html.raw("<div class=\"scroll\"><table class=\"list\">\n");
    heads(html, caption, columns);
}

fn heads(html: &mut Markup, caption: &str, columns: &[Column<'_>]) {
    html.element("caption", caption);
    html.raw("\n<thead><tr>");
    for (heading, class) in columns {
        html.raw("<th scope=\"col\"");
        if !class.is_empty() {
            html.attribute("class", class);
        }
        html.raw(">");
        html.text(heading);
        html.raw("</th>");
    }
    html.raw("</tr></thead>\n<tbody>\n");
}

/// Ends a table.
pub(super) fn close_table(html: &mut Markup) {
    html.raw("</tbody></table></div>\n");
}

/// A cell with a label for narrow screens, where rows are no longer in columns.
pub(super) fn cell(html: &mut Markup, label: &str, text: impl Display) {
    html.raw("<td");
    html.attribute("data-l", label);
    html.raw(">");
    html.text(text);
    html.raw("</td>");
}

/// The same for a number, with what it is sorted by; empty if it is unknown.
pub(super) fn number_cell(
    html: &mut Markup,
    label: &'static str,
    sorted_by: Option<f64>,
    text: impl Display,
) {
    html.raw("<td class=\"n\"");
    html.attribute("data-l", label);
    html.attribute("data-v", sorted_by.map_or_else(String::new, |value| value.to_string()));
    html.raw(">");
    html.text(text);
    html.raw("</td>");
}

pub(super) fn level(html: &mut Markup, level: Level) {
    html.raw("<span");
    html.attribute("class", format_args!("level {}", level_word(level)));
    html.raw(">");
    html.text(level_word(level));
    html.raw("</span>");
}

/// `512Mi → 844Mi ▲`, in words where an amount is missing.
pub(super) fn request_and_target(resource: Resource, amounts: RequestAndTarget) -> String {
    let text = |amount: Option<i64>, missing: &str| {
        amount.map_or_else(|| missing.to_owned(), |amount| quantity(resource, amount))
    };
    let RequestAndTarget { request, target } = amounts;
    if target.is_none() {
        return text(request, "none known");
    }
    let sign = match amounts.gap() {
        Some(gap) if gap > 0 => " ▲",
        Some(gap) if gap < 0 => " ▼",
        _ => "",
    };
    format!("{} → {}{sign}", text(request, "none"), text(target, ""))
}

/// A term and its description in a list of them.
pub(super) fn term(html: &mut Markup, name: &'static str, text: impl Display) {
    html.element("dt", name);
    html.element("dd", text);
}

/// Why something is held back, and since when.
pub(super) fn held_text(held: &HeldBack, now: Time) -> String {
    let HeldBack { reason, message, since, until } = held;
    let since = since.map(|since| format!(" (since {})", ago(since, now))).unwrap_or_default();
    let until = until.map(|until| format!(" (until {})", time(until))).unwrap_or_default();
    format!("{reason}: {message}{since}{until}")
}

/// A choice of a select element. Without an attribute its text is its value, without redundant spaces.
pub(super) fn option(html: &mut Markup, value: &str, text: &str, is_chosen: bool) {
    html.raw("<option");
    if value != text || text.contains(char::is_whitespace) {
        html.attribute("value", value);
    }
    if is_chosen {
        html.raw(" selected");
    }
    html.raw(">");
    html.text(text);
    html.raw("</option>");
}

/// Links to the same page with other time ranges.
pub(super) fn time_ranges(html: &mut Markup, place: Place<'_>) {
    html.raw("<nav class=\"pages\" aria-label=\"Time range\">");
    for span in Span::iter() {
        let query = ListQuery { span, ..place.query.clone() }.text();
        // The name of the page, also without a query: a link to nothing but a fragment would keep the query.
        let page = place.route.last_segment();
        html.raw("<a");
        html.attribute("href", format_args!("{page}{query}#timeline"));
        if span == place.query.span {
            html.raw(" aria-current=\"true\"");
        }
        html.raw(">");
        html.text(<&str>::from(span));
        html.raw("</a>");
    }
    html.raw("</nav>\n");
}

pub(super) fn paragraph(html: &mut Markup, text: impl Display) {
    html.element("p", text);
    html.raw("\n");
}

/// A list of findings or notes, if there are any.
pub(super) fn notes(html: &mut Markup, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    html.raw("<div class=\"note\"><ul>\n");
    for note in notes {
        html.element("li", note);
        html.raw("\n");
    }
    html.raw("</ul></div>\n");
}
