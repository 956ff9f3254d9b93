//! The policy of a VPA for a container, as plain data, and how it caps recommendations.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::types::quantity::Quantity;

/// Name of the policy for all containers without their own policy.
pub const EVERY_CONTAINER: &str = "*";

/// Amounts by resource. A missing amount means unspecified, not 0.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceAmounts {
    pub cpu: Option<Quantity>,
    pub memory: Option<Quantity>,
}

/// The resources with a recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlledResources {
    pub cpu: bool,
    pub memory: bool,
}

impl Default for ControlledResources {
    fn default() -> Self {
        Self { cpu: true, memory: true }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerPolicy {
    /// Container name, or [`EVERY_CONTAINER`].
    pub container: Box<str>,
    /// Whether the container gets no recommendation.
    pub off: bool,
    /// The resources with a recommendation.
    pub controlled: ControlledResources,
    pub min_allowed: ResourceAmounts,
    pub max_allowed: ResourceAmounts,
    pub overrides: Overrides,
}

/// Model settings that a policy can override for one container.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overrides {
    pub oom_ratio: Option<f64>,
    /// Minimum bytes of an OOM bump.
    pub oom_min_bump: Option<f64>,
    pub interval: Option<Duration>,
    /// Number of windows in the history.
    pub interval_count: Option<u32>,
}

impl Overrides {
    /// Uses the values of `other` for unset ones.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            oom_ratio: self.oom_ratio.or(other.oom_ratio),
            oom_min_bump: self.oom_min_bump.or(other.oom_min_bump),
            interval: self.interval.or(other.interval),
            interval_count: self.interval_count.or(other.interval_count),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the policy of a container: the one with its name, else the one for all containers.
pub fn policy_for<'a>(
    policies: &'a [ContainerPolicy],
    container: &str,
) -> Option<&'a ContainerPolicy> {
    let own = policies.iter().find(|policy| &*policy.container == container);
    // Of several entries for all containers the last one wins, as in upstream.
    own.or_else(|| policies.iter().rfind(|policy| &*policy.container == EVERY_CONTAINER))
}

/// The minimum and maximum of a recommendation.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cap {
    pub min: Option<Quantity>,
    /// The maximum, which takes precedence over the minimum.
    pub max: Option<Quantity>,
    /// Whether the maximum is the cluster-wide one instead of the policy's.
    pub max_is_global: bool,
}

/// The effect of a [`Cap`] on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapResult {
    Unchanged,
    /// The value was raised to the minimum.
    Min,
    /// The value was lowered to the maximum.
    Max,
}

impl Cap {
    /// Creates the cap of one resource. A limit of zero means no limit.
    pub fn new(min: Option<Quantity>, max: Option<Quantity>, global: Option<Quantity>) -> Self {
        // A policy maximum of zero still overrides the global one, and then there is no maximum.
        let max_is_global = max.is_none() && global.is_some();
        let non_zero = |limit: Option<Quantity>| limit.filter(|limit| !limit.is_zero());
        Self { min: non_zero(min), max: non_zero(max.or(global)), max_is_global }
    }

    pub fn apply(&self, value: Quantity) -> (Quantity, CapResult) {
        let mut result = (value, CapResult::Unchanged);
        if let Some(min) = self.min.filter(|min| result.0 < *min) {
            result = (min, CapResult::Min);
        }
        if let Some(max) = self.max.filter(|max| result.0 > *max) {
            result = (max, CapResult::Max);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_default_policies_applies() {
        let policy = |name: &str, off| ContainerPolicy {
            container: name.into(),
            off,
            ..ContainerPolicy::default()
        };
        let policies =
            [policy("*", false), policy("app", false), policy("*", true), policy("app", true)];
        assert_eq!(policy_for(&policies, "proxy").map(|policy| policy.off), Some(true));
        assert_eq!(policy_for(&policies, "app").map(|policy| policy.off), Some(false));
    }
}
