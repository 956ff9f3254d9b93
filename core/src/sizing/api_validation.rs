//! What the API server would not accept: a pod outside of its namespace's LimitRanges, or one that requests more than
//! its limits.

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

/// One thing that would not be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// The container; nothing for the pod as a whole.
    pub container: Option<Arc<str>>,
    /// The resource.
    pub resource: ResourceName,
    /// The request or the limit.
    pub field: ResourceField,
    /// What it breaks.
    pub rule: CapRule,
    /// What it is; nothing where it is not there, and has to be.
    pub found: Option<Quantity>,
    /// What it is held against.
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

/// All that would not be accepted of a pod with these sizes.
pub fn violations(
    pod: &Pod,
    sizes: &[SizedContainer],
    ranges: &NamespaceLimitRanges,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for one in resized_containers(pod, sizes) {
        let (requests, limits) = (one.resources.requests(), one.resources.limits());
        let name = Some(Arc::clone(&one.container.name));
        let mut add = |resource: &ResourceName, field, rule, it, bound| {
            let (container, resource) = (name.clone(), resource.clone());
            found.push(Violation { container, resource, field, rule, found: it, bound });
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
            for (field, it) in [(ResourceField::Request, request), (ResourceField::Limit, limit)] {
                if let Some(negative) = it.filter(|it| it.is_negative()) {
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
        let demand = PodTotals::new(pod, sizes);
        let rules = (CapRule::PodRangeMin, CapRule::PodRangeMax);
        check_bounds(
            &demand.requests,
            &demand.limits,
            range,
            rules,
            |resource, field, rule, it, bound| {
                let resource = resource.clone();
                found.push(Violation { container: None, resource, field, rule, found: it, bound });
            },
        );
    }
    found
}

/// Refuses sizes that the API server would not accept, if it would accept the pod as it is: better a pod without them
/// than none.
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

/// Refuses sizes that a running pod cannot be given in place, because another class of service would come of them.
pub fn ensure_same_qos_class(pod: &Pod, sizes: &[SizedContainer]) -> Result<(), SizingError> {
    let (from, to) = (pod.qos(), qos_with(pod, sizes));
    if from == to { Ok(()) } else { Err(SizingError::QosWouldChange { from, to }) }
}

/// A minimum must be reached by the request, and by the limit where there is one. A maximum needs a limit.
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
