//! Settles what single containers were held to with what holds for their pod: its sums, and its quality of service.

use super::{
    limit_range::MergedLimitRange,
    lookup::Lookup,
    pod::{ContainerRef, Pod, QosClass, Resources},
    proportional::{quantity_from_units, to_units},
    reason::{CapRule, ResourceField, SizingReason},
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

/// A container with its target, while that is settled.
#[derive(Clone, Debug)]
pub struct CappedContainer<'a> {
    /// Where it stands.
    pub container: ContainerRef,
    /// What it is held to.
    pub bounds: ResourceBounds<'a>,
    /// What is recommended for it.
    pub recommendation: ContainerRecommendation,
    /// What happened to the target.
    pub reasons: Vec<SizingReason>,
}

/// Where each entry stands in the pod, with its index.
pub fn container_indices(
    entries: &[CappedContainer<'_>],
) -> impl Iterator<Item = (ContainerRef, usize)> {
    entries.iter().enumerate().map(|(index, entry)| (entry.container, index))
}

impl CappedContainer<'_> {
    /// Requests and limits as the spec would have them.
    pub fn resources(&self, spec: &Resources) -> Resources {
        let mut resources = spec.clone();
        let requests = resources.requests.get_or_insert_default();
        for (resource, amount) in self.recommendation.target.iter() {
            requests.insert(resource.clone(), amount);
        }
        for resource in [ResourceName::Cpu, ResourceName::Memory] {
            if let (Some(limit), _) =
                self.bounds.limit_for_request(&resource, self.recommendation.target.get(&resource))
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
        let field = ResourceField::Request;
        self.reasons.push(SizingReason::Capped {
            resource: resource.clone(),
            field,
            rule,
            from,
            to,
        });
        self.recommendation.target.insert(resource.clone(), to);
        // A target outside of its own bounds would have its pod replaced again and again.
        for (bound, crosses) in [
            (
                &mut self.recommendation.lower_bound,
                Quantity::gt as fn(&Quantity, &Quantity) -> bool,
            ),
            (&mut self.recommendation.upper_bound, Quantity::lt),
        ] {
            if bound.get(resource).is_some_and(|bound| crosses(&bound, &to)) {
                bound.insert(resource.clone(), to);
            }
        }
    }
}

/// What one container adds to the sums of its pod.
struct ContainerShare<'a> {
    /// Its entry, where the target can move, with the least and the most that it can be.
    movable: Option<(usize, i64, i64, i64)>,
    bounds: Option<&'a ResourceBounds<'a>>,
    request: i64,
    limit: Option<i64>,
}

impl ContainerShare<'_> {
    /// The request at this share of the recommendation, as `share` parts `of` one.
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

