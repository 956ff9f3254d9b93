//! What runs in the virtual cluster: workloads, their containers, requests and limits.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::demand::{CpuDemand, MemoryDemand};
use crate::types::units::{Bytes, MilliCpu};

/// An amount of both resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceAmounts {
    /// CPU.
    #[serde(rename = "cpuMillicores")]
    pub cpu: MilliCpu,
    /// Memory.
    #[serde(rename = "memoryBytes")]
    pub memory: Bytes,
}

/// Limits: either, both or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Above it CPU is throttled.
    #[serde(default, rename = "cpuMillicores", skip_serializing_if = "Option::is_none")]
    pub cpu: Option<MilliCpu>,
    /// Above it the container is killed.
    #[serde(default, rename = "memoryBytes", skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// What a container is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerResources {
    /// Its requests.
    pub request: ResourceAmounts,
    /// Its limits.
    #[serde(default)]
    pub limit: ResourceLimits,
}

impl ResourceAmounts {
    /// The larger of each resource.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }
}

impl ContainerResources {
    /// The share with another request; limits keep their ratio to it, as the VerticalPodAutoscaler scales
    /// them. A limit without a request to measure it by stays.
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

/// `limit * to / from` without overflow on the way.
fn proportion(limit: i64, from: i64, to: i64) -> i64 {
    let scaled = i128::from(limit) * i128::from(to) / i128::from(from);
    i64::try_from(scaled).unwrap_or(i64::MAX)
}

/// A number for each resource that has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionalAmounts {
    /// CPU.
    #[serde(default, rename = "cpuMillicores", skip_serializing_if = "Option::is_none")]
    pub cpu: Option<MilliCpu>,
    /// Memory.
    #[serde(default, rename = "memoryBytes", skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

impl From<ResourceAmounts> for OptionalAmounts {
    fn from(ResourceAmounts { cpu, memory }: ResourceAmounts) -> Self {
        Self { cpu: Some(cpu), memory: Some(memory) }
    }
}

impl OptionalAmounts {
    /// These numbers, and `otherwise` where there is none.
    #[must_use]
    pub fn or(self, otherwise: ResourceAmounts) -> ResourceAmounts {
        ResourceAmounts {
            cpu: self.cpu.unwrap_or(otherwise.cpu),
            memory: self.memory.unwrap_or(otherwise.memory),
        }
    }
}

/// What the recommender says about a container. A resource that is not recommended has no numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRecommendation {
    /// What to request.
    pub target: OptionalAmounts,
    /// Below it a pod is replaced.
    pub lower: OptionalAmounts,
    /// Above it a pod is replaced.
    pub upper: OptionalAmounts,
}

/// Part a container plays in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerType {
    /// An ordinary container.
    Main,
    /// A native sidecar: an init container with `restartPolicy: Always`. It runs a minute before the
    /// others and ends with them.
    Sidecar,
}

/// A container in the pod template.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSpec {
    /// Its name.
    pub name: Arc<str>,
    /// Its part.
    pub container_type: ContainerType,
    /// Requests and limits of the template.
    pub resources: ContainerResources,
    /// Its demand for CPU.
    pub cpu: CpuDemand,
    /// Its demand for memory.
    pub memory: MemoryDemand,
}

/// How pods of a workload come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// So many replicas, for ever.
    Deployment {
        /// How many.
        replicas: u32,
    },
    /// A pod of a new name at every run; it ends when its main containers have done their work. A run
    /// that is still going when the next is due goes on alone (`concurrencyPolicy: Forbid`).
    CronJob {
        /// Minutes between runs.
        every: u64,
        /// Minutes after the start of the cluster until the first.
        first: u64,
        /// What one run needs of each main container: millicores times minutes. Throttled runs last longer.
        work: i64,
    },
}

/// A workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// How its pods come and go.
    pub workload_kind: WorkloadKind,
    /// Its pod template; one container at least, and one of them a main one.
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
    fn no_limit_stays_no_limit_and_one_without_a_request_stays_as_it_is() {
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
