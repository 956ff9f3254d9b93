//! Calls the decision logic of plimsoll-core with the settings of the admission controller.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::config::AdmissionConfig;
use crate::controllers::runtime::annotation_checks::find_invalid;
use plimsoll_core::{
    admission::{self, AdmissionSettings, validation},
    api::VerticalPodAutoscaler,
    coordination::SharedRequest,
    sizing::{
        NamespaceLimitRanges, Operation, Pod, SizingError, SizingRules, VpaOptions,
        quota::{self, PodOperation, Quota},
    },
    types::{compat::Compat, quantity::Quantity},
};

fn sizing_rules(config: &AdmissionConfig) -> SizingRules {
    SizingRules { compat: config.compat, fixes: config.fixes, sidecars: config.native_sidecars }
}

/// The objects of a namespace that the size of a pod depends on.
pub(super) struct SizingInputs {
    pub limit_ranges: NamespaceLimitRanges,
    pub quotas: Vec<Quota>,
    /// The requests that autoscalers of replicas use too.
    pub shared_requests: Vec<SharedRequest>,
}

pub(super) fn decide_pod(
    config: &AdmissionConfig,
    pod: &Pod,
    vpa: &VerticalPodAutoscaler,
    inputs: &SizingInputs,
) -> Result<Vec<Operation>, SizingError> {
    let settings = AdmissionSettings {
        rules: sizing_rules(config),
        startup_boost: config.feature_gates.startup_boost,
        max_boosted_cpu: config.max_boost.unwrap_or(Quantity::ZERO),
    };
    let options = VpaOptions::from_vpa(vpa, config.compat);
    let spec = options.sizing_spec(vpa, config.limit_policy);
    let spec = spec.with_shared_requests(&inputs.shared_requests);
    let patch = admission::patch_pod(pod, &spec, Some(&inputs.limit_ranges), &settings)?;
    quota::ensure_quota(&inputs.quotas, pod, &patch.sized_containers, PodOperation::Create)?;
    Ok(patch.operations)
}

pub(super) fn decide_vpa(
    config: &AdmissionConfig,
    object: &[u8],
    old: Option<&[u8]>,
    others: &[validation::OtherAutoscaler<'_>],
) -> validation::ValidationResult {
    let gates = config.feature_gates;
    let mut result = validation::validate(object, old, gates, sizing_rules(config), others);
    if config.compat == Compat::Plimsoll {
        result.warnings.extend(invalid_annotation_warnings(object));
    }
    result
}

fn invalid_annotation_warnings(object: &[u8]) -> Vec<String> {
    let object: Value = serde_json::from_slice(object).unwrap_or_default();
    let annotations = BTreeMap::deserialize(&object["metadata"]["annotations"]);
    find_invalid(&annotations.unwrap_or_default()).iter().map(ToString::to_string).collect()
}
