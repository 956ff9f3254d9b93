//! HorizontalPodAutoscalers and WatermarkPodAutoscalers: the list, and the page of one name.

use std::sync::Arc;

use plimsoll_core::types::Time;
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{PageHead, csv::Csv, workload::conditions};
use crate::{
    report::{
        explain::report_parts::ago,
        recommend::html::{
            amounts::{count, time},
            markup::Markup,
        },
    },
    ui::{
        access::Scope,
        facts::AutoscalerFacts,
        layout::{self, Place},
        replica_timeline::{self, ReplicaTimeline},
        snapshot::Snapshot,
    },
};

/// Rows of the list; the JSON and CSV forms have all.
const MAX_ROWS: usize = 300;

/// All autoscalers of replicas.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalersPage {
    /// What the page says about itself.
    #[serde(flatten)]
    pub head: PageHead,
    /// The autoscalers, sorted by namespace, kind and name.
    pub autoscalers: Vec<Arc<AutoscalerFacts>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerPage {
    /// What the page says about itself.
    #[serde(flatten)]
    pub head: PageHead,
    /// An HPA, a WPA, or both.
    pub autoscalers: Vec<Arc<AutoscalerFacts>>,
    /// The timeline of each of them.
    pub timelines: Vec<AutoscalerTimeline>,
}

/// The timeline of an autoscaler. Without a server there is neither a timeline nor an error.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerTimeline {
    pub kind: String,
    pub timeline: Option<ReplicaTimeline>,
    /// Why there is no timeline.
    pub timeline_error: Option<String>,
}

impl AutoscalersPage {
    /// Those that may be seen.
    pub fn of(snapshot: &Snapshot, scope: &Scope) -> Self {
        let autoscalers = snapshot.parts.autoscalers.iter();
        Self {
            head: PageHead::new("autoscalers", snapshot, scope),
            autoscalers: autoscalers.filter(|one| scope.allows(&one.namespace)).cloned().collect(),
        }
    }
}

impl AutoscalerPage {
    /// Those of a name, with a timeline for each that was read; `None` if there are none, or they may not be seen.
    pub fn of(
        snapshot: &Snapshot,
        scope: &Scope,
        (namespace, name): (&str, &str),
        timelines: Vec<Option<Result<ReplicaTimeline, String>>>,
    ) -> Option<Self> {
        let is_named = |one: &&Arc<AutoscalerFacts>| one.namespace == namespace && one.name == name;
        let found = snapshot.parts.autoscalers.iter().filter(is_named);
        let autoscalers: Vec<_> =
            found.filter(|one| scope.allows(&one.namespace)).cloned().collect();
        let timelines = autoscalers.iter().zip(timelines).map(|(one, timeline)| {
            let kind = one.kind.clone();
            match timeline {
                None => AutoscalerTimeline { kind, ..AutoscalerTimeline::default() },
                Some(Ok(timeline)) => {
                    AutoscalerTimeline { kind, timeline: Some(timeline), timeline_error: None }
                }
                Some(Err(why)) => {
                    AutoscalerTimeline { kind, timeline: None, timeline_error: Some(why) }
                }
            }
        });
        let timelines = timelines.collect();
        let head = PageHead::new("autoscaler", snapshot, scope);
        (!autoscalers.is_empty()).then_some(Self { head, autoscalers, timelines })
    }
}

/// `4 → 6, of 2 to 10`.
fn replicas(one: &AutoscalerFacts) -> String {
    format!("{} → {}, of {} to {}", one.current, one.desired, one.min, one.max)
}

/// Why replicas are not what the metrics ask for, or what is wrong.
fn notes(one: &AutoscalerFacts, now: Time) -> String {
    let mut parts = one.restrictions.clone();
    if let Some(until) = one.held_until.filter(|until| *until > now) {
        parts.push(format!("held until {}", time(until)));
    }
    parts.extend(one.findings.iter().cloned());
    parts.join("; ")
}

