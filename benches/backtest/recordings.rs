//! Generated recordings: workloads of one, two and four replicas, replaced by rollouts, with days, bursts and memory leaks.

use plimsoll_core::{
    backtest::{
        ContainerRecording, Evaluation, PodContainer, PodRecording, RecordedStep, WorkloadRecording,
    },
    rightsizing::survey::Amounts,
    sim::noise::Noise,
    types::{
        ObjectKey, Time,
        units::{Bytes, MilliCpu},
    },
};

/// Replicas of consecutive workloads.
const REPLICAS: [u32; 5] = [1, 1, 2, 2, 4];
/// A midnight.
const START: i64 = 20_700 * 86_400;
const MINUTES_PER_DAY: u32 = 1_440;
const WINDOW: u32 = 5;
/// Days between two rollouts, which replace all pods.
const ROLLOUT_DAYS: u32 = 7;
const MIB: f64 = 1_048_576.0;

/// The workloads of a benchmark, each with one container.
#[derive(Clone, Copy, Debug)]
pub struct Recordings {
    pub warm_up_days: u32,
    pub days: u32,
}

/// How many replicas the workload of an index has.
pub const fn replicas(index: u32) -> u32 {
    REPLICAS[index as usize % REPLICAS.len()]
}

impl Recordings {
    pub fn evaluation(self) -> Evaluation {
        let day = |day: u32| Time::from_secs(START + 86_400 * i64::from(day));
        Evaluation {
            warm_up_from: day(0),
            from: day(self.warm_up_days),
            until: day(self.warm_up_days + self.days),
        }
    }

    /// The recording of the workload of this index.
    pub fn workload(self, index: u32) -> WorkloadRecording {
        let noise = Noise::new(7).for_number(u64::from(index));
        let amounts = |cpu, mebibytes: f64| Amounts {
            cpu: Some(MilliCpu(cpu)),
            memory: Some(Bytes((mebibytes * MIB) as i64)),
        };
        let at = Time::from_secs(START);
        let step = |amounts| vec![RecordedStep { at, amounts }];
        let container = ContainerRecording {
            name: "main".into(),
            requests: step(amounts(500, 256.0)),
            limits: step(Amounts { cpu: None, ..amounts(0, 512.0) }),
            ..ContainerRecording::default()
        };
        let end = (self.warm_up_days + self.days) * MINUTES_PER_DAY;
        let mut pods = Vec::new();
        for first in (0..end).step_by((ROLLOUT_DAYS * MINUTES_PER_DAY) as usize) {
            let last = (first + ROLLOUT_DAYS * MINUTES_PER_DAY).min(end);
            for replica in 0..replicas(index) {
                let own = noise.for_number(u64::from(replica));
                let of_start = |minute: u32| START + 60 * i64::from(minute);
                pods.push(PodRecording {
                    name: format!("app-{index}-{first}-{replica}").into(),
                    born: Time::from_secs(of_start(first)),
                    gone: Time::from_secs(of_start(last - 1)),
                    containers: vec![usage(index, first..last, own)],
                });
            }
        }
        WorkloadRecording {
            cluster: None,
            kind: "Deployment".into(),
            key: ObjectKey::new("shop", format!("app-{index}")),
            from: at,
            containers: vec![container],
            pods,
        }
    }
}

/// The usage of a pod, of one of five shapes.
fn usage(index: u32, minutes: std::ops::Range<u32>, noise: Noise) -> PodContainer {
    let shape = (index / REPLICAS.len() as u32) % 5;
    let cores = |minute: u32| {
        let hour = f64::from(minute % MINUTES_PER_DAY) / 60.0;
        let day = 1.0 - (hour - 14.0).abs() / 14.0;
        let jitter = noise.bell_shaped(u64::from(minute));
        let level = match shape {
            0 | 3 => 0.2,
            1 | 4 => 0.05 + 0.4 * day,
            _ if noise.bits(u64::from(minute / 30)).is_multiple_of(20) => 1.5,
            _ => 0.1,
        };
        (level * (1.0 + 0.3 * jitter)) as f32
    };
    let mebibytes = |window: u32| {
        let age = f64::from(window * WINDOW - minutes.start) / f64::from(MINUTES_PER_DAY);
        let jitter = noise.for_number(1).bell_shaped(u64::from(window));
        let level = if shape >= 3 { 150.0 + 40.0 * age } else { 200.0 };
        ((level + 20.0 * jitter) * MIB) as f32
    };
    PodContainer {
        first_minute: minutes.start,
        first_window: minutes.start / WINDOW,
        cpu: minutes.clone().map(cores).collect(),
        memory: (minutes.start / WINDOW..minutes.end / WINDOW).map(mebibytes).collect(),
        ..PodContainer::default()
    }
}
