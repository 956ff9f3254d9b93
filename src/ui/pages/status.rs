//! The status of the roles, as `plimsoll status` reports it.

use serde::Serialize;
use serde_with::skip_serializing_none;

use super::PageHead;
use crate::{
    report::{
        recommend::html::amounts::{number, time},
        status::{Level, RoleReport, StatusReport},
    },
    ui::{
        access::Scope,
        layout::{self, Place},
        snapshot::Snapshot,
    },
};

/// The status of the roles.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusPage {
    /// What the page says about itself.
    #[serde(flatten)]
    pub head: PageHead,
    /// The report of `plimsoll status`; absent until it has been made.
    pub status: Option<StatusReport>,
}

impl StatusPage {
    /// The status; only those see it who may see everything.
    pub fn of(snapshot: &Snapshot, scope: &Scope) -> Self {
        let head = PageHead::new("status", snapshot, scope);
        Self { head, status: snapshot.parts.status.clone().filter(|_| scope.is_all()) }
    }
}

pub(super) fn render(page: &StatusPage, place: Place<'_>) -> String {
    layout::page(place, &page.head, "Status", |html| {
        html.raw("<h1>Status of the roles</h1>\n");
        let Some(status) = &page.status else {
            layout::paragraph(html, "It has not been read yet.");
            return;
        };
        let findings = status.findings.iter().map(|finding| {
            let level = if finding.level == Level::Problem { "Problem" } else { "Warning" };
            format!("{level}: {}", finding.message)
        });
        layout::notes(html, &findings.collect::<Vec<_>>());
        if status.roles.is_empty() {
            layout::paragraph(html, "No role was found.");
            return;
        }
        let columns = [
            ("Role", ""),
            ("Leader", ""),
            ("Version", ""),
            ("Lease renewed", "n"),
            ("Last pass", "n"),
            ("Objects", "n"),
            ("Pods ready", "n"),
            ("Notes", ""),
        ];
        layout::open_list(html, "Roles, by their Leases", &columns, false);
        for role in &status.roles {
            html.raw("<tr><th scope=\"row\">");
            html.text(&role.role);
            html.raw("</th>");
            layout::cell(html, "Leader", role.leader.as_deref().unwrap_or("none"));
            layout::cell(html, "Version", role.version.as_deref().unwrap_or("unknown"));
            let seconds = |value: Option<f64>| {
                value.map_or_else(
                    || "unknown".to_owned(),
                    |value| format!("{} s ago", number(value.round())),
                )
            };
            layout::number_cell(
                html,
                "Renewed",
                role.renewed_seconds,
                seconds(role.renewed_seconds),
            );
            layout::number_cell(
                html,
                "Last pass",
                role.loop_age_seconds,
                seconds(role.loop_age_seconds),
            );
            let objects = role.objects.map(|objects| objects as f64);
            layout::number_cell(
                html,
                "Objects",
                objects,
                objects.map_or_else(|| "unknown".to_owned(), number),
            );
            layout::cell(html, "Pods ready", format_args!("{} of {}", role.ready, role.pods));
            layout::cell(html, "Notes", notes(role));
            html.raw("</tr>\n");
        }
        layout::close_table(html);
    })
}

fn notes(role: &RoleReport) -> String {
    let mut notes: Vec<String> = role.mode.iter().cloned().collect();
    notes.extend(role.history.as_ref().map(|history| format!("history {history}")));
    notes.extend(
        role.held_workloads
            .filter(|held| *held > 0)
            .map(|held| format!("{held} workloads held back")),
    );
    notes.extend(
        role.breaker_until.map(|until| format!("all changes blocked until {}", time(until))),
    );
    notes.join("; ")
}
