//! How long the lists of a VPA may be. Every list costs time whenever its object is reviewed or read, and its users choose
//! how long it is.

use super::{
    FieldError, FieldErrorType,
    messages::{Errors, Warnings},
    raw_vpa::Spec,
};
use crate::sizing::size_limits::MAX_POLICIES;

/// Eviction requirements.
pub const MAX_REQUIREMENTS: usize = 100;

/// Refuses a list that is too long. One that was stored like that may stay: its author is warned, and the rest of it is not
/// looked at.
pub(super) fn enforce_list_limits(
    spec: &mut Spec,
    old: &Spec,
    errors: &mut Errors,
    warnings: &mut Warnings,
) {
    let policies =
        (spec.container_policies().len(), spec.container_policies() == old.container_policies());
    let requirements = (
        spec.eviction_requirements().len(),
        spec.eviction_requirements() == old.eviction_requirements(),
    );
    let mut keep = |path: &str, (count, is_unchanged): (usize, bool), most: usize, effect: &str| {
        if count <= most {
            return most;
        }
        if is_unchanged {
            warnings.add(format_args!(
                "{path}: {count} entries, and there may be {most}: {effect}; remove some"
            ));
            return most;
        }
        errors.add(FieldError {
            path: path.to_owned(),
            error_type: FieldErrorType::TooMany,
            value: Some(count.to_string()),
            detail: format!("must have at most {most} items"),
        });
        0
    };
    let policies = keep(
        "spec.resourcePolicy.containerPolicies",
        policies,
        MAX_POLICIES,
        "no pod is sized by this VPA",
    );
    let requirements = keep(
        "spec.updatePolicy.evictionRequirements",
        requirements,
        MAX_REQUIREMENTS,
        "only the first ones are checked",
    );
    spec.truncate(policies, requirements);
}
