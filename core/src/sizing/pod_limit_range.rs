//! Caps the totals of a pod to the LimitRange for pods: all recommendations are scaled by one factor, as upstream does.

use std::{collections::HashSet, sync::Arc};

use super::{
    limit_policy::{CurrentResources, proportional_limit},
    limit_range::MergedLimitRange,
    lookup::first_by_key,
    pod::{Container, Pod},
    proportional::{ScaleRounding, quantity_from_units, scale},
    reason::{CapRule, SizingError, SizingReason},
    sizing_spec::SizingRules,
};
use crate::{
    api::{ResourceList, ResourceName, vpa::ContainerRecommendation},
    types::{compat::Fix, quantity::Quantity},
};

/// One of the three fields of a recommendation that are capped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecommendationField {
    /// `upperBound`.
    Upper,
    Target,
    /// `lowerBound`.
    Lower,
}

impl RecommendationField {
    /// In the order in which upstream caps them.
    pub const ALL: [Self; 3] = [Self::Upper, Self::Target, Self::Lower];

    pub fn amounts(self, recommendation: &ContainerRecommendation) -> &ResourceList {
        match self {
            Self::Upper => &recommendation.upper_bound,
            Self::Target => &recommendation.target,
            Self::Lower => &recommendation.lower_bound,
        }
    }

    /// Returns the amounts of the field for modification.
    pub fn amounts_mut(self, recommendation: &mut ContainerRecommendation) -> &mut ResourceList {
        match self {
            Self::Upper => &mut recommendation.upper_bound,
            Self::Target => &mut recommendation.target,
            Self::Lower => &mut recommendation.lower_bound,
        }
    }
}

/// Index of a recommendation, and why its target changed.
pub type CapReason = (usize, SizingReason);

/// Recommends its current requests to every container without a recommendation, as upstream does if there is a
/// LimitRange for pods.
pub fn add_unrecommended(
    recommendations: &mut Vec<ContainerRecommendation>,
    pod: &Pod,
    rules: SizingRules,
) {
    if rules.fixes.has(Fix::PodRangeSparesOthers) {
        return;
    }
    let names = recommendations.iter().map(|recommendation| &*recommendation.container_name);
    let mut known: HashSet<&str> = names.collect();
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
    recommendations.extend(more);
}

/// Scales one field for one resource, and returns which targets changed.
pub fn scale_field(
    recommendations: &mut [ContainerRecommendation],
    pod: &Pod,
    range: &MergedLimitRange,
    resource: &ResourceName,
    selected: RecommendationField,
    rules: SizingRules,
) -> Result<Vec<CapReason>, SizingError> {
    let spares_others = rules.fixes.has(Fix::PodRangeSparesOthers);
    let numbered = recommendations.iter().enumerate();
    let by_name = first_by_key(numbered.map(|(index, one)| (&*one.container_name, (index, one))));
    let shares: Vec<ContainerShare> = pod
        .sized_containers(rules.sidecars)
        .map(|(_, container)| {
            let recommendation = by_name.get(&*container.name).copied();
            ContainerShare::new(container, recommendation, range, resource, selected, spares_others)
        })
        .collect();
    let Some(factor) = ScalingFactor::find(&shares, range, resource, spares_others) else {
        return Ok(Vec::new());
    };
    let rounding = match factor.rounding {
        // Upstream rounds memory down here too, so the sum misses the minimum by some bytes.
        ScaleRounding::Up
            if !rules.fixes.has(Fix::PodRangeIsMet) && *resource != ResourceName::Cpu =>
        {
            ScaleRounding::Down
        }
        ScaleRounding::DownAtMostLess if spares_others => ScaleRounding::Down,
        other => other,
    };
    let mut reasons = Vec::new();
    for share in &shares {
        if spares_others && !share.is_scalable {
            continue;
        }
        let Some(index) = share.recommendation else {
            if factor.skips_unrecommended {
                continue;
            }
            return Err(SizingError::CrashesUpstream { container: Arc::clone(&share.container) });
        };
        let list = selected.amounts_mut(&mut recommendations[index]);
        if selected != RecommendationField::Target && list.is_empty() {
            return Err(SizingError::CrashesUpstream { container: Arc::clone(&share.container) });
        }
        let from = list.get(resource).unwrap_or_default();
        let mut to = scale(resource, from, factor.from, factor.to, rounding).amount;
        // Keep at least one unit: an amount of zero could not be scaled up again.
        if rules.fixes.has(Fix::PodRangeIsMet) && to.is_zero() && !from.is_zero() {
            to = quantity_from_units(resource, 1, from.format());
        }
        list.insert(resource.clone(), to);
        if selected == RecommendationField::Target && from != to {
            reasons.push((index, SizingReason::capped_request(resource, factor.rule, from, to)));
        }
    }
    Ok(reasons)
}

