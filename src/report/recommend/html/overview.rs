//! What concerns the whole report: title, servers, settings, totals, score, and what could not be read.

use plimsoll_charts::request_bar::RequestBar;
use plimsoll_core::rightsizing::{
    report::{Level, Report, ResourceTotals, SourceReport, Totals},
    survey::Resource,
};

use super::{
    amounts::{
        change, count, money, number, percentage, resource_name, signed, size, span, time, total,
    },
    markup::Markup,
};

/// The title of the document.
pub(super) fn title(report: &Report) -> String {
    let clusters = clusters(report);
    if clusters.is_empty() {
        return format!("What to request, {}", time(report.at));
    }
    format!("What to request in {}, {}", clusters.join(", "), time(report.at))
}

fn clusters(report: &Report) -> Vec<&str> {
    let mut clusters: Vec<&str> =
        report.sources.iter().filter_map(|source| source.cluster.as_deref()).collect();
    clusters.dedup();
    clusters
}

/// The heading, and links to the sections.
pub(super) fn write_header(page: &mut Markup, report: &Report) {
    page.raw("<header>\n<h1>What workloads should request</h1>\n<p>");
    let clusters = clusters(report);
    if !clusters.is_empty() {
        page.element("b", clusters.join(", "));
        page.raw(" · ");
    }
    let totals = &report.totals;
    page.text(format_args!(
        "{} · {}, {}, {}",
        time(report.at),
        count(totals.workloads, "workload"),
        count(totals.containers, "container"),
        count(report.namespaces.len(), "namespace")
    ));
    page.raw("</p>\n<nav aria-label=\"Sections\"><ul>");
    page.raw("<li><a href=\"#summary\">Summary</a></li><li><a href=\"#at-risk\">At risk</a></li>");
    page.raw(
        "<li><a href=\"#overprovisioned\">Overprovisioned</a></li><li><a href=\"#all\">All containers</a></li>",
    );
    page.raw("<li><a href=\"#without-recommendation\">Without recommendation</a></li><li><a href=\"#namespaces\">Namespaces</a></li>");
    page.raw("<li><a href=\"#sources\">Sources and settings</a></li>");
    page.raw("</ul></nav>\n</header>\n");
}

/// What could not be read, and remarks on the whole report.
pub(super) fn write_problems(page: &mut Markup, report: &Report) {
    if !report.unread.is_empty() {
        page.raw("<section class=\"problem\" aria-labelledby=\"unread-title\" id=\"unread\">\n");
        page.raw("<h2 id=\"unread-title\">This report is incomplete</h2>\n<p>These could not be read:</p>\n<ul>\n");
        for unread in &report.unread {
            page.raw("<li>");
            page.element("b", &unread.what);
            page.text(format_args!(": {}", unread.why));
            page.raw("</li>\n");
        }
        page.raw("</ul>\n</section>\n");
    }
    if let Some(strategy) = &report.strategy {
        page.raw("<p class=\"problem\">The numbers are those of the strategy ");
        page.element("b", strategy);
        page.raw(", not Plimsoll's own.</p>\n");
    }
}

