//! VerticalPodAutoscalers that only recommend: the way from reports to the operator.

use std::collections::BTreeSet;

use crate::rightsizing::report::{NoPatchReason, Report, WorkloadReport};

use super::{
    patch::{default_version, title},
    yaml_text::{Yaml, document, map},
};

/// The length of names of objects.
const MAX_NAME: usize = 253;

/// A VerticalPodAutoscaler with the update mode `Off` for each workload that has none. What is left out is a
/// comment.
pub fn objects(report: &Report) -> String {
    let mut text = String::new();
    let mut used: BTreeSet<(Option<&str>, &str, String)> = BTreeSet::new();
    for workload in &report.workloads {
        if let Some(vpa) = &workload.vpa {
            used.insert((workload.cluster.as_deref(), &workload.namespace, vpa.clone()));
        }
    }
    for workload in &report.workloads {
        let api_version =
            workload.api_version.as_deref().or_else(|| default_version(&workload.kind));
        let left_out = match (&workload.vpa, api_version) {
            (Some(_), _) => Some("has a VerticalPodAutoscaler"),
            (None, _) if is_group(workload) => Some("is a group of several objects"),
            (None, _) if workload.kind == "Pod" => Some("has no controller"),
            (None, None) => Some("has an unknown API version"),
            (None, Some(_)) => None,
        };
        if let Some(why) = left_out {
            text.extend(["# ", &title(workload), " is left out: it ", why, "\n"]);
            continue;
        }
        let name = unused_name(workload, &mut used);
        text.push_str("---\n");
        text.push_str(&document(&object(workload, api_version.unwrap_or_default(), &name)));
    }
    text
}

fn is_group(workload: &WorkloadReport) -> bool {
    let reasons = workload.containers.iter().map(|container| container.no_patch);
    reasons.into_iter().any(|reason| reason == Some(NoPatchReason::Grouped))
}

/// The name of the workload, followed by its kind if a workload of another kind has the name.
fn unused_name<'r>(
    workload: &'r WorkloadReport,
    used: &mut BTreeSet<(Option<&'r str>, &'r str, String)>,
) -> String {
    let mut number = 0;
    loop {
        let suffix = match number {
            0 => String::new(),
            1 => format!("-{}", workload.kind.to_lowercase()),
            number => format!("-{}-{number}", workload.kind.to_lowercase()),
        };
        let room = MAX_NAME.saturating_sub(suffix.len());
        let name: String = workload.name.chars().take(room).collect::<String>() + &suffix;
        let key = (workload.cluster.as_deref(), &*workload.namespace, name.clone());
        if used.insert(key) {
            return name;
        }
        number += 1;
    }
}

fn object(workload: &WorkloadReport, api_version: &str, name: &str) -> Yaml {
    map([
        ("apiVersion", Yaml::text("autoscaling.k8s.io/v1")),
        ("kind", Yaml::text("VerticalPodAutoscaler")),
        (
            "metadata",
            map([("name", Yaml::text(name)), ("namespace", Yaml::text(&workload.namespace))]),
        ),
        (
            "spec",
            map([
                (
                    "targetRef",
                    map([
                        ("apiVersion", Yaml::text(api_version)),
                        ("kind", Yaml::text(&workload.kind)),
                        ("name", Yaml::text(&workload.name)),
                    ]),
                ),
                ("updatePolicy", map([("updateMode", Yaml::text("Off"))])),
            ]),
        ),
    ])
}