/// What one container adds to the totals of the pod.
struct ContainerShare {
    container: Arc<str>,
    /// Index of its recommendation, if it has one.
    recommendation: Option<usize>,
    /// Whether the resource is recommended, so that it can be scaled.
    is_scalable: bool,
    request: Quantity,
    limit: Option<Quantity>,
}

impl ContainerShare {
    fn new(
        container: &Container,
        recommendation: Option<(usize, &ContainerRecommendation)>,
        range: &MergedLimitRange,
        resource: &ResourceName,
        selected: RecommendationField,
        spares_others: bool,
    ) -> Self {
        let actual = container.actual();
        let original = CurrentResources {
            requests: actual.requests(),
            limits: actual.limits(),
            defaults: &range.default,
        };
        let recommended = recommendation
            .and_then(|(_, recommendation)| selected.amounts(recommendation).get(resource));
        let is_fixed = recommendation.is_none() || (spares_others && recommended.is_none());
        let request = if is_fixed { original.requests.get(resource) } else { recommended };
        let mut limit = proportional_limit(resource, &original, request).0;
        if spares_others && is_fixed {
            limit = original.limit(resource);
        }
        Self {
            container: Arc::clone(&container.name),
            recommendation: recommendation.map(|(index, _)| index),
            is_scalable: recommended.is_some(),
            request: request.unwrap_or_default(),
            limit,
        }
    }
}

/// The ratio by which all amounts are scaled, as `to / from`.
struct ScalingFactor {
    from: Quantity,
    to: Quantity,
    rounding: ScaleRounding,
    rule: CapRule,
    /// Whether containers without a recommendation are skipped.
    skips_unrecommended: bool,
}

impl ScalingFactor {
    fn find(
        shares: &[ContainerShare],
        range: &MergedLimitRange,
        resource: &ResourceName,
        spares_others: bool,
    ) -> Option<Self> {
        let min = range.min(resource).unwrap_or_default();
        let max = range.max(resource);
        let sum = |of: fn(&ContainerShare) -> Quantity, moving: bool| {
            let counted =
                shares.iter().filter(|share| !spares_others || share.is_scalable == moving);
            counted.map(of).fold(Quantity::ZERO, |sum, amount| sum + amount)
        };
        let request = |share: &ContainerShare| share.request;
        let limit = |share: &ContainerShare| share.limit.unwrap_or_default();
        let (requests, limits) = (sum(request, true), sum(limit, true));
        let zero = Quantity::ZERO;
        // Subtract the amounts that are not scaled from the bounds.
        let (fixed, fixed_limits) =
            if spares_others { (sum(request, false), sum(limit, false)) } else { (zero, zero) };
        let left =
            |bound: Quantity, fixed: Quantity| if bound > fixed { bound - fixed } else { zero };
        let too_much = max.is_some_and(|max| max < limits + fixed_limits);
        if min <= limits + fixed_limits && min <= requests + fixed && !too_much {
            return None;
        }
        if min > requests + fixed && !(limits + fixed_limits).is_zero() {
            return Some(Self {
                from: requests,
                to: left(min, fixed),
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
        // If the fixed amounts alone exceed the bound, scaling the others does not help.
        let to = Some(left(bound, fixed_limits)).filter(|left| !left.is_zero())?;
        let rounding = ScaleRounding::DownAtMostLess;
        Some(Self { from: limits, to, rounding, rule, skips_unrecommended: false })
    }
}
