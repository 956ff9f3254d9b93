//! Resources for values of Helm charts. Where a chart has the resources of a container is up to the chart, so
//! they are comments to copy from.

use std::collections::BTreeMap;

use crate::rightsizing::report::{Report, WorkloadReport};

use super::{
    patch::{container_resources, title},
    yaml_text::{Yaml, document, quoted_if_needed},
};

/// The labels with the release of a workload, the most specific one first.
const RELEASE_LABELS: [&str; 2] = ["app.kubernetes.io/instance", "release"];

/// The resources grouped by release, as comments.
pub fn values(report: &Report) -> String {
    type Release<'r> = (Option<&'r str>, &'r str, Option<&'r str>);
    let mut releases: BTreeMap<Release<'_>, Vec<&WorkloadReport>> = BTreeMap::new();
    for workload in &report.workloads {
        if workload.containers.iter().any(|container| container_resources(container).is_some()) {
            let release = RELEASE_LABELS.iter().find_map(|label| workload.labels.get(*label));
            let key =
                (workload.cluster.as_deref(), &*workload.namespace, release.map(|name| &**name));
            releases.entry(key).or_default().push(workload);
        }
    }
    let mut text = String::from("# Where a chart has these values is up to the chart.\n");
    for ((cluster, namespace, release), workloads) in releases {
        let release = release
            .map_or("No release".to_owned(), |name| format!("Release {}", quoted_if_needed(name)));
        text.extend([format!("\n# {release} in namespace {}", quoted_if_needed(namespace))]);
        if let Some(cluster) = cluster {
            text.extend([format!(" of cluster {}", quoted_if_needed(cluster))]);
        }
        text.push('\n');
        for workload in workloads {
            text.push_str(&target_remarks(workload));
            for container in &workload.containers {
                let Some(resources) = container_resources(container) else { continue };
                let title = format!("{}/{}", workload.kind, workload.name);
                text.extend([format!(
                    "# {}, container {}\n",
                    quoted_if_needed(&title),
                    quoted_if_needed(&container.name)
                )]);
                let resources = Yaml::Map(vec![("resources".to_owned(), resources)]);
                for line in document(&resources).lines() {
                    text.extend(["#   ", line, "\n"]);
                }
            }
        }
    }
    text
}

/// Targets that have to change with the requests.
fn target_remarks(workload: &WorkloadReport) -> String {
    let mut text = String::new();
    for change in &workload.target_changes {
        let Some(percent) = change.new_percent else { continue };
        text.extend([format!(
            "# {}: set the {} target of {} from {} to {percent} % in the same step\n",
            title(workload),
            change.target.resource,
            quoted_if_needed(&format!("{}/{}", change.target.kind, change.target.name)),
            change.target.percent,
        )]);
    }
    text
}
