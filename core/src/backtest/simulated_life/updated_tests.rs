//! A life that is known: the real recommender and the real updater change a workload for weeks, and the
//! replay of the same policy from the recording gives the figures of that life.

use std::{collections::BTreeSet, time::Duration};

use super::*;
use crate::{
    api::vpa::UpdateMode,
    backtest::{
        policy::{Policy, PolicyRule},
        recording::{Evaluation, MEMORY_STEP_SECONDS},
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
const DAY: i64 = 86_400;
const SEED: u64 = 7;
const MINUTES_PER_HOUR: f64 = 60.0;

/// The figures of a life or a replay within the evaluation.
#[derive(Clone, Debug, Default)]
struct Figures {
    cpu_minutes: u64,
    core_hours: f64,
    memory_minutes: u64,
    gib_hours: f64,
    kills: u32,
    evicted: u32,
    resized: u32,
    /// Pods that began with other amounts than the pod before.
    born_changed: u32,
    /// The changes of each day with any.
    days: BTreeMap<i64, u32>,
}

impl Figures {
    fn mean_cores(&self) -> f64 {
        self.core_hours / self.cpu_minutes as f64 * MINUTES_PER_HOUR
    }

    fn mean_gib(&self) -> f64 {
        self.gib_hours / self.memory_minutes as f64 * MINUTES_PER_HOUR
    }

    fn changes(&self) -> u32 {
        self.days.values().sum()
    }

    fn add_changes(&mut self, at: Time, changes: u32) {
        if changes > 0 {
            *self.days.entry(at.as_secs().div_euclid(DAY)).or_default() += changes;
        }
    }
}

/// Counts kills as reports do: a kill of a container that was killed in this window or the one before is the
/// same.
#[derive(Default)]
struct KillCounter {
    next_windows: BTreeMap<Arc<str>, i64>,
}

impl KillCounter {
    fn is_counted(&mut self, step: &ContainerMinute) -> bool {
        let window = (step.at.as_secs() - FROM.as_secs() - 1) / MEMORY_STEP_SECONDS;
        let next = self.next_windows.entry(Arc::clone(&step.pod)).or_default();
        let is_counted = step.oom_killed && window >= *next;
        if is_counted {
            *next = window + 2;
        }
        is_counted
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
    let mut kills = KillCounter::default();
    let mut unseen: Vec<ContainerMinute> = Vec::new();
    for _ in 0..DAYS * 1_440 {
        let now = cluster.now();
        if let Some(recommendation) = recommender.object(&key, now) {
            let PassChanges { evicted, resized } = updater.pass(&mut cluster, &recommendation);
            if now >= evaluation.from {
                figures.evicted += evicted;
                figures.resized += resized;
                figures.add_changes(now, evicted + resized);
            }
        }
        for step in unseen.drain(..) {
            recommender.observe(&step);
            updater.observe(&step);
        }
        cluster.step(&mut |step: &ContainerMinute| {
            recorder.record(step);
            unseen.push(step.clone());
            let is_counted = kills.is_counted(step);
            if step.running && step.at >= evaluation.from && step.at < evaluation.until {
                let request = step.share.request;
                figures.cpu_minutes += 1;
                figures.core_hours += request.cpu.as_cores() / MINUTES_PER_HOUR;
                figures.memory_minutes += 1;
                figures.gib_hours +=
                    request.memory.as_f64() / (MIB * 1_024) as f64 / MINUTES_PER_HOUR;
                figures.kills += u32::from(is_counted);
            }
        });
        recommender.retain_pods(|name| cluster.pod_names().any(|pod| pod == name));
    }
    let mut recordings = recorder.into_recordings();
    (recordings.remove(0), figures)
}

fn replayed(recording: &WorkloadRecording, rule: PolicyRule, in_place: bool) -> Figures {
    let policies = [Policy::new(rule)];
    let settings = ReplaySettings { in_place, ..ReplaySettings::default() };
    let account = replay(recording, &evaluation(), &policies, &settings);
    let mut figures = Figures::default();
    for day in &account.policies[0].days {
        figures.cpu_minutes += day.cpu_minutes;
        figures.core_hours += day.cpu_requested;
        figures.memory_minutes += 5 * day.memory_windows;
        figures.gib_hours += day.memory_requested;
        figures.kills += day.oom_kills;
        figures.evicted += day.evicted;
        figures.resized += day.resized;
        figures.born_changed += day.born_changed;
        figures.add_changes(day.day, day.evicted + day.resized + day.born_changed);
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
    assert!(known.changes() > 5, "{name}: the updater changes pods: {known:?}");
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

/// A workload that needs more memory from time to time: from these minutes on, for so many minutes.
fn surging(peak: i64, length: i64, begins: &[i64]) -> Workload {
    const LEVEL: i64 = 300;
    let step = |minute: i64, mebibytes: i64| {
        (Time::from_secs(FROM.as_secs() + 60 * minute), Bytes(mebibytes * MIB))
    };
    let mut steps = vec![step(0, LEVEL)];
    steps.extend(begins.iter().flat_map(|begin| [step(*begin, peak), step(begin + length, LEVEL)]));
    let memory = MemoryDemand::Steps(steps.into());
    let cpu = CpuDemand::Steady { level: MilliCpu(200), spread: 0.1 };
    workload(2, (400, 400), cpu, memory)
}

/// A workload whose memory is far above every limit for single minutes: at different minutes of the windows of a
/// recording, and at the end of one.
fn killed() -> Workload {
    let minutes = [(60, 0), (250, 1), (345, 8), (440, 30)];
    surging(4_096, 1, &minutes.map(|(hour, minute)| 60 * hour + minute))
}

/// A workload that is killed again and again until it has more memory. Its last three surges are on these days of the
/// life.
fn needing_more() -> (Workload, [i64; 3]) {
    let hours = [60, 230, 321, 400];
    (surging(650, 90, &hours.map(|hour| 60 * hour + 17)), [9, 13, 16])
}

#[test]
fn the_replay_has_the_figures_of_a_life_with_the_real_updater() {
    for (name, workload) in [("requests too much", generous()), ("grows", growing())] {
        let (recording, known) = live(&workload, UpdateMode::InPlaceOrRecreate);
        let found = replayed(&recording, PolicyRule::Plimsoll, true);
        assert_same(name, &found, &known);
        assert_eq!(known.evicted, 0, "{name}");
        assert_within("changes", f64::from(found.changes()), f64::from(known.changes()), 0.02);
    }
}

#[test]
fn the_replay_of_a_life_with_kills_has_its_figures() {
    let (recording, known) = live(&killed(), UpdateMode::InPlaceOrRecreate);
    let found = replayed(&recording, PolicyRule::Plimsoll, true);
    assert_same("is killed", &found, &known);
    assert_eq!((known.kills, known.evicted, found.evicted), (6, 0, 0), "{found:?} {known:?}");
    assert_eq!(found.days, known.days, "the changes of each day");
}

/// The first pod that gets more memory shows in a minute that it needs even more, so the second one gets enough at once.
/// The replay learns of it when the five minutes of its peak are over, and resizes the second pod once more.
#[test]
fn the_replay_of_a_life_with_repeated_kills_has_its_figures_and_one_more_resize_for_each_surge() {
    let (workload, surges) = needing_more();
    let (recording, known) = live(&workload, UpdateMode::InPlaceOrRecreate);
    let found = replayed(&recording, PolicyRule::Plimsoll, true);
    assert_same("needs more", &found, &known);
    assert_eq!((known.kills, known.evicted, found.evicted), (6, 0, 0), "{found:?} {known:?}");
    let mut changes = known.days.clone();
    for day in surges {
        *changes.entry(FROM.as_secs() / DAY + day).or_default() += 1;
    }
    assert_eq!(found.days, changes, "the changes of each day");
}

/// Compares the changes of a life by eviction. Each eviction is the birth of a pod in the recording, so that
/// the replay makes the same change where it counts a birth. It counts a birth only if the pod begins with
/// other amounts than the pod that was created before it, which is once in each rollout; and its own updater,
/// which does not know of the evictions of the life, evicts pods too. Together these are at least one for
/// each rollout of the life, and at most one for each of its evictions.
fn assert_evictions_are_births(
    name: &str,
    recording: &WorkloadRecording,
    found: &Figures,
    known: &Figures,
) {
    let Evaluation { from, until, .. } = evaluation();
    let born: Vec<_> =
        recording.pods.iter().filter(|pod| pod.born >= from && pod.born < until).collect();
    assert_eq!(born.len() as u32, known.evicted, "{name}: births of the recording");
    assert_eq!((known.resized, found.resized), (0, 0), "{name}");
    // What was requested in fact counts births alone.
    let recorded = replayed(recording, PolicyRule::Current, false);
    assert_eq!((recorded.evicted, recorded.resized), (0, 0), "{name}");
    let began = |pod: &PodRecording| pod.containers[0].requests[0].amounts;
    let before = recording.pods.iter().rfind(|pod| pod.born < from).map(began);
    let begins: Vec<_> = before.into_iter().chain(born.into_iter().map(began)).collect();
    let rollouts = begins.windows(2).filter(|pair| pair[0] != pair[1]).count() as u32;
    assert_eq!(recorded.born_changed, rollouts, "{name}: changed births of the recording");
    let days = |figures: &Figures| figures.days.keys().copied().collect::<BTreeSet<i64>>();
    assert_eq!(days(found), days(known), "{name}: days with changes");
    for (day, found) in &found.days {
        let least = recorded.days.get(day).copied().unwrap_or_default();
        let most = known.days[day];
        assert!((least..=most).contains(found), "{name}: {found} and not {least} to {most}");
    }
}

/// Of three replicas, half of the eight rollouts begin when pods become old enough one after the other: each is evicted
/// by the life before the replay could, and only the first birth has other amounts than the one before. In the others
/// the replay evicts the second pod a minute after the first birth, and the third is born like it. Of two replicas, both
/// changes of the six rollouts count: four times a birth and an eviction, and twice two evictions, as the first pod is
/// born a minute before the replay knows that it needs less.
#[test]
fn the_replay_of_a_life_with_evictions_has_its_figures() {
    let lives =
        [("requests too much", generous(), 0, (4, 8), 24), ("is killed", killed(), 6, (8, 4), 12)];
    for (name, workload, kills, changes, evictions) in lives {
        let (recording, known) = live(&workload, UpdateMode::Recreate);
        let found = replayed(&recording, PolicyRule::Plimsoll, false);
        assert_same(name, &found, &known);
        assert_evictions_are_births(name, &recording, &found, &known);
        assert_eq!((known.kills, known.evicted), (kills, evictions), "{name}: {known:?}");
        assert_eq!((found.evicted, found.born_changed), changes, "{name}: {found:?}");
    }
}

/// A recording has peaks of five minutes, so the replay learns of growth up to five minutes after the life,
/// which evicts pods as soon as it knows. Their successors begin with the recommendation from before.
/// Requests are near, changes are not compared.
#[test]
fn the_replay_of_a_life_with_evictions_and_growing_memory_has_its_requests() {
    let (recording, known) = live(&growing(), UpdateMode::Recreate);
    let found = replayed(&recording, PolicyRule::Plimsoll, false);
    assert_same("grows", &found, &known);
}
