//! Autopilot's moving windows, after section 3.2 of its paper (EuroSys 2020): for serving jobs the load-adjusted p95 of CPU and
//! the largest of the last hour, for batch jobs the mean; memory by its peaks; all + 12 %.

use std::time::Duration;

use super::{
    Advice, ContainerAdvice,
    rule_state::{LimitAdvice, Seen, cpu_request, memory_request},
};
use crate::{
    history::BucketScheme,
    recommender::{
        buckets::Buckets,
        histogram::{Histogram, HistogramConfig},
    },
    rightsizing::survey::Amounts,
    types::{Time, units::Bytes},
};

const MARGIN: f64 = 1.12;
const CPU_HALF_LIFE: Duration = Duration::from_hours(12);
const MEMORY_HALF_LIFE: Duration = Duration::from_hours(48);
const CPU_PERCENTILE: f64 = 0.95;
const MEMORY_PERCENTILE: f64 = 0.98;
/// A killed container needed this much more than its limit.
const KILL_FACTOR: f64 = 1.2;
/// Recommendations are made every ten minutes; serving jobs get the largest of an hour.
const STEP_SECONDS: i64 = 600;
const STEPS: usize = 6;
/// Loads are far below one core; they are weights in thousandths, so that those of small containers are not lost.
const LOAD_SCALE: f64 = 1_000.0;

pub(crate) struct Autopilot {
    is_serving: bool,
    containers: Vec<Usage>,
}

struct Usage {
    cpu: Histogram,
    memory: Histogram,
    has_memory: bool,
    /// Decayed sums of cores and of samples, as of the last sample.
    sum: f64,
    samples: f64,
    last: Option<Time>,
    recent: [f64; STEPS],
    step: i64,
}

fn cpu_config() -> HistogramConfig<'static> {
    HistogramConfig { buckets: Buckets::cpu(BucketScheme::Fine), half_life: Some(CPU_HALF_LIFE) }
}

fn memory_config() -> HistogramConfig<'static> {
    HistogramConfig {
        buckets: Buckets::memory(BucketScheme::Fine),
        half_life: Some(MEMORY_HALF_LIFE),
    }
}

impl Autopilot {
    pub fn new(is_serving: bool, containers: usize) -> Self {
        let usage = || Usage {
            cpu: Histogram::new(cpu_config().buckets),
            memory: Histogram::new(memory_config().buckets),
            has_memory: false,
            sum: 0.0,
            samples: 0.0,
            last: None,
            recent: [0.0; STEPS],
            step: 0,
        };
        Self { is_serving, containers: (0..containers).map(|_| usage()).collect() }
    }

    pub fn take_cpu(&mut self, seen: Seen<'_>, cores: f64) {
        let usage = &mut self.containers[seen.container];
        let step = seen.at.as_secs().div_euclid(STEP_SECONDS);
        if step != usage.step {
            let skipped = (step - usage.step).clamp(0, STEPS as i64);
            (0..skipped).for_each(|_| usage.recent.rotate_right(1));
            let now = usage.cpu_percentile();
            usage.recent[..skipped as usize].fill(now);
            usage.step = step;
        }
        usage.cpu.add(cpu_config(), cores, cores * LOAD_SCALE, seen.at);
        let age = usage.last.map_or(0, |last| seen.at.nanos_since(last));
        if age > 0 {
            let decay = (-(age as f64) / CPU_HALF_LIFE.as_nanos() as f64).exp2();
            usage.sum *= decay;
            usage.samples *= decay;
        }
        usage.sum += cores;
        usage.samples += 1.0;
        usage.last = Some(seen.at);
    }

    pub fn take_memory(&mut self, seen: Seen<'_>, bytes: f64) {
        let usage = &mut self.containers[seen.container];
        usage.memory.add(memory_config(), bytes, 1.0, seen.at);
        usage.has_memory = true;
    }

    pub fn take_kill(&mut self, seen: Seen<'_>, limit: Bytes) {
        self.take_memory(seen, limit.as_f64() * KILL_FACTOR);
    }

    pub fn advise(&self) -> Option<Advice> {
        let advice: Vec<Option<ContainerAdvice>> =
            self.containers.iter().map(|usage| self.container(usage)).collect();
        advice.iter().any(Option::is_some).then_some(Advice::Amounts(advice))
    }

    fn container(&self, usage: &Usage) -> Option<ContainerAdvice> {
        usage.last?;
        let cores = if self.is_serving {
            usage.recent.iter().copied().fold(usage.cpu_percentile(), f64::max)
        } else {
            usage.sum / usage.samples
        };
        let share = if self.is_serving { 1.0 } else { MEMORY_PERCENTILE };
        let memory = usage.has_memory.then(|| {
            let peak = usage.memory.percentile(memory_config().buckets, share);
            memory_request(peak * MARGIN, 1)
        });
        Some(ContainerAdvice {
            requests: Amounts { cpu: Some(cpu_request(cores * MARGIN, 1)), memory },
            // Its limits of CPU are soft.
            cpu_limit: LimitAdvice::Unset,
            memory_limit: LimitAdvice::AsRequest,
        })
    }
}

impl Usage {
    fn cpu_percentile(&self) -> f64 {
        self.cpu.percentile(cpu_config().buckets, CPU_PERCENTILE)
    }
}
