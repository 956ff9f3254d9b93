//! Holds the numbers of one container to its namespace's LimitRange, its policy, and its own limit, in this order:
//! what comes later wins.

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

/// What the numbers of one container are held to.
#[derive(Clone, Copy, Debug)]
pub struct ResourceBounds<'a> {
    /// What it has.
    pub current: CurrentResources<'a>,
    /// What holds for each container of the namespace.
    pub limit_range: Option<&'a MergedLimitRange>,
    /// What the VPA says of it.
    pub policy: Option<&'a ContainerPolicy>,
    /// What becomes of its limits.
    pub limit_policy: LimitPolicy,
    /// The rules.
    pub rules: SizingRules,
}

impl ResourceBounds<'_> {
    /// The request at which the limit, following in proportion, reaches this one. Nothing where no limit follows.
    fn request_at_limit(&self, resource: &ResourceName, bound: Quantity) -> Option<Quantity> {
        let limit = self.current.limit(resource)?;
        let Some(request) = self.current.request(resource) else { return Some(bound) };
        Some(scale(resource, request, limit, bound, ScaleRounding::Down).amount)
            .filter(|amount| !amount.is_zero())
    }

    /// The least that the LimitRange allows to request: request and limit must both reach the minimum.
    fn limit_range_min(&self, resource: &ResourceName) -> Option<Quantity> {
        let min = self.limit_range?.min(resource)?;
        // The notation of the first stays where both are equal.
        Some(
            self.request_at_limit(resource, min).filter(|at_limit| *at_limit >= min).unwrap_or(min),
        )
    }

    /// The most that the LimitRange allows to request.
    fn limit_range_max(&self, resource: &ResourceName) -> Option<Quantity> {
        let max = self.limit_range?.max(resource)?;
        let unlimited = self.current.limit(resource).is_none()
            && self.rules.fixes.has(Fix::UnlimitedContainersObeyRangeMax);
        if unlimited { Some(max) } else { self.request_at_limit(resource, max) }
    }

    /// The range applies to CPU and memory alone.
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
        let some = |list: &ResourceList| list.get(resource).filter(|amount| !amount.is_zero());
        [
            (CapRule::MinAllowed, self.policy.and_then(|policy| some(&policy.min_allowed))),
            (CapRule::MaxAllowed, self.policy.and_then(|policy| some(&policy.max_allowed))),
        ]
    }

    /// Holds the amounts of a list, and says what changed.
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
                        reasons.push(capped_reason(resource, rule, *amount, bound));
                        *amount = bound;
                    }
                }
            }
        }
        if self.limit_policy == LimitPolicy::RequestsOnly {
            for (resource, amount) in list.iter_mut() {
                let limit = self.current.limits.get(resource);
                if let Some(limit) = limit.filter(|it| amount.milli_value() > it.milli_value()) {
                    reasons.push(capped_reason(resource, CapRule::ContainerLimit, *amount, limit));
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
                    reasons.push(capped_reason(
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

    /// The amount of one resource, in units, held.
    pub fn clamp_units(&self, resource: &ResourceName, amount: i64) -> i64 {
        let amount = quantity_from_units(resource, amount, Format::DecimalSi);
        let mut list: ResourceList = [(resource.clone(), amount)].into_iter().collect();
        self.clamp(&mut list);
        list.get(resource).map_or(0, |amount| to_units(resource, amount))
    }

    /// A limit that is left alone can only stay within a ratio because the request does not fall.
    fn needs_request_for_ratio(&self) -> bool {
        self.limit_policy == LimitPolicy::RequestsOnly
            && self.rules.fixes.has(Fix::LimitsObeyRanges)
    }

    /// The limit that is written beside a request, if one is, and what happened to it.
    pub fn limit_for_request(
        &self,
        resource: &ResourceName,
        wanted: Option<Quantity>,
    ) -> (Option<Quantity>, Vec<SizingReason>) {
        let most = self.policy.and_then(|policy| policy.max_allowed.get(resource));
        let (limit, reason) =
            limit_by_policy(self.limit_policy, resource, &self.current, wanted, most);
        let mut reasons: Vec<SizingReason> = reason.into_iter().collect();
        let obeys = self.rules.fixes.has(Fix::LimitsObeyRanges);
        let (Some(mut limit), Some(request), Some(range)) =
            (limit, wanted, self.limit_range.filter(|_| obeys))
        else {
            return (limit, reasons);
        };
        let mut told = |rule, from: Quantity, to| {
            let (resource, field) = (resource.clone(), ResourceField::Limit);
            reasons.push(SizingReason::Capped { resource, field, rule, from, to });
        };
        // A default limit may be less than what is requested.
        if limit < request {
            told(CapRule::ContainerLimit, limit, request);
            limit = request;
        }
        // The ratio comes first: a limit that is raised to the minimum breaks it, and so does the minimum.
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
                told(rule, limit, to);
                limit = to;
            }
        }
        (Some(limit), reasons)
    }
}

/// Thousandths in one: ratios are as exact as the API server compares them.
const MILLI: i128 = 1000;

/// The most that a limit may be beside a request.
fn max_limit(resource: &ResourceName, request: Quantity, ratio: Quantity) -> Quantity {
    let most = i128::from(to_units(resource, request)) * i128::from(ratio.milli_value()) / MILLI;
    quantity_from_units(resource, i64::try_from(most).unwrap_or(i64::MAX), request.format())
}

/// The least that a request may be beside a limit.
fn min_request(resource: &ResourceName, limit: Quantity, ratio: Quantity) -> Quantity {
    let (limit_units, ratio) = (i128::from(to_units(resource, limit)) * MILLI, ratio.milli_value());
    let ratio = i128::from(ratio.max(1));
    let least = limit_units / ratio + i128::from(limit_units % ratio != 0);
    quantity_from_units(resource, i64::try_from(least).unwrap_or(i64::MAX), limit.format())
}

fn capped_reason(
    resource: &ResourceName,
    rule: CapRule,
    from: Quantity,
    to: Quantity,
) -> SizingReason {
    SizingReason::Capped {
        resource: resource.clone(),
        field: ResourceField::Request,
        rule,
        from,
        to,
    }
}
