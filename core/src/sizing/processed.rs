//! The recommendation that one pod can have: held to LimitRanges, to the policy, and to limits that stay.

use std::collections::HashMap;

use super::{
    cap::Bounds,
    capacity,
    limits::Original,
    lookup::Lookup,
    plan::{LimitPolicy, Plan, Policies, Rules},
    pod::{Place, Pod},
    pod_range::{self, Number, Told},
    range::Ranges,
    reason::{Reason, Refusal},
    settle::{Entry, settle},
};
use crate::{
    api::{ResourceList, ResourceName, vpa::ContainerRecommendation},
    types::compat::Fix,
};

/// What is recommended for one container of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Processed {
    /// Where it stands.
    pub place: Place,
    /// Its numbers.
    pub said: ContainerRecommendation,
    /// What happened to the target on the way, in this order.
    pub reasons: Vec<Reason>,
}

static NO_DEFAULTS: ResourceList = ResourceList::EMPTY;

/// Holds a recommendation to all that holds for a pod. Nothing if nothing is recommended and no policy is given.
/// Containers that the pod does not have are left out.
pub fn processed(
    pod: &Pod,
    plan: &Plan<'_>,
    ranges: &Ranges,
    rules: Rules,
) -> Result<Option<Vec<Processed>>, Refusal> {
    capacity::check(pod, plan)?;
    let entries = entries(pod, plan, ranges, rules, Wanted::All)?;
    let processed = |Entry { place, said, reasons, .. }| Processed { place, said, reasons };
    Ok(entries.map(|entries| entries.into_iter().map(processed).collect()))
}

/// Which numbers of a recommendation are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of them.
    All,
    /// The targets: enough for who sizes a pod. The others are not held to anything, and may be missing.
    Targets,
}

/// The same, with what each container is held to.
pub(super) fn entries<'a>(
    pod: &'a Pod,
    plan: &Plan<'a>,
    ranges: &'a Ranges,
    rules: Rules,
    wanted: Wanted,
) -> Result<Option<Vec<Entry<'a>>>, Refusal> {
    if plan.recommendation.is_none() && plan.spec.resource_policy.is_none() {
        return Ok(None);
    }
    // Sums of a pod can be refused for any of the numbers.
    let all = wanted == Wanted::All || ranges.pod.is_some();
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
    let mut told: HashMap<usize, Vec<Reason>> = HashMap::new();
    for (index, reason) in hold_sums(&mut said, pod, plan, ranges, rules)? {
        told.entry(index).or_default().push(reason);
    }
    let containers = || pod.sized(rules.sidecars).map(|(place, one)| (&*one.name, (place, one)));
    let count = pod.containers.len() + pod.init_containers.len();
    let by_name = Lookup::new(count, containers());
    let policies = Policies::of(plan);
    let mut entries = Vec::with_capacity(said.len());
    for (index, mut said) in said.into_iter().enumerate() {
        let Some((place, container)) = by_name.get(&*said.container_name, containers()) else {
            continue;
        };
        let (actual, range) = (container.actual(), ranges.container.as_ref());
        let original = Original {
            requests: actual.requests(),
            limits: actual.limits(),
            defaults: range.map_or(&NO_DEFAULTS, |range| &range.default),
        };
        let policy = policies.get(&said.container_name);
        let bounds = Bounds { original, range, policy, limits: plan.limits_by(policy), rules };
        let mut reasons = told.remove(&index).unwrap_or_default();
        reasons.extend(bounds.hold(&mut said.target));
        bounds.hold(&mut said.lower_bound);
        bounds.hold(&mut said.upper_bound);
        entries.push(Entry { place, bounds, said, reasons });
    }
    settle(&mut entries, pod, ranges.pod.as_ref(), rules);
    Ok(Some(entries))
}

fn hold_sums(
    said: &mut Vec<ContainerRecommendation>,
    pod: &Pod,
    plan: &Plan<'_>,
    ranges: &Ranges,
    rules: Rules,
) -> Result<Vec<Told>, Refusal> {
    // One factor for all is right only where limits keep their ratio; otherwise the sums are settled afterwards, by the
    // limits that will be written.
    if plan.limits != LimitPolicy::Ratio && rules.fixes.has(Fix::PodRangeIsMet) {
        return Ok(Vec::new());
    }
    let spares = rules.fixes.has(Fix::PodRangeSparesOthers);
    let mut told = Vec::new();
    if let Some(range) = ranges.pod.as_ref().filter(|range| spares || range.is_seen_upstream()) {
        pod_range::add_unrecommended(said, pod, rules);
        for number in Number::ALL {
            for resource in [ResourceName::Cpu, ResourceName::Memory] {
                told.extend(pod_range::hold(said, pod, range, &resource, number, rules)?);
            }
        }
    }
    Ok(told)
}
