//! The pictures of docs/ui.md: pages of the sample without its hostile names.
//! `PLIMSOLL_PICTURES=docs/pictures cargo xtask test html_reports::pictures` makes them again.

use std::sync::Arc;

use plimsoll::ui::{facts::AutoscalerFacts, replica_timeline::ReplicaTimeline, snapshot::Snapshot};
use xtask::test_programs;

use super::{sample_snapshot, web_page::serve};
use crate::support::{browser::Browser, skipped::report_skipped};

/// The cluster of the pictures.
const CLUSTER: &str = "prod";

/// Whether a snapshot is that of the pictures.
pub(super) fn is_presentable(snapshot: &Snapshot) -> bool {
    snapshot.parts.cluster == CLUSTER
}

/// Replaces the names of metrics.
pub(super) fn present(timeline: &mut ReplicaTimeline) {
    for chart in &mut timeline.metrics {
        "requests".clone_into(&mut chart.metric);
    }
}

/// The sample without hostile names.
fn presentable() -> Snapshot {
    let mut parts = sample_snapshot::all_parts();
    CLUSTER.clone_into(&mut parts.cluster);
    parts.report.unread.clear();
    parts.preview.clear();
    let message = "updates are paused until 50 minutes after the last one";
    for vpa in parts.vpas.values_mut().map(Arc::make_mut) {
        if let Some(held) = &mut vpa.held_back {
            held.message = message.into();
        }
        for condition in &mut vpa.conditions {
            condition.message = message.into();
        }
    }
    for one in &mut parts.autoscalers {
        let AutoscalerFacts { findings, metrics, conditions, .. } = Arc::make_mut(one);
        findings.clear();
        conditions.clear();
        for metric in metrics {
            "requests".clone_into(&mut metric.name);
        }
    }
    Snapshot::new(parts)
}

#[test]
fn the_pictures_of_the_documentation_have_no_odd_texts() {
    let chromium = match test_programs::chromium() {
        Ok(chromium) => chromium,
        Err(error) => return report_skipped(error),
    };
    let origin = format!("http://{}/", serve(presentable()));
    let mut browser = Browser::start(chromium);
    for (path, name) in [
        ("?by=team", "ui-overview"),
        ("w/shop/Deployment/checkout", "ui-workload"),
        ("a/shop/checkout", "ui-autoscaler"),
    ] {
        browser.set(1280, "light", true);
        browser.open(&format!("{origin}{path}"));
        let text = browser.evaluate("document.body.innerText").to_string();
        assert!(!text.contains("<script") && !text.contains("evil"), "{name}: {text}");
        let picture = browser.screenshot();
        if let Some(folder) = std::env::var_os("PLIMSOLL_PICTURES") {
            let path = std::path::Path::new(&folder).join(format!("{name}.png"));
            std::fs::write(path, picture).expect("a writable folder");
        }
    }
}
