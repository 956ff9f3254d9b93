//! Computes the limit of a container's resource when its request changes.

use super::{
    proportional::{ScaleRounding, quantity_from_units, scale, to_units},
    reason::{MissingInput, SizingReason},
    sizing_spec::LimitPolicy,
};
use crate::{
    api::{ResourceList, ResourceName},
    types::quantity::Quantity,
};

/// The current resources of a container, and the default limits of its namespace.
#[derive(Clone, Copy, Debug)]
pub struct CurrentResources<'a> {
    /// The container's requests.
    pub requests: &'a ResourceList,
    /// The container's limits.
    pub limits: &'a ResourceList,
    /// Limits that the LimitRange sets where the container has none.
    pub defaults: &'a ResourceList,
}

impl CurrentResources<'_> {
    /// Returns the container's limit, or else the default limit. Zero counts as unset.
    pub fn limit(&self, resource: &ResourceName) -> Option<Quantity> {
        let non_zero = |list: &ResourceList| list.get(resource).filter(|amount| !amount.is_zero());
        non_zero(self.limits).or_else(|| non_zero(self.defaults))
    }

    /// Returns the container's request. Zero counts as unset.
    pub fn request(&self, resource: &ResourceName) -> Option<Quantity> {
        self.requests.get(resource).filter(|amount| !amount.is_zero())
    }
}

/// Returns the limit that keeps the container's ratio of limit to request. If the old request was unset or equal to the
/// limit, the new limit equals the new request.
pub fn proportional_limit(
    resource: &ResourceName,
    original: &CurrentResources<'_>,
    wanted: Option<Quantity>,
) -> (Option<Quantity>, Option<SizingReason>) {
    let missing = |without| SizingReason::NoLimit { resource: resource.clone(), without };
    let Some(limit) = original.limit(resource) else {
        return (None, Some(missing(MissingInput::OriginalLimit)));
    };
    let Some(wanted) = wanted.filter(|amount| !amount.is_zero()) else {
        return (None, Some(missing(MissingInput::RecommendedRequest)));
    };
    let request = original.request(resource);
    let differs = |request: &Quantity| request.milli_value() != limit.milli_value();
    let Some(request) = request.filter(differs) else {
        return (Some(wanted), None);
    };
    let scaled = scale(resource, limit, request, wanted, ScaleRounding::Down);
    let lost = scaled.is_saturated.then(|| SizingReason::RatioLost { resource: resource.clone() });
    (Some(scaled.amount), lost)
}

/// Returns the limit that the policy writes, if any. `max_allowed` is that of the container policy.
pub fn limit_by_policy(
    policy: LimitPolicy,
    resource: &ResourceName,
    original: &CurrentResources<'_>,
    wanted: Option<Quantity>,
    max_allowed: Option<Quantity>,
) -> (Option<Quantity>, Option<SizingReason>) {
    let non_zero = |max: &Quantity| !max.is_zero();
    let (proportional, reason) = proportional_limit(resource, original, wanted);
    match (policy, proportional, wanted) {
        (LimitPolicy::RequestsOnly, ..) => (None, None),
        (LimitPolicy::Fixed(factor), Some(_), Some(wanted)) => {
            let request = i128::from(to_units(resource, wanted));
            let limit = (request * i128::from(factor.0)).div_euclid(1000).max(request);
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            (Some(quantity_from_units(resource, limit, wanted.format())), None)
        }
        (LimitPolicy::Max, Some(_), Some(wanted)) => match max_allowed.filter(non_zero) {
            Some(max) => (Some(max.max(wanted)), None),
            None => (proportional, reason),
        },
        _ => (proportional, reason),
    }
}
