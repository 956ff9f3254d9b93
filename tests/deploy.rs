//! Installations: manifests, overlays, the chart, images, RBAC, and their behavior on a real server.

mod admission_policies;
pub mod audit_log;
mod chart;
mod chart_installed;
mod chart_options;
mod cluster_objects;
mod datadog_controller;
mod fixture;
mod image;
mod manifest_fields;
mod manifest_references;
mod monitoring;
mod overlays_applied;
mod pipelines;
mod prometheus_scrape;
mod rbac;
mod rbac_matrix;
mod recommended_component;
mod release_files;
pub mod rendered_manifests;
mod scenario;
mod threat_model;
mod upstream_manifests;
mod write_conflicts;

use std::{fs, path::Path};

pub use monitoring::monitor;
use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The objects of a file.
fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The RBAC and pre-created objects of a role, as one text.
pub fn shipped(role: &str) -> String {
    let folder = Path::new(ROOT).join("deploy").join(role);
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let texts: Vec<String> =
        ["rbac.yaml", "lease.yaml", "registration.yaml"].into_iter().filter_map(read).collect();
    assert!(texts.len() > 1, "{role}: only {} files", texts.len());
    texts.join("\n---\n")
}
