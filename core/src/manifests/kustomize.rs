//! A kustomize component with one patch for each workload.

use std::collections::BTreeSet;

use crate::rightsizing::{
    report::{Report, TargetChange, WorkloadReport},
    survey::Resource,
};

use super::{
    GeneratedFile,
    patch::{Autoscalers, WorkloadPatch, knows_metric_index, patches, title},
    yaml_text::{Yaml, document, map, quoted_if_needed},
};

/// The first line of a kustomization that this module writes.
pub const HEADER: &str = "# Written by plimsoll recommend.";

/// The length of file names without their ending; the names of two workloads may be as long as 253 bytes
/// each.
const MAX_FILE_NAME: usize = 180;

/// The files of the component. If the report covers several clusters, each has a component in a folder of its
/// own.
pub fn component(report: &Report) -> Vec<GeneratedFile> {
    let all = patches(report, Autoscalers::Patched);
    let clusters: BTreeSet<Option<&str>> =
        report.workloads.iter().map(|workload| workload.cluster.as_deref()).collect();
    let mut files = Vec::new();
    let mut names = BTreeSet::new();
    for cluster in &clusters {
        let folder = match cluster.filter(|_| clusters.len() > 1) {
            Some(cluster) => format!("{}/", unused_name(cluster, &mut names)),
            None => String::new(),
        };
        let of_cluster: Vec<_> =
            all.iter().filter(|patch| patch.workload.cluster.as_deref() == *cluster).collect();
        files.extend(component_of_cluster(&folder, &of_cluster));
    }
    files
}

fn component_of_cluster(folder: &str, patches: &[&WorkloadPatch<'_>]) -> Vec<GeneratedFile> {
    let mut head = format!("{HEADER} Add this folder to the components of an overlay.\n");
    let mut files = Vec::new();
    let mut entries = Vec::new();
    let mut names = BTreeSet::new();
    for WorkloadPatch { workload, patch, remarks, .. } in patches {
        for remark in remarks {
            head.extend(["# ", remark, "\n"]);
        }
        let Some(patch) = patch else { continue };
        let name = [&*workload.namespace, &*workload.kind, &*workload.name].join("_");
        let file_name = format!("{}.yaml", unused_name(&name.to_lowercase(), &mut names));
        entries.push(map([
            ("path", Yaml::text(&file_name)),
            ("target", target(&workload.kind, workload, &workload.name)),
        ]));
        files.push(GeneratedFile { path: format!("{folder}{file_name}"), text: document(patch) });
        let changed = |resource| {
            workload
                .containers
                .iter()
                .flat_map(|container| &container.resources)
                .any(|one| one.resource == resource && (one.change.request.is_some()))
        };
        let target_changes =
            workload.target_changes.iter().filter(|_| knows_metric_index(workload));
        for change in target_changes {
            if let Some(patch) = target_patch(change).filter(|_| changed(change.target.resource)) {
                head.extend([format!(
                    "# {}: the {} target of HorizontalPodAutoscaler {} changes with the requests.\n",
                    title(workload),
                    change.target.resource,
                    quoted_if_needed(&change.target.name)
                )]);
                let target = target(&change.target.kind, workload, &change.target.name);
                entries.push(map([("patch", Yaml::text(&patch)), ("target", target)]));
            }
        }
    }
    let kustomization = document(&map([
        ("apiVersion", Yaml::text("kustomize.config.k8s.io/v1alpha1")),
        ("kind", Yaml::text("Component")),
        ("patches", Yaml::List(entries)),
    ]));
    let path = format!("{folder}kustomization.yaml");
    files.insert(0, GeneratedFile { path, text: head + &kustomization });
    files
}

/// What a patch applies to. Bases often leave the namespace to the overlay, which kustomize takes for
/// `default`.
fn target(kind: &str, workload: &WorkloadReport, name: &str) -> Yaml {
    map([
        ("kind", Yaml::Text(exactly(&[kind]))),
        ("name", Yaml::Text(exactly(&[name]))),
        ("namespace", Yaml::Text(exactly(&[&workload.namespace, "default"]))),
    ])
}

/// A regular expression that matches only these texts.
fn exactly(texts: &[&str]) -> String {
    let escaped = texts.iter().map(|text| {
        let mut escaped = String::new();
        for c in text.chars() {
            if c.is_ascii_punctuation() && c != '-' && c != '_' && c != '/' {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        escaped
    });
    let escaped: Vec<_> = escaped.collect();
    match &escaped[..] {
        [only] => format!("^{only}$"),
        several => format!("^({})$", several.join("|")),
    }
}

/// The JSON patch of a utilization target: metrics are a list without keys, which a merge patch would
/// replace.
fn target_patch(change: &TargetChange) -> Option<String> {
    let percent = change.new_percent?;
    let field = if change.target.container.is_some() { "containerResource" } else { "resource" };
    let metric = format!("/spec/metrics/{}/{field}", change.target.metric);
    let resource: &str = match change.target.resource {
        Resource::Cpu => "cpu",
        Resource::Memory => "memory",
    };
    // The build fails if the metrics are in another order.
    let mut operations = vec![operation("test", &format!("{metric}/name"), Yaml::text(resource))];
    if let Some(container) = &change.target.container {
        operations.push(operation("test", &format!("{metric}/container"), Yaml::text(container)));
    }
    let path = format!("{metric}/target/averageUtilization");
    operations.push(operation("replace", &path, Yaml::Plain(percent.to_string())));
    // JSON, so that the operations fit into one text.
    Some(format!("[{}]", operations.join(", ")))
}

fn operation(name: &str, path: &str, value: Yaml) -> String {
    let value = match value {
        Yaml::Plain(value) => value,
        Yaml::Text(value) => serde_json::Value::from(value).to_string(),
        _ => "null".to_owned(),
    };
    format!(r#"{{"op": "{name}", "path": "{path}", "value": {value}}}"#)
}

/// A file name that was not used before, whatever the text is.
fn unused_name(text: &str, used: &mut BTreeSet<String>) -> String {
    let safe = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' });
    let mut name: String = safe.take(MAX_FILE_NAME).collect();
    if name.starts_with('.') || name.is_empty() {
        name.insert(0, '_');
    }
    let mut number = 1;
    let mut candidate = name.clone();
    while !used.insert(candidate.clone()) {
        number += 1;
        candidate = format!("{name}.{number}");
    }
    candidate
}
