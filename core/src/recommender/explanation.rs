//! Why a number is what it is, as data. The numbers can be worked out again from these fields alone.

use std::{fmt, time::Duration};

use crate::{history::OomBump, types::Time};
use serde::{Deserialize, Serialize};

use super::{policy::Cap, throttling::Throttled};

/// Why the recommendation of one container is what it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// CPU, where it is recommended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<ResourceExplanation>,
    /// Memory, where it is recommended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ResourceExplanation>,
}

/// Why the numbers of one resource are what they are. CPU is in millicores, memory in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceExplanation {
    /// What the numbers rest on.
    pub evidence: Evidence,
    /// Share added to each percentile.
    pub margin: f64,
    /// The least that any of the numbers may be.
    pub floor: Floor,
    /// How results are rounded.
    pub rounding: Rounding,
    /// The policy's limits.
    pub cap: Cap,
    /// The upper bound is at most this many times the target, where that is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_bound_factor: Option<f64>,
    /// How much it was throttled, where that is known, and what CPU is multiplied by for it after the margin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<Throttled>,
    /// The latest out-of-memory bump that is still part of the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bump: Option<OomBump>,
    /// How the lower bound came about.
    pub lower: EstimateStep,
    /// How the target came about.
    pub target: EstimateStep,
    /// How the upper bound came about.
    pub upper: EstimateStep,
}

/// What a recommendation rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// Which samples were counted.
    pub of: Basis,
    /// How many there were.
    pub samples: u64,
    /// The earliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Time>,
    /// The latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Time>,
    /// Seconds that count as one unit of confidence, when they hold a sample a minute.
    pub interval: f64,
    /// Confidence: the smaller of covered time and number of samples, each in such units.
    pub confidence: f64,
}

impl Evidence {
    /// The time that the samples cover.
    pub fn covered(&self) -> Duration {
        match (self.first, self.last) {
            (Some(first), Some(last)) => {
                Duration::from_nanos(u64::try_from(last.nanos_since(first)).unwrap_or(0))
            }
            _ => Duration::ZERO,
        }
    }
}

/// Which samples confidence is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// CPU samples, also for memory.
    Cpu,
    /// Memory samples: there are none of the CPU.
    Memory,
}

/// Where a floor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Floor {
    /// The amount.
    pub amount: i64,
    /// Among how many containers the pod's floor was split; `None` for a floor of the VPA's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_among: Option<usize>,
}

/// How results are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rounding {
    /// Up to a multiple of this amount.
    pub multiple: i64,
    /// To two decimals of a binary unit.
    pub humanized: bool,
    /// Up to whole cores.
    pub whole_cores: bool,
}

/// How one of the three numbers came about.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EstimateStep {
    /// Share of the samples that is covered.
    pub percentile: f64,
    /// What the histogram reads there: cores or bytes.
    pub read: f64,
    /// What the peaks of the largest replicas read there, when that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_replica: Option<f64>,
    /// How far confidence moves a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stretch: Option<ConfidenceFactor>,
    /// Which stage had the last word.
    pub decided_by: RecommendationReason,
}

/// A bound is multiplied by `(1 + weight / confidence) ^ exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceFactor {
    /// How much a lack of confidence counts.
    pub weight: f64,
    /// Positive widens upwards, negative downwards.
    pub exponent: i32,
}

/// Which stage of the chain decided a number. The same words stand in metrics, conditions and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecommendationReason {
    /// Nothing was seen: only the floor speaks.
    NoData,
    /// What was used, and the margin.
    Usage,
    /// What was used, in the bucket of an out-of-memory kill's bump.
    OomBump,
    /// The largest replica.
    LargestReplica,
    /// What was used, raised because the limit keeps it from using more.
    Throttling,
    /// The floor.
    Floor,
    /// The largest multiple of the target that the upper bound may be.
    UpperBoundFactor,
    /// The policy's minimum.
    MinAllowed,
    /// The policy's maximum.
    MaxAllowed,
    /// The maximum for the whole cluster.
    GlobalMaxAllowed,
    /// What a pod may have on the largest node.
    NodeCap,
    /// What a pod may have by the operator's limit.
    PodCap,
}

impl RecommendationReason {
    /// Those without which a number would be another one, as metrics list them.
    pub const RESTRICTIONS: [Self; 7] = [
        Self::Floor,
        Self::UpperBoundFactor,
        Self::MinAllowed,
        Self::MaxAllowed,
        Self::GlobalMaxAllowed,
        Self::NodeCap,
        Self::PodCap,
    ];

    /// The word for it, the same in metrics, conditions, events and explanations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoData => "no_data",
            Self::Usage => "usage",
            Self::OomBump => "oom_bump",
            Self::LargestReplica => "largest_replica",
            Self::Throttling => "throttling",
            Self::Floor => "floor",
            Self::UpperBoundFactor => "upper_bound_factor",
            Self::MinAllowed => "min_allowed",
            Self::MaxAllowed => "max_allowed",
            Self::GlobalMaxAllowed => "global_max_allowed",
            Self::NodeCap => "node_cap",
            Self::PodCap => "pod_cap",
        }
    }
}

impl fmt::Display for RecommendationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// In one short line why the target is what it is: `p90 of 8.0 d +15 %`.
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
            RecommendationReason::MinAllowed => write!(f, "minAllowed of the policy"),
            RecommendationReason::MaxAllowed => write!(f, "maxAllowed of the policy"),
            RecommendationReason::GlobalMaxAllowed => write!(f, "maximum for all containers"),
            RecommendationReason::NodeCap => write!(f, "share of the largest node"),
            RecommendationReason::PodCap => write!(f, "share of what the pod may have"),
        }
    }
}
