//! One workload: its containers, why their numbers are what they are, what the updater would do, and its timeline.

use std::{collections::BTreeMap, sync::Arc};

use plimsoll_core::rightsizing::{
    report::{ContainerReport, WorkloadReport},
    survey::Resource,
};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::PageHead;
use crate::{
    report::{
        collect::pod::preview::WorkloadPreview,
        explain::{VpaReport, vpa},
        recommend::html::{
            amounts::{quantity, resource_name, time},
            markup::Markup,
            notes::container_notes,
            rows::Row,
        },
        style::{Glyphs, Style},
    },
    ui::{
        access::Scope,
        facts::{AutoscalerFacts, ConditionFacts, VpaFacts},
        layout::{self, Place},
        rows::WorkloadRow,
        snapshot::Snapshot,
        timeline::{self, Timeline},
    },
};

/// What is read for the page of a workload when it is requested.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadDetails {
    /// How the recommendation of its VPA was computed.
    pub explanation: Option<Result<VpaReport, String>>,
    /// Its timeline, or why there is none.
    pub timeline: Option<Result<Timeline, String>>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPage {
    /// What the page says about itself.
    #[serde(flatten)]
    pub head: PageHead,
    /// The sums of one pod.
    pub summary: WorkloadRow,
    /// Whether it no longer exists: then only its timeline is known.
    pub gone: bool,
    /// The workload as `plimsoll recommend` reports it, with the targets of its VPA.
    pub workload: WorkloadReport,
    pub vpa: Option<Arc<VpaFacts>>,
    /// The autoscalers that set its replicas.
    pub autoscalers: Vec<Arc<AutoscalerFacts>>,
    /// What the updater would do with its pods.
    pub preview: Option<WorkloadPreview>,
    /// How the recommendation was computed, as `plimsoll explain vpa` reports it.
    pub explanation: Option<VpaReport>,
    /// Why there is no explanation.
    pub explanation_error: Option<String>,
    pub timeline: Option<Timeline>,
    /// Why there is no timeline.
    pub timeline_error: Option<String>,
}

impl WorkloadPage {
    /// The page of a workload; `None` if it does not exist or may not be seen.
    pub fn of(
        snapshot: &Snapshot,
        scope: &Scope,
        (namespace, kind, name): (&str, &str, &str),
        details: WorkloadDetails,
    ) -> Option<Self> {
        if !scope.allows(namespace) {
            return None;
        }
        let Some(row) = snapshot.row(namespace, kind, name) else {
            return Self::of_gone(snapshot, scope, (namespace, kind, name), details);
        };
        let workload = snapshot.report(row)?;
        let parts = &snapshot.parts;
        let targets = |one: &&Arc<AutoscalerFacts>| {
            (&*one.namespace, &*one.target_kind, &*one.target_name) == (namespace, kind, name)
        };
        let preview = parts.preview.get(namespace);
        let preview = preview.and_then(|preview| {
            let of_vpa = |one: &&WorkloadPreview| Some(&*one.vpa) == workload.vpa.as_deref();
            preview.workloads.iter().find(of_vpa)
        });
        let (explanation, explanation_error) = parted(details.explanation);
        let (timeline, timeline_error) = parted(details.timeline);
        Some(Self {
            head: PageHead::new("workload", snapshot, scope),
            summary: row.clone(),
            gone: false,
            vpa: snapshot.vpa_of(&workload).cloned(),
            workload,
            autoscalers: parts.autoscalers.iter().filter(targets).cloned().collect(),
            preview: preview.cloned(),
            explanation,
            explanation_error,
            timeline,
            timeline_error,
        })
    }

    /// The page of a workload that no longer exists, if there are series of it.
    fn of_gone(
        snapshot: &Snapshot,
        scope: &Scope,
        (namespace, kind, name): (&str, &str, &str),
        details: WorkloadDetails,
    ) -> Option<Self> {
        let timeline = details.timeline?.ok()?;
        if timeline.charts.is_empty() {
            return None;
        }
        let names = (namespace.to_owned(), kind.to_owned(), name.to_owned());
        Some(Self {
            head: PageHead::new("workload", snapshot, scope),
            summary: WorkloadRow::of_unknown(namespace, kind, name),
            gone: true,
            workload: WorkloadReport {
                cluster: None,
                namespace: names.0,
                api_version: None,
                kind: names.1,
                name: names.2,
                labels: BTreeMap::new(),
                replicas: None,
                vpa: None,
                scaled_by: Vec::new(),
                target_changes: Vec::new(),
                shape: None,
                runs: None,
                containers: Vec::new(),
            },
            vpa: None,
            autoscalers: Vec::new(),
            preview: None,
            explanation: None,
            explanation_error: None,
            timeline: Some(timeline),
            timeline_error: None,
        })
    }
}

