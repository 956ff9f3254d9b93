//! Writes to a real API server: permissions, order and outcomes.

use std::time::Duration;

use kube::api::Api;
use plimsoll::cluster::write::stats::{WriteKind, WriteOutcome, WriteStats};
use plimsoll_core::api::{VerticalPodAutoscaler, crds};
use plimsoll_core::types::ObjectKey;

use crate::support::{Testbed, manifests};

pub mod access_review;
mod conformance;
mod election;
mod heartbeat;
mod pod_writes;
mod status_queue;
mod vpa_status;

/// Generous, so that a busy machine does not fail a test.
const MINUTE: Duration = Duration::from_mins(1);

/// How many writes of a kind had this outcome.
fn count(stats: &WriteStats, kind: WriteKind, outcome: WriteOutcome) -> u64 {
    stats.counts().get(&(kind, outcome)).copied().unwrap_or_default()
}

/// A testbed with our CRDs.
async fn bed_with_definitions() -> Option<Testbed> {
    let bed = Testbed::shared().await?;
    for definition in crds().expect("definitions") {
        manifests::create_definition(bed.client(), &definition).await;
    }
    Some(bed)
}

/// A VPA without status.
async fn vpa(bed: &Testbed, namespace: &str, name: &str) -> VerticalPodAutoscaler {
    let yaml = format!(
        "
metadata: {{name: {name}}}
spec:
  targetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
"
    );
    manifests::create(bed.client(), namespace, &yaml).await
}

async fn read(bed: &Testbed, key: &ObjectKey) -> VerticalPodAutoscaler {
    let api = Api::namespaced(bed.client(), &key.namespace);
    api.get(&key.name).await.expect("it exists")
}
