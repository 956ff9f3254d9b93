//! The reports in the folder of `--reports`.

use plimsoll_core::types::Time;
use serde::Serialize;

use super::PageHead;
use crate::{
    report::recommend::html::amounts::{count, size, time},
    ui::{
        access::Scope,
        layout::{self, Place},
        router::PathSegment,
        snapshot::Snapshot,
    },
};

/// The reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BacktestsPage {
    /// What the page says about itself.
    #[serde(flatten)]
    pub head: PageHead,
    /// Whether there is a folder of reports.
    pub has_folder: bool,
    /// The files, the newest first.
    pub reports: Vec<ReportFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportFile {
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was written.
    pub written_at: Option<Time>,
}

impl BacktestsPage {
    /// The list of these files; `None` without a folder.
    pub fn of(snapshot: &Snapshot, scope: &Scope, files: Option<Vec<ReportFile>>) -> Self {
        let has_folder = files.is_some();
        let mut reports = files.unwrap_or_default();
        reports.sort_by(|one, other| {
            (other.written_at, &one.name).cmp(&(one.written_at, &other.name))
        });
        Self { head: PageHead::new("backtests", snapshot, scope), has_folder, reports }
    }
}

pub(super) fn render(page: &BacktestsPage, place: Place<'_>) -> String {
    let root = place.route.root();
    layout::page(place, &page.head, "Backtests", |html| {
        html.raw("<h1>Backtests <small>");
        html.text(count(page.reports.len(), "report"));
        html.raw("</small></h1>\n");
        if !page.has_folder {
            layout::paragraph(html, "There is no folder of reports: set --reports=DIR.");
            return;
        }
        if page.reports.is_empty() {
            layout::paragraph(html, "The folder of reports has no HTML files.");
            return;
        }
        layout::open_list(
            html,
            "HTML files in the folder of reports",
            &[("Report", ""), ("Written", "n"), ("Size", "n")],
            false,
        );
        for report in &page.reports {
            html.raw("<tr><th scope=\"row\">");
            layout::link(
                html,
                &format!("{root}backtest/{}", PathSegment(&report.name)),
                &report.name,
            );
            html.raw("</th>");
            let at = report.written_at;
            let text = at.map_or_else(|| "unknown".to_owned(), time);
            layout::number_cell(html, "Written", at.map(|at| at.as_secs() as f64), text);
            layout::number_cell(html, "Size", Some(report.bytes as f64), size(report.bytes));
            html.raw("</tr>\n");
        }
        layout::close_table(html);
    })
}
