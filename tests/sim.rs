//! The virtual cluster: it treats pods as a real cluster does, reproducibly for a seed.

use std::{collections::BTreeMap, sync::Arc};

use plimsoll::report::demo;
use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_core::{
    api::{ResourceName, vpa::ContainerPolicy},
    recommender::{Settings, VpaSettings},
    sim::{
        Cluster, ContainerMinute, ContainerResources, ContainerSpec, ContainerType, CpuDemand,
        InvalidWorkload, MIB, MemoryDemand, OptionalAmounts, Recommender, ResourceAmounts,
        ResourceLimits, ResourceRecommendation, UpdatePolicy, Workload, WorkloadKind,
    },
    types::units::{Bytes, MilliCpu},
};

const START: Time = demo::START;

fn amount(cpu: i64, mebibytes: i64) -> ResourceAmounts {
    ResourceAmounts { cpu: MilliCpu(cpu), memory: Bytes(mebibytes * MIB) }
}

/// Advice to have exactly this.
fn advice(target: ResourceAmounts) -> ResourceRecommendation {
    ResourceRecommendation { target: target.into(), lower: target.into(), upper: target.into() }
}

fn container(name: &str) -> ContainerSpec {
    ContainerSpec {
        name: name.into(),
        container_type: ContainerType::Main,
        resources: ContainerResources {
            request: amount(100, 100),
            limit: ResourceLimits::default(),
        },
        cpu: CpuDemand::Steady { level: MilliCpu(80), spread: 0.2 },
        memory: MemoryDemand::Steady { level: Bytes(80 * MIB), spread: 0.1 },
    }
}

fn workload(name: &str, kind: WorkloadKind, containers: Vec<ContainerSpec>) -> Workload {
    Workload { namespace: "ns".into(), name: name.into(), workload_kind: kind, containers }
}

fn deployment(replicas: u32, containers: Vec<ContainerSpec>) -> Workload {
    workload("app", WorkloadKind::Deployment { replicas }, containers)
}

fn cluster(workloads: Vec<Workload>, seed: u64, updates: UpdatePolicy) -> Cluster {
    Cluster::new(workloads, seed, START, updates).expect("the workloads are sound")
}

fn live(cluster: &mut Cluster, minutes: usize) -> Vec<ContainerMinute> {
    let mut steps = Vec::new();
    for _ in 0..minutes {
        cluster.step(&mut |step: &ContainerMinute| steps.push(step.clone()));
    }
    steps
}

fn fleet() -> Vec<Workload> {
    demo::workloads().into_iter().map(|member| member.workload).collect()
}

