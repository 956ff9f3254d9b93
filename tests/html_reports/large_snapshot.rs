//! A cluster of many workloads, each with a VPA, and of many HPAs and WPAs, made from the sample.

use std::sync::Arc;

use plimsoll::ui::{
    facts::{AutoscalerFacts, HeldBack, VpaFacts},
    snapshot::Snapshot,
};
use plimsoll_core::{
    rightsizing::report::{Totals, WorkloadReport},
    types::ObjectKey,
};

use super::sample_snapshot;

/// Workloads in one namespace.
const PER_NAMESPACE: usize = 20;
/// Every this many VPAs are held back.
const HELD_BACK: usize = 7;

/// A snapshot with this many VPAs, HPAs and WPAs.
pub(crate) fn large(vpas: usize, hpas: usize, wpas: usize) -> Snapshot {
    let mut parts = sample_snapshot::all_parts();
    let at = parts.at;
    let find = |name: &str| -> WorkloadReport {
        let found = parts.report.workloads.iter().find(|one| one.name == name);
        found.expect("a workload of the sample").clone()
    };
    let templates = [find("checkout"), find("search"), find("kafka")];
    let namespace = |index: usize| format!("team-{:02}", index / PER_NAMESPACE);
    let name = |index: usize| format!("checkout-{index:04}");
    parts.report.workloads = (0..vpas)
        .map(|index| WorkloadReport {
            namespace: namespace(index),
            kind: "Deployment".to_owned(),
            name: name(index),
            vpa: Some(name(index)),
            ..templates[index % templates.len()].clone()
        })
        .collect();
    let of_each = parts.report.namespaces.get("shop").expect("a namespace of the sample");
    let of_each = Totals { workloads: PER_NAMESPACE, ..of_each.clone() };
    let namespaces = parts.report.workloads.iter().map(|one| one.namespace.clone());
    parts.report.namespaces = namespaces.map(|name| (name, of_each.clone())).collect();

    let template = VpaFacts::clone(parts.vpas.values().next().expect("a VPA of the sample"));
    let held = |index: usize| HeldBack {
        reason: ["cool_down", "budget", "quota_exceeded"][index % 3].into(),
        message: "the pods may be changed again later".into(),
        since: Some(at.earlier(std::time::Duration::from_mins(index as u64))),
        until: None,
    };
    let vpas = (0..vpas).map(|index| VpaFacts {
        namespace: namespace(index).into(),
        name: name(index).into(),
        target_name: name(index).into(),
        held_back: index.is_multiple_of(HELD_BACK).then(|| Box::new(held(index))),
        ..template.clone()
    });
    let keyed = vpas.map(|vpa| (ObjectKey::new(&*vpa.namespace, &*vpa.name), Arc::new(vpa)));
    parts.vpas = keyed.collect();

    let mut autoscalers = Vec::new();
    for (kind, count) in [("HorizontalPodAutoscaler", hpas), ("WatermarkPodAutoscaler", wpas)] {
        let template = parts.autoscalers.iter().find(|one| one.kind == kind);
        let template = AutoscalerFacts::clone(template.expect("an autoscaler of the sample"));
        autoscalers.extend((0..count).map(|index| {
            Arc::new(AutoscalerFacts {
                namespace: namespace(index),
                name: name(index),
                target_name: name(index),
                ..template.clone()
            })
        }));
    }
    parts.autoscalers = autoscalers;
    let previewed = parts.preview.remove("shop").expect("a preview of the sample");
    let namespaces = parts.report.namespaces.keys().cloned();
    parts.preview = namespaces.map(|name| (name, previewed.clone())).collect();
    Snapshot::new(parts)
}
