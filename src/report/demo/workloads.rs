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

pub const NAMESPACE: &str = "shop";

#[derive(Clone, Debug)]
pub struct DemoWorkload {
    pub workload: Workload,
    pub story: &'static str,
    /// The maximum memory of its policy (`maxAllowed`), if there is one.
    pub max_memory: Option<Bytes>,
}

pub fn workloads() -> Vec<DemoWorkload> {
    use WorkloadKind::{CronJob, Deployment};
    vec![
        // A main container and a native sidecar, which gets a recommendation of its own.
        demo_workload(
            "gateway",
            "with a native sidecar, proxy",
            Deployment { replicas: 2 },
            vec![
                container(
                    "gateway",
                    requests_and_limits(400, 512, None, Some(768)),
                    CpuDemand::Diurnal { night: MilliCpu(40), peak: MilliCpu(300), weekend: 0.6 },
                    MemoryDemand::Steady { level: mib(180), spread: 0.1 },
                ),
                ContainerSpec {
                    container_type: ContainerType::Sidecar,
                    ..container(
                        "proxy",
                        requests_and_limits(100, 128, None, Some(256)),
                        CpuDemand::Diurnal {
                            night: MilliCpu(10),
                            peak: MilliCpu(60),
                            weekend: 0.6,
                        },
                        MemoryDemand::Steady { level: mib(60), spread: 0.1 },
                    )
                },
            ],
        ),
        // A new pod every six hours, for about half an hour.
        demo_workload(
            "invoices",
            "a CronJob, every 6 hours",
            CronJob { every: 360, first: 120, work: 27_000 },
            vec![container(
                "invoices",
                requests_and_limits(2000, 2048, None, Some(2048)),
                CpuDemand::Steady { level: MilliCpu(900), spread: 0.2 },
                MemoryDemand::Batch { start: mib(150), end: mib(700), spread: 0.25 },
            )],
        ),
        // `-Xmx1536m`: the heap fills within a working day and never shrinks.
        demo_workload(
            "orders",
            "a JVM, heap never shrinks",
            Deployment { replicas: 2 },
            vec![container(
                "orders",
                requests_and_limits(2000, 4096, None, Some(4096)),
                starting(
                    1500,
                    4,
                    CpuDemand::Diurnal { night: MilliCpu(80), peak: MilliCpu(420), weekend: 0.7 },
                ),
                MemoryDemand::Heap {
                    start: mib(256),
                    max: mib(1536),
                    off_heap: mib(320),
                    fills_in: 480,
                },
            )],
        ),
        // Throttled by its CPU limit every afternoon; requests twice the memory that it needs.
        demo_workload(
            "storefront",
            "busy by day, quiet by night",
            Deployment { replicas: 3 },
            vec![container(
                "storefront",
                requests_and_limits(250, 1024, Some(500), Some(1024)),
                CpuDemand::Diurnal { night: MilliCpu(60), peak: MilliCpu(700), weekend: 0.5 },
                MemoryDemand::Diurnal { night: mib(260), peak: mib(420) },
            )],
        ),
        // Over-provisioned CPU and memory: the most common case.
        demo_workload(
            "web",
            "a steady web service",
            Deployment { replicas: 4 },
            vec![container(
                "web",
                requests_and_limits(500, 512, None, Some(1024)),
                starting(400, 2, CpuDemand::Steady { level: MilliCpu(160), spread: 0.35 }),
                MemoryDemand::Steady { level: mib(300), spread: 0.08 },
            )],
        ),
        // Leaks memory. No amount is enough, so its VPA sets a maximum.
        DemoWorkload {
            max_memory: Some(mib(1024)),
            ..demo_workload(
                "worker",
                "leaks memory until it is killed",
                Deployment { replicas: 2 },
                vec![container(
                    "worker",
                    requests_and_limits(100, 256, None, Some(384)),
                    CpuDemand::Steady { level: MilliCpu(120), spread: 0.5 },
                    MemoryDemand::Leak { start: mib(120), per_hour: mib(36) },
                )],
            )
        },
    ]
}

fn demo_workload(
    name: &str,
    story: &'static str,
    workload_kind: WorkloadKind,
    containers: Vec<ContainerSpec>,
) -> DemoWorkload {
    let (namespace, name) = (Arc::from(NAMESPACE), Arc::from(name));
    let workload = Workload { namespace, name, workload_kind, containers };
    DemoWorkload { workload, story, max_memory: None }
}

fn container(
    name: &str,
    resources: ContainerResources,
    cpu: CpuDemand,
    memory: MemoryDemand,
) -> ContainerSpec {
    let (name, container_type) = (Arc::from(name), ContainerType::Main);
    ContainerSpec { name, container_type, resources, cpu, memory }
}

/// CPU that bursts for some minutes after the start.
fn starting(burst: i64, minutes: u64, then: CpuDemand) -> CpuDemand {
    CpuDemand::Starting { burst: MilliCpu(burst), minutes, then: Box::new(then) }
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
