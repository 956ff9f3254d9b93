//! Writing to a real API server: who may, in which order, and what becomes of it.

use std::time::Duration;

use kube::api::Api;
use plimsoll_core::api::{VerticalPodAutoscaler, crds};
use plimsoll_core::types::VpaKey;

use crate::support::{Bed, objects};

pub mod access;
mod conformance;
mod election;
mod heartbeat;
mod outbox;
mod pods;
mod status;

/// Long for what takes a moment, so that a busy machine fails nothing.
const MINUTE: Duration = Duration::from_mins(1);

/// A bed that knows our definitions.
async fn bed_with_definitions() -> Option<Bed> {
    let bed = Bed::shared().await?;
    for definition in crds().expect("definitions") {
        objects::define(bed.client(), &definition).await;
    }
    Some(bed)
}

/// A VPA that nobody has written to yet.
async fn vpa(bed: &Bed, namespace: &str, name: &str) -> VerticalPodAutoscaler {
    let yaml = format!(
        "
metadata: {{name: {name}}}
spec:
  targetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
"
    );
    objects::create(bed.client(), namespace, &yaml).await
}

async fn read(bed: &Bed, key: &VpaKey) -> VerticalPodAutoscaler {
    let api = Api::namespaced(bed.client(), &key.namespace);
    api.get(&key.name).await.expect("it is there")
}
