//! Caps the recommendation of one pod to LimitRanges, container policies, and limits that do not change.

use std::collections::HashMap;

use super::{
    limit_policy::CurrentResources,
    limit_range::NamespaceLimitRanges,
    lookup::first_by_key,
    pod::{ContainerRef, Pod},
    pod_constraints::{CappedContainer, enforce_pod_constraints},
    pod_limit_range::{self, CapReason, RecommendationField},
    reason::{SizingError, SizingReason},
    resource_bounds::ResourceBounds,
    shared_requests, size_limits,
    sizing_spec::{ContainerPolicies, LimitPolicy, SizingRules, SizingSpec},
};
use crate::{
    api::{ResourceList, ResourceName, vpa::ContainerRecommendation},
    types::compat::Fix,
};

#[derive(Clone, Debug, PartialEq)]
pub struct CappedRecommendation {
    /// Position of the container in the pod.
    pub container: ContainerRef,
    pub recommendation: ContainerRecommendation,
    /// The adjustments of the target, in order.
    pub reasons: Vec<SizingReason>,
}

static NO_DEFAULTS: ResourceList = ResourceList::EMPTY;

/// Caps the recommendation of a VPA for one pod. `None` if the VPA has neither a recommendation nor a resource policy.
/// Containers that the pod does not have are skipped.
pub fn cap_recommendation(
    pod: &Pod,
    sizing_spec: &SizingSpec<'_>,
    ranges: &NamespaceLimitRanges,
    rules: SizingRules,
) -> Result<Option<Vec<CappedRecommendation>>, SizingError> {
    size_limits::check_size(pod, sizing_spec)?;
    let entries = capped_containers(pod, sizing_spec, ranges, rules, FieldSelection::All)?;
    let capped = |CappedContainer { container, recommendation, reasons, .. }| {
        CappedRecommendation { container, recommendation, reasons }
    };
    Ok(entries.map(|entries| entries.into_iter().map(capped).collect()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldSelection {
    All,
    /// Only the targets, which is enough to size a pod. Other fields are not capped and may be missing.
    TargetsOnly,
}

/// Like [`cap_recommendation`], with the bounds of each container.
pub(super) fn capped_containers<'a>(
    pod: &'a Pod,
    sizing_spec: &SizingSpec<'a>,
    ranges: &'a NamespaceLimitRanges,
    rules: SizingRules,
    wanted: FieldSelection,
) -> Result<Option<Vec<CappedContainer<'a>>>, SizingError> {
    if sizing_spec.recommendation.is_none() && sizing_spec.spec.resource_policy.is_none() {
        return Ok(None);
    }
    // Capping the pod totals can fail for any field.
    let needs_all = wanted == FieldSelection::All || ranges.pod.is_some();
    let copied = |recommendation: &ContainerRecommendation| {
        if needs_all {
            return recommendation.clone();
        }
        ContainerRecommendation {
            container_name: recommendation.container_name.clone(),
            target: recommendation.target.clone(),
            ..ContainerRecommendation::default()
        }
    };
    let recommendations = sizing_spec
        .recommendation
        .map(|status| status.container_recommendations.iter().map(copied));
    let mut recommendations: Vec<ContainerRecommendation> =
        recommendations.into_iter().flatten().collect();
    let mut pod_reasons: HashMap<usize, Vec<SizingReason>> = HashMap::new();
    let shared = sizing_spec.shared_requests;
    for (index, reason) in shared_requests::apply(&mut recommendations, pod, shared, rules) {
        pod_reasons.entry(index).or_default().push(reason);
    }
    for (index, reason) in cap_pod_sums(&mut recommendations, pod, sizing_spec, ranges, rules)? {
        pod_reasons.entry(index).or_default().push(reason);
    }
    let containers = pod.sized_containers(rules.sidecars);
    let by_name = first_by_key(containers.map(|(at, sized)| (&*sized.name, (at, sized))));
    let policies = ContainerPolicies::new(sizing_spec);
    let mut entries = Vec::with_capacity(recommendations.len());
    for (index, mut recommendation) in recommendations.into_iter().enumerate() {
        let found = by_name.get(&*recommendation.container_name);
        let Some(&(container_ref, container)) = found else { continue };
        let (actual, range) = (container.actual(), ranges.container.as_ref());
        let original = CurrentResources {
            requests: actual.requests(),
            limits: actual.limits(),
            defaults: range.map_or(&NO_DEFAULTS, |range| &range.default),
        };
        let policy = policies.get(&recommendation.container_name);
        let bounds = ResourceBounds {
            current: original,
            limit_range: range,
            policy,
            limit_policy: sizing_spec.limit_policy_by(policy),
            rules,
        };
        let mut reasons = pod_reasons.remove(&index).unwrap_or_default();
        reasons.extend(bounds.clamp(&mut recommendation.target));
        bounds.clamp(&mut recommendation.lower_bound);
        bounds.clamp(&mut recommendation.upper_bound);
        entries.push(CappedContainer { container: container_ref, bounds, recommendation, reasons });
    }
    enforce_pod_constraints(&mut entries, pod, ranges.pod.as_ref(), rules);
    Ok(Some(entries))
}

fn cap_pod_sums(
    recommendations: &mut Vec<ContainerRecommendation>,
    pod: &Pod,
    sizing_spec: &SizingSpec<'_>,
    ranges: &NamespaceLimitRanges,
    rules: SizingRules,
) -> Result<Vec<CapReason>, SizingError> {
    // One factor for all containers is correct only if limits keep their ratio. Otherwise enforce_pod_constraints adjusts
    // the totals, based on the limits that will be written.
    if sizing_spec.limit_policy != LimitPolicy::Ratio && rules.fixes.has(Fix::PodRangeIsMet) {
        return Ok(Vec::new());
    }
    let spares = rules.fixes.has(Fix::PodRangeSparesOthers);
    let mut reasons = Vec::new();
    if let Some(range) = ranges.pod.as_ref().filter(|range| spares || range.is_used_upstream()) {
        pod_limit_range::add_unrecommended(recommendations, pod, rules);
        for field in RecommendationField::ALL {
            for resource in [ResourceName::Cpu, ResourceName::Memory] {
                reasons.extend(pod_limit_range::scale_field(
                    recommendations,
                    pod,
                    range,
                    &resource,
                    field,
                    rules,
                )?);
            }
        }
    }
    Ok(reasons)
}