/// The sums of a pod.
#[derive(Clone, Copy)]
struct PodSums {
    requests: i128,
    limits: i128,
    /// How many containers have a limit.
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

/// Moves targets, in proportion and within what each is held to, until the sums are inside of the range; not at all
/// where they cannot be.
pub fn enforce_pod_limit_range(
    entries: &mut [CappedContainer<'_>],
    pod: &Pod,
    range: &MergedLimitRange,
    sidecars: bool,
) {
    for resource in [ResourceName::Cpu, ResourceName::Memory] {
        let bound = |amount: Option<Quantity>| amount.map(|it| i128::from(to_units(&resource, it)));
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

type AdjustedTargets = (Vec<(usize, i64)>, CapRule);

fn adjusted_targets(
    entries: &[CappedContainer<'_>],
    pod: &Pod,
    resource: &ResourceName,
    (min, max): (Option<i128>, Option<i128>),
    sidecars: bool,
) -> Option<AdjustedTargets> {
    let by_place = Lookup::new(entries.len(), container_indices(entries));
    let parts: Vec<ContainerShare<'_>> = pod
        .sized_containers(sidecars)
        .map(|(place, container)| {
            let index = by_place.get(&place, container_indices(entries));
            let actual = container.actual();
            let count = |list: &ResourceList| list.get(resource).map(|it| to_units(resource, it));
            let entry = index.and_then(|index| Some((index, entries.get(index)?)));
            let moves = entry.and_then(|(index, entry)| {
                let now = to_units(resource, entry.recommendation.target.get(resource)?);
                let hold = |amount| entry.bounds.clamp_units(resource, amount);
                Some((index, now, hold(1), hold(i64::MAX)))
            });
            let limit = count(actual.limits());
            let request = count(actual.requests()).or(limit).unwrap_or(0);
            ContainerShare {
                movable: moves,
                bounds: entry.map(|(_, entry)| &entry.bounds),
                request,
                limit,
            }
        })
        .collect();
    let now: Vec<i64> =
        parts.iter().map(|part| part.movable.map_or(part.request, |(_, now, ..)| now)).collect();
    let sums = |requests: &[i64]| PodSums::of(&parts, resource, requests);
    let within = |requests: &[i64]| max.is_none_or(|max| sums(requests).fits_max(max));
    let reaches = |requests: &[i64]| min.is_none_or(|min| sums(requests).reaches_min(min));
    if within(&now) && reaches(&now) {
        return None;
    }
    let whole: i128 = parts.iter().filter_map(|it| it.movable).map(|it| i128::from(it.1)).sum();
    if whole <= 0 {
        return None;
    }
    let at = |share: i128| -> Vec<i64> {
        parts.iter().map(|part| part.request_at(share, whole)).collect()
    };
    let (mut requests, rule) = if within(&now) {
        // No container needs more than the whole minimum.
        let most = whole.saturating_mul(min?.max(1)).saturating_add(whole);
        let share = first_where(whole, most, |share| reaches(&at(share)))?;
        if !within(&at(share)) {
            return None;
        }
        (at(share), CapRule::PodRangeMin)
    } else {
        if !within(&at(0)) {
            return None;
        }
        let share =
            first_where(0, whole, |share| !within(&at(share))).map_or(whole, |share| share - 1);
        (at(share), CapRule::PodRangeMax)
    };
    if rule == CapRule::PodRangeMax {
        // What was lost by cutting off goes to whoever still can have it. The sums are kept, not taken anew for each.
        let mut kept = sums(&requests);
        for (part, request) in parts.iter().zip(&mut requests) {
            let Some((_, now, _, most)) = part.movable else { continue };
            if *request >= now.min(most) {
                continue;
            }
            let mut raised = kept;
            raised.remove(part, resource, *request);
            raised.add(part, resource, *request + 1);
            if max.is_none_or(|max| raised.fits_max(max)) {
                *request += 1;
                kept = raised;
            }
        }
    }
    let moved = parts.iter().zip(requests).filter_map(|(part, it)| Some((part.movable?.0, it)));
    Some((moved.collect(), rule))
}

/// The first number for which it is so, given that it stays so; nothing if it never is.
fn first_where(from: i128, to: i128, is_so: impl Fn(i128) -> bool) -> Option<i128> {
    let (mut low, mut high) = (from, to);
    if !is_so(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_so(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(high)
}

/// Keeps one request below its limit where all of them at their limits would make the pod another class: the class of a
/// running pod cannot change, so that it could never be resized.
pub fn preserve_burstable_qos(entries: &mut [CappedContainer<'_>], pod: &Pod) {
    if pod.qos() != QosClass::Burstable {
        return;
    }
    let wanted: Vec<(ContainerRef, Resources)> = entries
        .iter()
        .filter_map(|entry| {
            Some((entry.container, entry.resources(&pod.container(entry.container)?.spec)))
        })
        .collect();
    let pairs = || wanted.iter().map(|(place, resources)| (*place, resources));
    let by_place = Lookup::new(wanted.len(), pairs());
    if pod.qos_with(|place| by_place.get(&place, pairs())) != QosClass::Guaranteed {
        return;
    }
    for resource in [ResourceName::Cpu, ResourceName::Memory] {
        for entry in entries.iter_mut() {
            let Some(target) = entry.recommendation.target.get(&resource) else { continue };
            let less = to_units(&resource, target) - 1;
            let held = entry.bounds.limit_policy == LimitPolicy::RequestsOnly
                && less > 0
                && entry.bounds.clamp_units(&resource, less) == less;
            if held {
                entry.set_target(&resource, CapRule::QosClass, less);
                return;
            }
        }
    }
}

/// Settles targets by the fixes that are on.
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
