//! Adjusts capped containers to the constraints of their pod: the LimitRange for pods, and the QoS class.

use super::{
    limit_range::MergedLimitRange,
    lookup::first_by_key,
    pod::{ContainerRef, Pod, QosClass, Resources},
    proportional::{quantity_from_units, to_units},
    reason::{CapRule, SizingReason},
    resource_bounds::ResourceBounds,
    sizing_spec::{LimitPolicy, SizingRules},
};
use crate::{
    api::{ResourceList, ResourceName, vpa::ContainerRecommendation},
    types::{
        compat::Fix,
        quantity::{Format, Quantity},
    },
};

#[derive(Clone, Debug)]
pub struct CappedContainer<'a> {
    /// Position of the container in the pod.
    pub container: ContainerRef,
    pub bounds: ResourceBounds<'a>,
    pub recommendation: ContainerRecommendation,
    /// The adjustments of the target, in order.
    pub reasons: Vec<SizingReason>,
}

impl CappedContainer<'_> {
    /// Applies the target, and the limits that follow from it, to the resources of a spec.
    pub fn resources(&self, spec: &Resources) -> Resources {
        let mut resources = spec.clone();
        let target = &self.recommendation.target;
        resources.requests.get_or_insert_default().merge(target, |_, amount| amount);
        for resource in [ResourceName::Cpu, ResourceName::Memory] {
            if let (Some(limit), _) =
                self.bounds.limit_for_request(&resource, target.get(&resource))
            {
                resources.limits.get_or_insert_default().insert(resource, limit);
            }
        }
        resources
    }

    fn set_target(&mut self, resource: &ResourceName, rule: CapRule, to: i64) {
        let Some(from) = self.recommendation.target.get(resource) else { return };
        let to = quantity_from_units(resource, to, from.format());
        if to == from {
            return;
        }
        self.reasons.push(SizingReason::capped_request(resource, rule, from, to));
        self.recommendation.target.insert(resource.clone(), to);
        // A target outside its own bounds would cause endless updates of the pod.
        for (bound, is_crossed) in [
            (
                &mut self.recommendation.lower_bound,
                Quantity::gt as fn(&Quantity, &Quantity) -> bool,
            ),
            (&mut self.recommendation.upper_bound, Quantity::lt),
        ] {
            if bound.get(resource).is_some_and(|bound| is_crossed(&bound, &to)) {
                bound.insert(resource.clone(), to);
            }
        }
    }
}

/// What one container adds to the totals of its pod.
struct ContainerShare<'a> {
    /// If the target can change: the index of the container, the target, its minimum and its maximum.
    movable: Option<(usize, i64, i64, i64)>,
    bounds: Option<&'a ResourceBounds<'a>>,
    request: i64,
    limit: Option<i64>,
}

impl ContainerShare<'_> {
    /// The request if the recommendation is scaled by `share / of`.
    fn request_at(&self, share: i128, of: i128) -> i64 {
        let Some((_, now, least, most)) = self.movable else { return self.request };
        let scaled = i128::from(now).saturating_mul(share) / of;
        i64::try_from(scaled).unwrap_or(i64::MAX).clamp(least, most.max(least))
    }

    fn limit_at(&self, resource: &ResourceName, request: i64) -> Option<i64> {
        let (Some(_), Some(bounds)) = (self.movable, self.bounds) else { return self.limit };
        let wanted = quantity_from_units(resource, request, Format::DecimalSi);
        let written = bounds.limit_for_request(resource, Some(wanted)).0;
        written.map(|limit| to_units(resource, limit)).or(self.limit)
    }
}

/// The total requests and limits of a pod.
#[derive(Clone, Copy)]
struct PodSums {
    requests: i128,
    limits: i128,
    limited_containers: usize,
}

