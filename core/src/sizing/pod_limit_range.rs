//! Holds the sums of a pod to the namespace's LimitRange for pods: all recommendations are scaled by one factor.

use std::{collections::HashSet, sync::Arc};

use super::{
    limit_policy::{CurrentResources, proportional_limit},
    limit_range::MergedLimitRange,
    lookup::Lookup,
    pod::{Container, Pod},
    proportional::{ScaleRounding, quantity_from_units, scale},
    reason::{CapRule, ResourceField, SizingError, SizingReason},
    sizing_spec::SizingRules,
};
use crate::{
    api::{ResourceList, ResourceName, vpa::ContainerRecommendation},
    types::{compat::Fix, quantity::Quantity},
};

/// One of the three numbers of a recommendation that are held to rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecommendationField {
    /// Above this the pod could do with less.
    Upper,
    /// What to request.
    Target,
    /// Below this the pod should be given more.
    Lower,
}

impl RecommendationField {
    /// In the order in which upstream holds them.
    pub const ALL: [Self; 3] = [Self::Upper, Self::Target, Self::Lower];

    /// The amounts in a recommendation.
    pub fn amounts(self, said: &ContainerRecommendation) -> &ResourceList {
        match self {
            Self::Upper => &said.upper_bound,
            Self::Target => &said.target,
            Self::Lower => &said.lower_bound,
        }
    }

    /// The amounts in a recommendation, to be changed.
    pub fn amounts_mut(self, said: &mut ContainerRecommendation) -> &mut ResourceList {
        match self {
            Self::Upper => &mut said.upper_bound,
            Self::Target => &mut said.target,
            Self::Lower => &mut said.lower_bound,
        }
    }
}

/// Why the target of a container changed.
pub type CapReason = (usize, SizingReason);

/// Gives every container without a recommendation one of what it requests, as upstream does it where there is a
/// LimitRange for pods at all.
pub fn add_unrecommended(said: &mut Vec<ContainerRecommendation>, pod: &Pod, rules: SizingRules) {
    if rules.fixes.has(Fix::PodRangeSparesOthers) {
        return;
    }
    let mut known: HashSet<&str> = said.iter().map(|one| &*one.container_name).collect();
    let mut more = Vec::new();
    for (_, container) in pod.sized_containers(rules.sidecars) {
        let requests = container.actual().requests();
        if requests.is_empty() || !known.insert(&container.name) {
            continue;
        }
        more.push(ContainerRecommendation {
            container_name: container.name.to_string(),
            target: requests.clone(),
            ..ContainerRecommendation::default()
        });
    }
    said.extend(more);
}

/// Scales one number of one resource, and says which targets changed.
pub fn scale_field(
    said: &mut [ContainerRecommendation],
    pod: &Pod,
    range: &MergedLimitRange,
    resource: &ResourceName,
    number: RecommendationField,
    rules: SizingRules,
) -> Result<Vec<CapReason>, SizingError> {
    let spares = rules.fixes.has(Fix::PodRangeSparesOthers);
    let names = || said.iter().enumerate().map(|(index, one)| (&*one.container_name, index));
    let by_name = Lookup::new(said.len(), names());
    let parts: Vec<ContainerShare> = pod
        .sized_containers(rules.sidecars)
        .map(|(_, container)| {
            let own = by_name.get(&*container.name, names()).map(|index| (index, &said[index]));
            ContainerShare::new(container, own, range, resource, number, spares)
        })
        .collect();
    let Some(factor) = ScalingFactor::find(&parts, range, resource, spares) else {
        return Ok(Vec::new());
    };
    let rounding = match factor.rounding {
        // Of memory, upstream cuts off here too, and the sum misses the minimum by some bytes.
        ScaleRounding::Up
            if !rules.fixes.has(Fix::PodRangeIsMet) && *resource != ResourceName::Cpu =>
        {
            ScaleRounding::Down
        }
        ScaleRounding::DownAtMostLess if spares => ScaleRounding::Down,
        other => other,
    };
    let mut told = Vec::new();
    for share in &parts {
        if spares && !share.is_scalable {
            continue;
        }
        let Some(index) = share.recommendation else {
            if factor.skips_unrecommended {
                continue;
            }
            return Err(SizingError::CrashesUpstream { container: Arc::clone(&share.container) });
        };
        let list = number.amounts_mut(&mut said[index]);
        if number != RecommendationField::Target && list.is_empty() {
            return Err(SizingError::CrashesUpstream { container: Arc::clone(&share.container) });
        }
        let from = list.get(resource).unwrap_or_default();
        let mut to = scale(resource, from, factor.from, factor.to, rounding).amount;
        // Of nothing there is no share: what was cut off to nothing could never be settled.
        if rules.fixes.has(Fix::PodRangeIsMet) && to.is_zero() && !from.is_zero() {
            to = quantity_from_units(resource, 1, from.format());
        }
        list.insert(resource.clone(), to);
        if number == RecommendationField::Target && from != to {
            let (resource, field) = (resource.clone(), ResourceField::Request);
            told.push((
                index,
                SizingReason::Capped { resource, field, rule: factor.rule, from, to },
            ));
        }
    }
    Ok(told)
}

