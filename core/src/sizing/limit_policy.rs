//! What becomes of the limit of one resource of a container when its request changes.

use super::{
    proportional::{ScaleRounding, quantity_from_units, scale, to_units},
    reason::{MissingInput, SizingReason},
    sizing_spec::LimitPolicy,
};
use crate::{
    api::{ResourceList, ResourceName},
    types::quantity::Quantity,
};

/// What a container has, and what holds for it.
#[derive(Clone, Copy, Debug)]
pub struct CurrentResources<'a> {
    /// Its requests.
    pub requests: &'a ResourceList,
    /// Its limits.
    pub limits: &'a ResourceList,
    /// Limits of containers that name none.
    pub defaults: &'a ResourceList,
}

impl CurrentResources<'_> {
    /// The limit that the container has, be it by default.
    pub fn limit(&self, resource: &ResourceName) -> Option<Quantity> {
        let some = |list: &ResourceList| list.get(resource).filter(|amount| !amount.is_zero());
        some(self.limits).or_else(|| some(self.defaults))
    }

    /// The request that the container has.
    pub fn request(&self, resource: &ResourceName) -> Option<Quantity> {
        self.requests.get(resource).filter(|amount| !amount.is_zero())
    }
}

/// The limit that stands to the new request as the old limit stood to the old request. A container that requested
/// nothing, or as much as its limit, has a limit of what it requests.
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
    let Some(request) = request.filter(|it| it.milli_value() != limit.milli_value()) else {
        return (Some(wanted), None);
    };
    let scaled = scale(resource, limit, request, wanted, ScaleRounding::Down);
    let lost = scaled.is_saturated.then(|| SizingReason::RatioLost { resource: resource.clone() });
    (Some(scaled.amount), lost)
}

/// The limit that is written, if one is, by a policy. `most` is what `maxAllowed` says.
pub fn limit_by_policy(
    policy: LimitPolicy,
    resource: &ResourceName,
    original: &CurrentResources<'_>,
    wanted: Option<Quantity>,
    most: Option<Quantity>,
) -> (Option<Quantity>, Option<SizingReason>) {
    let (follows, reason) = proportional_limit(resource, original, wanted);
    match (policy, follows, wanted) {
        (LimitPolicy::RequestsOnly, ..) => (None, None),
        (LimitPolicy::Fixed(factor), Some(_), Some(wanted)) => {
            let request = i128::from(to_units(resource, wanted));
            let limit = (request * i128::from(factor.milli())).div_euclid(1000).max(request);
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            (Some(quantity_from_units(resource, limit, wanted.format())), None)
        }
        (LimitPolicy::Max, Some(_), Some(wanted)) => match most.filter(|most| !most.is_zero()) {
            Some(most) => (Some(most.max(wanted)), None),
            None => (follows, reason),
        },
        _ => (follows, reason),
    }
}
