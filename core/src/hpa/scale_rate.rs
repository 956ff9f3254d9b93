//! Scaling policies: the rates at which replicas may be added and removed with `behavior`.

use std::cmp::Ordering;

use serde::Serialize;

use super::{
    bounds::{Limited, LimitedBy},
    fixes::{Fix, Fixes},
    hpa_state::{HpaState, ScaleEvent, seconds},
    spec::{Behavior, Policy, PolicyKind, ScalingRules, SelectPolicy},
    stabilization::Direction,
};
use crate::types::Time;

/// The rate limit in one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateLimit {
    pub direction: Direction,
    /// The highest (or, for scaling down, lowest) number of replicas that it allows now.
    pub replicas: i32,
    /// How a policy is selected.
    pub select: SelectPolicy,
    /// The limit of each policy; empty without `behavior`.
    pub policies: Vec<PolicyLimit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PolicyLimit {
    pub policy: Policy,
    /// The replicas at the start of its period.
    pub at_start: i32,
    /// The highest (or, for scaling down, lowest) number of replicas that it allows.
    pub replicas: i32,
    /// When the oldest change leaves its period.
    pub renewed: Option<Time>,
}

/// Applies the bounds and rates of an object with `behavior`.
#[derive(Clone, Copy, Debug)]
pub struct Rates<'a> {
    /// The `behavior` of the object.
    pub behavior: &'a Behavior,
    /// The state with past scale events.
    pub memory: &'a HpaState,
    /// The current time.
    pub now: Time,
    pub fixes: Fixes,
}

impl Rates<'_> {
    /// Limits a number of replicas to what rates and bounds allow.
    pub fn limit(&self, current: i32, wanted: i32, min: i32, max: i32) -> Limited {
        match wanted.cmp(&current) {
            Ordering::Greater => {
                let rate = self.up(current);
                let limit = rate.replicas.max(current);
                let allowed = max.min(limit);
                let (replicas, by) = match wanted > allowed {
                    true if max > limit => (allowed, LimitedBy::ScaleUpRate),
                    true => (allowed, LimitedBy::Max),
                    false => (wanted, LimitedBy::Nothing),
                };
                Limited { wanted, replicas, by, rate: Some(rate) }
            }
            Ordering::Less => {
                let rate = self.down(current);
                let limit = rate.replicas.min(current);
                let floor = min.max(limit);
                let (replicas, by) = match wanted < floor {
                    true if min < limit => (floor, LimitedBy::ScaleDownRate),
                    true => (floor, LimitedBy::Min),
                    false => (wanted, LimitedBy::Nothing),
                };
                Limited { wanted, replicas, by, rate: Some(rate) }
            }
            Ordering::Equal => {
                Limited { wanted, replicas: wanted, by: LimitedBy::Nothing, rate: None }
            }
        }
    }

    /// The most replicas that the policies allow.
    pub fn up(&self, current: i32) -> RateLimit {
        let rules = &self.behavior.scale_up;
        let mut rate = self.rate(Direction::Up, rules, current);
        rate.replicas = match rules.select_policy {
            SelectPolicy::Disabled => current,
            SelectPolicy::Max => {
                rate.policies.iter().map(|policy| policy.replicas).max().unwrap_or(i32::MIN)
            }
            SelectPolicy::Min => {
                rate.policies.iter().map(|policy| policy.replicas).min().unwrap_or(i32::MAX)
            }
        };
        let is_at_zero = current == 0 && rules.select_policy != SelectPolicy::Disabled;
        if is_at_zero && self.fixes.has(Fix::PolicyLeavesZero) {
            rate.replicas = rate.replicas.max(1);
        }
        rate
    }

    /// The fewest replicas that the policies allow.
    pub fn down(&self, current: i32) -> RateLimit {
        let rules = &self.behavior.scale_down;
        let mut rate = self.rate(Direction::Down, rules, current);
        rate.replicas = match rules.select_policy {
            SelectPolicy::Disabled => current,
            SelectPolicy::Max => {
                rate.policies.iter().map(|policy| policy.replicas).min().unwrap_or(i32::MAX)
            }
            SelectPolicy::Min => {
                rate.policies.iter().map(|policy| policy.replicas).max().unwrap_or(i32::MIN)
            }
        };
        rate
    }

    fn rate(&self, direction: Direction, rules: &ScalingRules, current: i32) -> RateLimit {
        let policies =
            rules.policies.iter().map(|policy| self.allowed(direction, *policy, current));
        let policies = policies.collect();
        RateLimit { direction, replicas: current, select: rules.select_policy, policies }
    }

    fn allowed(&self, direction: Direction, policy: Policy, current: i32) -> PolicyLimit {
        let cutoff = self.now.earlier(seconds(policy.period_seconds));
        let (up, down) = (&self.memory.scale_up_events, &self.memory.scale_down_events);
        let changed = |events: &[ScaleEvent]| {
            let recent = events.iter().filter(|event| event.at > cutoff);
            recent.fold(0_i32, |sum, event| sum.wrapping_add(event.change))
        };
        let at_start = current.wrapping_sub(changed(up)).wrapping_add(changed(down));
        let share = f64::from(policy.value) / 100.0;
        let replicas = match (direction, policy.kind) {
            (Direction::Up, PolicyKind::Pods) => at_start.wrapping_add(policy.value),
            (Direction::Down, PolicyKind::Pods) => at_start.wrapping_sub(policy.value),
            (Direction::Up, PolicyKind::Percent) => super::numbers::to_replicas(
                (f64::from(at_start) * (1.0 + share)).ceil(),
                self.fixes,
            ),
            (Direction::Down, PolicyKind::Percent) => {
                super::numbers::to_replicas(f64::from(at_start) * (1.0 - share), self.fixes)
            }
        };
        let oldest =
            up.iter().chain(down).filter(|event| event.at > cutoff).map(|event| event.at).min();
        let renewed = oldest.map(|at| at.later(seconds(policy.period_seconds)));
        PolicyLimit { policy, at_start, replicas, renewed }
    }
}
