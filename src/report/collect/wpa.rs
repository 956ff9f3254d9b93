//! `plimsoll explain wpa`: reports the last decision of an object's controller, which is in its status.

use kube::ResourceExt as _;
use plimsoll_core::types::Time;

use super::lookup::{ExplainError, find_object};
use crate::{
    cluster::snapshot::{ClusterSnapshot, SnapshotPart},
    controllers::{runtime::command_client::Cluster, watermark::scaling_gates},
    report::explain::{Finding, WpaReport},
};

/// Explains an object. Without a namespace, that of the kubeconfig's current context is used.
pub async fn explain(
    cluster: &Cluster,
    namespace: Option<&str>,
    name: &str,
    now: Time,
) -> Result<WpaReport, ExplainError> {
    let namespace = namespace.unwrap_or(&cluster.namespace);
    let parts = [SnapshotPart::Wpas];
    let snapshot = ClusterSnapshot::read(&cluster.client, Some(namespace), &parts).await;
    let object = find_object(cluster, &snapshot.wpas, namespace, name)?;
    let status = object.status.clone().unwrap_or_default();
    let annotations = object.annotations();
    let mut report = WpaReport::of((namespace, name), annotations, &object.spec, &status, now);
    for bad in scaling_gates::invalid_gate_annotations(annotations) {
        report.findings.push(Finding::new("annotation_ignored", bad.to_string()));
    }
    Ok(report)
}