/// Totals, score and remarks.
pub(super) fn write_summary(page: &mut Markup, report: &Report) {
    page.raw("<section aria-labelledby=\"summary-title\" id=\"summary\">\n<h2 id=\"summary-title\">Summary</h2>\n");
    let has_prices = report.currency.is_some();
    page.raw("<div class=\"scroll\"><table class=\"totals\">\n<caption>All pods, where both the request and the target are known</caption>\n");
    page.raw("<thead><tr><th scope=\"col\">Resource</th><th scope=\"col\">Requested</th><th scope=\"col\">Needed</th><th scope=\"col\">Change</th>");
    if has_prices {
        page.raw("<th scope=\"col\">A month</th><th scope=\"col\">A month, needed</th>");
    }
    page.raw("<th scope=\"col\">Requested and needed</th></tr></thead>\n<tbody>\n");
    for (resource, totals) in
        [(Resource::Cpu, &report.totals.cpu), (Resource::Memory, &report.totals.memory)]
    {
        page.raw("<tr><th scope=\"row\">");
        page.text(resource_name(resource));
        page.raw("</th>");
        page.element("td", total(resource, totals.requested));
        page.element("td", total(resource, totals.needed));
        page.element("td", total_change(resource, totals));
        if let Some(currency) = &report.currency {
            for cost in [totals.cost, totals.needed_cost] {
                let cost = cost.map(|cost| money(currency, cost));
                page.element("td", cost.unwrap_or_else(|| "unknown".to_owned()));
            }
        }
        page.raw("<td>");
        page.bar(&RequestBar {
            request: Some(totals.requested as f64),
            target: Some(totals.needed as f64),
            peak: None,
            title: &format!(
                "{}: requested {}, needed {}",
                resource_name(resource),
                total(resource, totals.requested),
                total(resource, totals.needed)
            ),
        });
        page.raw("</td></tr>\n");
    }
    page.raw("</tbody></table></div>\n");
    write_score(page, report);
    if has_prices {
        page.raw("<p>Lower requests save money only when they lead to fewer nodes.</p>\n");
    }
    page.raw("<p>In the bars of all tables, the wide part is the request, the narrow part the target (green, or red where it is ");
    page.raw("above the request), and the vertical line the peak of memory of one pod.</p>\n");
    for remark in &report.remarks {
        page.element("p", remark);
        page.raw("\n");
    }
    page.raw("</section>\n");
}

fn total_change(resource: Resource, totals: &ResourceTotals) -> String {
    let difference = totals.needed.saturating_sub(totals.requested);
    let amount = signed(&total(resource, difference), difference > 0);
    match change(totals.requested as f64, totals.needed as f64) {
        Some(percent) => format!("{amount} ({percent})"),
        None => amount,
    }
}

fn write_score(page: &mut Markup, report: &Report) {
    let Some(score) = report.totals.score else {
        page.raw("<p>There is no score: no container has a number.</p>\n");
        return;
    };
    page.raw("<p class=\"score\">Score <b>");
    page.text(score.value);
    page.raw("</b> of 100. ");
    let of_what = if report.currency.is_some() { "the money" } else { "the requests" };
    page.text(format_args!(
        "Waste: {} of {of_what} is for what is not needed. ",
        percentage(score.wasted)
    ));
    let at_risk = |totals: &Totals, level| totals.risk.get(&level).copied().unwrap_or(0);
    page.text(format_args!(
        "Risk: {} ({} critical, {} high; high counts half).",
        percentage(score.at_risk),
        number(at_risk(&report.totals, Level::Critical) as f64),
        number(at_risk(&report.totals, Level::High) as f64)
    ));
    page.raw("</p>\n");
}

/// Totals by namespace, servers and settings.
pub(super) fn write_details(page: &mut Markup, report: &Report) {
    write_namespaces(page, report);
    page.raw("<section aria-labelledby=\"sources-title\" id=\"sources\">\n<h2 id=\"sources-title\">Sources and settings</h2>\n");
    if report.sources.is_empty() {
        page.raw("<p>No history was read.</p>\n");
    } else {
        write_sources(page, report);
    }
    if report.settings.is_empty() {
        page.raw("<p>All settings have their defaults.</p>\n");
    } else {
        page.raw("<p>Settings that differ from their defaults:</p>\n<ul>\n");
        for setting in &report.settings {
            page.raw("<li>");
            page.element("code", setting);
            page.raw("</li>\n");
        }
        page.raw("</ul>\n");
    }
    page.raw("</section>\n");
}

