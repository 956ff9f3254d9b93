//! A pass of the HPA, without the texts, statuses and maps of a pass on real objects.

use std::time::Duration;

use super::{PERIOD, STEPS_PER_MINUTE, replica::Replica};
use crate::{
    coordination::{RatioRule, UsagePerPod},
    hpa::{
        Config, Fixes, HpaState, bounds, numbers,
        proposal::{kept_by_padding, replicas_of_ratio},
        stabilization,
    },
    types::Time,
};

#[derive(Clone, Copy, Debug)]
pub struct PassInput<'a> {
    pub pods: &'a [Replica],
    /// `spec.replicas`.
    pub replicas: i32,
    pub bounds: (i32, i32),
    /// How replicas are proposed.
    pub rule: RatioRule,
    /// The recommendations of past passes.
    pub memory: &'a HpaState,
    pub config: &'a Config,
    pub step: u64,
    pub now: Time,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PassResult {
    /// What the metrics ask for; `None` without any pod that counts.
    pub proposed: Option<i32>,
    /// The replicas after windows and bounds.
    pub desired: i32,
    /// The usage of the pods; `None` if none of them counts.
    pub usage: Option<UsagePerPod>,
    /// The recommendations for the next pass.
    pub memory: HpaState,
}

/// Sums over the pods by how they count.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    used: i64,
    requested: i64,
    ready: i64,
    unready: i64,
    unready_requested: i64,
    missing: i64,
    missing_requested: i64,
    /// What missing pods are assumed to use when replicas are removed.
    missing_fallback: i64,
}

/// Computes the replicas.
pub fn pass(input: &PassInput<'_>) -> PassResult {
    let PassInput { replicas, bounds: (min, max), now, .. } = *input;
    let mut memory = input.memory.clone();
    memory.seed(replicas, now);
    let sums = Sums::of(input);
    let usage = sums.usage();
    if replicas > max || replicas < min {
        return PassResult { proposed: None, desired: replicas.clamp(min, max), usage, memory };
    }
    let Some(proposed) = sums.propose(input) else {
        return PassResult { proposed: None, desired: replicas, usage, memory };
    };
    let window = input.config.downscale_stabilization;
    let stabilized = stabilization::without_behavior(
        &mut memory,
        proposed,
        replicas,
        window,
        now,
        Fixes::UPSTREAM,
    );
    let limited = bounds::without_behavior(replicas, stabilized.stabilized, min, max);
    PassResult { proposed: Some(proposed), desired: limited.replicas, usage, memory }
}

impl Sums {
    fn of(input: &PassInput<'_>) -> Self {
        let mut sums = Self::default();
        let fallback = |request: i64| match input.rule {
            RatioRule::Usage { average_milli } => average_milli,
            RatioRule::Utilization { percent } => request * i64::from(percent.max(100)) / 100,
        };
        for pod in input.pods {
            match pod.sample() {
                None => {
                    sums.missing += 1;
                    sums.missing_requested += pod.request;
                    sums.missing_fallback += fallback(pod.request);
                }
                Some(_) if is_unready(pod, input) => {
                    sums.unready += 1;
                    sums.unready_requested += pod.request;
                }
                Some(used) => {
                    sums.ready += 1;
                    sums.used += used;
                    sums.requested += pod.request;
                }
            }
        }
        sums
    }

    fn usage(self) -> Option<UsagePerPod> {
        let pods = |count: i64| usize::try_from(count).unwrap_or(0);
        (self.ready > 0).then(|| UsagePerPod {
            mean: self.used / self.ready,
            counted: pods(self.ready),
            uncounted: pods(self.unready + self.missing),
        })
    }

    fn propose(self, input: &PassInput<'_>) -> Option<i32> {
        let current = input.replicas;
        let tolerance = input.config.tolerances(None);
        if self.ready == 0 {
            return None;
        }
        let ratio = ratio(input.rule, self.used, self.requested, self.ready);
        let unready_counts = self.unready > 0 && ratio > 1.0;
        if !unready_counts && self.missing == 0 {
            let ready = usize::try_from(self.ready).unwrap_or(0);
            let replicas = replicas_of_ratio(ratio, ready, tolerance, Fixes::UPSTREAM);
            return Some(replicas.unwrap_or(current));
        }
        let (mut used, mut requested, mut pods) = (self.used, self.requested, self.ready);
        if ratio != 1.0 {
            used += if ratio < 1.0 { self.missing_fallback } else { 0 };
            requested += self.missing_requested;
            pods += self.missing;
        }
        if unready_counts {
            requested += self.unready_requested;
            pods += self.unready;
        }
        let padded = self::ratio(input.rule, used, requested, pods);
        let replicas = numbers::to_replicas((padded * pods as f64).ceil(), Fixes::UPSTREAM);
        let kept = kept_by_padding(ratio, padded, tolerance, replicas.cmp(&current));
        Some(if kept.is_some() { current } else { replicas })
    }
}

/// Whether the usage of a pod does not count yet: it is young, and was not ready for the whole window of its sample.
fn is_unready(pod: &Replica, input: &PassInput<'_>) -> bool {
    let age = PERIOD * u32::try_from(input.step - pod.created).unwrap_or(u32::MAX);
    let ready_for_window = pod.ready + STEPS_PER_MINUTE <= input.step;
    if age < input.config.cpu_initialization_period {
        return !ready_for_window;
    }
    let delay = input.config.initial_readiness_delay;
    !pod.is_ready(input.step) && delay > Duration::ZERO
}

fn ratio(rule: RatioRule, used: i64, requested: i64, pods: i64) -> f64 {
    match rule {
        RatioRule::Usage { average_milli } => (used / pods) as f64 / average_milli as f64,
        RatioRule::Utilization { percent } => {
            f64::from(numbers::percent(used, requested, Fixes::UPSTREAM)) / f64::from(percent)
        }
    }
}
