//! A made-up report with 12 containers: each level, each kind of change, containers without a number, and hostile names.

use std::collections::BTreeMap;

use plimsoll_core::{
    rightsizing::{
        evidence::{EvidenceGap, MemoryPeak, NodeGroupTarget, RunCounts},
        report::{
            Change, ContainerReport, Level, Report, ResourceReport, ResourceTotals, RiskReason,
            SCHEMA_VERSION, Score, SourceReport, TargetChange, Totals, WorkloadReport,
        },
        survey::{ContainerRole, Resource, RuntimeHint, Unread, UtilizationTarget},
    },
    types::{
        Time,
        units::{Bytes, MilliCpu},
    },
};

/// A name that is markup where it is not escaped.
pub(crate) const HOSTILE: &str = "\"><script>alert('x')</script><img src=http://evil.example/>";

/// 26 November 2026, 13:40 UTC.
const AT: i64 = 1_795_700_400;
const DAY: i64 = 86_400;
const MI: i64 = 1 << 20;

fn ago(days: i64) -> Time {
    Time::from_secs(AT - days * DAY)
}

/// A resource whose request changes to the target.
fn changed(resource: Resource, request: i64, target: i64) -> ResourceReport {
    ResourceReport {
        resource,
        request: Some(request),
        limit: None,
        template: None,
        target: Some(target),
        lower: Some(target * 9 / 10),
        upper: Some(target * 12 / 10),
        change: Change { request: Some(target), ..Change::default() },
        risk: Level::Ok,
        risk_reasons: Vec::new(),
        waste: Level::Ok,
        cost: Some(request as f64 * price(resource)),
        new_cost: Some(target as f64 * price(resource)),
        unsaid: None,
        explanation: None,
    }
}

fn price(resource: Resource) -> f64 {
    match resource {
        Resource::Cpu => 0.023,
        Resource::Memory => 3.0 / f64::from(1 << 30),
    }
}

fn kept(resource: Resource, request: i64) -> ResourceReport {
    ResourceReport { change: Change::default(), ..changed(resource, request, request) }
}

fn held(resource: Resource, request: i64, target: i64, why: &str) -> ResourceReport {
    let change = Change { held: Some(why.to_owned()), ..Change::default() };
    ResourceReport { change, ..changed(resource, request, target) }
}

fn unsaid(resource: Resource, request: Option<i64>, gap: EvidenceGap) -> ResourceReport {
    ResourceReport {
        request,
        target: None,
        lower: None,
        upper: None,
        change: Change::default(),
        cost: None,
        new_cost: None,
        unsaid: Some(gap),
        ..changed(resource, 0, 0)
    }
}

fn risky(resource: ResourceReport, risk: Level, reason: RiskReason) -> ResourceReport {
    ResourceReport { risk, risk_reasons: vec![reason], ..resource }
}

fn wasteful(resource: ResourceReport, waste: Level) -> ResourceReport {
    ResourceReport { waste, ..resource }
}

fn container(name: &str, cpu: ResourceReport, memory: ResourceReport) -> ContainerReport {
    let peak = memory.target.map(|target| MemoryPeak { bytes: Bytes(target * 9 / 10), at: ago(1) });
    ContainerReport {
        name: name.to_owned(),
        role: ContainerRole::Main,
        no_patch: None,
        resources: vec![cpu, memory],
        oom_kills: 0,
        last_oom_kill: None,
        throttled_share: None,
        memory_peak: peak,
        rare_memory_peak: None,
        needed_memory_peak: None,
        node_groups: Vec::new(),
        runtime: None,
        remarks: Vec::new(),
    }
}

fn workload(
    namespace: &str,
    kind: &str,
    name: &str,
    replicas: Option<u32>,
    containers: Vec<ContainerReport>,
) -> WorkloadReport {
    WorkloadReport {
        cluster: None,
        namespace: namespace.to_owned(),
        api_version: Some("apps/v1".to_owned()),
        kind: kind.to_owned(),
        name: name.to_owned(),
        labels: BTreeMap::new(),
        replicas,
        vpa: None,
        scaled_by: Vec::new(),
        target_changes: Vec::new(),
        shape: None,
        runs: None,
        containers,
    }
}

