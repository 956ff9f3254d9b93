//! Names of workloads and of the report's sources.

use std::{borrow::Cow, fmt::Write as _, time::Duration};

use plimsoll_core::rightsizing::report::{Report, SourceReport, WorkloadReport};

use super::{
    amounts::{counted, grouped, minute, response_size},
    escape::is_plain_argument,
};
use crate::report::style::format_span;

/// How far the window may end before the time of the report without a remark: scrapes and rule evaluations take time.
const RECENT: Duration = Duration::from_mins(10);

/// The name of a workload as tables print it and `--why` accepts it: `shop/Deployment/checkout`, with the cluster
/// before it if the report covers several.
pub(super) fn workload(workload: &WorkloadReport) -> String {
    let WorkloadReport { namespace, kind, name, .. } = workload;
    match &workload.cluster {
        Some(cluster) => format!("{cluster}/{namespace}/{kind}/{name}"),
        None => format!("{namespace}/{kind}/{name}"),
    }
}

/// The arguments of `--why` and `-n` for hints; `None` if the names would need quotes.
pub(super) fn why_argument(workload: &WorkloadReport) -> Option<String> {
    let WorkloadReport { namespace, name, .. } = workload;
    [namespace, name]
        .into_iter()
        .all(|part| is_plain_argument(part))
        .then(|| format!("{namespace}/{name}"))
}

/// What the report is about: the cluster, or the number of clusters.
pub(super) fn clusters(report: &Report) -> Option<Cow<'_, str>> {
    let mut names: Vec<&str> =
        report.sources.iter().filter_map(|source| source.cluster.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [] => None,
        [only] => Some(Cow::Borrowed(only)),
        several => Some(Cow::Owned(counted(several.len(), "cluster"))),
    }
}

/// How much the report covers: `412 workloads, 655 containers, 38 namespaces`.
pub(super) fn extent(report: &Report) -> String {
    [
        counted(report.totals.workloads, "workload"),
        counted(report.totals.containers, "container"),
        counted(report.namespaces.len(), "namespace"),
    ]
    .join(", ")
}

/// The history of a source, and what it took to read it.
pub(super) fn source(report: &Report, source: &SourceReport) -> String {
    let mut text = String::new();
    if report.sources.len() > 1
        && let Some(cluster) = &source.cluster
    {
        text.push_str(cluster);
        text.push_str(": ");
    }
    if let (Some(from), Some(until)) = (source.from, source.until) {
        let window = Duration::from_nanos(until.nanos_since(from).max(0).unsigned_abs());
        text.push_str(&format_span(window));
        text.push_str(" of ");
    }
    text.push_str(&source.server);
    let mut notes: Vec<&str> = source.product.as_deref().into_iter().collect();
    if source.proxied {
        notes.push("through the API server");
    }
    if !notes.is_empty() {
        let _ = write!(text, " ({})", notes.join(", "));
    }
    let _ = write!(
        text,
        ": {} queries, {} in {} s",
        grouped(source.queries as f64, 0),
        response_size(source.size()),
        grouped(source.seconds, usize::from(source.seconds < 10.0))
    );
    if let Some(step) = source.step_seconds {
        let _ = write!(text, ", a CPU sample every {}", format_span(Duration::from_secs(step)));
    }
    if let Some(until) = source.until.filter(|until| until.later(RECENT) < report.at) {
        let _ = write!(text, "; the history ends at {}", minute(until));
    }
    text.push('.');
    text
}

/// Settings that change numbers, and a strategy that is not Plimsoll's.
pub(super) fn settings(report: &Report) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(strategy) = &report.strategy {
        parts.push(format!("Recommendations of the strategy {strategy}, for comparison."));
    }
    if !report.settings.is_empty() {
        parts.push(format!("Settings: {}.", report.settings.join(" ")));
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}