fn parted<T>(result: Option<Result<T, String>>) -> (Option<T>, Option<String>) {
    match result {
        None => (None, None),
        Some(Ok(value)) => (Some(value), None),
        Some(Err(why)) => (None, Some(why)),
    }
}

pub(super) fn render(page: &WorkloadPage, place: Place<'_>) -> String {
    let workload = &page.workload;
    let title = format!("{}/{}", workload.namespace, workload.name);
    layout::page(place, &page.head, &title, |html| {
        html.raw("<h1>");
        html.text(&title);
        html.raw(" <small>");
        html.text(&workload.kind);
        if let Some(replicas) = workload.replicas {
            html.text(format_args!(" ×{replicas}"));
        }
        html.raw("</small></h1>\n");
        if page.gone {
            layout::paragraph(
                html,
                "This workload no longer exists. Prometheus still has series of its pods.",
            );
            timelines(html, page, place);
            return;
        }
        summary(html, page, place.route.root());
        html.raw("<h2>Containers</h2>\n");
        containers(html, page);
        timelines(html, page, place);
        html.raw("<h2>Why this number</h2>\n");
        explanation(html, page);
        if let Some(vpa) = &page.vpa {
            html.raw("<h2>What the updater would do now</h2>\n");
            pods(html, page, vpa);
            html.raw("<h2>Conditions of the VPA</h2>\n");
            conditions(html, &vpa.conditions);
        }
    })
}

fn summary(html: &mut Markup, page: &WorkloadPage, root: &str) {
    html.raw("<dl><dt>Risk</dt><dd>");
    layout::level(html, page.summary.risk);
    if !page.summary.why.is_empty() {
        html.text(format_args!(" {}", page.summary.why));
    }
    html.raw("</dd>");
    match &page.vpa {
        Some(vpa) => {
            let text = format!(
                "{}, update mode {}, recommender {}",
                vpa.name, vpa.update_mode, vpa.recommender
            );
            layout::term(html, "VPA", text);
            let held = vpa.held_back.as_ref().map(|held| layout::held_text(held, page.head.at));
            layout::term(html, "Held back", held.unwrap_or_else(|| "no".to_owned()));
        }
        None => layout::term(html, "VPA", "none: nothing changes its requests"),
    }
    html.raw("<dt>Replicas set by</dt><dd>");
    if page.autoscalers.is_empty() {
        html.raw("no HPA or WPA");
    }
    for (place, one) in page.autoscalers.iter().enumerate() {
        if place > 0 {
            html.raw(", ");
        }
        let path = layout::autoscaler_path(&one.namespace, &one.name);
        layout::link(html, &format!("{root}{path}"), format_args!("{} {}", one.kind, one.name));
    }
    html.raw("</dd></dl>\n");
}

fn containers(html: &mut Markup, page: &WorkloadPage) {
    let columns = [
        ("Container", ""),
        ("Resource", ""),
        ("Request", "n"),
        ("Limit", "n"),
        ("Target", "n"),
        ("Bounds", "n"),
        ("Risk", ""),
    ];
    layout::open_table(html, "One pod", &columns);
    for container in &page.workload.containers {
        for resource in &container.resources {
            let amount = |amount: Option<i64>, missing: &str| {
                amount.map_or_else(
                    || missing.to_owned(),
                    |amount| quantity(resource.resource, amount),
                )
            };
            html.raw("<tr><th scope=\"row\">");
            html.text(&container.name);
            html.raw("</th>");
            layout::cell(html, "Resource", resource_name(resource.resource));
            layout::cell(html, "Request", amount(resource.request, "none"));
            layout::cell(html, "Limit", amount(resource.limit, "none"));
            layout::cell(html, "Target", amount(resource.target, "unknown"));
            let bounds = resource.lower.zip(resource.upper).map(|(lower, upper)| {
                format!("{} to {}", amount(Some(lower), ""), amount(Some(upper), ""))
            });
            layout::cell(html, "Bounds", bounds.unwrap_or_default());
            html.raw("<td data-l=\"Risk\">");
            layout::level(html, resource.risk);
            html.raw("</td></tr>\n");
        }
    }
    layout::close_table(html);
    let notes: Vec<String> = page
        .workload
        .containers
        .iter()
        .enumerate()
        .flat_map(|(place, container)| notes_of(page, container, place == 0))
        .collect();
    layout::notes(html, &notes);
}

