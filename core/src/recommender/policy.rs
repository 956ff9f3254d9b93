//! What a VPA's policy says about a container, as plain data, and what follows for its recommendation.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::types::quantity::Quantity;

/// Name of the policy that applies to every container without one of its own.
pub const EVERY_CONTAINER: &str = "*";

/// Amounts by resource. A resource that is absent is not spoken of, which is not the same as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceAmounts {
    /// CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
}

/// Which resources are recommended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlledResources {
    /// CPU.
    pub cpu: bool,
    /// Memory.
    pub memory: bool,
}

impl Default for ControlledResources {
    fn default() -> Self {
        Self { cpu: true, memory: true }
    }
}

/// The policy of one container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerPolicy {
    /// Container name, or [`EVERY_CONTAINER`].
    pub container: Box<str>,
    /// No recommendation for this container.
    pub off: bool,
    /// Which resources are recommended.
    pub controlled: ControlledResources,
    /// No recommendation goes below these.
    pub min_allowed: ResourceAmounts,
    /// No recommendation goes above these.
    pub max_allowed: ResourceAmounts,
    /// Settings of the model for this container.
    pub overrides: Overrides,
}

/// Settings of the model that a policy may set for one container.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Factor of an out-of-memory bump.
    pub oom_ratio: Option<f64>,
    /// Least bytes of an out-of-memory bump.
    pub oom_min_bump: Option<f64>,
    /// Length of a memory window.
    pub interval: Option<Duration>,
    /// How many windows history reaches back.
    pub interval_count: Option<u32>,
}

impl Overrides {
    /// These, and the other's where these say nothing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            oom_ratio: self.oom_ratio.or(other.oom_ratio),
            oom_min_bump: self.oom_min_bump.or(other.oom_min_bump),
            interval: self.interval.or(other.interval),
            interval_count: self.interval_count.or(other.interval_count),
        }
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The policy that applies to a container: the one of its name, else the one for every container.
pub fn policy_for<'a>(
    policies: &'a [ContainerPolicy],
    container: &str,
) -> Option<&'a ContainerPolicy> {
    let own = policies.iter().find(|policy| &*policy.container == container);
    // Of several entries for every container the last one holds, as upstream has it.
    own.or_else(|| policies.iter().rfind(|policy| &*policy.container == EVERY_CONTAINER))
}

/// The limits that a recommendation is held to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cap {
    /// Nothing below this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<Quantity>,
    /// Nothing above this; wins over the minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Quantity>,
    /// Whether the maximum is the policy's or the one for the whole cluster.
    pub max_is_global: bool,
}

/// What a [`Cap`] did to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapResult {
    /// Nothing.
    Unchanged,
    /// It raised the value to the minimum.
    Min,
    /// It lowered the value to the maximum.
    Max,
}

impl Cap {
    /// The limits for one resource. A limit of zero is no limit.
    pub fn new(min: Option<Quantity>, max: Option<Quantity>, global: Option<Quantity>) -> Self {
        // A policy maximum of zero still keeps the global one away, and then holds nothing.
        let max_is_global = max.is_none() && global.is_some();
        let some = |limit: Option<Quantity>| limit.filter(|limit| !limit.is_zero());
        Self { min: some(min), max: some(max.or(global)), max_is_global }
    }

    /// The value held to the limits.
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
    fn the_last_of_several_policies_for_every_container_holds() {
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
