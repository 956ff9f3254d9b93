//! Values for Helm charts. Where a chart has the resources of a container is up to the chart, so a file maps
//! containers to paths in the values: `shop/Deployment/checkout/main: checkout.resources`.

use std::collections::BTreeMap;

use crate::rightsizing::report::{ContainerReport, Report, WorkloadReport};

use super::{
    MAX_FILE_BYTES,
    patch::{container_resources, title},
    yaml_text::{Yaml, document, quoted_if_needed},
};

/// The labels with the release of a workload, the most specific one first.
const RELEASE_LABELS: [&str; 3] =
    ["meta.helm.sh/release-name", "app.kubernetes.io/instance", "release"];
/// How many keys a path has at most.
const MAX_DEPTH: usize = 32;

/// Why a map file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMap {
    /// The file is too large.
    #[error("the map file is larger than {} MiB", MAX_FILE_BYTES >> 20)]
    TooLarge,
    /// The file is not a mapping of texts.
    #[error("the map file is not a YAML mapping of `NAMESPACE/KIND/NAME/CONTAINER: PATH`: {0}")]
    Syntax(String),
    /// A key is not the title of a container.
    #[error("the key {0:?} of the map file is not `NAMESPACE/KIND/NAME/CONTAINER`")]
    Key(String),
    /// A path is invalid.
    #[error("the path {path:?} of {key:?} in the map file is invalid: {why}")]
    Path {
        /// The key.
        key: String,
        /// The path.
        path: String,
        /// Why.
        why: &'static str,
    },
    /// Two containers share a path.
    #[error("{one:?} and {other:?} have paths in the map file that contain each other")]
    Overlap {
        /// A key.
        one: String,
        /// The other key.
        other: String,
    },
}

/// Where the resources of a container are in the values.
#[derive(Debug)]
struct Mapped {
    key: String,
    path: Vec<String>,
}

/// The values of a chart as a map file has them; without a map file, the resources grouped by release, as
/// comments.
pub fn values(report: &Report, map_file: Option<&str>) -> Result<String, InvalidMap> {
    match map_file {
        Some(text) => Ok(mapped_values(report, &read_map(text)?)),
        None => Ok(grouped(report)),
    }
}

fn read_map(text: &str) -> Result<Vec<Mapped>, InvalidMap> {
    if text.len() > MAX_FILE_BYTES {
        return Err(InvalidMap::TooLarge);
    }
    let read: BTreeMap<String, String> =
        serde_saphyr::from_str(text).map_err(|error| InvalidMap::Syntax(first_line(&error)))?;
    let mut mapped = Vec::new();
    for (key, path) in read {
        if key.split('/').filter(|part| !part.is_empty()).count() != 4
            || key.split('/').count() != 4
        {
            return Err(InvalidMap::Key(key));
        }
        let keys =
            split_path(&path).map_err(|why| InvalidMap::Path { key: key.clone(), path, why })?;
        mapped.push(Mapped { key, path: keys });
    }
    mapped.sort_by(|a, b| a.path.cmp(&b.path));
    for pair in mapped.windows(2) {
        if pair[1].path.starts_with(&pair[0].path) {
            return Err(InvalidMap::Overlap {
                one: pair[0].key.clone(),
                other: pair[1].key.clone(),
            });
        }
    }
    Ok(mapped)
}

fn first_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The keys of a path; a backslash keeps the next character from separating.
fn split_path(path: &str) -> Result<Vec<String>, &'static str> {
    let mut keys = vec![String::new()];
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        match c {
            '.' => keys.push(String::new()),
            '[' => return Err("Helm cannot set an item of a list; use a key"),
            c => {
                let c =
                    if c == '\\' { chars.next().ok_or("it ends with a backslash")? } else { c };
                if let Some(last) = keys.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    if keys.iter().any(String::is_empty) {
        return Err("a key is empty");
    }
    if keys.len() > MAX_DEPTH {
        return Err("it has too many keys");
    }
    Ok(keys)
}

fn mapped_values(report: &Report, mapped: &[Mapped]) -> String {
    let mut by_key: BTreeMap<String, Vec<(&WorkloadReport, &ContainerReport)>> = BTreeMap::new();
    for workload in &report.workloads {
        for container in &workload.containers {
            let key = [&*workload.namespace, &*workload.kind, &*workload.name, &*container.name];
            by_key.entry(key.join("/")).or_default().push((workload, container));
        }
    }
    let mut head = String::new();
    let mut values = Yaml::Map(Vec::new());
    for Mapped { key, path } in mapped {
        let shown = quoted_if_needed(key);
        let found = by_key.remove(key);
        match found.as_deref() {
            None => head.extend([format!("# {shown} is not in the report\n")]),
            Some([(workload, container)]) => {
                if let Some(resources) = container_resources(container) {
                    set(&mut values, path, resources);
                    head.push_str(&target_remarks(workload));
                }
            }
            Some(_) => head.extend([format!(
                "# {shown} is in several clusters and left out: select one with --context\n"
            )]),
        }
    }
    let unmapped = by_key.iter().filter(|(_, found)| {
        found.iter().any(|(_, container)| container_resources(container).is_some())
    });
    for (key, _) in unmapped {
        head.extend([format!("# {} is not in the map file\n", quoted_if_needed(key))]);
    }
    head + &document(&values)
}

fn set(values: &mut Yaml, path: &[String], resources: Yaml) {
    let (Yaml::Map(entries), Some((first, rest))) = (values, path.split_first()) else { return };
    if rest.is_empty() {
        entries.push((first.clone(), resources));
        return;
    }
    // Paths are sorted, so a key that exists is the last one.
    if let Some((_, child)) = entries.last_mut().filter(|(key, _)| key == first) {
        set(child, rest, resources);
    } else {
        let mut child = Yaml::Map(Vec::new());
        set(&mut child, rest, resources);
        entries.push((first.clone(), child));
    }
}

/// Resources by release, as comments: the paths are unknown.
fn grouped(report: &Report) -> String {
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
    let mut text = String::from(
        "# Where a chart has these values is up to the chart. A file with lines such as\n\
         #   NAMESPACE/KIND/NAME/CONTAINER: web.resources\n\
         # makes values of them.\n",
    );
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
