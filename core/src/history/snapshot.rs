//! The neutral form of what is remembered about one container: exact weights, open memory windows and
//! where out-of-memory bumps came from. Backends store it; only the recommender gives it meaning.

use serde::{Deserialize, Serialize};

use crate::types::Time;

/// Which bucket boundaries a histogram was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BucketScheme {
    /// The boundaries of the VerticalPodAutoscaler: first bucket 10 m or 10 MB.
    #[default]
    Standard,
    /// Finer at the low end: first bucket 1 m or 1 MiB.
    Fine,
}

/// A histogram as bucket weights, without any loss.
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

/// How many samples of one kind were seen, and over which time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleStats {
    /// Number of samples.
    pub count: u64,
    /// Time of the earliest one.
    pub first: Option<Time>,
    /// Time of the latest one.
    pub last: Option<Time>,
}

/// What is known about one pod's container while it lives: ordering of its samples and its open memory window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaState {
    /// Name of the pod.
    pub name: Box<str>,
    /// Time of the last CPU sample taken.
    pub last_cpu: Option<Time>,
    /// Time of the last memory sample taken.
    pub last_memory: Option<Time>,
    /// End of the memory window that is open.
    pub window_end: Option<Time>,
    /// Largest usage of that window in bytes, when one was counted.
    pub usage_peak: Option<i64>,
    /// Largest out-of-memory bump of that window in bytes, when one was counted.
    pub bump_peak: Option<i64>,
    /// When it was last killed for lack of memory: the pod goes on to show that kill, and it counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_kill: Option<Time>,
}

/// After which time samples count half, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfLives {
    /// CPU samples.
    pub cpu: u32,
    /// Memory peaks.
    pub memory: u32,
}

/// The largest recent out-of-memory bump, and what it rested on: a bump never feeds on a bump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomBump {
    /// When the container was killed.
    pub at: Time,
    /// The observed amount that the bump started from, in bytes.
    pub base: i64,
    /// The amount that was counted, in bytes.
    pub counted: i64,
}

/// How often a container was kept from the CPU that it wanted, as it was measured last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throttling {
    /// Scheduling periods in which it was.
    pub throttled: f64,
    /// All of them.
    pub periods: f64,
    /// When that was measured.
    pub at: Time,
}

/// Everything that is remembered about one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Topmost scalable owner of the pods (`apps/Deployment/web`): a VPA that is made anew for the same
    /// target inherits by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Box<str>>,
    /// CPU usage.
    pub cpu: HistogramWeights,
    /// Memory peaks, those of open windows included.
    pub memory: HistogramWeights,
    /// CPU usage in standard buckets, when `cpu` is in others: for formats that know no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_standard: Option<HistogramWeights>,
    /// Memory peaks in standard buckets and without those of open windows, when `memory` is something else:
    /// for formats that know no other buckets, and whose readers would count open windows twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_closed: Option<HistogramWeights>,
    /// Peaks of the whole fleet, one a window, where per-replica peaks are asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<HistogramWeights>,
    /// The open window of the whole fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_window: Option<ReplicaState>,
    /// CPU samples seen.
    pub cpu_seen: SampleStats,
    /// Memory samples seen.
    pub memory_seen: SampleStats,
    /// After which CPU samples and memory peaks count half: their weights mean nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_lives: Option<HalfLives>,
    /// When this history began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    /// When this container was last part of a live pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_alive: Option<Time>,
    /// Pods with state of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaState>,
    /// The largest recent out-of-memory bump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bump: Option<OomBump>,
    /// How much of its CPU time it was throttled, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttling: Option<Throttling>,
    /// Whether all that a server had of the time before this history was read into it: who goes on from it asks for
    /// what came since, and for nothing before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bootstrapped: bool,
}

impl Snapshot {
    /// How much was seen. Of two records of one key the one that saw less is the poorer. CPU samples
    /// decide, because every format counts them; memory samples only break ties, since a checkpoint of
    /// upstream's does not say how many there were.
    pub fn sample_rank(&self) -> u64 {
        sample_rank(self.cpu_seen, self.memory_seen)
    }
}

/// How much was seen, by the samples of CPU and memory: see [`Snapshot::richness`].
pub fn sample_rank(cpu: SampleStats, memory: SampleStats) -> u64 {
    let part = |count: u64| count.min(u64::from(u32::MAX));
    part(cpu.count) << 32 | part(memory.count)
}
