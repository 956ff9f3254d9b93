//! Rules that read a window of days when they are asked: KRR, Kubecost and Kruize.

use std::collections::BTreeMap;

use super::{
    Advice, ContainerAdvice, PolicyRule, RuleContext,
    rule_state::{LimitAdvice, Seen, cpu_request, memory_request},
};
use crate::{
    backtest::{
        recording::{CPU_STEP_SECONDS, MEMORY_STEP_SECONDS, PodContainer, WorkloadRecording},
        trace::quantile,
    },
    rightsizing::survey::Amounts,
    types::Time,
};

const DAY_SECONDS: i64 = 86_400;
const MIB: i64 = 1 << 20;
/// KRR recommends nothing from fewer values.
const KRR_NEEDED_SAMPLES: u64 = 100;
/// The share of its request that Kubecost lets a production workload use.
const KUBECOST_UTILIZATION: f64 = 0.65;
/// Kruize reads the largest use of intervals of this many minutes.
const KRUIZE_INTERVAL: usize = 15;

/// A rule with the memory that limits cut off.
pub(crate) struct Window<'a> {
    rule: PolicyRule,
    recording: &'a WorkloadRecording,
    /// What was seen of peaks that a limit cut, by container, pod and window.
    cut: BTreeMap<(usize, usize, u32), f64>,
    /// The part of what was recorded that pods use if replicas are modelled, by container: for each minute and window.
    cpu_factors: Vec<Vec<f32>>,
    memory_factors: Vec<Vec<f32>>,
    values: Vec<f64>,
}

impl<'a> Window<'a> {
    pub fn new(rule: PolicyRule, context: RuleContext<'a>) -> Self {
        let containers = context.recording.containers.len();
        Self {
            rule,
            recording: context.recording,
            cut: BTreeMap::new(),
            cpu_factors: vec![Vec::new(); containers],
            memory_factors: vec![Vec::new(); containers],
            values: Vec::new(),
        }
    }

    pub fn scale_cpu(&mut self, container: usize, minute: u32, factor: f64) {
        set_factor(&mut self.cpu_factors[container], minute, factor);
    }

    pub fn scale_memory(&mut self, container: usize, window: u32, factor: f64) {
        set_factor(&mut self.memory_factors[container], window, factor);
    }

    pub fn cut_memory(&mut self, seen: Seen<'_>, window: u32, bytes: f64) {
        self.cut.insert((seen.container, seen.pod, window), bytes);
    }

    pub fn needed_samples(&self) -> u64 {
        match self.rule {
            PolicyRule::KrrSimple | PolicyRule::KrrSimpleLimit => KRR_NEEDED_SAMPLES,
            _ => 1,
        }
    }

    fn days(&self) -> i64 {
        match self.rule {
            PolicyRule::KrrSimple | PolicyRule::KrrSimpleLimit => 14,
            _ => 7,
        }
    }

    pub fn advise(&mut self, now: Time) -> Option<Advice> {
        let span = Span::new(self.recording, now, self.days() * DAY_SECONDS);
        let containers = 0..self.recording.containers.len();
        let advice: Vec<Option<ContainerAdvice>> =
            containers.map(|container| self.container(container, span)).collect();
        advice.iter().any(Option::is_some).then_some(Advice::Amounts(advice))
    }

    fn container(&mut self, container: usize, span: Span) -> Option<ContainerAdvice> {
        let memory = self.memory_peak(container, span);
        let minutes = self.minutes(container, span);
        if minutes < self.needed_samples() {
            return None;
        }
        let (cores, limit) = match self.rule {
            PolicyRule::KrrSimple => (self.largest_pod_quantile(container, span, 0.95), None),
            PolicyRule::KrrSimpleLimit => {
                let own = self.quantile(container, span, 0.66);
                (own, self.quantile(container, span, 0.96))
            }
            PolicyRule::Kubecost => {
                let largest = self.largest_minutes(container, span, usize::MAX);
                (largest.first().map(|largest| largest / KUBECOST_UTILIZATION), None)
            }
            rule => {
                let share = if rule == PolicyRule::KruizeCost { 0.6 } else { 0.98 };
                let mut largest = self.largest_minutes(container, span, KRUIZE_INTERVAL);
                (quantile(&mut largest, share), None)
            }
        };
        let amounts = |cpu_floor, factor: f64, memory_floor| Amounts {
            cpu: cores.map(|cores| cpu_request(cores, cpu_floor)),
            memory: memory.map(|bytes| memory_request(bytes * factor, memory_floor)),
        };
        Some(match self.rule {
            PolicyRule::KrrSimple => ContainerAdvice {
                requests: amounts(10, 1.15, 100 * MIB),
                cpu_limit: LimitAdvice::Unset,
                memory_limit: LimitAdvice::AsRequest,
            },
            PolicyRule::KrrSimpleLimit => ContainerAdvice {
                requests: amounts(10, 1.15, 100 * MIB),
                cpu_limit: limit.map_or(LimitAdvice::Unset, |limit| {
                    LimitAdvice::Amount(cpu_request(limit, 10).0)
                }),
                memory_limit: LimitAdvice::AsRequest,
            },
            // Kubecost recommends requests only.
            PolicyRule::Kubecost => ContainerAdvice {
                requests: amounts(10, 1.0 / KUBECOST_UTILIZATION, 20 * MIB),
                cpu_limit: LimitAdvice::Keep,
                memory_limit: LimitAdvice::Keep,
            },
            _ => ContainerAdvice {
                requests: amounts(1, 1.0, 1),
                cpu_limit: LimitAdvice::AsRequest,
                memory_limit: LimitAdvice::AsRequest,
            },
        })
    }

