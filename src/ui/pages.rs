//! The pages: each is a struct, whose JSON form is the struct itself and whose HTML form is rendered from it alone.

mod autoscalers;
mod backtests;
mod csv;
mod held_back;
mod overview;
mod preview;
mod quotas;
mod status;
mod totals;
mod workload;
mod workloads;

use plimsoll_core::{rightsizing::survey::Unread, types::Time};
use serde::Serialize;

pub use self::{
    autoscalers::{AutoscalerPage, AutoscalerTimeline, AutoscalersPage},
    backtests::{BacktestsPage, ReportFile},
    held_back::HeldBackPage,
    overview::OverviewPage,
    preview::PreviewPage,
    status::StatusPage,
    totals::{LabelTotals, NamespaceTotals},
    workload::{WorkloadDetails, WorkloadPage},
    workloads::WorkloadsPage,
};
use super::{access::Scope, layout::Place, snapshot::Snapshot};

/// The schema version of the JSON forms. It increases when a field changes its meaning or is removed, not when a field is
/// added.
pub const SCHEMA_VERSION: u32 = 1;

/// What each page says about itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PageHead {
    pub schema_version: u32,
    /// The page, such as `workloads`.
    pub kind: &'static str,
    /// The version of Plimsoll.
    pub version: &'static str,
    pub cluster: String,
    /// The time of the data.
    pub at: Time,
    /// Whether everything may be seen.
    pub sees_everything: bool,
    /// What could not be read. Shown only to those who may see everything: it may name objects.
    pub unread: Vec<Unread>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Page {
    Overview(Box<OverviewPage>),
    Workloads(WorkloadsPage),
    Workload(Box<WorkloadPage>),
    Autoscalers(AutoscalersPage),
    Autoscaler(AutoscalerPage),
    HeldBack(HeldBackPage),
    Preview(PreviewPage),
    Backtests(BacktestsPage),
    Status(Box<StatusPage>),
}

impl PageHead {
    fn new(kind: &'static str, snapshot: &Snapshot, scope: &Scope) -> Self {
        let parts = &snapshot.parts;
        let unread = parts.report.unread.iter().chain(&parts.unread).filter(|_| scope.is_all());
        Self {
            schema_version: SCHEMA_VERSION,
            kind,
            version: env!("CARGO_PKG_VERSION"),
            cluster: parts.cluster.clone(),
            at: parts.at,
            sees_everything: scope.is_all(),
            unread: unread.cloned().collect(),
        }
    }
}

impl Page {
    /// The page for browsers.
    pub(super) fn html(&self, place: Place<'_>) -> String {
        match self {
            Self::Overview(page) => overview::render(page, place),
            Self::Workloads(page) => workloads::render(page, place),
            Self::Workload(page) => workload::render(page, place),
            Self::Autoscalers(page) => autoscalers::render_list(page, place),
            Self::Autoscaler(page) => autoscalers::render(page, place),
            Self::HeldBack(page) => held_back::render(page, place),
            Self::Preview(page) => preview::render(page, place),
            Self::Backtests(page) => backtests::render(page, place),
            Self::Status(page) => status::render(page, place),
        }
    }

    /// The same data as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// The list as CSV, if the page is one.
    pub fn csv(&self) -> Option<String> {
        match self {
            Self::Workloads(page) => Some(workloads::csv(page)),
            Self::Autoscalers(page) => Some(autoscalers::csv(page)),
            Self::HeldBack(page) => Some(held_back::csv(page)),
            Self::Preview(page) => Some(preview::csv(page)),
            _ => None,
        }
    }
}
