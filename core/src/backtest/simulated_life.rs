//! Recordings of the virtual cluster: what a Prometheus would have of its workloads.

use std::{collections::BTreeMap, sync::Arc};

use super::recording::{
    CPU_STEP_SECONDS, ContainerRecording, MEMORY_STEP_SECONDS, PodContainer, PodRecording,
    RecordedStep, WorkloadRecording,
};
use crate::{
    rightsizing::survey::Amounts,
    sim::{ContainerMinute, MINUTE, MinuteSink, Workload, WorkloadKind},
    types::{ObjectKey, Time},
};

/// Records the minutes of a virtual cluster.
#[derive(Clone, Debug)]
pub struct LifeRecorder {
    from: Time,
    workloads: BTreeMap<ObjectKey, WorkloadLife>,
}

#[derive(Clone, Debug)]
struct WorkloadLife {
    kind: &'static str,
    containers: BTreeMap<Arc<str>, ContainerRecording>,
    pods: BTreeMap<Arc<str>, PodLife>,
}

#[derive(Clone, Debug)]
struct PodLife {
    born: Time,
    gone: Time,
    containers: BTreeMap<Arc<str>, PodContainer>,
}

impl LifeRecorder {
    /// Records these workloads from a time on, which must be the time of the cluster before its first minute.
    pub fn new<'a>(from: Time, workloads: impl Iterator<Item = &'a Workload>) -> Self {
        let workloads = workloads.map(|workload| {
            let key = ObjectKey::new(Arc::clone(&workload.namespace), Arc::clone(&workload.name));
            let kind = match workload.workload_kind {
                WorkloadKind::Deployment { .. } => "Deployment",
                WorkloadKind::CronJob { .. } => "CronJob",
            };
            let life = WorkloadLife { kind, containers: BTreeMap::new(), pods: BTreeMap::new() };
            (key, life)
        });
        Self { from, workloads: workloads.collect() }
    }

    /// The recordings, sorted by workload.
    pub fn into_recordings(self) -> Vec<WorkloadRecording> {
        let from = self.from;
        let recording = |(key, mut life): (ObjectKey, WorkloadLife)| {
            let pods = std::mem::take(&mut life.pods).into_iter().map(|(name, mut pod)| {
                let containers = life.containers.keys();
                let containers = containers.map(|name| pod.containers.remove(name));
                PodRecording {
                    name: (*name).into(),
                    born: pod.born,
                    gone: pod.gone,
                    containers: containers.map(Option::unwrap_or_default).collect(),
                }
            });
            let mut pods: Vec<PodRecording> = pods.collect();
            pods.sort_by(|one, other| (one.born, &one.name).cmp(&(other.born, &other.name)));
            WorkloadRecording {
                cluster: None,
                kind: life.kind.into(),
                key,
                from,
                containers: life.containers.into_values().collect(),
                pods,
            }
        };
        self.workloads.into_iter().map(recording).collect()
    }
}

impl MinuteSink for LifeRecorder {
    fn record(&mut self, step: &ContainerMinute) {
        let key = ObjectKey::new(Arc::clone(&step.namespace), Arc::clone(&step.workload));
        let Some(life) = self.workloads.get_mut(&key) else { return };
        let container = life.containers.entry(Arc::clone(&step.container)).or_default();
        if container.name.is_empty() {
            container.name = (*step.container).into();
        }
        let (request, limit) = (step.share.request, step.share.limit);
        let requests = Amounts { cpu: Some(request.cpu), memory: Some(request.memory) };
        let limits = Amounts { cpu: limit.cpu, memory: limit.memory };
        let begin = step.at.earlier(MINUTE);
        let is_new = !life.pods.contains_key(&step.pod);
        let pod = life.pods.entry(Arc::clone(&step.pod)).or_insert_with(|| PodLife {
            born: begin,
            gone: step.at,
            containers: BTreeMap::new(),
        });
        pod.gone = step.at;
        let usage = pod.containers.entry(Arc::clone(&step.container)).or_default();
        let mut is_changed = is_new;
        for (steps, amounts) in [(&mut usage.requests, requests), (&mut usage.limits, limits)] {
            is_changed |= add_step(steps, begin, amounts);
        }
        // As from Prometheus: those of the pod that changed last.
        if is_changed {
            add_step(&mut container.requests, begin, requests);
            add_step(&mut container.limits, begin, limits);
        }
        if !step.running {
            return;
        }
        // As a scrape at the end of the minute, which finds no container that was just killed.
        if step.oom_killed {
            usage.oom_kills.push(step.at);
            return;
        }
        let second = step.at.as_secs() - self.from.as_secs();
        let minute = column(second, CPU_STEP_SECONDS);
        set(&mut usage.cpu, &mut usage.first_minute, minute, step.usage.cpu.as_cores() as f32);
        if step.throttled {
            usage.throttled_minutes.push(minute);
        }
        // The peak at the end of a window is its own.
        let window = column(second - 1, MEMORY_STEP_SECONDS);
        set(&mut usage.memory, &mut usage.first_window, window, step.usage.memory.as_f64() as f32);
    }
}

