//! Holds the numbers of one container to its namespace's LimitRange, its policy, and its own limit, in this order:
//! what comes later wins.

use super::{
    limits::{Original, limit},
    plan::{LimitPolicy, Rules},
    range::Range,
    reason::{Field, Reason, Rule},
    scale::{Rounding, quantity, scale, units},
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
pub struct Bounds<'a> {
    /// What it has.
    pub original: Original<'a>,
    /// What holds for each container of the namespace.
    pub range: Option<&'a Range>,
    /// What the VPA says of it.
    pub policy: Option<&'a ContainerPolicy>,
    /// What becomes of its limits.
    pub limits: LimitPolicy,
    /// The rules.
    pub rules: Rules,
}

impl Bounds<'_> {
    /// The request at which the limit, following in proportion, reaches this one. Nothing where no limit follows.
    fn at_limit(&self, resource: &ResourceName, bound: Quantity) -> Option<Quantity> {
        let limit = self.original.limit(resource)?;
        let Some(request) = self.original.request(resource) else { return Some(bound) };
        Some(scale(resource, request, limit, bound, Rounding::Down).amount)
            .filter(|amount| !amount.is_zero())
    }

    /// The least that the LimitRange allows to request: request and limit must both reach the minimum.
    fn range_min(&self, resource: &ResourceName) -> Option<Quantity> {
        let min = self.range?.min(resource)?;
        // The notation of the first stays where both are equal.
        Some(self.at_limit(resource, min).filter(|at_limit| *at_limit >= min).unwrap_or(min))
    }

    /// The most that the LimitRange allows to request.
    fn range_max(&self, resource: &ResourceName) -> Option<Quantity> {
        let max = self.range?.max(resource)?;
        let unlimited = self.original.limit(resource).is_none()
            && self.rules.fixes.has(Fix::UnlimitedContainersObeyRangeMax);
        if unlimited { Some(max) } else { self.at_limit(resource, max) }
    }

    /// The range applies to CPU and memory alone.
    fn ranges(&self, resource: &ResourceName) -> [(Rule, Option<Quantity>); 2] {
        if matches!(resource, ResourceName::Other(_)) {
            return [(Rule::RangeMin, None), (Rule::RangeMax, None)];
        }
        [(Rule::RangeMin, self.range_min(resource)), (Rule::RangeMax, self.range_max(resource))]
    }

    fn policies(&self, resource: &ResourceName) -> [(Rule, Option<Quantity>); 2] {
        let some = |list: &ResourceList| list.get(resource).filter(|amount| !amount.is_zero());
        [
            (Rule::MinAllowed, self.policy.and_then(|policy| some(&policy.min_allowed))),
            (Rule::MaxAllowed, self.policy.and_then(|policy| some(&policy.max_allowed))),
        ]
    }

    /// Holds the amounts of a list, and says what changed.
    pub fn hold(&self, list: &mut ResourceList) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for rules in [Self::ranges, Self::policies] {
            for (resource, amount) in list.iter_mut() {
                for (rule, bound) in rules(self, resource) {
                    let crosses = |bound: &Quantity| match rule {
                        Rule::RangeMin | Rule::MinAllowed => *amount < *bound,
                        _ => *amount > *bound,
                    };
                    if let Some(bound) = bound.filter(crosses) {
                        reasons.push(capped(resource, rule, *amount, bound));
                        *amount = bound;
                    }
                }
            }
        }
        if self.limits == LimitPolicy::RequestsOnly {
            for (resource, amount) in list.iter_mut() {
                let limit = self.original.limits.get(resource);
                if let Some(limit) = limit.filter(|it| amount.milli_value() > it.milli_value()) {
                    reasons.push(capped(resource, Rule::ContainerLimit, *amount, limit));
                    *amount = limit;
                }
            }
        }
        if let Some(range) = self.range.filter(|_| self.keeps_ratio_by_request()) {
            for (resource, amount) in list.iter_mut() {
                let (Some(limit), Some(ratio)) =
                    (self.original.limits.get(resource), range.ratio(resource))
                else {
                    continue;
                };
                let least = least_request(resource, limit, ratio);
                if *amount < least && least <= limit {
                    reasons.push(capped(resource, Rule::LimitRequestRatio, *amount, least));
                    *amount = least;
                }
            }
        }
        reasons
    }

    /// The amount of one resource, in units, held.
    pub fn hold_units(&self, resource: &ResourceName, amount: i64) -> i64 {
        let amount = quantity(resource, amount, Format::DecimalSi);
        let mut list: ResourceList = [(resource.clone(), amount)].into_iter().collect();
        self.hold(&mut list);
        list.get(resource).map_or(0, |amount| units(resource, amount))
    }

    /// A limit that is left alone can only stay within a ratio because the request does not fall.
    fn keeps_ratio_by_request(&self) -> bool {
        self.limits == LimitPolicy::RequestsOnly && self.rules.fixes.has(Fix::LimitsObeyRanges)
    }

    /// The limit that is written beside a request, if one is, and what happened to it.
    pub fn limit(
        &self,
        resource: &ResourceName,
        wanted: Option<Quantity>,
    ) -> (Option<Quantity>, Vec<Reason>) {
        let most = self.policy.and_then(|policy| policy.max_allowed.get(resource));
        let (limit, reason) = limit(self.limits, resource, &self.original, wanted, most);
        let mut reasons: Vec<Reason> = reason.into_iter().collect();
        let obeys = self.rules.fixes.has(Fix::LimitsObeyRanges);
        let (Some(mut limit), Some(request), Some(range)) =
            (limit, wanted, self.range.filter(|_| obeys))
        else {
            return (limit, reasons);
        };
        let mut told = |rule, from: Quantity, to| {
            let (resource, field) = (resource.clone(), Field::Limit);
            reasons.push(Reason::Capped { resource, field, rule, from, to });
        };
        // A default limit may be less than what is requested.
        if limit < request {
            told(Rule::ContainerLimit, limit, request);
            limit = request;
        }
        // The ratio comes first: a limit that is raised to the minimum breaks it, and so does the minimum.
        let ratio = range.ratio(resource).map(|ratio| most_limit(resource, request, ratio));
        for (rule, bound) in [
            (Rule::LimitRequestRatio, ratio),
            (Rule::RangeMin, range.min(resource)),
            (Rule::RangeMax, range.max(resource)),
        ] {
            let crosses = |bound: &Quantity| match rule {
                Rule::RangeMin => limit < *bound,
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
fn most_limit(resource: &ResourceName, request: Quantity, ratio: Quantity) -> Quantity {
    let most = i128::from(units(resource, request)) * i128::from(ratio.milli_value()) / MILLI;
    quantity(resource, i64::try_from(most).unwrap_or(i64::MAX), request.format())
}

/// The least that a request may be beside a limit.
fn least_request(resource: &ResourceName, limit: Quantity, ratio: Quantity) -> Quantity {
    let (limit_units, ratio) = (i128::from(units(resource, limit)) * MILLI, ratio.milli_value());
    let ratio = i128::from(ratio.max(1));
    let least = limit_units / ratio + i128::from(limit_units % ratio != 0);
    quantity(resource, i64::try_from(least).unwrap_or(i64::MAX), limit.format())
}

fn capped(resource: &ResourceName, rule: Rule, from: Quantity, to: Quantity) -> Reason {
    Reason::Capped { resource: resource.clone(), field: Field::Request, rule, from, to }
}