fn notes_of(page: &WorkloadPage, container: &ContainerReport, is_first: bool) -> Vec<String> {
    let row = Row { workload: &page.workload, container, is_first };
    let notes = container_notes(&row, page.head.at).into_iter();
    notes.map(|note| format!("{}: {note}", container.name)).collect()
}

fn timelines(html: &mut Markup, page: &WorkloadPage, place: Place<'_>) {
    html.raw("<h2 id=\"timeline\">Timeline</h2>\n");
    match (&page.timeline, &page.timeline_error) {
        (Some(timeline), _) => {
            if !page.gone {
                layout::time_ranges(html, place);
            }
            let span = format!(
                "{} to {}, from {}",
                time(timeline.from),
                time(timeline.until),
                timeline.server
            );
            layout::paragraph(html, span);
            timeline::render(html, timeline);
        }
        (None, Some(why)) => layout::paragraph(html, format_args!("There is no timeline: {why}")),
        (None, None) => layout::paragraph(html, layout::NO_SERVER),
    }
}

fn explanation(html: &mut Markup, page: &WorkloadPage) {
    if let Some(report) = &page.explanation {
        html.raw("<div class=\"scroll\" data-name=\"plimsoll explain vpa\"><pre>");
        lines(html, &vpa::text::render(report, &plain_style()));
        html.raw("</pre></div>\n");
        return;
    }
    if let Some(why) = &page.explanation_error {
        layout::paragraph(html, format_args!("The recommendation cannot be explained: {why}"));
        return;
    }
    let mut is_known = false;
    for container in &page.workload.containers {
        for resource in &container.resources {
            let Some(target) = resource.target else { continue };
            is_known = true;
            let (name, resource) = (resource_name(resource.resource), resource.resource);
            let peak = container.memory_peak.filter(|_| resource == Resource::Memory);
            let peak = peak.map_or_else(String::new, |peak| {
                format!(", peak {} at {}", quantity(resource, peak.bytes.0), time(peak.at))
            });
            let text = format!("{}: {name} {}{peak}", container.name, quantity(resource, target));
            layout::paragraph(html, text);
        }
    }
    let (namespace, name) = (&page.workload.namespace, &page.workload.name);
    if is_known {
        html.raw("<p>Each step: <code>");
        html.text(format_args!("plimsoll recommend --why {namespace}/{name}"));
        html.raw("</code></p>\n");
    } else {
        layout::paragraph(html, "There is no target.");
    }
}

/// Without colours, in lines that fit a page.
fn plain_style() -> Style {
    Style { width: 100, colour: false, glyphs: Glyphs::Unicode, command: "plimsoll".to_owned() }
}

/// Text of several lines, each escaped by itself: a line break is no character of a name.
fn lines(html: &mut Markup, text: &str) {
    for line in text.lines() {
        html.text(line);
        html.raw("\n");
    }
}

fn pods(html: &mut Markup, page: &WorkloadPage, vpa: &VpaFacts) {
    match &page.preview {
        Some(preview) => super::preview::pods(html, preview),
        None if matches!(&*vpa.update_mode, "Off" | "Initial") => {
            layout::paragraph(
                html,
                format_args!(
                    "Nothing: with update mode {} running pods are not changed.",
                    vpa.update_mode
                ),
            );
        }
        None => layout::paragraph(html, "Not decided yet."),
    }
}

/// A table of conditions.
pub(super) fn conditions(html: &mut Markup, conditions: &[ConditionFacts]) {
    if conditions.is_empty() {
        layout::paragraph(html, "The status has no conditions.");
        return;
    }
    let columns = [("Type", ""), ("Status", ""), ("Reason", ""), ("Message", ""), ("Since", "n")];
    layout::open_table(html, "Conditions", &columns);
    for one in conditions {
        html.raw("<tr><th scope=\"row\">");
        html.text(&one.kind);
        html.raw("</th>");
        layout::cell(html, "Status", &one.status);
        layout::cell(html, "Reason", &one.reason);
        layout::cell(html, "Message", &one.message);
        layout::cell(html, "Since", one.since.map_or_else(String::new, time));
        html.raw("</tr>\n");
    }
    layout::close_table(html);
}
