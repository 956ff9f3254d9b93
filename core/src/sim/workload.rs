//! The workloads of the virtual cluster: their containers, requests and limits.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::demand::{CpuDemand, MemoryDemand};
use crate::types::units::{Bytes, MilliCpu};

/// CPU and memory amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceAmounts {
    #[serde(rename = "cpuMillicores")]
    pub cpu: MilliCpu,
    #[serde(rename = "memoryBytes")]
    pub memory: Bytes,
}

/// The CPU limit, above which a container is throttled, and the memory limit, above which it is OOM killed.
pub type ResourceLimits = OptionalAmounts;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerResources {
    pub request: ResourceAmounts,
    #[serde(default)]
    pub limit: ResourceLimits,
}

impl ResourceAmounts {
    /// The maximum of each resource.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }
}

impl ContainerResources {
    /// Replaces the requests and scales the limits in proportion, as the VPA does. A limit without a request is
    /// kept.
    #[must_use]
    pub fn scaled_to(self, request: ResourceAmounts) -> Self {
        let scale = |limit: Option<i64>, from: i64, to: i64| {
            limit.map(|limit| if from == 0 { limit } else { proportion(limit, from, to) })
        };
        let ContainerResources { request: old, limit } = self;
        Self {
            request,
            limit: ResourceLimits {
                cpu: scale(limit.cpu.map(|l| l.0), old.cpu.0, request.cpu.0).map(MilliCpu),
                memory: scale(limit.memory.map(|l| l.0), old.memory.0, request.memory.0).map(Bytes),
            },
        }
    }
}

/// `limit * to / from` without intermediate overflow.
fn proportion(limit: i64, from: i64, to: i64) -> i64 {
    let scaled = i128::from(limit) * i128::from(to) / i128::from(from);
    i64::try_from(scaled).unwrap_or(i64::MAX)
}

/// CPU and memory amounts, each optional.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionalAmounts {
    #[serde(rename = "cpuMillicores")]
    pub cpu: Option<MilliCpu>,
    #[serde(rename = "memoryBytes")]
    pub memory: Option<Bytes>,
}

impl From<ResourceAmounts> for OptionalAmounts {
    fn from(ResourceAmounts { cpu, memory }: ResourceAmounts) -> Self {
        Self { cpu: Some(cpu), memory: Some(memory) }
    }
}

impl OptionalAmounts {
    /// Replaces missing amounts by those of `otherwise`.
    #[must_use]
    pub fn or(self, otherwise: ResourceAmounts) -> ResourceAmounts {
        ResourceAmounts {
            cpu: self.cpu.unwrap_or(otherwise.cpu),
            memory: self.memory.unwrap_or(otherwise.memory),
        }
    }
}

/// The recommendation of a container. A resource without a recommendation has no numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRecommendation {
    pub target: OptionalAmounts,
    /// Pods with lower requests are replaced.
    pub lower: OptionalAmounts,
    /// Pods with higher requests are replaced.
    pub upper: OptionalAmounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerType {
    Main,
    /// A native sidecar: an init container with `restartPolicy: Always`. It starts a minute before the others and
    /// ends with them.
    Sidecar,
}

/// A container in the pod template.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSpec {
    pub name: Arc<str>,
    pub container_type: ContainerType,
    /// Requests and limits in the template.
    pub resources: ContainerResources,
    pub cpu: CpuDemand,
    pub memory: MemoryDemand,
}

/// The lifecycle of a workload's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// A constant number of replicas.
    Deployment { replicas: u32 },
    /// One pod with a new name per run; it ends when its main containers have done their work. A run that is due
    /// while the previous one is still running is skipped (`concurrencyPolicy: Forbid`).
    CronJob {
        /// Minutes between runs.
        every: u64,
        /// Minutes from the start of the cluster to the first run.
        first: u64,
        /// The work of each main container in one run, in millicore-minutes. Throttled runs take longer.
        work: i64,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    /// The lifecycle of its pods.
    pub workload_kind: WorkloadKind,
    /// The pod template, with at least one main container.
    pub containers: Vec<ContainerSpec>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_keep_their_ratio_to_the_request() {
        let share = ContainerResources {
            request: ResourceAmounts { cpu: MilliCpu(500), memory: Bytes(1000) },
            limit: ResourceLimits { cpu: Some(MilliCpu(1000)), memory: Some(Bytes(1500)) },
        };
        let scaled = share.scaled_to(ResourceAmounts { cpu: MilliCpu(200), memory: Bytes(3000) });
        assert_eq!(
            scaled.limit,
            ResourceLimits { cpu: Some(MilliCpu(400)), memory: Some(Bytes(4500)) }
        );
    }

    #[test]
    fn no_limit_stays_unset_and_a_limit_without_a_request_is_unchanged() {
        let share = ContainerResources {
            request: ResourceAmounts::default(),
            limit: ResourceLimits { cpu: None, memory: Some(Bytes(1500)) },
        };
        let scaled = share.scaled_to(ResourceAmounts { cpu: MilliCpu(200), memory: Bytes(3000) });
        assert_eq!(scaled.limit, ResourceLimits { cpu: None, memory: Some(Bytes(1500)) });
    }

    #[test]
    fn huge_amounts_do_not_overflow() {
        let share = ContainerResources {
            request: ResourceAmounts { cpu: MilliCpu(1), memory: Bytes(1) },
            limit: ResourceLimits { cpu: None, memory: Some(Bytes(i64::MAX)) },
        };
        let scaled = share.scaled_to(ResourceAmounts { cpu: MilliCpu(1), memory: Bytes(i64::MAX) });
        assert_eq!(scaled.limit.memory, Some(Bytes(i64::MAX)));
    }
}