fn write_namespaces(page: &mut Markup, report: &Report) {
    page.raw("<section aria-labelledby=\"namespaces-title\" id=\"namespaces\">\n<h2 id=\"namespaces-title\">Namespaces</h2>\n");
    if report.namespaces.is_empty() {
        page.raw("<p>There are no namespaces.</p>\n</section>\n");
        return;
    }
    page.raw("<div class=\"scroll\"><table class=\"namespaces\">\n<caption>Totals by namespace</caption>\n<thead><tr>");
    page.raw("<th scope=\"col\">Namespace</th><th scope=\"col\" class=\"number\">Containers</th>");
    page.raw(
        "<th scope=\"col\" class=\"number\">CPU</th><th scope=\"col\" class=\"number\">Memory</th>",
    );
    if report.currency.is_some() {
        page.raw("<th scope=\"col\" class=\"number\">A month</th>");
    }
    page.raw("<th scope=\"col\" class=\"number\">Score</th></tr></thead>\n<tbody>\n");
    for (name, totals) in &report.namespaces {
        page.raw("<tr><th scope=\"row\">");
        page.text(name);
        page.raw("</th>");
        write_number(page, Some(totals.containers as f64), &number(totals.containers as f64));
        for (resource, of) in [(Resource::Cpu, &totals.cpu), (Resource::Memory, &totals.memory)] {
            let text =
                format!("{} → {}", total(resource, of.requested), total(resource, of.needed));
            write_number(page, Some(of.requested as f64 - of.needed as f64), &text);
        }
        if let Some(currency) = &report.currency {
            let costs = [&totals.cpu, &totals.memory].map(|of| Some((of.cost?, of.needed_cost?)));
            let cost =
                costs.into_iter().flatten().reduce(|one, other| (one.0 + other.0, one.1 + other.1));
            let text = cost.map_or_else(
                || "unknown".to_owned(),
                |(now, then)| format!("{} → {}", money(currency, now), number(then)),
            );
            write_number(page, cost.map(|(now, then)| now - then), &text);
        }
        let score = totals.score.map(|score| f64::from(score.value));
        write_number(page, score, &score.map_or_else(|| "none".to_owned(), number));
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n</section>\n");
}

/// A cell that is sorted by a number; cells without one come last.
fn write_number(page: &mut Markup, value: Option<f64>, text: &str) {
    page.raw("<td");
    page.attribute("data-v", value.map_or(String::new(), |value| value.to_string()));
    page.raw(">");
    page.text(text);
    page.raw("</td>");
}

fn write_sources(page: &mut Markup, report: &Report) {
    page.raw("<div class=\"scroll\"><table class=\"sources\">\n<caption>Servers that history was read from</caption>\n<thead><tr>");
    page.raw(
        "<th scope=\"col\">Cluster</th><th scope=\"col\">Server</th><th scope=\"col\">Window</th>",
    );
    page.raw("<th scope=\"col\">Step</th><th scope=\"col\">Queries</th></tr></thead>\n<tbody>\n");
    for source in &report.sources {
        page.raw("<tr><th scope=\"row\">");
        page.text(source.cluster.as_deref().unwrap_or("one cluster"));
        page.raw("</th><td>");
        page.text(&source.server);
        if let Some(product) = &source.product {
            page.text(format_args!(" ({product})"));
        }
        if source.proxied {
            page.raw(", through the API server");
        }
        page.raw("</td>");
        page.element("td", window(source));
        let step = source.step_seconds.map(|seconds| format!("{seconds} s"));
        page.element("td", step.unwrap_or_else(|| "unknown".to_owned()));
        page.element(
            "td",
            format_args!(
                "{}, {} in {} s",
                number(source.queries as f64),
                size(source.size()),
                number((source.seconds * 10.0).round() / 10.0)
            ),
        );
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table></div>\n");
}

fn window(source: &SourceReport) -> String {
    match (source.from, source.until) {
        (Some(from), Some(until)) => format!("{} until {}", span(from, until), time(until)),
        (None, Some(until)) => format!("until {}", time(until)),
        (Some(from), None) => format!("from {}", time(from)),
        (None, None) => "unknown".to_owned(),
    }
}
