//! Caps the amounts of one container to the LimitRange of its namespace, its container policy, and its own limit, in
//! this order: later rules win.

use super::{
    limit_policy::{CurrentResources, limit_by_policy},
    limit_range::MergedLimitRange,
    proportional::{ScaleRounding, quantity_from_units, scale, to_units},
    reason::{CapRule, ResourceField, SizingReason},
    sizing_spec::{LimitPolicy, SizingRules},
};
use crate::{
    api::{ResourceList, ResourceName, vpa::ContainerPolicy},
    types::{
        compat::Fix,
        quantity::{Format, Quantity},
    },
};

/// The bounds of the amounts of one container.
#[derive(Clone, Copy, Debug)]
pub struct ResourceBounds<'a> {
    pub current: CurrentResources<'a>,
    /// The LimitRange for containers of the namespace.
    pub limit_range: Option<&'a MergedLimitRange>,
    pub policy: Option<&'a ContainerPolicy>,
    /// How its limits are set.
    pub limit_policy: LimitPolicy,
    pub rules: SizingRules,
}

impl ResourceBounds<'_> {
    /// Returns the request whose proportional limit equals `bound`; `None` if there is no limit.
    fn request_at_limit(&self, resource: &ResourceName, bound: Quantity) -> Option<Quantity> {
        let limit = self.current.limit(resource)?;
        let Some(request) = self.current.request(resource) else { return Some(bound) };
        Some(scale(resource, request, limit, bound, ScaleRounding::Down).amount)
            .filter(|amount| !amount.is_zero())
    }

    /// Returns the minimum request under the LimitRange: both request and limit must reach its minimum.
    fn limit_range_min(&self, resource: &ResourceName) -> Option<Quantity> {
        let min = self.limit_range?.min(resource)?;
        // If both are equal, keep the format of the scaled amount.
        Some(
            self.request_at_limit(resource, min).filter(|at_limit| *at_limit >= min).unwrap_or(min),
        )
    }

    /// Returns the maximum request under the LimitRange.
    fn limit_range_max(&self, resource: &ResourceName) -> Option<Quantity> {
        let max = self.limit_range?.max(resource)?;
        let unlimited = self.current.limit(resource).is_none()
            && self.rules.fixes.has(Fix::UnlimitedContainersObeyRangeMax);
        if unlimited { Some(max) } else { self.request_at_limit(resource, max) }
    }

    /// Returns the bounds of the LimitRange, which applies to CPU and memory only.
    fn limit_range_bounds(&self, resource: &ResourceName) -> [(CapRule, Option<Quantity>); 2] {
        if matches!(resource, ResourceName::Other(_)) {
            return [(CapRule::RangeMin, None), (CapRule::RangeMax, None)];
        }
        [
            (CapRule::RangeMin, self.limit_range_min(resource)),
            (CapRule::RangeMax, self.limit_range_max(resource)),
        ]
    }

    fn policy_bounds(&self, resource: &ResourceName) -> [(CapRule, Option<Quantity>); 2] {
        let non_zero = |list: &ResourceList| list.get(resource).filter(|amount| !amount.is_zero());
        [
            (CapRule::MinAllowed, self.policy.and_then(|policy| non_zero(&policy.min_allowed))),
            (CapRule::MaxAllowed, self.policy.and_then(|policy| non_zero(&policy.max_allowed))),
        ]
    }

    /// Caps the amounts of a list, and returns the reasons for each change.
    pub fn clamp(&self, list: &mut ResourceList) -> Vec<SizingReason> {
        let mut reasons = Vec::new();
        for rules in [Self::limit_range_bounds, Self::policy_bounds] {
            for (resource, amount) in list.iter_mut() {
                for (rule, bound) in rules(self, resource) {
                    let crosses = |bound: &Quantity| match rule {
                        CapRule::RangeMin | CapRule::MinAllowed => *amount < *bound,
                        _ => *amount > *bound,
                    };
                    if let Some(bound) = bound.filter(crosses) {
                        reasons.push(SizingReason::capped_request(resource, rule, *amount, bound));
                        *amount = bound;
                    }
                }
            }
        }
        if self.limit_policy == LimitPolicy::RequestsOnly {
            for (resource, amount) in list.iter_mut() {
                let limit = self.current.limits.get(resource);
                let exceeds = |limit: &Quantity| amount.milli_value() > limit.milli_value();
                if let Some(limit) = limit.filter(exceeds) {
                    reasons.push(SizingReason::capped_request(
                        resource,
                        CapRule::ContainerLimit,
                        *amount,
                        limit,
                    ));
                    *amount = limit;
                }
            }
        }
        if let Some(range) = self.limit_range.filter(|_| self.needs_request_for_ratio()) {
            for (resource, amount) in list.iter_mut() {
                let (Some(limit), Some(ratio)) =
                    (self.current.limits.get(resource), range.max_limit_request_ratio(resource))
                else {
                    continue;
                };
                let least = min_request(resource, limit, ratio);
                if *amount < least && least <= limit {
                    reasons.push(SizingReason::capped_request(
                        resource,
                        CapRule::LimitRequestRatio,
                        *amount,
                        least,
                    ));
                    *amount = least;
                }
            }
        }
        reasons
    }

    /// Caps the amount of one resource, in units.
    pub fn clamp_units(&self, resource: &ResourceName, amount: i64) -> i64 {
        let amount = quantity_from_units(resource, amount, Format::DecimalSi);
        let mut list: ResourceList = [(resource.clone(), amount)].into_iter().collect();
        self.clamp(&mut list);
        list.get(resource).map_or(0, |amount| to_units(resource, amount))
    }

    /// If the limit does not change, only a higher request keeps it within the ratio of the LimitRange.
    fn needs_request_for_ratio(&self) -> bool {
        self.limit_policy == LimitPolicy::RequestsOnly
            && self.rules.fixes.has(Fix::LimitsObeyRanges)
    }

    /// Returns the limit that is written with a request, if any, and the reasons for each change.
    pub fn limit_for_request(
        &self,
        resource: &ResourceName,
        wanted: Option<Quantity>,
    ) -> (Option<Quantity>, Vec<SizingReason>) {
        let max_allowed = self.policy.and_then(|policy| policy.max_allowed.get(resource));
        let (limit, reason) =
            limit_by_policy(self.limit_policy, resource, &self.current, wanted, max_allowed);
        let mut reasons: Vec<SizingReason> = reason.into_iter().collect();
        let obeys_ranges = self.rules.fixes.has(Fix::LimitsObeyRanges);
        let (Some(mut limit), Some(request), Some(range)) =
            (limit, wanted, self.limit_range.filter(|_| obeys_ranges))
        else {
            return (limit, reasons);
        };
        let mut record = |rule, from: Quantity, to| {
            let (resource, field) = (resource.clone(), ResourceField::Limit);
            reasons.push(SizingReason::Capped { resource, field, rule, from, to });
        };
        // A default limit may be below the request.
        if limit < request {
            record(CapRule::ContainerLimit, limit, request);
            limit = request;
        }
        // Apply the ratio first: a limit that is raised to the minimum violates it, but so does the minimum itself.
        let ratio = range
            .max_limit_request_ratio(resource)
            .map(|ratio| max_limit(resource, request, ratio));
        for (rule, bound) in [
            (CapRule::LimitRequestRatio, ratio),
            (CapRule::RangeMin, range.min(resource)),
            (CapRule::RangeMax, range.max(resource)),
        ] {
            let crosses = |bound: &Quantity| match rule {
                CapRule::RangeMin => limit < *bound,
                _ => limit > *bound,
            };
            if let Some(to) = bound.filter(crosses).filter(|bound| *bound >= request) {
                record(rule, limit, to);
                limit = to;
            }
        }
        (Some(limit), reasons)
    }
}

/// The API server compares ratios in thousandths.
const MILLI: i128 = 1000;

/// Returns the maximum limit for a request under a ratio.
fn max_limit(resource: &ResourceName, request: Quantity, ratio: Quantity) -> Quantity {
    let most = i128::from(to_units(resource, request)) * i128::from(ratio.milli_value()) / MILLI;
    quantity_from_units(resource, i64::try_from(most).unwrap_or(i64::MAX), request.format())
}

/// Returns the minimum request for a limit under a ratio.
fn min_request(resource: &ResourceName, limit: Quantity, ratio: Quantity) -> Quantity {
    let (limit_units, ratio) = (i128::from(to_units(resource, limit)) * MILLI, ratio.milli_value());
    let ratio = i128::from(ratio.max(1));
    let least = limit_units / ratio + i128::from(limit_units % ratio != 0);
    quantity_from_units(resource, i64::try_from(least).unwrap_or(i64::MAX), limit.format())
}
