//! The demo's workloads: synthetic, with common load patterns. Their requests are wrong in the way that requests often are:
//! copied from another service, doubled after an incident, never reviewed.

use std::sync::Arc;

use plimsoll_core::{
    sim::{
        ContainerResources, ContainerSpec, ContainerType, CpuDemand, MIB, MemoryDemand,
        ResourceAmounts, ResourceLimits, Workload, WorkloadKind,
    },
    types::units::{Bytes, MilliCpu},
};

/// The namespace of all workloads.
pub const NAMESPACE: &str = "shop";

/// A workload with its description.
#[derive(Clone, Debug)]
pub struct DemoWorkload {
    /// The workload.
    pub workload: Workload,
    /// A short description.
    pub story: &'static str,
    /// The maximum memory of its policy (`maxAllowed`), if there is one.
    pub max_memory: Option<Bytes>,
}

/// All workloads of the demo.
pub fn workloads() -> Vec<DemoWorkload> {
    vec![gateway(), invoices(), orders(), storefront(), web(), worker()]
}

/// Over-provisioned CPU and memory: the most common case.
fn web() -> DemoWorkload {
    demo_workload(
        "web",
        "a steady web service",
        WorkloadKind::Deployment { replicas: 4 },
        vec![ContainerSpec {
            resources: requests_and_limits(500, 512, None, Some(1024)),
            ..container(
                "web",
                CpuDemand::Starting {
                    burst: MilliCpu(400),
                    minutes: 2,
                    then: Box::new(CpuDemand::Steady { level: MilliCpu(160), spread: 0.35 }),
                },
                MemoryDemand::Steady { level: mib(300), spread: 0.08 },
            )
        }],
    )
}

/// Throttled by its CPU limit every afternoon; requests twice the memory that it needs.
fn storefront() -> DemoWorkload {
    demo_workload(
        "storefront",
        "busy by day, quiet by night",
        WorkloadKind::Deployment { replicas: 3 },
        vec![ContainerSpec {
            resources: requests_and_limits(250, 1024, Some(500), Some(1024)),
            ..container(
                "storefront",
                CpuDemand::Diurnal { night: MilliCpu(60), peak: MilliCpu(700), weekend: 0.5 },
                MemoryDemand::Diurnal { night: mib(260), peak: mib(420) },
            )
        }],
    )
}

/// `-Xmx1536m`: the heap fills within a working day and never shrinks.
fn orders() -> DemoWorkload {
    demo_workload(
        "orders",
        "a JVM, heap never shrinks",
        WorkloadKind::Deployment { replicas: 2 },
        vec![ContainerSpec {
            resources: requests_and_limits(2000, 4096, None, Some(4096)),
            ..container(
                "orders",
                CpuDemand::Starting {
                    burst: MilliCpu(1500),
                    minutes: 4,
                    then: Box::new(CpuDemand::Diurnal {
                        night: MilliCpu(80),
                        peak: MilliCpu(420),
                        weekend: 0.7,
                    }),
                },
                MemoryDemand::Heap {
                    start: mib(256),
                    max: mib(1536),
                    off_heap: mib(320),
                    fills_in: 480,
                },
            )
        }],
    )
}

/// A new pod every six hours, for about half an hour.
fn invoices() -> DemoWorkload {
    demo_workload(
        "invoices",
        "a CronJob, every 6 hours",
        WorkloadKind::CronJob { every: 360, first: 120, work: 27_000 },
        vec![ContainerSpec {
            resources: requests_and_limits(2000, 2048, None, Some(2048)),
            ..container(
                "invoices",
                CpuDemand::Steady { level: MilliCpu(900), spread: 0.2 },
                MemoryDemand::Batch { start: mib(150), end: mib(700), spread: 0.25 },
            )
        }],
    )
}

/// Leaks memory. No amount is enough, so its VPA sets a maximum.
fn worker() -> DemoWorkload {
    DemoWorkload {
        max_memory: Some(mib(1024)),
        ..demo_workload(
            "worker",
            "leaks memory until it is killed",
            WorkloadKind::Deployment { replicas: 2 },
            vec![ContainerSpec {
                resources: requests_and_limits(100, 256, None, Some(384)),
                ..container(
                    "worker",
                    CpuDemand::Steady { level: MilliCpu(120), spread: 0.5 },
                    MemoryDemand::Leak { start: mib(120), per_hour: mib(36) },
                )
            }],
        )
    }
}

/// A main container and a native sidecar, which gets a recommendation of its own.
fn gateway() -> DemoWorkload {
    demo_workload(
        "gateway",
        "with a native sidecar, proxy",
        WorkloadKind::Deployment { replicas: 2 },
        vec![
            ContainerSpec {
                resources: requests_and_limits(400, 512, None, Some(768)),
                ..container(
                    "gateway",
                    CpuDemand::Diurnal { night: MilliCpu(40), peak: MilliCpu(300), weekend: 0.6 },
                    MemoryDemand::Steady { level: mib(180), spread: 0.1 },
                )
            },
            ContainerSpec {
                container_type: ContainerType::Sidecar,
                resources: requests_and_limits(100, 128, None, Some(256)),
                ..container(
                    "proxy",
                    CpuDemand::Diurnal { night: MilliCpu(10), peak: MilliCpu(60), weekend: 0.6 },
                    MemoryDemand::Steady { level: mib(60), spread: 0.1 },
                )
            },
        ],
    )
}

fn demo_workload(
    name: &str,
    story: &'static str,
    kind: WorkloadKind,
    containers: Vec<ContainerSpec>,
) -> DemoWorkload {
    let workload = Workload {
        namespace: Arc::from(NAMESPACE),
        name: Arc::from(name),
        workload_kind: kind,
        containers,
    };
    DemoWorkload { workload, story, max_memory: None }
}

fn container(name: &str, cpu: CpuDemand, memory: MemoryDemand) -> ContainerSpec {
    ContainerSpec {
        name: Arc::from(name),
        container_type: ContainerType::Main,
        resources: ContainerResources::default(),
        cpu,
        memory,
    }
}

/// Requests and limits, both in millicores and MiB.
fn requests_and_limits(
    cpu: i64,
    memory: i64,
    cpu_limit: Option<i64>,
    memory_limit: Option<i64>,
) -> ContainerResources {
    ContainerResources {
        request: ResourceAmounts { cpu: MilliCpu(cpu), memory: mib(memory) },
        limit: ResourceLimits { cpu: cpu_limit.map(MilliCpu), memory: memory_limit.map(mib) },
    }
}

const fn mib(amount: i64) -> Bytes {
    Bytes(amount * MIB)
}