/// At risk: OOM kills, throttling, a peak near the limit, no request.
fn at_risk() -> Vec<WorkloadReport> {
    use Resource::{Cpu, Memory};
    let kills = RiskReason::OomKilled { kills: 9, last: Some(ago(2)) };
    let killed = ResourceReport {
        limit: Some(512 * MI),
        change: Change { request: Some(844 * MI), limit: Some(844 * MI), ..Change::default() },
        ..risky(changed(Memory, 512 * MI, 844 * MI), Level::Critical, kills)
    };
    let mut checkout = workload(
        "shop",
        "Deployment",
        "checkout",
        Some(6),
        vec![
            ContainerReport {
                oom_kills: 9,
                last_oom_kill: Some(ago(2)),
                ..container("main", kept(Cpu, 500), killed)
            },
            ContainerReport {
                role: ContainerRole::Sidecar,
                ..container("proxy", kept(Cpu, 100), kept(Memory, 128 * MI))
            },
        ],
    );
    checkout.target_changes = vec![TargetChange {
        target: UtilizationTarget {
            kind: "HorizontalPodAutoscaler".into(),
            name: "checkout".into(),
            metric: 0,
            resource: Memory,
            container: None,
            percent: 70,
        },
        new_percent: Some(42),
        held: None,
    }];
    let throttled = RiskReason::Throttled { share: 0.31 };
    let throttled = ResourceReport {
        limit: Some(1000),
        change: Change { request: Some(1650), remove_limit: true, ..Change::default() },
        ..risky(changed(Cpu, 1000, 1650), Level::High, throttled)
    };
    let kafka = ContainerReport {
        throttled_share: Some(0.31),
        runtime: Some(RuntimeHint::Jvm {
            known_by: "-Xmx4g".to_owned(),
            max_heap: Some(Bytes(4 << 30)),
            max_heap_percent: None,
        }),
        needed_memory_peak: Some(MemoryPeak { bytes: Bytes(3900 * MI), at: ago(3) }),
        ..container("kafka", throttled, kept(Memory, 6 << 30))
    };
    let near = RiskReason::PeakNearLimit { share: 0.97 };
    let near = risky(changed(Memory, 1024 * MI, 2300 * MI), Level::High, near);
    let without = ResourceReport { request: None, cost: None, ..changed(Cpu, 0, 120) };
    let reindex = ContainerReport {
        rare_memory_peak: Some(MemoryPeak { bytes: Bytes(2500 * MI), at: ago(23) }),
        ..container("run", risky(without, Level::Medium, RiskReason::NoRequest), near)
    };
    let mut reindex = workload("ops", "CronJob", "reindex", None, vec![reindex]);
    reindex.shape = Some("cronjob by owner".to_owned());
    reindex.runs = Some(RunCounts {
        total: 44,
        seen: 41,
        mean_seconds: Some(900),
        pod_seconds: Some(44 * 900),
    });
    vec![workload("data", "StatefulSet", "kafka", Some(3), vec![kafka]), reindex, checkout]
}

/// Overprovisioned: by money, by node group, held by an autoscaler.
fn wasting() -> Vec<WorkloadReport> {
    use Resource::{Cpu, Memory};
    let group = |value: &str, pods, cpu| NodeGroupTarget {
        label: "node.kubernetes.io/instance-type".into(),
        value: Some(value.into()),
        pods,
        cpu: Some(MilliCpu(cpu)),
        memory: None,
        from_pool: pods < 5,
    };
    let agent = ContainerReport {
        node_groups: vec![group("m6i.large", 60, 60), group("g5.12xlarge", 4, 400)],
        ..container("agent", wasteful(changed(Cpu, 500, 60), Level::High), kept(Memory, 200 * MI))
    };
    let embed = container(
        "main",
        wasteful(changed(Cpu, 4000, 900), Level::High),
        wasteful(changed(Memory, 8 << 30, 3 << 30), Level::High),
    );
    let why = "HorizontalPodAutoscaler search: its target would be above 400 %";
    let search = container(
        "main",
        wasteful(held(Cpu, 1000, 240, why), Level::Medium),
        wasteful(changed(Memory, 2 << 30, 1 << 30), Level::Low),
    );
    let mut search = workload("shop", "Deployment", "search", Some(20), vec![search]);
    search.vpa = Some("search".to_owned());
    vec![
        workload("infra", "DaemonSet", "logs", Some(64), vec![agent]),
        workload("ml", "Deployment", "embed", Some(12), vec![embed]),
        search,
    ]
}

/// Fine, without numbers, and with hostile names.
fn others() -> Vec<WorkloadReport> {
    use Resource::{Cpu, Memory};
    let init = ContainerReport {
        role: ContainerRole::Init,
        ..container(
            "migrate",
            unsaid(Cpu, None, EvidenceGap::TooFewSamples),
            wasteful(changed(Memory, 512 * MI, 96 * MI), Level::Low),
        )
    };
    let young = container(
        "api",
        unsaid(Cpu, Some(250), EvidenceGap::TooYoung),
        unsaid(Memory, Some(256 * MI), EvidenceGap::TooYoung),
    );
    let unknown = container(
        "job",
        unsaid(Cpu, None, EvidenceGap::WithoutSeries),
        unsaid(Memory, None, EvidenceGap::WithoutSeries),
    );
    let hostile = ContainerReport {
        remarks: vec![format!("a remark with {HOSTILE}")],
        ..container(HOSTILE, kept(Cpu, 20), kept(Memory, 32 * MI))
    };
    let dns = container("coredns", kept(Cpu, 100), kept(Memory, 70 * MI));
    vec![
        workload("kube-system", "Deployment", "coredns", Some(2), vec![dns]),
        workload("web", "Deployment", "billing", Some(2), vec![init, young]),
        workload(
            "web",
            "Job",
            "import-2026-11-26-with-a-name-of-63-characters-aaaaaaaaaaaaaaaaa",
            Some(0),
            vec![unknown],
        ),
        workload("web", "Deployment", HOSTILE, Some(1), vec![hostile]),
    ]
}