fn column(second: i64, length: i64) -> u32 {
    u32::try_from(second / length).unwrap_or_default()
}

/// Adds a step if the amounts are others than before; returns whether they are.
fn add_step(steps: &mut Vec<RecordedStep>, at: Time, amounts: Amounts) -> bool {
    let is_changed = steps.last().is_none_or(|last| last.amounts != amounts);
    if is_changed {
        steps.push(RecordedStep { at, amounts });
    }
    is_changed
}

/// Sets the value of a column, which is the last one or a later one; the larger value counts.
fn set(values: &mut Vec<f32>, first: &mut u32, column: u32, value: f32) {
    if values.is_empty() {
        *first = column;
    }
    let index = column.saturating_sub(*first) as usize;
    if index >= values.len() {
        values.resize(index + 1, f32::NAN);
    }
    // `max` of NaN and a number is the number.
    values[index] = values[index].max(value);
}

#[cfg(test)]
mod updated_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backtest::{
            policy::{Policy, PolicyRule},
            recording::Evaluation,
            replay::{ReplaySettings, replay},
        },
        sim::{
            Cluster, ContainerResources, ContainerSpec, ContainerType, CpuDemand, MIB,
            MemoryDemand, ResourceAmounts, ResourceLimits, UpdatePolicy,
        },
        types::units::{Bytes, MilliCpu},
    };

    const FROM: Time = Time::from_secs(1_767_571_200);
    const DAYS: u64 = 4;

    #[test]
    fn the_policy_of_what_was_requested_has_the_sums_and_kills_of_the_life() {
        let container = ContainerSpec {
            name: "main".into(),
            container_type: ContainerType::Main,
            resources: ContainerResources {
                request: ResourceAmounts { cpu: MilliCpu(300), memory: Bytes(300 * MIB) },
                limit: ResourceLimits { cpu: Some(MilliCpu(450)), memory: Some(Bytes(400 * MIB)) },
            },
            cpu: CpuDemand::Diurnal { night: MilliCpu(50), peak: MilliCpu(600), weekend: 1.0 },
            memory: MemoryDemand::Leak { start: Bytes(100 * MIB), per_hour: Bytes(13 * MIB) },
        };
        let workload = Workload {
            namespace: "shop".into(),
            name: "web".into(),
            workload_kind: WorkloadKind::Deployment { replicas: 2 },
            containers: vec![container],
        };
        let mut cluster =
            Cluster::new(vec![workload], 3, FROM, UpdatePolicy::Off).expect("it is sound");
        let mut recorder = LifeRecorder::new(FROM, cluster.workloads());
        let day = |day: u64| FROM.later(std::time::Duration::from_hours(24 * day));
        let evaluation = Evaluation { warm_up_from: FROM, from: day(1), until: day(DAYS) };
        let (mut used, mut kills, mut throttled) = (0.0, 0, 0);
        for _ in 0..DAYS * 1_440 {
            cluster.step(&mut |step: &ContainerMinute| {
                recorder.record(step);
                let is_judged = step.at >= evaluation.from && step.at < evaluation.until;
                if step.running && is_judged && step.oom_killed {
                    kills += 1;
                } else if step.running && is_judged {
                    used += step.usage.cpu.as_cores() / 60.0;
                    throttled += u64::from(step.throttled);
                }
            });
        }
        let recordings = recorder.into_recordings();
        let policies = [Policy::new(PolicyRule::Current)];
        let account = replay(&recordings[0], &evaluation, &policies, &ReplaySettings::default());
        let days = &account.policies[0].days;
        assert_eq!(days.len() as u64, DAYS - 1);
        let found: f64 = days.iter().map(|day| day.cpu_used).sum();
        assert!((found - used).abs() < 1e-3 * used, "{found} and not {used}");
        assert!(kills > 2, "the life has {kills} OOM kills");
        assert_eq!(days.iter().map(|day| day.oom_kills).sum::<u32>(), kills);
        assert!(throttled > 100, "the life has {throttled} throttled minutes");
        assert!(days.iter().map(|day| day.censored_minutes).sum::<u64>() >= throttled);
    }
}
