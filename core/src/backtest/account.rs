//! Sums of container-days: what is merged from workloads, processes and shards.
//!
//! Only sums and counts, so that merging is independent of the order and of where a workload was replayed.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::replica_model::ReplicaSource;
use crate::types::Time;

/// The account of a workload under all policies.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAccount {
    /// The cluster, if the backtest covers several.
    pub cluster: Option<Box<str>>,
    pub namespace: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub containers: Vec<Box<str>>,
    /// Containers left out of the figures of memory, as their memory follows the limit.
    pub elastic_containers: u32,
    /// Containers whose requests of the past are unknown, so that they are left out of `current`.
    #[serde(default)]
    pub unknown_requests: u32,
    /// Minutes without samples while a pod existed.
    pub missing_minutes: u64,
    pub sampled_minutes: u64,
    /// Where its replicas come from.
    #[serde(default)]
    pub replicas: ReplicaSource,
    /// One for each policy, in the order of the backtest.
    pub policies: Vec<PolicyAccount>,
}

/// The account of a workload under one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyAccount {
    pub policy: Box<str>,
    /// Container-days in order of container and day.
    pub days: Vec<ContainerDay>,
    /// Seconds from the first sample to the first recommendation, by container; `None` if there was none.
    pub first_recommendation_seconds: Vec<Option<u64>>,
}

/// One container of a workload on one UTC day, all of its pods together. Hours and minutes are those of pods with samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerDay {
    /// The index of the container in [`WorkloadAccount::containers`].
    pub container: u16,
    /// The beginning of the day.
    pub day: Time,
    /// Minutes with a value of CPU, summed over pods.
    pub cpu_minutes: u64,
    /// Windows with a peak of memory, summed over pods.
    pub memory_windows: u64,
    /// Core-hours requested.
    pub cpu_requested: f64,
    /// Core-hours used.
    pub cpu_used: f64,
    /// Core-hours of slack: (mean request - p95 of the means of five minutes), at least zero, times hours.
    pub cpu_slack: f64,
    /// Minutes in which more was used than requested.
    pub cpu_short_minutes: u64,
    /// Core-hours used above the request.
    pub cpu_short: f64,
    /// Minutes at or above the CPU limit.
    pub throttled_minutes: u64,
    /// Minutes that were throttled in the recording, so that demand is unknown.
    pub censored_minutes: u64,
    /// GiB-hours requested.
    pub memory_requested: f64,
    /// GiB-hours of slack: (mean request - largest peak), at least zero, times hours.
    pub memory_slack: f64,
    /// Windows with a peak above the request.
    pub memory_short_windows: u64,
    pub oom_kills: u32,
    /// Windows whose demand is assumed, as the container was killed in the recording.
    pub assumed_windows: u64,
    /// Minutes that were throttled in the recording and did not exceed the request, so that they may have.
    #[serde(default)]
    pub uncertain_minutes: u64,
    /// Assumed windows with a limit above that of the recording, in which a kill is neither sure nor impossible.
    #[serde(default)]
    pub uncertain_windows: u64,
    /// OOM kills in such windows.
    #[serde(default)]
    pub uncertain_kills: u32,
    /// Windows that are left out, as the memory of the container follows its limit.
    #[serde(default)]
    pub left_out_windows: u64,
    /// Evictions.
    pub evicted: u32,
    /// Resizes in place.
    pub resized: u32,
    /// Pods that were born with a request that differs from that of the pod before.
    pub born_changed: u32,
}