fn totals(workloads: &[WorkloadReport]) -> Totals {
    let mut totals = Totals { workloads: workloads.len(), ..Totals::default() };
    for workload in workloads {
        let pods = i64::from(workload.replicas.unwrap_or(1));
        for container in &workload.containers {
            totals.containers += 1;
            let levels =
                |of: fn(&ResourceReport) -> Level| container.resources.iter().map(of).max();
            *totals.risk.entry(levels(|one| one.risk).unwrap_or_default()).or_default() += 1;
            *totals.waste.entry(levels(|one| one.waste).unwrap_or_default()).or_default() += 1;
            if let Some(gap) = container.resources.iter().find_map(|one| one.unsaid) {
                *totals.unsaid.entry(gap).or_default() += 1;
            }
            for one in &container.resources {
                let of = match one.resource {
                    Resource::Cpu => &mut totals.cpu,
                    Resource::Memory => &mut totals.memory,
                };
                if let (Some(request), Some(target)) = (one.request, one.target) {
                    of.requested += request * pods;
                    of.needed += target * pods;
                }
                if let (Some(cost), Some(new_cost)) = (one.cost, one.new_cost) {
                    of.cost = Some(of.cost.unwrap_or_default() + cost);
                    of.needed_cost = Some(of.needed_cost.unwrap_or_default() + new_cost);
                }
            }
        }
    }
    totals.score = Some(Score { value: 58, wasted: 0.42, at_risk: 0.02 });
    totals
}

/// The report.
pub(crate) fn sample() -> Report {
    let mut workloads: Vec<WorkloadReport> =
        [at_risk(), wasting(), others()].into_iter().flatten().collect();
    for workload in &mut workloads {
        workload.cluster = Some("prod-eu".to_owned());
        let pods = f64::from(workload.replicas.unwrap_or(1));
        for one in workload.containers.iter_mut().flat_map(|one| &mut one.resources) {
            one.cost = one.cost.map(|cost| cost * pods);
            one.new_cost = one.new_cost.map(|cost| cost * pods);
        }
    }
    let name = |one: &WorkloadReport| (one.namespace.clone(), one.kind.clone(), one.name.clone());
    workloads.sort_by_key(name);
    let mut namespaces: BTreeMap<String, Vec<WorkloadReport>> = BTreeMap::new();
    for workload in &workloads {
        namespaces.entry(workload.namespace.clone()).or_default().push(workload.clone());
    }
    Report {
        at: Time::from_secs(AT),
        sources: vec![SourceReport {
            cluster: Some("prod-eu".to_owned()),
            server: "monitoring/prometheus-operated:9090".to_owned(),
            product: Some("Prometheus 3.15.0".to_owned()),
            proxied: true,
            from: Some(ago(8)),
            until: Some(ago(0)),
            step_seconds: Some(60),
            queries: 260,
            bytes: 94_312_000,
            transferred_bytes: 0,
            seconds: 12.04,
        }],
        settings: vec!["--profile=cost".to_owned(), "--memory-limit=equal".to_owned()],
        currency: Some("USD".to_owned()),
        totals: totals(&workloads),
        namespaces: namespaces.into_iter().map(|(name, of)| (name, totals(&of))).collect(),
        workloads,
        unread: vec![Unread {
            what: "deployments in namespace <secret>".to_owned(),
            why: "forbidden: grant list on deployments.apps".to_owned(),
        }],
        remarks: vec!["The newest samples are 3 minutes old.".to_owned()],
        ..empty()
    }
}

/// A report without workloads.
pub(crate) fn empty() -> Report {
    Report {
        schema_version: SCHEMA_VERSION,
        kind: "recommend".to_owned(),
        version: "0.1.0".to_owned(),
        at: Time::from_secs(AT),
        sources: Vec::new(),
        settings: Vec::new(),
        strategy: None,
        currency: None,
        totals: Totals { cpu: ResourceTotals::default(), ..Totals::default() },
        namespaces: BTreeMap::new(),
        workloads: Vec::new(),
        unread: Vec::new(),
        remarks: Vec::new(),
    }
}
