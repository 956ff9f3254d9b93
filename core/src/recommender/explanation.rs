//! Why a recommendation has its numbers, as data. The numbers can be recomputed from these fields alone.

use std::{fmt, time::Duration};

use crate::{
    history::OomBump,
    types::{
        PerResource, Quantity, Time,
        units::{Bytes, MilliCpu, round_up_to_multiple},
    },
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, IntoStaticStr};

use super::{plan::PlannedRequest, policy::Cap, throttling::Throttled};

pub use crate::types::Resource;

/// Explains the resources that are recommended.
pub type Explanation = PerResource<ResourceExplanation>;

/// Explains the estimates of one resource. CPU is in millicores, memory in bytes.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceExplanation {
    pub evidence: Evidence,
    pub margin: f64,
    pub floor: Floor,
    pub rounding: Rounding,
    /// The policy's minimum and maximum.
    pub cap: Cap,
    /// The maximum of the upper bound as a multiple of the target, if set.
    pub upper_bound_factor: Option<f64>,
    /// The measured CPU throttling and the factor that CPU is multiplied by after the margin, if known.
    pub throttled: Option<Throttled>,
    /// The latest OOM bump that is still in the history.
    pub bump: Option<OomBump>,
    /// The planned request, if it is planned. Then there are no percentiles, margin and confidence factors.
    pub plan: Option<Box<PlannedRequest>>,
    /// The estimate of the lower bound.
    pub lower: EstimateStep,
    pub target: EstimateStep,
    /// The estimate of the upper bound.
    pub upper: EstimateStep,
}

#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The resource of the samples that determine the confidence: CPU, also for memory, unless there are almost none.
    pub of: Resource,
    pub samples: u64,
    /// Time of the earliest sample.
    pub first: Option<Time>,
    /// Time of the latest sample.
    pub last: Option<Time>,
    /// Seconds that count as one unit of confidence if they have one sample per minute.
    pub interval: f64,
    /// Confidence: the smaller of covered time and number of samples, both in these units.
    pub confidence: f64,
}

impl Evidence {
    /// Returns the time that the samples cover.
    pub fn covered(&self) -> Duration {
        match (self.first, self.last) {
            (Some(first), Some(last)) => {
                Duration::from_nanos(u64::try_from(last.nanos_since(first)).unwrap_or(0))
            }
            _ => Duration::ZERO,
        }
    }
}

/// The minimum of a recommendation, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Floor {
    pub amount: i64,
    /// The number of containers that share the pod's minimum; `None` for a minimum of the VPA itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_among: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rounding {
    /// Round up to a multiple of this amount.
    pub multiple: i64,
    /// Round to two decimals of a binary unit.
    pub humanized: bool,
    /// Round up to whole cores.
    pub whole_cores: bool,
}

impl Rounding {
    /// Rounds an amount and converts it to a quantity.
    pub fn quantity(&self, resource: Resource, amount: i64) -> Quantity {
        // An invalid multiple leaves the amount as it is; flags reject it.
        let up = |amount, multiple| round_up_to_multiple(amount, multiple).unwrap_or(amount);
        let amount = up(amount, self.multiple);
        match resource {
            Resource::Cpu if self.whole_cores => Quantity::cpu(MilliCpu(up(amount, 1000))),
            Resource::Memory if self.humanized && amount != 0 => Quantity::humanized(Bytes(amount)),
            Resource::Cpu | Resource::Memory => resource.to_quantity(amount),
        }
    }
}

#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EstimateStep {
    /// The percentile, 0 to 1.
    pub percentile: f64,
    /// Its value in the histogram, in cores or bytes.
    pub read: f64,
    /// Its value in the histogram of the largest replicas, if that is larger.
    pub largest_replica: Option<f64>,
    pub stretch: Option<ConfidenceFactor>,
    /// The stage that decided the result.
    pub decided_by: RecommendationReason,
}

/// A bound is multiplied by `(1 + weight / confidence) ^ exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceFactor {
    /// The weight of missing confidence.
    pub weight: f64,
    /// Positive for an upper bound, negative for a lower bound.
    pub exponent: i32,
}

/// The stage that decided an estimate. Metrics, conditions and events use the same names.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Display, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum RecommendationReason {
    /// There are no samples: the result is the floor.
    NoData,
    /// Usage and margin.
    Usage,
    /// Usage, in the bucket of an OOM bump.
    OomBump,
    /// Usage of the largest replica.
    LargestReplica,
    /// Usage, raised because of CPU throttling.
    Throttling,
    /// A planned request: what it costs over the next hours, or the highest usage of the last days.
    Plan,
    /// The minimum for recommendations.
    Floor,
    /// The maximum of the upper bound as a multiple of the target.
    UpperBoundFactor,
    MinAllowed,
    MaxAllowed,
    GlobalMaxAllowed,
    /// The capacity of the largest node.
    NodeCap,
    /// The configured maximum of a pod.
    PodCap,
}

impl RecommendationReason {
    /// The reasons that restrict an estimate, in the order of metrics.
    pub const RESTRICTIONS: [Self; 7] = [
        Self::Floor,
        Self::UpperBoundFactor,
        Self::MinAllowed,
        Self::MaxAllowed,
        Self::GlobalMaxAllowed,
        Self::NodeCap,
        Self::PodCap,
    ];
}

/// Explains the target in one short line: `p90 of 8.0 d, +15 %`.
impl fmt::Display for ResourceExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percentile = self.target.percentile * 100.0;
        let days = self.evidence.covered().as_secs_f64() / 86_400.0;
        let margin = self.margin * 100.0;
        match self.target.decided_by {
            RecommendationReason::NoData => write!(f, "no samples yet, floor"),
            RecommendationReason::Floor => match self.floor.split_among {
                Some(1) => write!(f, "floor of the pod"),
                Some(containers) => write!(f, "floor of the pod, split among {containers}"),
                None => write!(f, "floor of the VPA"),
            },
            RecommendationReason::OomBump => write!(f, "OOM kill, bumped, +{margin:.0} %"),
            RecommendationReason::LargestReplica => write!(f, "largest replica, +{margin:.0} %"),
            RecommendationReason::Usage | RecommendationReason::UpperBoundFactor => {
                write!(f, "p{percentile:.0} of {days:.1} d, +{margin:.0} %")
            }
            RecommendationReason::Throttling => {
                let share = self.throttled.map_or(0.0, |throttled| throttled.share * 100.0);
                write!(f, "p{percentile:.0} of {days:.1} d, raised: throttled {share:.0} %")
            }
            RecommendationReason::Plan => {
                let profile = self.plan.as_ref().map_or("", |plan| plan.profile.into_str());
                write!(f, "plan of the profile {profile}")
            }
            RecommendationReason::MinAllowed => write!(f, "minAllowed of the policy"),
            RecommendationReason::MaxAllowed => write!(f, "maxAllowed of the policy"),
            RecommendationReason::GlobalMaxAllowed => write!(f, "maximum for all containers"),
            RecommendationReason::NodeCap => write!(f, "share of the largest node"),
            RecommendationReason::PodCap => write!(f, "share of the pod capacity"),
        }
    }
}
