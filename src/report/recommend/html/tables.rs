//! The tables of containers: at risk, wasteful, all, and those without a number.

use std::collections::BTreeMap;

use plimsoll_charts::request_bar::RequestBar;
use plimsoll_core::rightsizing::{
    evidence::EvidenceGap,
    report::{Level, Report, ResourceReport, RiskReason},
    survey::Resource,
    totals::without_recommendation,
};

use super::{
    amounts::{change, count, money, quantity, resource_name, signed},
    markup::Markup,
    notes::{container_notes, gap_text, level_word, resource_notes},
    rows::{Proposal, Row, proposal, relative_shortfall, shortfall},
};

/// The rows of the short tables. All of them are in the table of all containers.
const MOST: usize = 100;

/// The choices of the filter by risk: rows below the level are hidden.
const LEAST_RISK: [(&str, Level); 4] = [
    ("any", Level::Unsaid),
    ("medium or higher", Level::Medium),
    ("high or higher", Level::High),
    ("critical", Level::Critical),
];

/// A column: the class of its cells and its heading. The class `number` sorts by number, in descending order first.
type Column = (&'static str, &'static str);

pub(super) fn write(page: &mut Markup, report: &Report, rows: &[Row<'_>]) {
    page.raw(
        "<form class=\"search\" id=\"search\" role=\"search\" hidden>\n\
         <p><label for=\"words\">Search all tables</label> \
         <input id=\"words\" type=\"search\" autocomplete=\"off\" spellcheck=\"false\"></p>\n\
         <p><label for=\"least\">Risk</label> <select id=\"least\">",
    );
    for (words, least) in LEAST_RISK {
        page.raw("<option");
        page.attribute("value", least as u8);
        page.raw(">");
        page.text(words);
        page.raw("</option>");
    }
    page.raw("</select></p>\n<p id=\"found\" role=\"status\"></p>\n</form>\n");
    write_too_little(page, report, rows);
    write_too_much(page, report, rows);
    write_all(page, report, rows);
    write_without_number(page, rows);
}

fn write_too_little(page: &mut Markup, report: &Report, rows: &[Row<'_>]) {
    let resources = rows.iter().flat_map(|row| {
        let at_risk = row.container.resources.iter().filter(|one| one.risk > Level::Ok);
        at_risk.map(move |resource| (row, resource))
    });
    let mut resources: Vec<(&Row<'_>, &ResourceReport)> = resources.collect();
    let containers = rows.iter().filter(|row| row.risk() > Level::Ok).count();
    resources.sort_by(|(_, one), (_, other)| {
        let order = relative_shortfall(other).total_cmp(&relative_shortfall(one));
        other.risk.cmp(&one.risk).then(order)
    });
    open_section(page, "at-risk", "At risk", containers);
    if resources.is_empty() {
        page.raw("<p>No container has too little.</p>\n</section>\n");
        return;
    }
    let columns: [Column; 8] = [
        ("workload", "Workload"),
        ("container", "Container"),
        ("resource", "Resource"),
        ("request number", "Request"),
        ("change number", "Change"),
        ("bar", "Request and target"),
        ("risk number", "Risk"),
        ("notes", "Why"),
    ];
    open_table(page, "Containers at risk, by risk", &columns, Some("Risk"));
    for (row, resource) in resources.iter().take(MOST) {
        open_row(page, row, resource.risk);
        page.raw("<td class=\"resource\">");
        page.text(resource_name(resource.resource));
        page.raw("</td><td class=\"request\"");
        page.attribute(
            "data-v",
            resource.request.map_or(String::new(), |request| request.to_string()),
        );
        page.raw(">");
        write_amounts(page, resource);
        page.raw("</td><td class=\"change\"");
        page.attribute("data-v", relative_shortfall(resource).min(1e9));
        page.raw(">");
        write_change(page, resource);
        page.raw("</td><td class=\"bar\">");
        write_bar(page, row, resource);
        page.raw("</td>");
        write_level(page, "risk", resource.risk);
        write_notes(page, &resource_notes(resource, report.at));
        page.raw("</tr>\n");
    }
    close_table(page, resources.len().saturating_sub(MOST));
}

fn write_too_much(page: &mut Markup, report: &Report, rows: &[Row<'_>]) {
    let has_prices = report.currency.is_some();
    let saving = |row: &Row<'_>| row.cost().map_or(0.0, |(now, then)| now - then);
    let mut wasteful: Vec<&Row<'_>> = rows.iter().filter(|row| row.waste() > Level::Ok).collect();
    wasteful.sort_by(|one, other| {
        let amount = other.excess(report).total_cmp(&one.excess(report));
        if has_prices { saving(other).total_cmp(&saving(one)).then(amount) } else { amount }
    });
    open_section(page, "overprovisioned", "Overprovisioned", wasteful.len());
    if wasteful.is_empty() {
        page.raw("<p>No container requests more than it needs.</p>\n</section>\n");
        return;
    }
    let mut columns: Vec<Column> = vec![
        ("workload", "Workload"),
        ("container", "Container"),
        ("cpu number", "CPU"),
        ("memory number", "Memory"),
        ("waste number", "Waste"),
    ];
    if has_prices {
        columns.push(("cost number", "A month"));
    }
    columns.push(("notes", "Notes"));
    let caption = if has_prices {
        "Containers that request too much, by money"
    } else {
        "Containers that request too much, by amount"
    };
    open_table(page, caption, &columns, has_prices.then_some("A month"));
    for row in wasteful.iter().take(MOST) {
        open_row(page, row, row.risk());
        write_resource_cells(page, row);
        write_level(page, "waste", row.waste());
        write_cost(page, report, row);
        write_notes(page, &container_notes(row, report.at));
        page.raw("</tr>\n");
    }
    close_table(page, wasteful.len().saturating_sub(MOST));
}

fn write_all(page: &mut Markup, report: &Report, rows: &[Row<'_>]) {
    open_section(page, "all", "All containers", rows.len());
    if rows.is_empty() {
        page.raw("<p>There are no containers.</p>\n</section>\n");
        return;
    }
    let mut columns: Vec<Column> = vec![
        ("workload", "Workload"),
        ("container", "Container"),
        ("cpu number", "CPU"),
        ("memory number", "Memory"),
        ("risk number", "Risk"),
        ("waste number", "Waste"),
    ];
    if report.currency.is_some() {
        columns.push(("cost number", "A month"));
    }
    columns.push(("notes", "Notes"));
    open_table(page, "All containers, by namespace, kind and name", &columns, None);
    for row in rows {
        open_row(page, row, row.risk());
        write_resource_cells(page, row);
        write_level(page, "risk", row.risk());
        write_level(page, "waste", row.waste());
        write_cost(page, report, row);
        write_notes(page, &container_notes(row, report.at));
        page.raw("</tr>\n");
    }
    close_table(page, 0);
}

/// Containers without a number, by reason. Each resource may have its own.
fn write_without_number(page: &mut Markup, rows: &[Row<'_>]) {
    let mut by_reason: BTreeMap<EvidenceGap, Vec<&Row<'_>>> = BTreeMap::new();
    let unsaid = |row: &&Row<'_>| without_recommendation(row.container).is_some();
    for row in rows.iter().filter(unsaid) {
        let reasons = row.container.resources.iter().filter_map(|one| one.unsaid);
        let mut reasons: Vec<_> = reasons.collect();
        reasons.dedup();
        for reason in reasons {
            by_reason.entry(reason).or_default().push(row);
        }
    }
    open_section(
        page,
        "without-recommendation",
        "Without recommendation",
        rows.iter().filter(unsaid).count(),
    );
    if by_reason.is_empty() {
        page.raw("<p>Each container has a number.</p>\n</section>\n");
        return;
    }
    page.raw("<p>These containers have no number. That does not mean that they are fine.</p>\n");
    let columns: [Column; 4] = [
        ("workload", "Workload"),
        ("container", "Container"),
        ("resource", "Resource"),
        ("notes", "Reason"),
    ];
    open_table(page, "Containers without a number, by reason", &columns, Some("Reason"));
    for (reason, rows) in &by_reason {
        for row in rows {
            open_row(page, row, row.risk());
            page.raw("<td class=\"resource\">");
            let resources = row.container.resources.iter();
            let names: Vec<&str> = resources
                .filter(|one| one.unsaid == Some(*reason))
                .map(|one| resource_name(one.resource))
                .collect();
            page.text(names.join(", "));
            page.raw("</td><td class=\"notes\">");
            page.text(gap_text(*reason));
            page.raw("</td></tr>\n");
        }
    }
    close_table(page, 0);
}

fn open_section(page: &mut Markup, id: &'static str, title: &'static str, containers: usize) {
    page.raw("<section");
    page.attribute("aria-labelledby", format_args!("{id}-title"));
    page.attribute("id", id);
    page.raw(">\n<h2");
    page.attribute("id", format_args!("{id}-title"));
    page.raw(">");
    page.text(title);
    page.raw(" <small>");
    page.text(count(containers, "container"));
    page.raw("</small></h2>\n");
}

/// `sorted` is the heading of the column that the rows are sorted by.
fn open_table(page: &mut Markup, caption: &'static str, columns: &[Column], sorted: Option<&str>) {
    page.raw("<div class=\"scroll\"><table class=\"containers\">\n<caption>");
    page.text(caption);
    page.raw("</caption>\n<thead><tr>");
    for (class, heading) in columns {
        page.raw("<th scope=\"col\"");
        page.attribute("class", class);
        if sorted == Some(*heading) {
            let is_number = class.ends_with("number");
            page.attribute("aria-sort", if is_number { "descending" } else { "ascending" });
        }
        page.raw(">");
        page.text(heading);
        page.raw("</th>");
    }
    page.raw("</tr></thead>\n<tbody>\n");
}

fn close_table(page: &mut Markup, left_out: usize) {
    page.raw("</tbody></table></div>\n");
    if left_out > 0 {
        page.raw("<p>");
        page.text(format_args!("{left_out} more are in the table of "));
        page.raw("<a href=\"#all\">all containers</a>.</p>\n");
    }
    page.raw("</section>\n");
}

/// Writes the first two cells of a row.
fn open_row(page: &mut Markup, row: &Row<'_>, risk: Level) {
    let workload = row.workload;
    page.raw("<tr");
    page.attribute("data-risk", risk as u8);
    page.raw("><th scope=\"row\" class=\"workload\">");
    if let Some(cluster) = &workload.cluster {
        page.raw("<span class=\"cluster\">");
        page.text(cluster);
        page.raw("</span> ");
    }
    page.text(format_args!("{}/", workload.namespace));
    page.raw("<wbr>");
    page.text(format_args!("{}/", workload.kind));
    page.raw("<wbr><b>");
    page.text(&workload.name);
    page.raw("</b>");
    if let Some(replicas) = workload.replicas {
        page.text(format_args!(" ×{replicas}"));
    }
    page.raw("</th><td class=\"container\">");
    page.text(row.container_name());
    page.raw("</td>");
}

fn write_resource_cells(page: &mut Markup, row: &Row<'_>) {
    for (class, resource) in [("cpu", Resource::Cpu), ("memory", Resource::Memory)] {
        page.raw("<td");
        page.attribute("class", class);
        let Some(resource) = row.resource(resource) else {
            page.attribute("data-v", "");
            page.raw(">unknown</td>");
            continue;
        };
        let value = match proposal(resource) {
            Proposal::Unknown => String::new(),
            _ => (-shortfall(resource) * row.pods()).to_string(),
        };
        page.attribute("data-v", value);
        page.raw(">");
        write_amounts(page, resource);
        page.raw(" ");
        write_change(page, resource);
        write_bar(page, row, resource);
        page.raw("</td>");
    }
}

fn request_text(resource: &ResourceReport) -> String {
    match resource.request {
        Some(request) => quantity(resource.resource, request),
        None if resource.risk_reasons.contains(&RiskReason::NoRequest) => "none".to_owned(),
        // The report has no request either if only series are known that do not have it.
        None => "none known".to_owned(),
    }
}

fn write_amounts(page: &mut Markup, resource: &ResourceReport) {
    page.raw("<span class=\"amounts\">");
    page.text(request_text(resource));
    if let Proposal::Change(to) | Proposal::Held(to) = proposal(resource) {
        page.text(format_args!(" → {}", quantity(resource.resource, to)));
    }
    page.raw("</span>");
}

fn write_change(page: &mut Markup, resource: &ResourceReport) {
    let text = match proposal(resource) {
        Proposal::Change(to) => resource.request.and_then(|from| change(from as f64, to as f64)),
        Proposal::Held(_) => Some("held".to_owned()),
        Proposal::Keep => Some("keep".to_owned()),
        Proposal::Unknown => Some("no number".to_owned()),
    };
    page.raw("<span class=\"difference\">");
    page.text(text.unwrap_or_else(|| "new".to_owned()));
    page.raw("</span>");
}

fn write_bar(page: &mut Markup, row: &Row<'_>, resource: &ResourceReport) {
    let Some(target) = resource.target else { return };
    let peak = row.container.memory_peak.filter(|_| resource.resource == Resource::Memory);
    let peak_text = peak.map(|peak| format!(", peak {}", quantity(Resource::Memory, peak.bytes.0)));
    let title = format!(
        "{}: request {}, target {}{}",
        resource_name(resource.resource),
        request_text(resource),
        quantity(resource.resource, target),
        peak_text.unwrap_or_default()
    );
    page.bar(&RequestBar {
        request: resource.request.map(|request| request as f64),
        target: Some(target as f64),
        peak: peak.map(|peak| peak.bytes.as_f64()),
        title: &title,
    });
}

fn write_level(page: &mut Markup, class: &'static str, level: Level) {
    page.raw("<td");
    page.attribute("class", class);
    page.attribute("data-v", level as u8);
    page.raw("><span");
    page.attribute("class", format_args!("level {}", level_word(level)));
    page.raw(">");
    page.text(level_word(level));
    page.raw("</span></td>");
}

/// The cell of what the requests cost, if prices are known.
fn write_cost(page: &mut Markup, report: &Report, row: &Row<'_>) {
    let Some(currency) = &report.currency else { return };
    page.raw("<td class=\"cost\"");
    let Some((now, then)) = row.cost() else {
        page.attribute("data-v", "");
        page.raw(">unknown</td>");
        return;
    };
    page.attribute("data-v", now - then);
    page.raw("><span class=\"amounts\">");
    page.text(signed(&money(currency, then - now), then > now));
    page.raw("</span></td>");
}

fn write_notes(page: &mut Markup, notes: &[String]) {
    page.raw("<td class=\"notes\">");
    match notes {
        [] => {}
        [note] => page.text(note),
        notes => {
            page.raw("<ul>");
            for note in notes {
                page.element("li", note);
            }
            page.raw("</ul>");
        }
    }
    page.raw("</td>");
}
