//! What the updater would do now: its own pass over all VPAs that change running pods. Nothing is done.

use plimsoll_core::types::Time;
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{PageHead, csv::Csv};
use crate::{
    report::{
        collect::pod::preview::{PodPreview, WorkloadPreview},
        recommend::html::{
            amounts::{count, time},
            markup::Markup,
        },
    },
    ui::{
        access::Scope,
        layout::{self, Place},
        snapshot::Snapshot,
    },
};

/// Pods on the page; the JSON and CSV forms have all.
const MAX_ROWS: usize = 300;

/// What the updater would do now.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviewPage {
    /// What the page says about itself.
    #[serde(flatten)]
    pub head: PageHead,
    /// The oldest of the decisions; absent if none has been made.
    pub decided_at: Option<Time>,
    /// Pods that would be changed now.
    pub changes: usize,
    /// Pods that need a change which is held back.
    pub held_back: usize,
    /// Pods that need no change.
    pub unchanged: usize,
    pub workloads: Vec<NamespacedPreview>,
    /// What was assumed.
    pub notes: Vec<String>,
}

/// What the updater would do with the pods of a VPA.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamespacedPreview {
    pub namespace: String,
    /// The decisions.
    #[serde(flatten)]
    pub preview: WorkloadPreview,
}

impl PreviewPage {
    /// The decisions about what may be seen, those with changes first.
    pub fn of(snapshot: &Snapshot, scope: &Scope) -> Self {
        let visible = || snapshot.parts.preview.iter().filter(|(name, _)| scope.allows(name));
        let mut workloads: Vec<NamespacedPreview> = visible()
            .flat_map(|(namespace, of)| {
                of.workloads.iter().map(|preview| NamespacedPreview {
                    namespace: namespace.clone(),
                    preview: preview.clone(),
                })
            })
            .collect();
        workloads.sort_by_key(|one| {
            let pods = || one.preview.decisions.iter();
            (!pods().any(|pod| pod.step.is_some()), !pods().any(|pod| pod.held_back))
        });
        let pods = || workloads.iter().flat_map(|one| &one.preview.decisions);
        let mut notes: Vec<String> = visible().flat_map(|(_, of)| of.notes.clone()).collect();
        notes.sort();
        notes.dedup();
        Self {
            head: PageHead::new("preview", snapshot, scope),
            decided_at: visible().map(|(_, of)| of.at).min(),
            changes: pods().filter(|pod| pod.step.is_some()).count(),
            held_back: pods().filter(|pod| pod.held_back).count(),
            unchanged: pods().filter(|pod| pod.step.is_none() && !pod.held_back).count(),
            workloads,
            notes,
        }
    }
}

pub(super) fn render(page: &PreviewPage, place: Place<'_>) -> String {
    let root = place.route.root();
    layout::page(place, &page.head, "Preview", |html| {
        html.raw("<h1>What the updater would do now</h1>\n");
        match page.decided_at {
            None => layout::paragraph(
                html,
                "Nothing: no VPA that changes running pods has been looked at yet.",
            ),
            Some(at) => {
                let text = format!(
                    "{} would be changed, {} held back, {} unchanged. Decided at {} by the pass of the updater; nothing was done.",
                    count(page.changes, "pod"),
                    page.held_back,
                    page.unchanged,
                    time(at)
                );
                layout::paragraph(html, text);
            }
        }
        layout::notes(html, &page.notes);
        if page.workloads.is_empty() {
            return;
        }
        let columns = [
            ("Pod", ""),
            ("Workload", ""),
            ("Action", ""),
            ("Step", "n"),
            ("Need", ""),
            ("Why", ""),
        ];
        layout::open_list(html, "Pods, those that would be changed first", &columns, true);
        let rows = page
            .workloads
            .iter()
            .flat_map(|one| one.preview.decisions.iter().map(move |pod| (one, pod)));
        for (one, pod) in rows.take(MAX_ROWS) {
            html.raw("<tr><th scope=\"row\">");
            html.text(&pod.pod);
            html.raw("</th><td data-l=\"Workload\">");
            let preview = &one.preview;
            let path = layout::workload_path(&one.namespace, &preview.kind, &preview.name);
            layout::link(
                html,
                &format!("{root}{path}"),
                format_args!("{}/{}", one.namespace, preview.name),
            );
            html.raw("</td>");
            decision(html, pod);
            html.raw("</tr>\n");
        }
        layout::close_table(html);
        let pods = page.changes + page.held_back + page.unchanged;
        if pods > MAX_ROWS {
            layout::paragraph(
                html,
                format_args!("{} more are in the JSON and CSV forms.", pods - MAX_ROWS),
            );
        }
    })
}

/// The cells of a decision: action, step, need, why.
fn decision(html: &mut Markup, pod: &PodPreview) {
    let action = match (&*pod.action, pod.held_back) {
        ("none", true) => "held back",
        (action, _) => action,
    };
    layout::cell(html, "Action", action);
    let step = pod.step.map(|step| step.to_string()).unwrap_or_default();
    layout::number_cell(html, "Step", pod.step.map(|step| step as f64), step);
    layout::cell(html, "Need", pod.need.as_deref().unwrap_or_default());
    let reason = pod.reason.as_ref().map_or_else(String::new, |reason| format!("{reason}: "));
    layout::cell(html, "Why", format_args!("{reason}{}", pod.message));
}

/// The pods of one workload, as a table.
pub(super) fn pods(html: &mut Markup, preview: &WorkloadPreview) {
    if preview.decisions.is_empty() {
        layout::paragraph(html, "It has no pods.");
        return;
    }
    let columns = [("Pod", ""), ("Action", ""), ("Step", "n"), ("Need", ""), ("Why", "")];
    let caption = format!(
        "{}, {} that need an update and may be updated",
        count(preview.pods, "pod"),
        preview.candidates
    );
    layout::open_list(html, &caption, &columns, false);
    for pod in preview.decisions.iter().take(MAX_ROWS) {
        html.raw("<tr><th scope=\"row\">");
        html.text(&pod.pod);
        html.raw("</th>");
        decision(html, pod);
        html.raw("</tr>\n");
    }
    layout::close_table(html);
}

/// The pods as CSV.
pub(super) fn csv(page: &PreviewPage) -> String {
    let mut csv = Csv::new(&[
        "namespace",
        "vpa",
        "kind",
        "name",
        "pod",
        "action",
        "step",
        "need",
        "held_back",
        "reason",
        "message",
    ]);
    for one in &page.workloads {
        for pod in &one.preview.decisions {
            csv.cell(&one.namespace).cell(&one.preview.vpa).cell(&one.preview.kind);
            csv.cell(&one.preview.name).cell(&pod.pod).cell(&pod.action).optional(pod.step);
            csv.optional(pod.need.as_ref()).cell(pod.held_back).optional(pod.reason.as_ref());
            csv.cell(&pod.message).end_row();
        }
    }
    csv.finish()
}
