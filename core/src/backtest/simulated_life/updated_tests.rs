//! A life that is known: the real recommender and the real updater change a workload for weeks, and the replay of the same
//! policy from the recording gives the figures of that life.

use std::time::Duration;

use super::*;
use crate::{
    api::vpa::UpdateMode,
    backtest::{
        policy::{Policy, PolicyRule},
        recording::Evaluation,
        replay::{ReplaySettings, replay},
    },
    recommender::{Settings, VpaSettings},
    sim::{
        Cluster, ContainerResources, ContainerSpec, ContainerType, CpuDemand, MIB, MemoryDemand,
        PassChanges, Recommender, ResourceAmounts, ResourceLimits, UpdatePolicy, Updater,
    },
    types::units::{Bytes, MilliCpu},
    updater,
};

/// A Monday.
const FROM: Time = Time::from_secs(1_767_571_200);
const WARM_UP_DAYS: u64 = 8;
const DAYS: u64 = 22;
const SEED: u64 = 7;
const MINUTES_PER_HOUR: f64 = 60.0;

/// The figures of a life or a replay within the evaluation.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    cpu_minutes: u64,
    core_hours: f64,
    memory_minutes: u64,
    gib_hours: f64,
    kills: u32,
    changes: u32,
}

impl Figures {
    fn mean_cores(&self) -> f64 {
        self.core_hours / self.cpu_minutes as f64 * MINUTES_PER_HOUR
    }

    fn mean_gib(&self) -> f64 {
        self.gib_hours / self.memory_minutes as f64 * MINUTES_PER_HOUR
    }
}

fn evaluation() -> Evaluation {
    let day = |day: u64| FROM.later(Duration::from_hours(24 * day));
    Evaluation { warm_up_from: FROM, from: day(WARM_UP_DAYS), until: day(DAYS) }
}

/// Requests in millicores and mebibytes; the limit of memory is a quarter more.
fn workload(
    replicas: u32,
    (milli, mebibytes): (i64, i64),
    cpu: CpuDemand,
    memory: MemoryDemand,
) -> Workload {
    let bytes = |mebibytes: i64| Bytes(mebibytes * MIB);
    let container = ContainerSpec {
        name: "main".into(),
        container_type: ContainerType::Main,
        resources: ContainerResources {
            request: ResourceAmounts { cpu: MilliCpu(milli), memory: bytes(mebibytes) },
            limit: ResourceLimits { cpu: None, memory: Some(bytes(mebibytes * 5 / 4)) },
        },
        cpu,
        memory,
    };
    Workload {
        namespace: "shop".into(),
        name: "web".into(),
        workload_kind: WorkloadKind::Deployment { replicas },
        containers: vec![container],
    }
}

/// Lives for weeks. As in a cluster, what happens in a minute is known a minute after it.
fn live(workload: &Workload, mode: UpdateMode) -> (WorkloadRecording, Figures) {
    let key = ObjectKey::new(Arc::clone(&workload.namespace), Arc::clone(&workload.name));
    let mut cluster = Cluster::new(vec![workload.clone()], SEED, FROM, UpdatePolicy::Off)
        .expect("the workload is sound");
    let vpas = [(key.clone(), VpaSettings::default())];
    let mut recommender = Recommender::new(Settings::default(), vpas);
    let mut updater = Updater::new(workload, updater::Settings::default(), mode);
    let mut recorder = LifeRecorder::new(FROM, cluster.workloads());
    let evaluation = evaluation();
    let mut figures = Figures::default();
    let mut unseen: Vec<ContainerMinute> = Vec::new();
    for _ in 0..DAYS * 1_440 {
        let now = cluster.now();
        if let Some(recommendation) = recommender.object(&key, now) {
            let PassChanges { evicted, resized } = updater.pass(&mut cluster, &recommendation);
            figures.changes += if now >= evaluation.from { evicted + resized } else { 0 };
        }
        for step in unseen.drain(..) {
            recommender.observe(&step);
            updater.observe(&step);
        }
        cluster.step(&mut |step: &ContainerMinute| {
            recorder.record(step);
            unseen.push(step.clone());
            if step.running && step.at >= evaluation.from && step.at < evaluation.until {
                let request = step.share.request;
                figures.cpu_minutes += 1;
                figures.core_hours += request.cpu.as_cores() / MINUTES_PER_HOUR;
                figures.memory_minutes += 1;
                figures.gib_hours +=
                    request.memory.as_f64() / (MIB * 1_024) as f64 / MINUTES_PER_HOUR;
                figures.kills += u32::from(step.oom_killed);
            }
        });
        recommender.retain_pods(|name| cluster.pod_names().any(|pod| pod == name));
    }
    let mut recordings = recorder.into_recordings();
    (recordings.remove(0), figures)
}

fn replayed(recording: &WorkloadRecording, in_place: bool) -> Figures {
    let policies = [Policy::new(PolicyRule::Plimsoll)];
    let settings = ReplaySettings { in_place, ..ReplaySettings::default() };
    let account = replay(recording, &evaluation(), &policies, &settings);
    let mut figures = Figures::default();
    for day in &account.policies[0].days {
        figures.cpu_minutes += day.cpu_minutes;
        figures.core_hours += day.cpu_requested;
        figures.memory_minutes += 5 * day.memory_windows;
        figures.gib_hours += day.memory_requested;
        figures.kills += day.oom_kills;
        figures.changes += day.evicted + day.resized + day.born_changed;
    }
    figures
}

fn assert_within(what: &str, found: f64, known: f64, share: f64) {
    assert!((found - known).abs() <= share * known, "{what}: {found} and not {known}");
}

fn assert_same(name: &str, found: &Figures, known: &Figures) {
    assert_within(&format!("core-hours of {name}"), found.core_hours, known.core_hours, 0.02);
    assert_within("mean CPU request", found.mean_cores(), known.mean_cores(), 0.02);
    assert_within("mean memory request", found.mean_gib(), known.mean_gib(), 0.02);
    assert_eq!(found.kills, known.kills, "{name}: {found:?} and not {known:?}");
    assert!(known.changes > 5, "{name}: the updater changes pods: {known:?}");
}

/// A workload that requests too much, and follows the day.
fn generous() -> Workload {
    let cpu = CpuDemand::Diurnal { night: MilliCpu(60), peak: MilliCpu(700), weekend: 0.4 };
    let memory = MemoryDemand::Steady { level: Bytes(300 * MIB), spread: 0.02 };
    workload(3, (2_000, 1_024), cpu, memory)
}

/// A workload whose memory grows all the time.
fn growing() -> Workload {
    let cpu = CpuDemand::Steady { level: MilliCpu(200), spread: 0.1 };
    let memory = MemoryDemand::Leak { start: Bytes(200 * MIB), per_hour: Bytes(9 * MIB) };
    workload(2, (400, 300), cpu, memory)
}

#[test]
fn the_replay_has_the_figures_of_a_life_with_the_real_updater() {
    for (name, workload) in [("requests too much", generous()), ("grows", growing())] {
        let (recording, known) = live(&workload, UpdateMode::InPlaceOrRecreate);
        let found = replayed(&recording, true);
        assert_same(name, &found, &known);
        assert_within("changes", f64::from(found.changes), f64::from(known.changes), 0.02);
    }
}

/// The pods that the updater of the life created are born in the recording: what the replay counts as births differs from
/// the evictions of the life.
#[test]
fn the_replay_of_a_life_with_evictions_has_its_requests() {
    let (recording, known) = live(&generous(), UpdateMode::Recreate);
    let found = replayed(&recording, false);
    assert_same("requests too much", &found, &known);
}