pub(super) fn render_list(page: &AutoscalersPage, place: Place<'_>) -> String {
    let root = place.route.root();
    layout::page(place, &page.head, "Autoscalers", |html| {
        html.raw("<h1>Autoscalers of replicas <small>");
        html.text(count(page.autoscalers.len(), "object"));
        html.raw("</small></h1>\n");
        if page.autoscalers.is_empty() {
            layout::paragraph(
                html,
                "There are no HorizontalPodAutoscalers and no WatermarkPodAutoscalers.",
            );
            return;
        }
        let columns = [
            ("Autoscaler", ""),
            ("Target", ""),
            ("Mode", ""),
            ("Replicas", "n"),
            ("Last change", "n"),
            ("Restrictions and findings", ""),
        ];
        layout::open_list(html, "Replicas: current → desired", &columns, true);
        for one in page.autoscalers.iter().take(MAX_ROWS) {
            html.raw("<tr><th scope=\"row\">");
            let path = layout::autoscaler_path(&one.namespace, &one.name);
            let name = format!("{}/{}", one.namespace, one.name);
            layout::link(html, &format!("{root}{path}"), name);
            html.raw(" <small>");
            html.text(short_kind(&one.kind));
            html.raw("</small></th><td data-l=\"Target\">");
            let path = layout::workload_path(&one.namespace, &one.target_kind, &one.target_name);
            let target = format!("{}/{}", one.target_kind, one.target_name);
            layout::link(html, &format!("{root}{path}"), target);
            html.raw("</td>");
            layout::cell(html, "Mode", mode(&one.mode));
            layout::number_cell(html, "Replicas", Some(f64::from(one.desired)), replicas(one));
            let last = one.last_change;
            let text = last.map_or_else(|| "none".to_owned(), |at| ago(at, page.head.at));
            layout::number_cell(html, "Last change", last.map(|at| at.as_secs() as f64), text);
            layout::cell(html, "Notes", notes(one, page.head.at));
            html.raw("</tr>\n");
        }
        layout::close_table(html);
        if page.autoscalers.len() > MAX_ROWS {
            let left = page.autoscalers.len() - MAX_ROWS;
            layout::paragraph(html, format_args!("{left} more are in the JSON and CSV forms."));
        }
    })
}

fn short_kind(kind: &str) -> &str {
    match kind {
        "HorizontalPodAutoscaler" => "HPA",
        "WatermarkPodAutoscaler" => "WPA",
        other => other,
    }
}

fn mode(mode: &str) -> &str {
    match mode {
        "dryRun" => "dry run",
        "shadow" => "shadow: compared only",
        other => other,
    }
}

pub(super) fn render(page: &AutoscalerPage, place: Place<'_>) -> String {
    let first = page.autoscalers.first();
    let title = first.map_or_else(String::new, |one| format!("{}/{}", one.namespace, one.name));
    layout::page(place, &page.head, &title, |html| {
        html.element("h1", &title);
        html.raw("\n");
        for one in &page.autoscalers {
            autoscaler(html, one, page.head.at, place.route.root());
        }
        html.raw("<h2 id=\"timeline\">Timeline</h2>\n");
        if page.timelines.iter().any(|one| one.timeline.is_some()) {
            layout::time_ranges(html, place);
        }
        for one in &page.timelines {
            timeline(html, one);
        }
    })
}

fn timeline(html: &mut Markup, one: &AutoscalerTimeline) {
    html.element("h3", &one.kind);
    html.raw("\n");
    match (&one.timeline, &one.timeline_error) {
        (Some(timeline), _) => {
            let (from, until) = (time(timeline.from), time(timeline.until));
            layout::paragraph(html, format_args!("{from} to {until}, from {}", timeline.server));
            replica_timeline::render(html, timeline);
        }
        (None, Some(why)) => layout::paragraph(html, format_args!("There is no timeline: {why}")),
        (None, None) => layout::paragraph(html, layout::NO_SERVER),
    }
}

