//! What the API server would not accept: a pod outside of its namespace's LimitRanges, or one that requests more than
//! its limits.

use std::{fmt, sync::Arc};

use serde::Serialize;

use super::{
    demand::{Demand, fitted},
    pod::Pod,
    range::{Range, Ranges},
    reason::{Field, Refusal, Rule},
    sizes::{Size, qos_with},
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
    pub field: Field,
    /// What it breaks.
    pub rule: Rule,
    /// What it is; nothing where it is not there, and has to be.
    pub found: Option<Quantity>,
    /// What it is held against.
    pub bound: Quantity,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = match self.field {
            Field::Request => "request",
            Field::Limit => "limit",
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
pub fn violations(pod: &Pod, sizes: &[Size], ranges: &Ranges) -> Vec<Violation> {
    let mut found = Vec::new();
    for one in fitted(pod, sizes) {
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
                add(&resource, Field::Request, Rule::ContainerLimit, Some(request), limit);
            }
            for (field, it) in [(Field::Request, request), (Field::Limit, limit)] {
                if let Some(negative) = it.filter(|it| it.is_negative()) {
                    add(&resource, field, Rule::MinAllowed, Some(negative), Quantity::ZERO);
                }
            }
        }
        if let Some(range) = &ranges.container {
            let rules = (Rule::RangeMin, Rule::RangeMax);
            check(requests, limits, range, rules, add);
        }
    }
    if let Some(range) = &ranges.pod {
        let demand = Demand::of(pod, sizes);
        let rules = (Rule::PodRangeMin, Rule::PodRangeMax);
        check(
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
pub fn acceptable(pod: &Pod, sizes: &[Size], ranges: &Ranges) -> Result<(), Refusal> {
    let Some(violation) = violations(pod, sizes, ranges).into_iter().next() else { return Ok(()) };
    if violations(pod, &[], ranges).is_empty() {
        return Err(Refusal::WouldBeRejected { violation });
    }
    Ok(())
}

/// Refuses sizes that a running pod cannot be given in place, because another class of service would come of them.
pub fn keeps_class(pod: &Pod, sizes: &[Size]) -> Result<(), Refusal> {
    let (from, to) = (pod.qos(), qos_with(pod, sizes));
    if from == to { Ok(()) } else { Err(Refusal::QosWouldChange { from, to }) }
}

/// A minimum must be reached by the request, and by the limit where there is one. A maximum needs a limit.
fn check(
    requests: &ResourceList,
    limits: &ResourceList,
    range: &Range,
    (min_rule, max_rule): (Rule, Rule),
    mut add: impl FnMut(&ResourceName, Field, Rule, Option<Quantity>, Quantity),
) {
    for resource in [ResourceName::Cpu, ResourceName::Memory] {
        let (request, limit) = (requests.get(&resource), limits.get(&resource));
        if let Some(min) = range.min(&resource) {
            if request.is_none_or(|request| request < min) {
                add(&resource, Field::Request, min_rule, request, min);
            }
            if limit.is_some_and(|limit| limit < min) {
                add(&resource, Field::Limit, min_rule, limit, min);
            }
        }
        if let Some(max) = range.max(&resource) {
            if limit.is_none_or(|limit| limit > max) {
                add(&resource, Field::Limit, max_rule, limit, max);
            }
            if request.is_some_and(|request| request > max) {
                add(&resource, Field::Request, max_rule, request, max);
            }
        }
        if let Some(ratio) = range.ratio(&resource) {
            let times = |request: Quantity| request.nanos().saturating_mul(ratio.nanos());
            let one = Quantity::whole(1, Format::DecimalSi).nanos();
            let holds = match (request, limit) {
                (Some(request), Some(limit)) => {
                    !request.is_zero() && limit.nanos().saturating_mul(one) <= times(request)
                }
                _ => false,
            };
            if !holds {
                add(&resource, Field::Limit, Rule::LimitRequestRatio, limit, ratio);
            }
        }
    }
}
