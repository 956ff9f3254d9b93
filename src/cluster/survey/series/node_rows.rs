//! Nodes from series.

use std::collections::BTreeMap;

use plimsoll_core::rightsizing::survey::Node;
use plimsoll_storage::prometheus::client::CollectedSeries;

use super::{
    rows::{node_name, set_amount},
    series_label,
};

/// Labels of nodes that decisions use, by their names in objects: series have underscores in place of dots and slashes.
const KNOWN_LABELS: [&str; 22] = [
    "karpenter.sh/nodepool",
    "karpenter.sh/capacity-type",
    "eks.amazonaws.com/nodegroup",
    "eks.amazonaws.com/capacityType",
    "cloud.google.com/gke-nodepool",
    "cloud.google.com/gke-spot",
    "cloud.google.com/gke-preemptible",
    "cloud.google.com/machine-family",
    "kubernetes.azure.com/agentpool",
    "kubernetes.azure.com/scalesetpriority",
    "kubernetes.azure.com/mode",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "kubernetes.io/hostname",
    "node-role.kubernetes.io/control-plane",
    "node.kubernetes.io/windows-build",
];

/// The nodes with their allocatable resources and their labels.
pub(super) fn nodes(
    allocatable: &[CollectedSeries],
    labels: &[CollectedSeries],
) -> BTreeMap<Box<str>, Node> {
    let known: BTreeMap<String, &str> =
        KNOWN_LABELS.iter().map(|&label| (series_label(label), label)).collect();
    let mut nodes: BTreeMap<Box<str>, Node> = BTreeMap::new();
    for row in allocatable {
        set_amount(&mut nodes.entry(node_name(row).into()).or_default().allocatable, row);
    }
    for row in labels {
        let node = nodes.entry(node_name(row).into()).or_default();
        for (name, value) in &row.labels {
            let Some(rest) = name.strip_prefix("label_") else { continue };
            let label = known.get(name).copied().unwrap_or(rest);
            node.labels.insert(label.into(), value.as_str().into());
        }
    }
    // Series without a node are of something else.
    nodes.remove("");
    nodes
}
