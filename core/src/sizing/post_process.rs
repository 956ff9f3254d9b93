//! The recommendation that one pod can have: held to LimitRanges, to the policy, and to limits that stay.

use std::collections::HashMap;

use super::{
    limit_policy::CurrentResources,
    limit_range::NamespaceLimitRanges,
    lookup::Lookup,
    pod::{ContainerRef, Pod},
    pod_constraints::{CappedContainer, enforce_pod_constraints},
    pod_limit_range::{self, CapReason, RecommendationField},
    reason::{SizingError, SizingReason},
    resource_bounds::ResourceBounds,
    size_limits,
    sizing_spec::{ContainerPolicies, LimitPolicy, SizingRules, SizingSpec},
};
use crate::{
    api::{ResourceList, ResourceName, vpa::ContainerRecommendation},
    types::compat::Fix,
};

/// What is recommended for one container of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct CappedRecommendation {
    /// Where it stands.
    pub container: ContainerRef,
    /// Its numbers.
    pub recommendation: ContainerRecommendation,
    /// What happened to the target on the way, in this order.
    pub reasons: Vec<SizingReason>,
}

static NO_DEFAULTS: ResourceList = ResourceList::EMPTY;

/// Holds a recommendation to all that holds for a pod. Nothing if nothing is recommended and no policy is given.
/// Containers that the pod does not have are left out.
pub fn cap_recommendation(
    pod: &Pod,
    plan: &SizingSpec<'_>,
    ranges: &NamespaceLimitRanges,
    rules: SizingRules,
) -> Result<Option<Vec<CappedRecommendation>>, SizingError> {
    size_limits::check_size(pod, plan)?;
    let entries = capped_containers(pod, plan, ranges, rules, FieldSelection::All)?;
    let processed =
        |CappedContainer { container: place, recommendation: said, reasons, .. }| {
            CappedRecommendation { container: place, recommendation: said, reasons }
        };
    Ok(entries.map(|entries| entries.into_iter().map(processed).collect()))
}

/// Which numbers of a recommendation are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldSelection {
    /// All of them.
    All,
    /// The targets: enough for who sizes a pod. The others are not held to anything, and may be missing.
    TargetsOnly,
}

/// The same, with what each container is held to.
pub(super) fn capped_containers<'a>(
    pod: &'a Pod,
    plan: &SizingSpec<'a>,
    ranges: &'a NamespaceLimitRanges,
    rules: SizingRules,
    wanted: FieldSelection,
) -> Result<Option<Vec<CappedContainer<'a>>>, SizingError> {
    if plan.recommendation.is_none() && plan.spec.resource_policy.is_none() {
        return Ok(None);
    }
    // Sums of a pod can be refused for any of the numbers.
    let all = wanted == FieldSelection::All || ranges.pod.is_some();
    let copied = |one: &ContainerRecommendation| {
        if all {
            return one.clone();
        }
        ContainerRecommendation {
            container_name: one.container_name.clone(),
            target: one.target.clone(),
            ..ContainerRecommendation::default()
        }
    };
    let said = plan.recommendation.map(|it| it.container_recommendations.iter().map(copied));
    let mut said: Vec<ContainerRecommendation> = said.into_iter().flatten().collect();
    let mut told: HashMap<usize, Vec<SizingReason>> = HashMap::new();
    for (index, reason) in cap_pod_sums(&mut said, pod, plan, ranges, rules)? {
        told.entry(index).or_default().push(reason);
    }
    let containers =
        || pod.sized_containers(rules.sidecars).map(|(place, one)| (&*one.name, (place, one)));
    let count = pod.containers.len() + pod.init_containers.len();
    let by_name = Lookup::new(count, containers());
    let policies = ContainerPolicies::new(plan);
    let mut entries = Vec::with_capacity(said.len());
    for (index, mut said) in said.into_iter().enumerate() {
        let Some((place, container)) = by_name.get(&*said.container_name, containers()) else {
            continue;
        };
        let (actual, range) = (container.actual(), ranges.container.as_ref());
        let original = CurrentResources {
            requests: actual.requests(),
            limits: actual.limits(),
            defaults: range.map_or(&NO_DEFAULTS, |range| &range.default),
        };
        let policy = policies.get(&said.container_name);
        let bounds = ResourceBounds {
            current: original,
            limit_range: range,
            policy,
            limit_policy: plan.limit_policy_by(policy),
            rules,
        };
        let mut reasons = told.remove(&index).unwrap_or_default();
        reasons.extend(bounds.clamp(&mut said.target));
        bounds.clamp(&mut said.lower_bound);
        bounds.clamp(&mut said.upper_bound);
        entries.push(CappedContainer { container: place, bounds, recommendation: said, reasons });
    }
    enforce_pod_constraints(&mut entries, pod, ranges.pod.as_ref(), rules);
    Ok(Some(entries))
}

fn cap_pod_sums(
    said: &mut Vec<ContainerRecommendation>,
    pod: &Pod,
    plan: &SizingSpec<'_>,
    ranges: &NamespaceLimitRanges,
    rules: SizingRules,
) -> Result<Vec<CapReason>, SizingError> {
    // One factor for all is right only where limits keep their ratio; otherwise the sums are settled afterwards, by the
    // limits that will be written.
    if plan.limit_policy != LimitPolicy::Ratio && rules.fixes.has(Fix::PodRangeIsMet) {
        return Ok(Vec::new());
    }
    let spares = rules.fixes.has(Fix::PodRangeSparesOthers);
    let mut told = Vec::new();
    if let Some(range) = ranges.pod.as_ref().filter(|range| spares || range.is_used_upstream()) {
        pod_limit_range::add_unrecommended(said, pod, rules);
        for number in RecommendationField::ALL {
            for resource in [ResourceName::Cpu, ResourceName::Memory] {
                told.extend(pod_limit_range::scale_field(
                    said, pod, range, &resource, number, rules,
                )?);
            }
        }
    }
    Ok(told)
}
