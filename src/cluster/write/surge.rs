//! The number of replicas of a Deployment, changed only if it is what it was taken for.

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

/// Sets the replicas of a Deployment from one number to another. `false`: it has another number, which is somebody else's
/// wish and stays.
pub async fn scale_deployment(
    client: &Client,
    permit: &dyn WritePermit,
    stats: &WriteStats,
    (namespace, name): (&str, &str),
    (from, to): (i32, i32),
) -> Result<bool, String> {
    let failed = |why: &str| format!("replicas of Deployment {namespace}/{name}: {why}");
    let api = Api::<Deployment>::namespaced(client.clone(), namespace);
    let late = |_| failed("no answer in time");
    let read = tokio::time::timeout(REQUEST_LIMIT, api.get_scale(name)).await.map_err(late)?;
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
    let asked = api.patch_scale(name, &parameters, &patch);
    let Ok(answer) = tokio::time::timeout(REQUEST_LIMIT, asked).await else {
        stats.count(WriteKind::Replicas, WriteOutcome::NoResponse, REQUEST_LIMIT);
        return Err(failed("no answer in time"));
    };
    stats.count(WriteKind::Replicas, WriteOutcome::from_result(&answer), sent.elapsed());
    answer.map(|_| true).map_err(|why| failed(&why.to_string()))
}
