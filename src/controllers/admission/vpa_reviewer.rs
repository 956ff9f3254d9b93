//! Validates VPAs that are created or changed: errors deny the request, oddities become warnings.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use serde::Deserialize;
use serde_json::Value;

use super::{
    config::AdmissionConfig,
    hpa_conflicts::{self, HpaLister},
    watches::WatchStores,
};
use crate::{
    cluster::server::webhook::{AdmissionDecision, AdmissionRequest, Reviewer},
    controllers::runtime::annotation_checks::find_invalid,
};
use plimsoll_core::{
    admission::validation::{self, OtherAutoscaler, ValidationResult},
    api::{VerticalPodAutoscaler, vpa::TargetRef},
    types::compat::Compat,
};

pub(super) struct VpaReviewer {
    pub config: Arc<AdmissionConfig>,
    pub stores: Arc<WatchStores>,
    pub hpas: HpaLister,
}

#[async_trait]
impl Reviewer for VpaReviewer {
    fn resource(&self) -> &'static str {
        "VPA"
    }

    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionDecision {
        let object = request.object.unwrap_or_default();
        let old = request.old_object.map(str::as_bytes);
        let others = self.vpas_with_same_target(&request.namespace, object);
        let hpas = match self.config.compat {
            Compat::Upstream => Vec::new(),
            Compat::Plimsoll => self.hpas.hpas_in_namespace(request).await,
        };
        let mut autoscalers: Vec<OtherAutoscaler<'_>> =
            others.iter().filter_map(|vpa| as_other_autoscaler(vpa)).collect();
        let is_replaced = self.stores.sizing.followers.hpa_replacement.is_active();
        autoscalers.extend(
            hpas.iter().filter_map(|hpa| hpa_conflicts::as_other_autoscaler(hpa, is_replaced)),
        );
        let result = self.validate(object.as_bytes(), old, &autoscalers);
        let decision = if result.errors.is_empty() {
            AdmissionDecision::patch(&result.operations).unwrap_or_else(|error| {
                tracing::warn!(%error, "failed to encode defaults; admitting the VPA unchanged");
                AdmissionDecision::allow("unwritable_patch")
            })
        } else {
            AdmissionDecision::deny(response_status(request, &result))
        };
        decision.with_warnings(result.warnings)
    }
}

impl VpaReviewer {
    fn validate(
        &self,
        object: &[u8],
        old: Option<&[u8]>,
        others: &[OtherAutoscaler<'_>],
    ) -> ValidationResult {
        let (config, gates) = (&self.config, self.config.feature_gates);
        let mut result = validation::validate(object, old, gates, config.sizing_rules(), others);
        if config.compat == Compat::Plimsoll {
            let object: Value = serde_json::from_slice(object).unwrap_or_default();
            let annotations = BTreeMap::deserialize(&object["metadata"]["annotations"]);
            let invalid = find_invalid(&annotations.unwrap_or_default());
            result.warnings.extend(invalid.iter().map(ToString::to_string));
        }
        result
    }

    /// The VPAs with the same target, as far as they are cached.
    fn vpas_with_same_target(
        &self,
        namespace: &str,
        object: &str,
    ) -> Vec<Arc<VerticalPodAutoscaler>> {
        let object: Value = serde_json::from_str(object).unwrap_or_default();
        let target = TargetRef::deserialize(&object["spec"]["targetRef"]);
        let Ok(target) = target else { return Vec::new() };
        self.stores.vpas(namespace, &target.kind, &target.name)
    }
}

fn as_other_autoscaler(vpa: &VerticalPodAutoscaler) -> Option<OtherAutoscaler<'_>> {
    Some(OtherAutoscaler {
        kind: "VerticalPodAutoscaler",
        name: vpa.metadata.name.as_deref()?,
        target_kind: &vpa.spec.target_ref.kind,
        target_name: &vpa.spec.target_ref.name,
        utilization_of: Vec::new(),
    })
}

pub(super) fn response_status(request: &AdmissionRequest<'_>, result: &ValidationResult) -> Status {
    let kind = request.request_kind.as_ref().unwrap_or(&request.kind);
    let causes = result.errors.iter().map(|error| StatusCause {
        field: Some(error.path.clone()),
        message: Some(error.body()),
        reason: Some(error.error_type.cause_type().to_owned()),
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
        message: Some(result.message(&kind.kind, &kind.group, &request.name)),
        details: Some(details),
        ..Status::default()
    }
}
