//! The backend-neutral form of one container's history: exact weights, open memory windows and the origin of
//! OOM bumps. Backends store it; only the recommender interprets it.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::encoded_plan::EncodedPlan;
use crate::types::Time;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BucketScheme {
    /// The boundaries of the VerticalPodAutoscaler: first bucket 10 m or 10 MB.
    #[default]
    Standard,
    /// Finer at the low end: first bucket 1 m or 1 MiB.
    Fine,
}

/// A histogram as bucket weights, lossless.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistogramWeights {
    /// Boundaries of the buckets.
    #[serde(default)]
    pub scheme: BucketScheme,
    /// The instant at which a sample weighs 1; `None` before the first sample.
    pub reference: Option<Time>,
    /// Sum of all weights, including residues too small to show in a bucket.
    pub total: f64,
    /// Weight by bucket, ascending by bucket.
    pub buckets: Vec<(u8, f64)>,
    /// Lowest and highest bucket that count as filled; `None` when the histogram is empty.
    pub span: Option<(u8, u8)>,
}

/// The number of samples of one resource, and the time range that they cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleStats {
    pub count: u64,
    /// Time of the earliest one.
    pub first: Option<Time>,
    /// Time of the latest one.
    pub last: Option<Time>,
}

/// Per-pod state of a container while the pod lives: the order of its samples and its open memory window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaState {
    pub name: Box<str>,
    /// Time of the last accepted CPU sample.
    pub last_cpu: Option<Time>,
    /// Time of the last accepted memory sample.
    pub last_memory: Option<Time>,
    /// End of the open memory window.
    pub window_end: Option<Time>,
    /// Largest usage of that window in bytes, if one was counted.
    pub usage_peak: Option<i64>,
    /// Largest OOM bump of that window in bytes, if one was counted.
    pub bump_peak: Option<i64>,
    /// Time of its last OOM kill. The pod status keeps showing that kill, and it must count only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_kill: Option<Time>,
}

/// Half-lives of sample weights, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfLives {
    /// Half-life of CPU samples.
    pub cpu: u32,
    /// Half-life of memory peaks.
    pub memory: u32,
}

/// The largest recent OOM bump and its base: a bump is never based on an earlier bump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomBump {
    /// Time of the OOM kill.
    pub at: Time,
    /// The observed amount that the bump was computed from, in bytes.
    pub base: i64,
    /// The amount that was added to the histogram, in bytes.
    pub counted: i64,
}

/// CPU throttling of a container, as last measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throttling {
    /// Number of throttled scheduling periods.
    pub throttled: f64,
    /// Number of scheduling periods.
    pub periods: f64,
    pub at: Time,
}

/// The complete history of one container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Topmost scalable owner of the pods (`apps/Deployment/web`). A VPA that is recreated for the same target
    /// inherits the history by it.
    pub owner: Option<Box<str>>,
    /// CPU usage.
    pub cpu: HistogramWeights,
    /// Memory peaks, including those of open windows.
    pub memory: HistogramWeights,
    /// CPU usage in standard buckets, if `cpu` uses others: for formats that only know standard buckets.
    pub cpu_standard: Option<HistogramWeights>,
    /// Memory peaks in standard buckets and without open windows, if `memory` differs from that: for formats that
    /// only know standard buckets and whose readers would count open windows twice.
    pub memory_closed: Option<HistogramWeights>,
    /// Peaks of the largest replica, one per window, if per-replica peaks are enabled.
    pub fleet: Option<HistogramWeights>,
    /// The open window of `fleet`.
    pub fleet_window: Option<ReplicaState>,
    /// Number and time range of the CPU samples.
    pub cpu_seen: SampleStats,
    /// Number and time range of the memory samples.
    pub memory_seen: SampleStats,
    /// Half-lives of the weights, which mean nothing without them.
    pub half_lives: Option<HalfLives>,
    /// When this history began.
    pub created: Option<Time>,
    /// When this container was last part of a live pod.
    pub last_alive: Option<Time>,
    /// State of the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaState>,
    /// The largest recent OOM bump.
    pub bump: Option<OomBump>,
    pub throttling: Option<Throttling>,
    /// What planned requests are based on, where they are planned.
    pub plan: Option<EncodedPlan>,
    /// Whether the history before `created` has been loaded from the server completely. If so, a later load only
    /// queries what came since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bootstrapped: bool,
}

impl Snapshot {
    /// Ranks snapshots of one key by the number of samples; the lower one is the poorer record. CPU samples
    /// decide, because every format counts them; memory samples only break ties, since upstream's checkpoints do
    /// not count them.
    pub fn sample_rank(&self) -> u64 {
        sample_rank(self.cpu_seen, self.memory_seen)
    }
}

/// Ranks a history by its CPU and memory samples: see [`Snapshot::sample_rank`].
pub fn sample_rank(cpu: SampleStats, memory: SampleStats) -> u64 {
    let part = |count: u64| count.min(u64::from(u32::MAX));
    part(cpu.count) << 32 | part(memory.count)
}
