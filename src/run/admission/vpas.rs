//! What is said of a VPA that is created or changed: what is wrong keeps it out, what is odd is a warning.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use serde::Deserialize;

use super::{Role, feeds::TargetKey, overlap::Scaler};
use crate::serve::webhook::{Request, Reviewer, Verdict};
use plimsoll_core::{
    admission::validation::{self, Neighbour},
    api::{VerticalPodAutoscaler, vpa::TargetRef},
};

/// Decides about VPAs.
pub(super) struct Vpas(pub Arc<Role>);

/// As much of a VPA as it takes to find others of the same target.
#[derive(Deserialize)]
struct Aim {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    target_ref: TargetRef,
}

#[async_trait]
impl Reviewer for Vpas {
    fn resource(&self) -> &'static str {
        "VPA"
    }

    async fn review(&self, request: &Request<'_>) -> Verdict {
        let object = request.object.unwrap_or_default();
        let old = request.old_object.map(str::as_bytes);
        let others = self.others(&request.namespace, object);
        let scalers = self.0.scalers(request).await;
        let mut neighbours: Vec<Neighbour<'_>> =
            others.iter().filter_map(|vpa| neighbour(vpa)).collect();
        neighbours.extend(scalers.iter().map(Scaler::neighbour));
        let said = self.0.decide_vpa(object.as_bytes(), old, &neighbours);
        let verdict = if said.errors.is_empty() {
            Verdict::patch(&said.operations).unwrap_or_else(|why| {
                tracing::warn!(%why, "a default cannot be written; the VPA is let through");
                Verdict::allow("unwritable_patch")
            })
        } else {
            Verdict::refuse(status(request, &said))
        };
        verdict.with_warnings(said.warnings)
    }
}

impl Vpas {
    /// The VPAs of the same target, as far as they are known.
    fn others(&self, namespace: &str, object: &str) -> Vec<Arc<VerticalPodAutoscaler>> {
        let Ok(Aim { spec: Spec { target_ref } }) = serde_json::from_str(object) else {
            return Vec::new();
        };
        self.0.seen.vpas(&TargetKey::new(namespace, &target_ref.kind, &target_ref.name))
    }
}

fn neighbour(vpa: &VerticalPodAutoscaler) -> Option<Neighbour<'_>> {
    Some(Neighbour {
        kind: "VerticalPodAutoscaler",
        name: vpa.metadata.name.as_deref()?,
        target_kind: &vpa.spec.target_ref.kind,
        target_name: &vpa.spec.target_ref.name,
        uses_resources: true,
    })
}

/// What the API server tells whoever wrote it.
pub(super) fn status(request: &Request<'_>, said: &validation::Verdict) -> Status {
    let kind = request.request_kind.as_ref().unwrap_or(&request.kind);
    let causes = said.errors.iter().map(|error| StatusCause {
        field: Some(error.path.clone()),
        message: Some(error.body()),
        reason: Some(error.fault.cause().to_owned()),
    });
    let details = StatusDetails {
        name: Some(request.name.to_string()),
        group: Some(kind.group.to_string()),
        kind: Some(kind.kind.to_string()),
        causes: Some(causes.collect()),
        ..StatusDetails::default()
    };
    Status {
        status: Some("Failure".to_owned()),
        code: Some(422),
        reason: Some("Invalid".to_owned()),
        message: Some(said.message(&kind.kind, &kind.group, &request.name)),
        details: Some(details),
        ..Status::default()
    }
}