/// What one container adds to the sums.
struct ContainerShare {
    container: Arc<str>,
    /// Its recommendation, if it has one.
    recommendation: Option<usize>,
    /// Whether something is recommended that can be scaled.
    is_scalable: bool,
    request: Quantity,
    limit: Option<Quantity>,
}

impl ContainerShare {
    fn new(
        container: &Container,
        said: Option<(usize, &ContainerRecommendation)>,
        range: &MergedLimitRange,
        resource: &ResourceName,
        number: RecommendationField,
        spares: bool,
    ) -> Self {
        let actual = container.actual();
        let original = CurrentResources {
            requests: actual.requests(),
            limits: actual.limits(),
            defaults: &range.default,
        };
        let recommended = said.and_then(|(_, said)| number.amounts(said).get(resource));
        let stays = said.is_none() || (spares && recommended.is_none());
        let request = if stays { original.requests.get(resource) } else { recommended };
        let mut limit = proportional_limit(resource, &original, request).0;
        if spares && stays {
            limit = original.limit(resource);
        }
        Self {
            container: Arc::clone(&container.name),
            recommendation: said.map(|(index, _)| index),
            is_scalable: recommended.is_some(),
            request: request.unwrap_or_default(),
            limit,
        }
    }
}

/// By how much everything is scaled.
struct ScalingFactor {
    from: Quantity,
    to: Quantity,
    rounding: ScaleRounding,
    rule: CapRule,
    /// Whether containers without a recommendation are passed over.
    skips_unrecommended: bool,
}

impl ScalingFactor {
    fn find(
        parts: &[ContainerShare],
        range: &MergedLimitRange,
        resource: &ResourceName,
        spares: bool,
    ) -> Option<Self> {
        let min = range.min(resource).unwrap_or_default();
        let max = range.max(resource);
        let sum = |of: fn(&ContainerShare) -> Quantity, moving: bool| {
            let counted = parts.iter().filter(|share| !spares || share.is_scalable == moving);
            counted.map(of).fold(Quantity::ZERO, |sum, amount| sum + amount)
        };
        let request = |share: &ContainerShare| share.request;
        let limit = |share: &ContainerShare| share.limit.unwrap_or_default();
        let (requests, limits) = (sum(request, true), sum(limit, true));
        let none = Quantity::ZERO;
        // What stays is taken off the bounds.
        let (kept, kept_limits) =
            if spares { (sum(request, false), sum(limit, false)) } else { (none, none) };
        let left = |bound: Quantity, kept: Quantity| if bound > kept { bound - kept } else { none };
        let too_much = max.is_some_and(|max| max < limits + kept_limits);
        if min <= limits + kept_limits && min <= requests + kept && !too_much {
            return None;
        }
        if min > requests + kept && !(limits + kept_limits).is_zero() {
            return Some(Self {
                from: requests,
                to: left(min, kept),
                rounding: ScaleRounding::Up,
                rule: CapRule::PodRangeMin,
                skips_unrecommended: true,
            });
        }
        if limits.is_zero() {
            return None;
        }
        let (bound, rule) = match max.filter(|_| too_much) {
            Some(max) => (max, CapRule::PodRangeMax),
            None => (min, CapRule::PodRangeMin),
        };
        // Where what stays is too much by itself, nothing that is done to the others helps.
        let to = Some(left(bound, kept_limits)).filter(|left| !left.is_zero())?;
        let rounding = ScaleRounding::DownAtMostLess;
        Some(Self { from: limits, to, rounding, rule, skips_unrecommended: false })
    }
}