fn autoscaler(html: &mut Markup, one: &AutoscalerFacts, now: Time, root: &str) {
    html.element("h2", &one.kind);
    html.raw("\n<dl><dt>Target</dt><dd>");
    let path = layout::workload_path(&one.namespace, &one.target_kind, &one.target_name);
    let target = format!("{}/{}", one.target_kind, one.target_name);
    layout::link(html, &format!("{root}{path}"), target);
    html.raw("</dd>");
    layout::term(html, "Mode", mode(&one.mode));
    layout::term(html, "Replicas", replicas(one));
    if let Some(proposal) = one.proposal {
        let limited =
            one.limited.map_or_else(String::new, |limited| format!(", after limits {limited}"));
        layout::term(html, "Metrics ask for", format_args!("{proposal}{limited}"));
    }
    let last = one
        .last_change
        .map_or_else(|| "none".to_owned(), |at| format!("{} ({})", time(at), ago(at, now)));
    layout::term(html, "Last change", last);
    let allowed = |at: Option<Time>| match at.filter(|at| *at > now) {
        Some(at) => format!("at {} ({})", time(at), ago(at, now)),
        None => "now".to_owned(),
    };
    if one.kind == "WatermarkPodAutoscaler" {
        layout::term(html, "May scale up", allowed(one.up_allowed_at));
        layout::term(html, "May scale down", allowed(one.down_allowed_at));
    }
    let restrictions =
        if one.restrictions.is_empty() { "none".to_owned() } else { one.restrictions.join(", ") };
    layout::term(html, "Restrictions", restrictions);
    html.raw("</dl>\n");
    layout::notes(html, &one.findings);
    html.raw("<h3>Metrics</h3>\n");
    metrics(html, one);
    html.raw("<h3>Conditions</h3>\n");
    conditions(html, &one.conditions);
}

fn metrics(html: &mut Markup, one: &AutoscalerFacts) {
    if one.metrics.is_empty() {
        layout::paragraph(html, "No metric was evaluated.");
        return;
    }
    let columns = [
        ("Metric", ""),
        ("Value", "n"),
        ("Target or marks", "n"),
        ("Position", ""),
        ("Proposal", "n"),
    ];
    layout::open_table(html, "The largest proposal wins", &columns);
    for metric in &one.metrics {
        html.raw("<tr><th scope=\"row\">");
        html.text(&metric.name);
        html.raw("</th>");
        let unknown = metric.error.as_ref().map(|why| format!("unknown: {why}"));
        let value = metric.value.clone().or(unknown).unwrap_or_else(|| "unknown".to_owned());
        layout::cell(html, "Value", value);
        let marks = metric.low.as_ref().zip(metric.high.as_ref());
        let marks = marks.map(|(low, high)| format!("{low} to {high}"));
        layout::cell(html, "Target", metric.target.clone().or(marks).unwrap_or_default());
        layout::cell(html, "Position", metric.position.as_deref().unwrap_or_default());
        let chosen = if metric.chosen { ", chosen" } else { "" };
        let proposal = metric.proposal.map(|replicas| format!("{replicas}{chosen}"));
        layout::cell(html, "Proposal", proposal.unwrap_or_default());
        html.raw("</tr>\n");
    }
    layout::close_table(html);
}

/// The list as CSV.
pub(super) fn csv(page: &AutoscalersPage) -> String {
    let mut csv = Csv::new(&[
        "kind",
        "namespace",
        "name",
        "target_kind",
        "target_name",
        "mode",
        "current",
        "desired",
        "min",
        "max",
        "proposal",
        "last_change",
        "restrictions",
        "findings",
    ]);
    for one in &page.autoscalers {
        csv.cell(&one.kind).cell(&one.namespace).cell(&one.name).cell(&one.target_kind);
        csv.cell(&one.target_name).cell(&one.mode).cell(one.current).cell(one.desired);
        csv.cell(one.min).cell(one.max).optional(one.proposal).optional(one.last_change);
        csv.cell(one.restrictions.join("; ")).cell(one.findings.join("; ")).end_row();
    }
    csv.finish()
}
