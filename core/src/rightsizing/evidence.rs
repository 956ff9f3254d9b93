//! What history shows about a container.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{
    recommender::ContainerRecommendation,
    types::{
        Time,
        units::{Bytes, MilliCpu},
    },
};

use super::{
    daily_peaks::DailyPeaks, page_cache::NeededMemory, runs::RunTargets, runtime_bounds::JvmMemory,
};

/// What history shows about a container, all of its pods together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerEvidence {
    /// What the recommender computes; `None` if there is no history. It is larger than everything else here, and many
    /// containers have none.
    pub recommendation: Option<Box<ContainerRecommendation>>,
    /// Why there is no recommendation although there are series, or why it does not count.
    pub gap: Option<EvidenceGap>,
    /// OOM kills within the window.
    pub oom_kills: u32,
    pub last_oom_kill: Option<Time>,
    /// The memory limit at the last OOM kill, if known. A limit that was raised since then is no risk.
    pub oom_kill_limit: Option<Bytes>,
    /// The share of CFS periods in which it was throttled, from 0 to 1; `None` if unknown.
    pub throttled_share: Option<f64>,
    /// The share of time in which a pod used more CPU than it requests, from 0 to 1; `None` if unknown.
    pub cpu_above_request: Option<f64>,
    /// The peak of memory of one pod within the window.
    pub memory_peak: Option<MemoryPeak>,
    /// The peak of memory of one pod in the longer time of `--peak-length`.
    pub rare_memory_peak: Option<MemoryPeak>,
    /// The peak of memory of one pod on each day of that longer time. Earlier days without a high peak may be missing.
    pub daily_memory_peaks: DailyPeaks,
    /// Runs of a CronJob or Job.
    pub runs: Option<RunCounts>,
    /// What the runs need. It replaces the recommendation.
    pub run_targets: Option<RunTargets>,
    /// Targets by node group, if the pods of a DaemonSet differ.
    pub node_groups: Vec<NodeGroupTarget>,
    /// Memory that the container cannot give back, without page cache; `None` if unknown.
    pub needed_memory_peak: Option<MemoryPeak>,
    /// The same by day; `None` if unknown.
    pub needed_memory: Option<NeededMemory>,
    /// What a Java virtual machine uses besides its heap; `None` if its series are not there.
    pub jvm_memory: Option<Box<JvmMemory>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryPeak {
    /// The amount.
    pub bytes: Bytes,
    pub at: Time,
}

/// How many runs of a CronJob or Job have samples, and how long they take.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunCounts {
    /// Runs within the window.
    pub total: u32,
    /// Runs with at least one sample.
    pub seen: u32,
    /// The mean length of a run in seconds; `None` if no length is known.
    pub mean_seconds: Option<u64>,
    /// The running time of all pods of all runs in seconds, with parallel pods each for itself; `None` if no length is
    /// known.
    pub pod_seconds: Option<u64>,
}

/// The target of the pods of a DaemonSet on one group of nodes.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeGroupTarget {
    pub label: Box<str>,
    /// Its value; `None` for nodes without the label.
    pub value: Option<Box<str>>,
    pub pods: u32,
    pub cpu: Option<MilliCpu>,
    pub memory: Option<Bytes>,
    /// Whether the group has too little history of its own, so that the larger of its and the pool's target is used.
    pub from_pool: bool,
}

/// Why a container has no number.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EvidenceGap {
    /// The server has no series of the container.
    WithoutSeries,
    /// The samples cover less than a day.
    TooYoung,
    /// There are fewer than 100 samples.
    TooFewSamples,
    /// Fewer than three runs of a job are known, or less than 60 % of them have samples.
    TooFewRuns,
    /// Several workloads claim its pods.
    AmbiguousOwner,
    /// The history could not be read.
    Unread,
}