    /// The usage of a container in each pod within a span, with NaN for minutes without.
    fn slices(
        &self,
        container: usize,
        span: Span,
    ) -> impl Iterator<Item = (usize, &'a PodContainer, &'a [f32])> {
        let pods = self.recording.pods.iter().enumerate();
        pods.filter_map(move |(pod, recorded)| {
            let usage = recorded.containers.get(container)?;
            let cut = |at: i64| {
                let index = at - i64::from(usage.first_minute);
                index.clamp(0, usage.cpu.len() as i64) as usize
            };
            let values = &usage.cpu[cut(span.minutes.0)..cut(span.minutes.1)];
            Some((pod, usage, values))
        })
    }

    /// The minutes of a slice that have a value, and the value.
    fn known<'s>(
        &'s self,
        container: usize,
        span: Span,
        (_, usage, values): (usize, &'a PodContainer, &'s [f32]),
    ) -> impl Iterator<Item = (i64, f64)> + use<'s, 'a> {
        let first = i64::from(usage.first_minute).max(span.minutes.0);
        let factors = &self.cpu_factors[container];
        let known = values.iter().enumerate().filter(|(_, cores)| !cores.is_nan());
        known.map(move |(offset, cores)| {
            let minute = first + offset as i64;
            (minute, f64::from(*cores) * factor_at(factors, minute))
        })
    }

    fn minutes(&self, container: usize, span: Span) -> u64 {
        let slices = self.slices(container, span);
        slices.map(|(_, _, values)| values.iter().filter(|of| !of.is_nan()).count() as u64).sum()
    }

    fn largest_pod_quantile(&mut self, container: usize, span: Span, share: f64) -> Option<f64> {
        let mut largest: Option<f64> = None;
        let mut values = std::mem::take(&mut self.values);
        for slice in self.slices(container, span) {
            values.clear();
            values.extend(self.known(container, span, slice).map(|(_, cores)| cores));
            let found = quantile(&mut values, share);
            largest = largest.into_iter().chain(found).reduce(f64::max);
        }
        self.values = values;
        largest
    }

    fn quantile(&mut self, container: usize, span: Span, share: f64) -> Option<f64> {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        for slice in self.slices(container, span) {
            values.extend(self.known(container, span, slice).map(|(_, cores)| cores));
        }
        let found = quantile(&mut values, share);
        self.values = values;
        found
    }

    /// The largest use of any pod in each interval of so many minutes; intervals without a value are left out.
    fn largest_minutes(&self, container: usize, span: Span, interval: usize) -> Vec<f64> {
        let mut largest: BTreeMap<i64, f64> = BTreeMap::new();
        let interval = i64::try_from(interval).unwrap_or(i64::MAX);
        for slice in self.slices(container, span) {
            for (minute, cores) in self.known(container, span, slice) {
                let slot = largest.entry(minute / interval).or_insert(0.0);
                *slot = slot.max(cores);
            }
        }
        largest.into_values().collect()
    }

    /// The largest peak of memory that was seen.
    fn memory_peak(&self, container: usize, span: Span) -> Option<f64> {
        let mut largest: Option<f64> = None;
        for (pod, usage, _) in self.slices(container, span) {
            for (offset, bytes) in usage.memory.iter().enumerate().filter(|(_, w)| !w.is_nan()) {
                let window = i64::from(usage.first_window) + offset as i64;
                let bytes = f64::from(*bytes) * factor_at(&self.memory_factors[container], window);
                if window < span.windows.0 || window >= span.windows.1 || largest >= Some(bytes) {
                    continue;
                }
                let seen = self.cut.get(&(container, pod, window as u32)).copied();
                largest = largest.into_iter().chain([seen.unwrap_or(bytes)]).reduce(f64::max);
            }
        }
        largest
    }
}

fn set_factor(factors: &mut Vec<f32>, index: u32, factor: f64) {
    let index = index as usize;
    if factors.len() <= index {
        factors.resize(index + 1, 1.0);
    }
    factors[index] = factor as f32;
}

fn factor_at(factors: &[f32], index: i64) -> f64 {
    let index = usize::try_from(index).ok();
    index.and_then(|index| factors.get(index)).map_or(1.0, |factor| f64::from(*factor))
}

/// The minutes and windows that are known at a time, within a number of seconds; the ends are exclusive.
#[derive(Clone, Copy)]
struct Span {
    minutes: (i64, i64),
    windows: (i64, i64),
}

impl Span {
    fn new(recording: &WorkloadRecording, now: Time, seconds: i64) -> Self {
        // What was measured up to a minute ago is known.
        let known = now.as_secs() - recording.from.as_secs() - CPU_STEP_SECONDS;
        let from = known - seconds;
        Self {
            minutes: (
                from.div_euclid(CPU_STEP_SECONDS) + 1,
                known.div_euclid(CPU_STEP_SECONDS) + 1,
            ),
            windows: (
                from.div_euclid(MEMORY_STEP_SECONDS) + 1,
                known.div_euclid(MEMORY_STEP_SECONDS),
            ),
        }
    }
}
