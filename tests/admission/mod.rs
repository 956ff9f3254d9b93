//! Admission: pod patches, startup boosts and the validation of VPA objects.

mod boost;
mod patches;
mod review_size;
mod validation;

use plimsoll_core::{
    admission::{AdmissionSettings, patch_pod},
    api::VerticalPodAutoscaler,
    sizing::{NamespaceLimitRanges, Operation, Pod, SizingError, SizingRules, SizingSpec},
    types::compat::Compat,
};

/// Formats operations as `path value`, with `c0` for the resources of the first container.
pub fn format_operations(operations: &[Operation]) -> Vec<String> {
    let line = |operation: &Operation| {
        let path = operation.path.strip_prefix("/metadata/annotations/").map(str::to_owned);
        let path = path.unwrap_or_else(|| match operation.path.strip_prefix("/spec/containers/") {
            Some(rest) => format!("c{}", rest.replacen("/resources", "", 1)),
            None => operation.path.clone(),
        });
        let value =
            operation.value.as_str().map_or_else(|| operation.value.to_string(), str::to_owned);
        format!("{path} {value}")
    };
    operations.iter().map(line).collect()
}

/// Returns the operations of a pod's patch.
pub fn patch(
    pod: &Pod,
    vpa: &VerticalPodAutoscaler,
    ranges: &NamespaceLimitRanges,
    admission: AdmissionSettings,
) -> Result<Vec<String>, SizingError> {
    let admitted = patch_pod(pod, &SizingSpec::from_vpa(vpa), Some(ranges), &admission)?;
    Ok(format_operations(&admitted.operations))
}

pub fn admission(compat: Compat) -> AdmissionSettings {
    AdmissionSettings { rules: SizingRules::for_compat(compat), ..AdmissionSettings::default() }
}
