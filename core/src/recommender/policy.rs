//! What the policy of a VPA for a container overrides, and how it caps recommendations.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{
    api::vpa::ContainerPolicy,
    types::{PerResource, Quantity},
};

pub type ResourceAmounts = PerResource<Quantity>;

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
    pub fn of(policy: &ContainerPolicy) -> Self {
        // A ratio or amount has three decimals, rounded up.
        let float = |quantity: Quantity| quantity.milli_value() as f64 / 1000.0;
        Self {
            oom_ratio: policy.oom_bump_up_ratio.map(float),
            oom_min_bump: policy.oom_min_bump_up.map(float),
            interval: policy
                .memory_aggregation_interval_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            interval_count: policy
                .memory_aggregation_interval_count
                .and_then(|count| u32::try_from(count).ok())
                .filter(|count| *count > 0),
        }
    }

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
    use serde_json::json;

    use super::*;

    #[test]
    fn overrides_are_read_from_the_policy() {
        let object = json!({
            "containerName": "app",
            "oomBumpUpRatio": "1.2345",
            "oomMinBumpUp": "100Mi",
            "memoryAggregationIntervalSeconds": 3600,
            "memoryAggregationIntervalCount": 24,
        });
        let overrides = Overrides::of(&serde_json::from_value(object).expect("is a policy"));
        assert_eq!(overrides.oom_ratio, Some(1.235));
        assert_eq!(overrides.oom_min_bump, Some(1.048_576e8));
        assert_eq!(overrides.interval, Some(Duration::from_hours(1)));
        assert_eq!(overrides.interval_count, Some(24));
    }
}
