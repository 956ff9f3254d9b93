//! What is held back: VPAs whose pods need an update, and autoscalers whose replicas differ from what their metrics ask for.

use std::sync::Arc;

use serde::Serialize;

use super::{PageHead, csv::Csv};
use crate::{
    report::{
        explain::report_parts::ago,
        recommend::html::amounts::{count, time},
    },
    ui::{
        access::Scope,
        facts::HeldBack,
        layout::{self, Place},
        snapshot::Snapshot,
    },
};

/// Rows of the page; the JSON and CSV forms have all.
const MAX_ROWS: usize = 300;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldBackPage {
    /// What the page says about itself.
    #[serde(flatten)]
    pub head: PageHead,
    /// The objects, sorted by reason, and those that are held back the longest first.
    pub objects: Vec<HeldBackObject>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldBackObject {
    /// The kind of the autoscaler.
    pub kind: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub target_kind: Arc<str>,
    pub target_name: Arc<str>,
    /// Why, and since when.
    #[serde(flatten)]
    pub held: HeldBack,
}

impl HeldBackPage {
    /// What is held back, of what may be seen.
    pub fn of(snapshot: &Snapshot, scope: &Scope) -> Self {
        let parts = &snapshot.parts;
        let kind: Arc<str> = "VerticalPodAutoscaler".into();
        let vpas = parts.vpas.values().filter_map(|vpa| {
            Some(HeldBackObject {
                held: HeldBack::clone(vpa.held_back.as_ref()?),
                kind: Arc::clone(&kind),
                namespace: Arc::clone(&vpa.namespace),
                name: Arc::clone(&vpa.name),
                target_kind: Arc::clone(&vpa.target_kind),
                target_name: Arc::clone(&vpa.target_name),
            })
        });
        let autoscalers = parts.autoscalers.iter().flat_map(|one| {
            one.restrictions.iter().map(|reason| HeldBackObject {
                kind: one.kind.as_str().into(),
                namespace: one.namespace.as_str().into(),
                name: one.name.as_str().into(),
                target_kind: one.target_kind.as_str().into(),
                target_name: one.target_name.as_str().into(),
                held: HeldBack {
                    reason: reason.as_str().into(),
                    message: one.proposal.map_or_else(Arc::default, |proposal| {
                        let desired = one.desired;
                        format!("the metrics ask for {proposal} replicas, {desired} are desired")
                            .into()
                    }),
                    since: None,
                    until: one.held_until.filter(|until| *until > parts.at),
                },
            })
        });
        let all = vpas.chain(autoscalers).filter(|one| scope.allows(&one.namespace));
        let mut objects: Vec<HeldBackObject> = all.collect();
        objects.sort_by_cached_key(|one| {
            let HeldBack { reason, since, .. } = &one.held;
            (reason.clone(), *since, one.namespace.clone(), one.name.clone())
        });
        Self { head: PageHead::new("held", snapshot, scope), objects }
    }
}

pub(super) fn render(page: &HeldBackPage, place: Place<'_>) -> String {
    let root = place.route.root();
    layout::page(place, &page.head, "Held back", |html| {
        html.raw("<h1>Held back <small>");
        html.text(count(page.objects.len(), "object"));
        html.raw("</small></h1>\n");
        if page.objects.is_empty() {
            layout::paragraph(html, "Nothing is held back.");
            return;
        }
        let columns = [
            ("Reason", ""),
            ("Object", ""),
            ("Target", ""),
            ("Since", "n"),
            ("Until", "n"),
            ("Message", ""),
        ];
        layout::open_list(html, "Changes that are needed and not made, by reason", &columns, true);
        for one in page.objects.iter().take(MAX_ROWS) {
            html.raw("<tr><th scope=\"row\">");
            html.text(&one.held.reason);
            html.raw("</th>");
            let object = format!("{} {}/{}", one.kind, one.namespace, one.name);
            layout::cell(html, "Object", object);
            html.raw("<td data-l=\"Target\">");
            let path = layout::workload_path(&one.namespace, &one.target_kind, &one.target_name);
            let target = format!("{}/{}", one.target_kind, one.target_name);
            layout::link(html, &format!("{root}{path}"), target);
            html.raw("</td>");
            let since = one.held.since;
            let text = since.map_or_else(|| "unknown".to_owned(), |at| ago(at, page.head.at));
            layout::number_cell(html, "Since", since.map(|at| at.as_secs() as f64), text);
            let until = one.held.until;
            let text = until.map_or_else(|| "unknown".to_owned(), time);
            layout::number_cell(html, "Until", until.map(|at| at.as_secs() as f64), text);
            layout::cell(html, "Message", &one.held.message);
            html.raw("</tr>\n");
        }
        layout::close_table(html);
        if page.objects.len() > MAX_ROWS {
            let left = page.objects.len() - MAX_ROWS;
            layout::paragraph(html, format_args!("{left} more are in the JSON and CSV forms."));
        }
    })
}

/// The list as CSV.
pub(super) fn csv(page: &HeldBackPage) -> String {
    let mut csv = Csv::new(&[
        "reason",
        "kind",
        "namespace",
        "name",
        "target_kind",
        "target_name",
        "since",
        "until",
        "message",
    ]);
    for one in &page.objects {
        csv.cell(&one.held.reason).cell(&one.kind).cell(&one.namespace).cell(&one.name);
        csv.cell(&one.target_kind).cell(&one.target_name).optional(one.held.since);
        csv.optional(one.held.until).cell(&one.held.message).end_row();
    }
    csv.finish()
}
