//! Demand: what a container would use without limits, as a function of virtual time, from a seed.

use std::sync::Arc;

use super::noise::{Noise, smooth_step};
use crate::types::{
    Time,
    units::{Bytes, MilliCpu},
};

/// One mebibyte.
pub const MIB: i64 = 1024 * 1024;

/// The inputs of a demand function.
#[derive(Clone, Copy, Debug)]
pub struct DemandContext {
    pub now: Time,
    /// Minutes since the start of the cluster.
    pub minute: u64,
    /// Minutes since this container was (re)started.
    pub age: u64,
    /// The fraction of its work that a job has done; 0 for containers that never end.
    pub progress: f64,
    /// The noise of the replica's index, not of the pod: a replacement pod meets the same load as the pod that it
    /// replaces.
    pub noise: Noise,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CpuDemand {
    /// Constant around one level.
    Steady {
        level: MilliCpu,
        /// Largest deviation as a fraction of the level.
        spread: f64,
    },
    /// Follows daily traffic: a peak in the early afternoon, quiet nights and weekends.
    Diurnal {
        night: MilliCpu,
        peak: MilliCpu,
        /// The fraction of the difference between the two that remains on weekends.
        weekend: f64,
    },
    /// High during startup, then another demand.
    Starting {
        /// Demand during startup.
        burst: MilliCpu,
        /// Duration of the startup.
        minutes: u64,
        /// The demand after startup.
        then: Box<CpuDemand>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum MemoryDemand {
    /// Constant around one level.
    Steady {
        level: Bytes,
        /// Largest deviation as a fraction of the level.
        spread: f64,
    },
    /// Follows daily traffic.
    Diurnal { night: Bytes, peak: Bytes },
    /// A garbage-collected heap that grows to its maximum and never shrinks.
    Heap {
        /// Heap at the start.
        start: Bytes,
        /// The configured maximum (`-Xmx`).
        max: Bytes,
        /// Everything outside the heap.
        off_heap: Bytes,
        /// Minutes until the heap reaches its maximum.
        fills_in: u64,
    },
    /// Grows without end until the container restarts.
    Leak {
        /// Demand after the start.
        start: Bytes,
        /// Growth per hour.
        per_hour: Bytes,
    },
    /// Grows with the work done.
    Batch {
        start: Bytes,
        end: Bytes,
        /// How much runs differ, as a fraction of `end`.
        spread: f64,
    },
    /// Each level from its time on; nothing before the first one.
    Steps(Arc<[(Time, Bytes)]>),
}

impl CpuDemand {
    pub fn at(&self, moment: &DemandContext) -> MilliCpu {
        match self {
            Self::Steady { level, spread } => {
                MilliCpu(noisy_level(level.0, *spread, moment, "cpu") as i64)
            }
            Self::Diurnal { night, peak, weekend } => {
                let share =
                    daily_traffic(moment.now) * if is_weekend(moment.now) { *weekend } else { 1.0 };
                let level = night.0 as f64 + (peak.0 - night.0) as f64 * share;
                MilliCpu(noisy_level(level as i64, 0.15, moment, "cpu") as i64)
            }
            Self::Starting { burst, minutes, .. } if moment.age < *minutes => {
                MilliCpu(noisy_level(burst.0, 0.1, moment, "start") as i64)
            }
            Self::Starting { then, .. } => then.at(moment),
        }
    }
}

impl MemoryDemand {
    pub fn at(&self, moment: &DemandContext) -> Bytes {
        let bytes = match self {
            Self::Steady { level, spread } => noisy_level(level.0, *spread, moment, "memory"),
            Self::Diurnal { night, peak } => {
                let level = night.0 as f64 + (peak.0 - night.0) as f64 * daily_traffic(moment.now);
                noisy_level(level as i64, 0.05, moment, "memory")
            }
            Self::Heap { start, max, off_heap, fills_in } => {
                let filled = (moment.age as f64 / (*fills_in).max(1) as f64).min(1.0);
                start.0 as f64 + (max.0 - start.0) as f64 * filled + off_heap.0 as f64
            }
            Self::Leak { start, per_hour } => {
                // The leak follows the served requests, so it varies from hour to hour.
                let pace = 1.0 + 0.3 * moment.noise.for_name("leak").drift(moment.minute, 240);
                start.0 as f64 + per_hour.0 as f64 * pace * moment.age as f64 / 60.0
            }
            Self::Batch { start, end, spread } => {
                let run = 1.0 + spread * moment.noise.for_name("run").bell_shaped(0);
                start.0 as f64 + (end.0 as f64 * run - start.0 as f64) * moment.progress
            }
            Self::Steps(steps) => {
                let begun = steps.partition_point(|(from, _)| *from <= moment.now);
                begun.checked_sub(1).map_or(0.0, |last| steps[last].1.as_f64())
            }
        };
        Bytes(bytes as i64)
    }
}

/// A level with slow drift and fast jitter; never negative.
fn noisy_level(level: i64, spread: f64, moment: &DemandContext, stream: &str) -> f64 {
    let noise = moment.noise.for_name(stream);
    let quick = noise.bell_shaped(moment.minute);
    let slow = noise.for_number(1).drift(moment.minute, 90);
    (level as f64 * (1.0 + spread * (0.6 * slow + 0.4 * quick))).max(0.0)
}

/// Traffic by time of day, 0 to 1: highest at 14:00 UTC, lowest at 02:00.
pub(super) fn daily_traffic(now: Time) -> f64 {
    let day = now.as_secs().rem_euclid(86_400) as f64 / 86_400.0;
    let from_peak = (day - 14.0 / 24.0).abs();
    let distance = from_peak.min(1.0 - from_peak);
    smooth_step(1.0 - 2.0 * distance)
}

/// Whether it is Saturday or Sunday, in UTC.
pub(super) fn is_weekend(now: Time) -> bool {
    // The epoch was a Thursday.
    (now.as_secs().div_euclid(86_400) + 3).rem_euclid(7) >= 5
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(hour: i64, age: u64) -> DemandContext {
        // 2026-01-05 was a Monday.
        let now = Time::from_secs(1_767_571_200 + hour * 3600);
        let minute = u64::try_from(hour * 60).expect("hours count up");
        DemandContext { now, minute, age, progress: 0.0, noise: Noise::new(1) }
    }

    #[test]
    fn diurnal_demand_peaks_at_two_in_the_afternoon_and_is_low_at_night_and_on_sundays() {
        let demand =
            CpuDemand::Diurnal { night: MilliCpu(100), peak: MilliCpu(1000), weekend: 0.4 };
        let at = |hour| demand.at(&moment(hour, 0)).0;
        assert!((850..=1150).contains(&at(14)), "{}", at(14));
        assert!((85..=115).contains(&at(2)), "{}", at(2));
        let sunday = at(6 * 24 + 14);
        assert!((380..=540).contains(&sunday), "{sunday}");
    }

    #[test]
    fn a_heap_grows_to_its_maximum_and_never_shrinks() {
        let demand = MemoryDemand::Heap {
            start: Bytes(100),
            max: Bytes(1000),
            off_heap: Bytes(50),
            fills_in: 600,
        };
        let mut last = 0;
        for age in 0..2000 {
            let now = demand.at(&moment(1, age)).0;
            assert!(now >= last, "shrank from {last} to {now}");
            last = now;
        }
        assert_eq!(last, 1050);
    }

    #[test]
    fn a_memory_leak_starts_over_only_after_a_restart() {
        let demand = MemoryDemand::Leak { start: Bytes(100 * MIB), per_hour: Bytes(60 * MIB) };
        assert_eq!(demand.at(&moment(5, 0)).0, 100 * MIB);
        assert!(demand.at(&moment(5, 600)).0 > 400 * MIB);
    }

    #[test]
    fn a_container_uses_more_cpu_only_at_its_start() {
        let demand = CpuDemand::Starting {
            burst: MilliCpu(2000),
            minutes: 3,
            then: Box::new(CpuDemand::Steady { level: MilliCpu(100), spread: 0.0 }),
        };
        assert!(demand.at(&moment(1, 2)).0 > 1700);
        assert_eq!(demand.at(&moment(1, 3)).0, 100);
    }
}
