//! Changes the replicas of a Deployment, if they are as expected.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Client,
    api::{Api, Patch, PatchParams},
};
use plimsoll_storage::WritePermit;
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::write::{
    stats::{WriteKind, WriteOutcome, WriteStats},
    vpa_annotation::UPDATER_FIELD_MANAGER,
};

const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Changes the replicas of a Deployment from one number to another. Returns `false`, and changes nothing, if it has a
/// different number: another client has set it.
pub async fn scale_deployment(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    (namespace, name): (&str, &str),
    (from, to): (i32, i32),
) -> Result<bool, String> {
    let failed = |why: &str| format!("failed to scale Deployment {namespace}/{name}: {why}");
    let api = Api::<Deployment>::namespaced(client.clone(), namespace);
    let timed_out = |_| failed("request timed out");
    let read = tokio::time::timeout(REQUEST_LIMIT, api.get_scale(name)).await.map_err(timed_out)?;
    let scale = read.map_err(|why| failed(&why.to_string()))?;
    let replicas = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
    if replicas != from {
        return Ok(false);
    }
    if permit.acquire().await.is_err() {
        stats.count(WriteKind::Replicas, WriteOutcome::NotLeader, Duration::ZERO);
        return Err(failed("this process may not write"));
    }
    let body = json!({
        "metadata": {"resourceVersion": scale.metadata.resource_version},
        "spec": {"replicas": to},
    });
    let parameters =
        PatchParams { field_manager: Some(UPDATER_FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = Patch::Merge(body);
    let sent = Instant::now();
    let request = api.patch_scale(name, &parameters, &patch);
    let Ok(result) = tokio::time::timeout(REQUEST_LIMIT, request).await else {
        stats.count(WriteKind::Replicas, WriteOutcome::NoResponse, REQUEST_LIMIT);
        return Err(failed("request timed out"));
    };
    stats.count(WriteKind::Replicas, WriteOutcome::from_result(&result), sent.elapsed());
    result.map(|_| true).map_err(|why| failed(&why.to_string()))
}
