//! Predicts what the API server would reject: a pod that violates a LimitRange of its namespace, or that requests more
//! than its limits.

use std::{fmt, sync::Arc};

use serde::Serialize;

use super::{
    limit_range::{MergedLimitRange, NamespaceLimitRanges},
    pod::Pod,
    pod_totals::{PodTotals, resized_containers},
    reason::{CapRule, ResourceField, SizingError},
    sized_container::{SizedContainer, qos_with},
};
use crate::{
    api::{ResourceList, ResourceName},
    types::quantity::{Format, Quantity},
};

/// One reason why the API server would reject a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// The container; `None` for the totals of the pod.
    pub container: Option<Arc<str>>,
    pub resource: ResourceName,
    /// The request or the limit.
    pub field: ResourceField,
    pub rule: CapRule,
    /// The amount; `None` if it is required but unset.
    pub found: Option<Quantity>,
    pub bound: Quantity,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = match self.field {
            ResourceField::Request => "request",
            ResourceField::Limit => "limit",
        };
        match &self.container {
            Some(name) => write!(f, "{} {field} of container {name}", self.resource)?,
            None => write!(f, "{} {field} of the pod", self.resource)?,
        }
        match self.found {
            Some(found) => write!(f, " would be {found}")?,
            None => f.write_str(" would be missing")?,
        }
        write!(f, " against {} {}", self.rule, self.bound)
    }
}

/// Returns all violations of a pod with these sizes.
pub fn violations(
    pod: &Pod,
    sizes: &[SizedContainer],
    ranges: &NamespaceLimitRanges,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for resized in resized_containers(pod, sizes) {
        let (requests, limits) = (resized.resources.requests(), resized.resources.limits());
        let name = Some(Arc::clone(&resized.container.name));
        let mut add = |resource: &ResourceName, field, rule, amount, bound| {
            let (container, resource) = (name.clone(), resource.clone());
            found.push(Violation { container, resource, field, rule, found: amount, bound });
        };
        for resource in [ResourceName::Cpu, ResourceName::Memory] {
            let (request, limit) = (requests.get(&resource), limits.get(&resource));
            if let (Some(request), Some(limit)) = (request, limit)
                && request > limit
            {
                add(
                    &resource,
                    ResourceField::Request,
                    CapRule::ContainerLimit,
                    Some(request),
                    limit,
                );
            }
            for (field, amount) in
                [(ResourceField::Request, request), (ResourceField::Limit, limit)]
            {
                if let Some(negative) = amount.filter(|amount| amount.is_negative()) {
                    add(&resource, field, CapRule::MinAllowed, Some(negative), Quantity::ZERO);
                }
            }
        }
        if let Some(range) = &ranges.container {
            let rules = (CapRule::RangeMin, CapRule::RangeMax);
            check_bounds(requests, limits, range, rules, add);
        }
    }
    if let Some(range) = &ranges.pod {
        let totals = PodTotals::new(pod, sizes);
        let rules = (CapRule::PodRangeMin, CapRule::PodRangeMax);
        check_bounds(
            &totals.requests,
            &totals.limits,
            range,
            rules,
            |resource, field, rule, amount, bound| {
                let (container, resource) = (None, resource.clone());
                found.push(Violation { container, resource, field, rule, found: amount, bound });
            },
        );
    }
    found
}

/// Rejects sizes that the API server would reject, if it would accept the unchanged pod: an unsized pod is better than
/// none.
pub fn ensure_accepted(
    pod: &Pod,
    sizes: &[SizedContainer],
    ranges: &NamespaceLimitRanges,
) -> Result<(), SizingError> {
    let Some(violation) = violations(pod, sizes, ranges).into_iter().next() else { return Ok(()) };
    if violations(pod, &[], ranges).is_empty() {
        return Err(SizingError::WouldBeRejected { violation });
    }
    Ok(())
}

/// Rejects sizes that would change the QoS class of a running pod, which is not allowed.
pub fn ensure_same_qos_class(pod: &Pod, sizes: &[SizedContainer]) -> Result<(), SizingError> {
    let (from, to) = (pod.qos(), qos_with(pod, sizes));
    if from == to { Ok(()) } else { Err(SizingError::QosWouldChange { from, to }) }
}

/// The request must be set and reach a minimum, and so must the limit if it is set. A maximum requires a limit.
fn check_bounds(
    requests: &ResourceList,
    limits: &ResourceList,
    range: &MergedLimitRange,
    (min_rule, max_rule): (CapRule, CapRule),
    mut add: impl FnMut(&ResourceName, ResourceField, CapRule, Option<Quantity>, Quantity),
) {
    for resource in [ResourceName::Cpu, ResourceName::Memory] {
        let (request, limit) = (requests.get(&resource), limits.get(&resource));
        if let Some(min) = range.min(&resource) {
            if request.is_none_or(|request| request < min) {
                add(&resource, ResourceField::Request, min_rule, request, min);
            }
            if limit.is_some_and(|limit| limit < min) {
                add(&resource, ResourceField::Limit, min_rule, limit, min);
            }
        }
        if let Some(max) = range.max(&resource) {
            if limit.is_none_or(|limit| limit > max) {
                add(&resource, ResourceField::Limit, max_rule, limit, max);
            }
            if request.is_some_and(|request| request > max) {
                add(&resource, ResourceField::Request, max_rule, request, max);
            }
        }
        if let Some(ratio) = range.max_limit_request_ratio(&resource) {
            let times = |request: Quantity| request.nanos().saturating_mul(ratio.nanos());
            let one = Quantity::from_units(1, Format::DecimalSi).nanos();
            let holds = match (request, limit) {
                (Some(request), Some(limit)) => {
                    !request.is_zero() && limit.nanos().saturating_mul(one) <= times(request)
                }
                _ => false,
            };
            if !holds {
                add(&resource, ResourceField::Limit, CapRule::LimitRequestRatio, limit, ratio);
            }
        }
    }
}
