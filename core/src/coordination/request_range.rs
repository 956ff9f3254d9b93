//! The range that a VPA may choose a request from while an autoscaler of replicas uses the same resource.

use serde::Serialize;

use super::{Resource, ScalePoint};

/// The highest utilization of the request at the scale point: above it, pods at the scale point have almost used up their
/// request.
pub const MAX_TARGET_PERCENT: i32 = 95;
/// The lowest utilization of the request at the scale point, so that at most half of a request is idle by intention.
pub const MIN_TARGET_PERCENT: i32 = 50;

/// The range of a pod's request, in milli-units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRange {
    pub min: Option<i64>,
    pub max: Option<i64>,
    /// Why there is a lowest request.
    pub floor: Option<Floor>,
}

/// Why a request must not be lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Floor {
    /// At the scale point the pods would use almost all of their request, or more than it.
    ScalePoint,
    /// There are as many replicas as allowed, and they are not enough.
    AtMaxReplicas,
    /// Memory usage hardly falls when replicas are added, so the VPA never lowers a memory request that replicas follow.
    MemoryIsNeverLowered,
}

impl RequestRange {
    /// The range while replicas follow the usage itself: only the floor, and not even that for an idle workload. `raised` is
    /// the request that was raised at the maximum of replicas.
    pub fn for_usage(base: ScalePoint, raised: Option<i64>, is_idle: bool) -> Self {
        let lowest = lowest(base);
        if let Some(raised) = raised.filter(|raised| *raised > lowest) {
            return Self { min: Some(raised), max: None, floor: Some(Floor::AtMaxReplicas) };
        }
        if is_idle {
            return Self::default();
        }
        Self { min: Some(lowest), max: None, floor: Some(Floor::ScalePoint) }
    }

    /// The range while replicas follow the utilization: the target has to stay within its bounds when it follows the
    /// request.
    pub fn for_utilization(scale_point: ScalePoint) -> Self {
        // Rounded down, so that the target is not below its minimum.
        let max = scale_point.milli.saturating_mul(100) / i64::from(MIN_TARGET_PERCENT);
        Self { max: Some(max), ..Self::for_usage(scale_point, None, false) }
    }

    /// Adds what holds for a resource alone: memory is never lowered.
    #[must_use]
    pub fn of_resource(self, resource: Resource, current: Option<i64>) -> Self {
        match (resource, current) {
            (Resource::Memory, Some(current)) if self.min.is_none_or(|min| min < current) => Self {
                min: Some(current),
                max: self.max.map(|max| max.max(current)),
                floor: Some(Floor::MemoryIsNeverLowered),
            },
            _ => self,
        }
    }

    /// The nearest amount within the range.
    pub fn clamp(self, amount: i64) -> i64 {
        let amount = self.max.map_or(amount, |max| amount.min(max));
        self.min.map_or(amount, |min| amount.max(min))
    }

    /// Changes the requests of a pod's containers in proportion, so that their sum is within the range. `fixed` is the sum
    /// of those that the VPA does not control.
    pub fn fit(self, containers: &[i64], fixed: i64) -> Vec<i64> {
        let sum: i64 = containers.iter().fold(0, |sum, amount| sum.saturating_add(*amount));
        let wanted = self.clamp(sum.saturating_add(fixed)).saturating_sub(fixed).max(0);
        if sum <= 0 || wanted == sum {
            return containers.to_vec();
        }
        // Rounded up for a floor and down for a ceiling, so that the sum stays within the range.
        let round = |amount: i64| {
            let product = i128::from(amount) * i128::from(wanted);
            let up = if wanted > sum { i128::from(sum) - 1 } else { 0 };
            i64::try_from((product + up) / i128::from(sum)).unwrap_or(i64::MAX)
        };
        containers.iter().map(|amount| round(*amount)).collect()
    }
}

fn lowest(scale_point: ScalePoint) -> i64 {
    // Rounded up, so that the target is not above its maximum.
    let max = i64::from(MAX_TARGET_PERCENT);
    scale_point.milli.saturating_mul(100).saturating_add(max - 1) / max
}
