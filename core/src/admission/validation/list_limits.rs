//! Limits the length of lists in a VPA, because users choose it and every review or read of the object takes time in
//! proportion.

use super::{
    FieldError, FieldErrorType,
    message_limits::{Errors, Warnings},
    raw_vpa::Spec,
};
use crate::sizing::size_limits::MAX_POLICIES;

/// Maximum number of eviction requirements.
pub const MAX_REQUIREMENTS: usize = 100;

/// Rejects a list that is too long. If the stored object has the same list, it is accepted with a warning, and the rest
/// of it is ignored.
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
    let mut check =
        |path: &str, (count, is_unchanged): (usize, bool), most: usize, effect: &str| {
            if count <= most {
                return most;
            }
            if is_unchanged {
                warnings.add(format_args!(
                    "{path}: {count} entries exceed the limit of {most}: {effect}; remove some"
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
    let policies = check(
        "spec.resourcePolicy.containerPolicies",
        policies,
        MAX_POLICIES,
        "this VPA sizes no pods",
    );
    let requirements = check(
        "spec.updatePolicy.evictionRequirements",
        requirements,
        MAX_REQUIREMENTS,
        "only the first ones are checked",
    );
    spec.truncate(policies, requirements);
}
