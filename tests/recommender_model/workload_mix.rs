//! The mix of containers for measuring memory use and speed: steady, diurnal, bursty, short-lived. Shared by the tests
//! and the benchmarks.

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_core::{
    recommender::{History, ModelRules, OomKill, Settings, VpaSettings},
    types::units::{Bytes, MilliCpu},
};

/// Days of history of each container.
pub const DAYS: u32 = 8;
/// Containers of one VPA.
pub const CONTAINERS: usize = 5;

const START: Time = Time::from_secs(1_767_225_600);
const MIB: i64 = 1 << 20;

/// A pseudo-random sequence that is the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number from 0 up to `below`.
    pub fn below(&mut self, below: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16).cast_signed().rem_euclid(below.max(1))
    }
}

/// The behaviour of a container in the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Three replicas with ten percent noise.
    Steady,
    /// Two replicas, busy by day, idle by night.
    Diurnal,
    /// One replica, idle except for bursts of up to twenty times its usual load.
    Bursty,
    /// One run per hour, each in a new pod, OOM-killed occasionally.
    ShortLived,
}

/// Of twenty containers, seven are steady, six diurnal, four bursty and three short-lived.
pub fn shape(index: usize) -> Shape {
    match index % 20 {
        0..7 => Shape::Steady,
        7..13 => Shape::Diurnal,
        13..17 => Shape::Bursty,
        _ => Shape::ShortLived,
    }
}

/// The time of the last sample.
#[allow(dead_code, reason = "only the benchmark uses it")]
pub fn end() -> Time {
    START.later(Duration::from_secs(u64::from(DAYS) * 86_400))
}

/// A VPA of [`CONTAINERS`] containers with [`DAYS`] days of history and a sample every `step`.
pub fn vpa(number: usize, step: Duration, settings: &Settings) -> History {
    let rules = VpaSettings::default().rules(None, settings);
    let mut history = History::default();
    for index in 0..CONTAINERS {
        let container = number * CONTAINERS + index;
        add_samples(&mut history, &format!("container-{index}"), container, step, &rules);
    }
    history
}

fn add_samples(
    history: &mut History,
    name: &str,
    number: usize,
    step: Duration,
    rules: &ModelRules,
) {
    let mut noise = Random::new(number as u64 + 1);
    let shape = shape(number);
    let (base, heap) = (20 + noise.below(400), (60 + noise.below(900)) * MIB);
    let steps = u64::from(DAYS) * 86_400 / step.as_secs();
    for index in 0..steps {
        let now = START.later(step * u32::try_from(index).unwrap_or(u32::MAX));
        let seconds = index * step.as_secs();
        let hour = seconds / 3600;
        let replicas = match shape {
            Shape::Steady => 3,
            Shape::Diurnal => 2,
            Shape::Bursty | Shape::ShortLived => 1,
        };
        let container = history.container_mut(name, now, rules);
        if shape == Shape::ShortLived && seconds.is_multiple_of(3600) {
            container.retain_replicas(|_| false);
        }
        for replica in 0..replicas {
            let pod = match shape {
                Shape::ShortLived => format!("workload-{number}-{hour:05}-x7k2p"),
                _ => format!("workload-{number}-6d4b9c7f5d-x7k2{replica}"),
            };
            let (cpu, memory) = match shape {
                Shape::Steady => (base + noise.below(base / 10 + 1), heap + noise.below(heap / 20)),
                Shape::Diurnal => {
                    let busy = if (8..20).contains(&(hour % 24)) { 4 } else { 1 };
                    (base * busy + noise.below(base), heap + busy * heap / 10)
                }
                Shape::Bursty => {
                    let burst = if noise.below(50) == 0 { 1 + noise.below(20) } else { 1 };
                    (base * burst, heap + noise.below(heap * burst / 8 + 1))
                }
                Shape::ShortLived => (base * 3 + noise.below(base), noise.below(heap) + MIB),
            };
            let _ = container.add_cpu(&pod, now, MilliCpu(cpu), rules);
            let _ = container.add_memory(&pod, now, Bytes(memory), rules);
            if shape == Shape::ShortLived && noise.below(500) == 0 {
                let kill = OomKill { request: Bytes(heap), limit: Some(Bytes(heap)), usage: None };
                let _ = container.record_oom(&pod, now, kill, rules);
            }
        }
    }
}