/// FNV-1a over the steps as JSON lines.
fn checksum(steps: &[ContainerMinute]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for step in steps {
        let line = serde_json::to_string(step).expect("a step serialises") + "\n";
        for byte in line.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_every_machine() {
    let day = |seed| checksum(&live(&mut cluster(fleet(), seed, UpdatePolicy::Off), 1440));
    // Pinned: a change here changes every published figure of the demo.
    assert_eq!(day(42), 18_235_638_202_439_517_372, "the load of seed 42 has changed");
    assert_ne!(day(42), day(43));
}

#[test]
fn cpu_is_throttled_only_at_the_limit() {
    let mut spec = container("c");
    spec.cpu = CpuDemand::Steady { level: MilliCpu(100), spread: 0.5 };
    spec.resources.limit.cpu = Some(MilliCpu(100));
    let steps = live(&mut cluster(vec![deployment(1, vec![spec])], 1, UpdatePolicy::Off), 600);
    let (throttled, free): (Vec<&ContainerMinute>, Vec<&ContainerMinute>) =
        steps.iter().partition(|s| s.throttled);
    assert!(!throttled.is_empty() && !free.is_empty());
    assert!(throttled.iter().all(|s| s.usage.cpu == MilliCpu(100) && s.demand.cpu.0 > 100));
    assert!(free.iter().all(|s| s.usage.cpu == s.demand.cpu && s.demand.cpu.0 <= 100));
}

#[test]
fn a_container_above_its_memory_limit_is_oom_killed_and_restarted() {
    let mut spec = container("c");
    spec.memory = MemoryDemand::Leak { start: Bytes(50 * MIB), per_hour: Bytes(60 * MIB) };
    spec.resources.limit.memory = Some(Bytes(150 * MIB));
    let steps =
        live(&mut cluster(vec![deployment(1, vec![spec.clone()])], 1, UpdatePolicy::Off), 600);
    let kills: Vec<usize> =
        steps.iter().enumerate().filter(|(_, s)| s.oom_killed).map(|(at, _)| at).collect();
    assert!(kills.len() >= 3, "{kills:?}");
    for at in kills {
        assert_eq!(steps[at].usage.memory, Bytes(150 * MIB), "it was killed at its limit");
        assert_eq!(steps[at].share, spec.resources);
        let next = &steps[at + 1];
        assert!(next.running && next.usage.memory.0 < 60 * MIB, "{next:?}");
        assert_eq!(next.restarts, steps[at].restarts + 1);
        assert_eq!((&next.pod, next.share), (&steps[at].pod, spec.resources));
    }
}

#[test]
fn no_container_is_oom_killed_without_a_memory_limit() {
    let mut spec = container("c");
    spec.memory = MemoryDemand::Leak { start: Bytes(50 * MIB), per_hour: Bytes(60 * MIB) };
    let steps = live(&mut cluster(vec![deployment(1, vec![spec])], 1, UpdatePolicy::Off), 3000);
    assert!(steps.iter().all(|step| !step.oom_killed && step.usage == step.demand));
}

#[test]
fn a_crashing_container_restarts_with_growing_back_off() {
    let mut spec = container("c");
    spec.resources.limit.memory = Some(Bytes(MIB));
    let steps = live(&mut cluster(vec![deployment(1, vec![spec])], 1, UpdatePolicy::Off), 60);
    let starts: Vec<usize> =
        steps.iter().enumerate().filter(|(_, s)| s.running).map(|(at, _)| at).collect();
    let waits: Vec<usize> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits[..7], [1, 2, 2, 4, 6, 6, 6]);
    assert!(steps.iter().filter(|s| !s.running).all(|s| s.usage == ResourceAmounts::default()));
}

fn cron_job(work: i64, limit: Option<i64>) -> Workload {
    let mut spec = container("c");
    spec.cpu = CpuDemand::Steady { level: MilliCpu(1000), spread: 0.0 };
    spec.memory =
        MemoryDemand::Batch { start: Bytes(10 * MIB), end: Bytes(110 * MIB), spread: 0.0 };
    spec.resources.limit.cpu = limit.map(MilliCpu);
    workload("job", WorkloadKind::CronJob { every: 60, first: 5, work }, vec![spec])
}

#[test]
fn every_run_of_a_job_has_a_new_pod_and_ends_when_its_work_is_done() {
    let steps = live(&mut cluster(vec![cron_job(10_000, None)], 1, UpdatePolicy::Off), 185);
    let mut runs: BTreeMap<Arc<str>, Vec<&ContainerMinute>> = BTreeMap::new();
    for step in &steps {
        runs.entry(step.pod.clone()).or_default().push(step);
    }
    assert_eq!(runs.len(), 3);
    for run in runs.values() {
        assert_eq!(run.len(), 10, "ten minutes at one core are ten core-minutes");
        assert!(run.windows(2).all(|pair| pair[0].usage.memory < pair[1].usage.memory));
    }
}

#[test]
fn a_throttled_job_runs_longer_and_delays_the_next_run() {
    let steps = live(&mut cluster(vec![cron_job(10_000, Some(500))], 1, UpdatePolicy::Off), 60);
    assert_eq!(steps.len(), 20, "half the CPU, twice the time");
    let steps = live(&mut cluster(vec![cron_job(40_000, Some(500))], 1, UpdatePolicy::Off), 120);
    let pods: std::collections::BTreeSet<_> = steps.iter().map(|step| step.pod.clone()).collect();
    assert_eq!(pods.len(), 1, "80 minutes of work every 60 minutes");
}

#[test]
fn a_job_fails_after_its_back_off_limit() {
    let mut job = cron_job(10_000, None);
    job.containers[0].resources.limit.memory = Some(Bytes(50 * MIB));
    let mut cluster = cluster(vec![job], 1, UpdatePolicy::Off);
    let steps = live(&mut cluster, 300);
    assert!(cluster.failed_runs() >= 1);
    let first = steps[0].pod.clone();
    let kills = steps.iter().filter(|step| step.pod == first && step.oom_killed).count();
    assert_eq!(kills, 7, "the first time, and the six retries of a default back-off limit");
}

#[test]
fn a_native_sidecar_starts_before_the_main_container_and_has_its_own_steps() {
    let mut sidecar = container("proxy");
    sidecar.container_type = ContainerType::Sidecar;
    let app = deployment(1, vec![container("app"), sidecar.clone()]);
    let steps = live(&mut cluster(vec![app], 1, UpdatePolicy::Off), 2);
    let running: Vec<(&str, bool)> =
        steps.iter().map(|step| (&*step.container, step.running)).collect();
    assert_eq!(running, [("app", false), ("proxy", true), ("app", true), ("proxy", true)]);

    let mut job = cron_job(10_000, None);
    job.containers.push(sidecar);
    let steps = live(&mut cluster(vec![job], 1, UpdatePolicy::Off), 60);
    let last = steps.iter().map(|step| step.at).max();
    assert_eq!(last, Some(START.later(std::time::Duration::from_mins(16))));
}

#[test]
fn mode_off_publishes_recommendations_without_any_change() {
    let plain = live(&mut cluster(fleet(), 3, UpdatePolicy::Off), 2000);
    let mut watched = cluster(fleet(), 3, UpdatePolicy::Off);
    let mut recommender = recommender_of_fleet();
    let mut steps = Vec::new();
    for _ in 0..2000 {
        watched.step(&mut |step: &ContainerMinute| {
            recommender.observe(step);
            steps.push(step.clone());
        });
        for advised in recommender.recommend(watched.now()) {
            let key = &advised.workload;
            let container = &advised.recommendation.container;
            watched.set_recommendation(
                &key.namespace,
                &key.name,
                container,
                advised.recommendation(),
            );
        }
    }
    assert!(steps.iter().rev().take(10).all(|step| step.advice.is_some()));
    for step in &mut steps {
        step.advice = None;
    }
    assert!(plain == steps, "the recommender changed the workload");
}

fn recommender_of_fleet() -> Recommender {
    let vpas =
        fleet().into_iter().map(|w| (ObjectKey::new(w.namespace, w.name), VpaSettings::default()));
    Recommender::new(Settings::default(), vpas)
}

#[test]
fn new_pods_get_the_target_and_proportional_limits() {
    let mut spec = container("c");
    spec.resources.limit =
        ResourceLimits { cpu: Some(MilliCpu(300)), memory: Some(Bytes(200 * MIB)) };
    let mut cluster = cluster(vec![deployment(3, vec![spec])], 1, UpdatePolicy::Recreate);
    let before = live(&mut cluster, 10);
    let target = amount(150, 400);
    cluster.set_recommendation("ns", "app", "c", advice(target));
    let after = live(&mut cluster, 10);
    let last: Vec<&ContainerMinute> = after.iter().rev().take(3).collect();
    for step in last {
        assert_eq!(step.share.request, target);
        let limit = ResourceLimits { cpu: Some(MilliCpu(450)), memory: Some(Bytes(800 * MIB)) };
        assert_eq!(step.share.limit, limit);
        assert!(before.iter().all(|old| old.pod != step.pod), "a replaced pod has a new name");
    }
    // One pod a minute: after one minute one is new, after two, two.
    let new = |minute: usize| {
        after[minute * 3..][..3].iter().filter(|step| step.share.request == target).count()
    };
    assert_eq!([new(0), new(1), new(2), new(3)], [0, 1, 2, 3]);
}

#[test]
fn a_resource_without_a_recommendation_keeps_the_template_values() {
    let mut spec = container("c");
    spec.resources.limit =
        ResourceLimits { cpu: Some(MilliCpu(300)), memory: Some(Bytes(200 * MIB)) };
    let mut cluster = cluster(vec![deployment(2, vec![spec.clone()])], 1, UpdatePolicy::Recreate);
    live(&mut cluster, 10);
    let memory = OptionalAmounts { cpu: None, memory: Some(Bytes(400 * MIB)) };
    cluster.set_recommendation(
        "ns",
        "app",
        "c",
        ResourceRecommendation { target: memory, lower: memory, upper: memory },
    );
    let last = live(&mut cluster, 10).pop().expect("there are steps");
    assert_eq!(last.share.request, amount(100, 400));
    let limit = ResourceLimits { cpu: Some(MilliCpu(300)), memory: Some(Bytes(800 * MIB)) };
    assert_eq!(last.share.limit, limit);
}

#[test]
fn a_recommender_that_controls_memory_only_recommends_no_cpu() {
    let policy = ContainerPolicy {
        container_name: "*".into(),
        controlled_resources: Some(vec![ResourceName::Memory]),
        ..ContainerPolicy::default()
    };
    let directives = VpaSettings::new(vec![policy], &BTreeMap::new());
    let mut recommender =
        Recommender::new(Settings::default(), [(ObjectKey::new("ns", "app"), directives)]);
    let mut cluster = cluster(vec![deployment(1, vec![container("c")])], 1, UpdatePolicy::Off);
    for step in live(&mut cluster, 100) {
        recommender.observe(&step);
    }
    let advice = recommender.recommend(cluster.now())[0].recommendation();
    assert!(advice.target.cpu.is_none() && advice.target.memory.is_some(), "{advice:?}");
}

#[test]
fn a_pod_younger_than_a_day_is_only_scaled_up() {
    let mut cluster = cluster(vec![deployment(2, vec![container("c")])], 1, UpdatePolicy::Recreate);
    live(&mut cluster, 10);
    cluster.set_recommendation("ns", "app", "c", advice(amount(50, 200)));
    let young = live(&mut cluster, 1440);
    let last = young.last().expect("there are steps");
    assert_eq!(last.share.request, amount(100, 200), "memory was given, CPU not yet taken away");
    assert!(young.iter().all(|step| step.share.request.cpu == MilliCpu(100)));
    let grown_up = live(&mut cluster, 20).pop().expect("there are steps");
    assert_eq!(grown_up.share.request, amount(50, 200));
    let replaced: Vec<u64> = cluster.replaced_pods().map(|(_, pods)| pods).collect();
    assert_eq!(replaced, [4], "both pods, twice");
}

#[test]
fn replaced_pods_get_the_same_load_as_the_pods_before_them() {
    let app = || vec![deployment(3, vec![container("c")])];
    let off = live(&mut cluster(app(), 1, UpdatePolicy::Off), 100);
    let mut rolled = cluster(app(), 1, UpdatePolicy::Recreate);
    let mut on = live(&mut rolled, 10);
    let target = amount(200, 200);
    rolled.set_recommendation("ns", "app", "c", advice(target));
    on.extend(live(&mut rolled, 90));
    let demands =
        |steps: &[ContainerMinute]| steps.iter().map(|step| step.demand).collect::<Vec<_>>();
    assert_eq!(demands(&off), demands(&on));
    assert_ne!(off[299].pod, on[299].pod);
}

#[test]
fn oom_kills_raise_the_recommendation_like_oom_events() {
    let mut spec = container("c");
    spec.memory = MemoryDemand::Steady { level: Bytes(300 * MIB), spread: 0.0 };
    spec.resources = ContainerResources {
        request: amount(100, 500),
        limit: ResourceLimits { cpu: None, memory: Some(Bytes(550 * MIB)) },
    };
    let vpa = (ObjectKey::new("ns", "app"), VpaSettings::default());
    let mut recommender = Recommender::new(Settings::default(), [vpa]);
    let mut cluster = cluster(vec![deployment(1, vec![spec])], 1, UpdatePolicy::Off);
    let mut steps = live(&mut cluster, 1500);
    let quiet = steps.clone();
    let memory = |recommender: &Recommender| {
        let recommendations =
            recommender.recommend(START.later(std::time::Duration::from_hours(26)));
        recommendations[0].recommendation().target.memory.expect("memory is recommended").0 / MIB
    };
    for step in &quiet {
        recommender.observe(step);
    }
    let before = memory(&recommender);
    assert!((300..=400).contains(&before), "{before}");
    let mut kill = steps.pop().expect("there are steps");
    kill.at = kill.at.later(std::time::Duration::from_mins(1));
    kill.oom_killed = true;
    recommender.observe(&kill);
    let after = memory(&recommender);
    assert!(after >= 600, "500 Mi of request and a fifth more, then the margin: {after}");
}

#[test]
fn invalid_workloads_are_rejected_by_name() {
    let refuse = |workloads| Cluster::new(workloads, 1, START, UpdatePolicy::Off).err();
    let twice = vec![deployment(1, vec![container("c")]), deployment(1, vec![container("c")])];
    assert_eq!(refuse(twice), Some(InvalidWorkload::DuplicateName("ns/app".into())));
    let mut sidecar = container("c");
    sidecar.container_type = ContainerType::Sidecar;
    assert_eq!(
        refuse(vec![deployment(1, vec![sidecar])]),
        Some(InvalidWorkload::NoMainContainer("ns/app".into()))
    );
    assert_eq!(
        refuse(vec![deployment(1, vec![])]),
        Some(InvalidWorkload::NoMainContainer("ns/app".into()))
    );
    let idle = Some(InvalidWorkload::NoWork("ns/app".into()));
    assert_eq!(refuse(vec![deployment(0, vec![container("c")])]), idle);
    for kind in [
        WorkloadKind::CronJob { every: 0, first: 0, work: 1 },
        WorkloadKind::CronJob { every: 60, first: 0, work: 0 },
    ] {
        assert_eq!(refuse(vec![workload("app", kind, vec![container("c")])]), idle);
    }
}