impl PodSums {
    fn of(parts: &[ContainerShare<'_>], resource: &ResourceName, requests: &[i64]) -> Self {
        let mut sums = Self { requests: 0, limits: 0, limited_containers: 0 };
        for (part, &request) in parts.iter().zip(requests) {
            sums.add(part, resource, request);
        }
        sums
    }

    fn add(&mut self, part: &ContainerShare<'_>, resource: &ResourceName, request: i64) {
        self.requests += i128::from(request);
        if let Some(limit) = part.limit_at(resource, request) {
            self.limits += i128::from(limit);
            self.limited_containers += 1;
        }
    }

    fn remove(&mut self, part: &ContainerShare<'_>, resource: &ResourceName, request: i64) {
        self.requests -= i128::from(request);
        if let Some(limit) = part.limit_at(resource, request) {
            self.limits -= i128::from(limit);
            self.limited_containers -= 1;
        }
    }

    fn fits_max(&self, max: i128) -> bool {
        self.requests <= max && (self.limited_containers == 0 || self.limits <= max)
    }

    fn reaches_min(&self, min: i128) -> bool {
        self.requests >= min && (self.limited_containers == 0 || self.limits >= min)
    }
}

/// Scales targets, each within its own bounds, until the totals are within the range. Does nothing if that is
/// impossible.
pub fn enforce_pod_limit_range(
    entries: &mut [CappedContainer<'_>],
    pod: &Pod,
    range: &MergedLimitRange,
    sidecars: bool,
) {
    for resource in [ResourceName::Cpu, ResourceName::Memory] {
        let bound =
            |amount: Option<Quantity>| amount.map(|amount| i128::from(to_units(&resource, amount)));
        let (min, max) = (bound(range.min(&resource)), bound(range.max(&resource)));
        let Some((requests, rule)) =
            adjusted_targets(entries, pod, &resource, (min, max), sidecars)
        else {
            continue;
        };
        for (index, request) in requests {
            entries[index].set_target(&resource, rule, request);
        }
    }
}

/// The new targets by container, and the rule that changes them; `None` if none has to change, or none can.
fn adjusted_targets(
    entries: &[CappedContainer<'_>],
    pod: &Pod,
    resource: &ResourceName,
    (min, max): (Option<i128>, Option<i128>),
    sidecars: bool,
) -> Option<(Vec<(usize, i64)>, CapRule)> {
    let by_ref = first_by_key(
        entries.iter().enumerate().map(|(index, entry)| (entry.container, (index, entry))),
    );
    let parts: Vec<ContainerShare<'_>> = pod
        .sized_containers(sidecars)
        .map(|(container_ref, container)| {
            let entry = by_ref.get(&container_ref);
            let actual = container.actual();
            let units =
                |list: &ResourceList| list.get(resource).map(|amount| to_units(resource, amount));
            let movable = entry.and_then(|&(index, entry)| {
                let target = to_units(resource, entry.recommendation.target.get(resource)?);
                let clamp = |amount| entry.bounds.clamp_units(resource, amount);
                Some((index, target, clamp(1), clamp(i64::MAX)))
            });
            let limit = units(actual.limits());
            let request = units(actual.requests()).or(limit).unwrap_or(0);
            ContainerShare {
                movable,
                bounds: entry.map(|(_, entry)| &entry.bounds),
                request,
                limit,
            }
        })
        .collect();
    let targets: Vec<i64> = parts
        .iter()
        .map(|part| part.movable.map_or(part.request, |(_, target, ..)| target))
        .collect();
    let sums = |requests: &[i64]| PodSums::of(&parts, resource, requests);
    let within = |requests: &[i64]| max.is_none_or(|max| sums(requests).fits_max(max));
    let reaches = |requests: &[i64]| min.is_none_or(|min| sums(requests).reaches_min(min));
    if within(&targets) && reaches(&targets) {
        return None;
    }
    let movable = parts.iter().filter_map(|part| part.movable);
    let total: i128 = movable.map(|(_, target, ..)| i128::from(target)).sum();
    if total <= 0 {
        return None;
    }
    let at = |share: i128| -> Vec<i64> {
        parts.iter().map(|part| part.request_at(share, total)).collect()
    };
    let (mut requests, rule) = if within(&targets) {
        // No container needs more than the minimum of the whole pod.
        let most = total.saturating_mul(min?.max(1)).saturating_add(total);
        let share = first_where(total, most, |share| reaches(&at(share)))?;
        if !within(&at(share)) {
            return None;
        }
        (at(share), CapRule::PodRangeMin)
    } else {
        if !within(&at(0)) {
            return None;
        }
        let share =
            first_where(0, total, |share| !within(&at(share))).map_or(total, |share| share - 1);
        (at(share), CapRule::PodRangeMax)
    };
    if rule == CapRule::PodRangeMax {
        // Give what rounding lost to containers below their target. The sums are updated, not recomputed for each.
        let mut current_sums = sums(&requests);
        for (part, request) in parts.iter().zip(&mut requests) {
            let Some((_, target, _, most)) = part.movable else { continue };
            if *request >= target.min(most) {
                continue;
            }
            let mut raised = current_sums;
            raised.remove(part, resource, *request);
            raised.add(part, resource, *request + 1);
            if max.is_none_or(|max| raised.fits_max(max)) {
                *request += 1;
                current_sums = raised;
            }
        }
    }
    let adjusted = parts.iter().zip(requests);
    let adjusted = adjusted.filter_map(|(part, request)| Some((part.movable?.0, request)));
    Some((adjusted.collect(), rule))
}

/// Binary search: the first number for which a monotonic predicate is true, if any.
fn first_where(from: i128, to: i128, predicate: impl Fn(i128) -> bool) -> Option<i128> {
    let (mut low, mut high) = (from, to);
    if !predicate(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if predicate(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(high)
}

/// Keeps one request below its limit if otherwise all requests would equal their limits and make the pod `Guaranteed`:
/// the QoS class of a running pod cannot change, so it could never be resized.
pub fn preserve_burstable_qos(entries: &mut [CappedContainer<'_>], pod: &Pod) {
    if pod.qos() != QosClass::Burstable {
        return;
    }
    let resized = entries.iter().filter_map(|entry| {
        Some((entry.container, entry.resources(&pod.container(entry.container)?.spec)))
    });
    if pod.qos_with(resized) != QosClass::Guaranteed {
        return;
    }
    for resource in [ResourceName::Cpu, ResourceName::Memory] {
        for entry in entries.iter_mut() {
            let Some(target) = entry.recommendation.target.get(&resource) else { continue };
            let less = to_units(&resource, target) - 1;
            let can_lower = entry.bounds.limit_policy == LimitPolicy::RequestsOnly
                && less > 0
                && entry.bounds.clamp_units(&resource, less) == less;
            if can_lower {
                entry.set_target(&resource, CapRule::QosClass, less);
                return;
            }
        }
    }
}

/// Applies the pod constraints whose fixes are enabled.
pub fn enforce_pod_constraints(
    entries: &mut [CappedContainer<'_>],
    pod: &Pod,
    range: Option<&MergedLimitRange>,
    rules: SizingRules,
) {
    if let Some(range) = range.filter(|_| rules.fixes.has(Fix::PodRangeIsMet)) {
        enforce_pod_limit_range(entries, pod, range, rules.sidecars);
    }
    if rules.fixes.has(Fix::RequestsOnlyStaysBurstable) {
        preserve_burstable_qos(entries, pod);
    }
}
