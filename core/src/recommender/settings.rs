//! What the model is told by flags, and the rules that follow from it for one container.

use std::time::Duration;

use crate::{
    history::{BucketScheme, HalfLives},
    types::Time,
};

use super::{
    buckets::Buckets, histogram::HistogramConfig, policy::Overrides, tuning::Tuning,
    weighting::HistoryWeighting,
};
use crate::types::{
    compat::{Compat, Fix, Fixes},
    quantity::Quantity,
};

const DAY: Duration = Duration::from_hours(24);

/// Clocks of nodes that are in step may still differ by less than this.
const CLOCK_SKEW: Duration = Duration::from_mins(2);

/// Everything about the model that flags can set. The defaults are upstream's.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one flag of its own")]
pub struct Settings {
    /// Which fixes are on (`--compat`, `--disable-fix`).
    pub fixes: Fixes,
    /// CPU estimates.
    pub cpu: Percentiles,
    /// Memory estimates.
    pub memory: Percentiles,
    /// Share added to every percentile (`--recommendation-margin-fraction`).
    pub margin: f64,
    /// Least CPU of a pod, in millicores (`--pod-recommendation-min-cpu-millicores`).
    pub pod_floor_millicores: f64,
    /// Least memory of a pod, in MiB (`--pod-recommendation-min-memory-mb`).
    pub pod_floor_mebibytes: f64,
    /// Length of a memory window (`--memory-aggregation-interval`).
    pub interval: Duration,
    /// How many windows history reaches back (`--memory-aggregation-interval-count`).
    pub interval_count: u32,
    /// Factor from what a killed container had to what it is given credit for (`--oom-bump-up-ratio`).
    pub oom_ratio: f64,
    /// Least bytes that such a credit adds (`--oom-min-bump-up-bytes`).
    pub oom_min_bump: f64,
    /// Whether `oomBumpUpRatio` and the like in a policy count (feature gate `PerVPAConfig`).
    pub per_vpa_config: bool,
    /// CPU is rounded up to a multiple of this (`--round-cpu-millicores`).
    pub round_millicores: i64,
    /// Memory is rounded up to a multiple of this (`--round-memory-bytes`).
    pub round_bytes: i64,
    /// Print memory with two decimals and a binary suffix (`--humanize-memory`).
    pub humanize_memory: bool,
    /// Whether VPAs may ask for whole cores by annotation (`--cpu-integer-post-processor-enabled`).
    pub integer_cpu: bool,
    /// Most CPU of a container whose policy says nothing (`--container-recommendation-max-allowed-cpu`).
    pub max_cpu: Option<Quantity>,
    /// The same for memory (`--container-recommendation-max-allowed-memory`).
    pub max_memory: Option<Quantity>,
    /// How long a container may be missing from the pods of its VPA before it is left out.
    pub stale_after: Duration,
    /// Bucket boundaries (`--fine-buckets`).
    pub scheme: BucketScheme,
    /// Also count the largest peak of all replicas (`--per-replica-peaks`).
    pub per_replica_peaks: bool,
    /// The upper bound is at most this many times the target (`--upper-bound-factor`).
    pub upper_bound_factor: Option<f64>,
    /// Whether annotations may set percentile, margin, half-life and floor (`--per-vpa-tuning`).
    pub per_vpa_tuning: bool,
    /// The share of its periods in which a container may be throttled before its CPU is raised
    /// (`--cpu-throttling-target`); `None` raises nothing.
    pub cpu_throttling_target: Option<f64>,
    /// What single samples of a stored history count (`--history-weighting`).
    pub history_weighting: HistoryWeighting,
    /// How often a live sample is taken: what a span of a stored history is counted in.
    pub sampling_interval: Duration,
}

/// The estimates of one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    /// Share of the samples that the lower bound covers.
    pub lower: f64,
    /// Share that the target covers.
    pub target: f64,
    /// Share that the upper bound covers.
    pub upper: f64,
    /// Time that counts as one unit of confidence.
    pub confidence_interval: Duration,
    /// Time after which a sample counts half.
    pub half_life: Duration,
}

impl Default for Percentiles {
    fn default() -> Self {
        Self { lower: 0.5, target: 0.9, upper: 0.95, confidence_interval: DAY, half_life: DAY }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fixes: Fixes::default(),
            cpu: Percentiles::default(),
            memory: Percentiles::default(),
            margin: 0.15,
            pod_floor_millicores: 25.0,
            pod_floor_mebibytes: 250.0,
            interval: DAY,
            interval_count: 8,
            oom_ratio: 1.2,
            oom_min_bump: 100.0 * 1_048_576.0,
            per_vpa_config: false,
            round_millicores: 1,
            round_bytes: 1,
            humanize_memory: false,
            integer_cpu: false,
            max_cpu: None,
            max_memory: None,
            stale_after: Duration::from_hours(1),
            scheme: BucketScheme::Standard,
            per_replica_peaks: false,
            upper_bound_factor: None,
            per_vpa_tuning: false,
            cpu_throttling_target: None,
            history_weighting: HistoryWeighting::default(),
            sampling_interval: Duration::from_mins(1),
        }
    }
}

impl Settings {
    /// The defaults of a mode.
    pub fn for_compat(compat: Compat) -> Self {
        let history_weighting = HistoryWeighting::for_compat(compat);
        Self { fixes: Fixes::for_compat(compat), history_weighting, ..Self::default() }
    }

    /// The latest time that a sample may have; `None` accepts any, as upstream does. The weight of a sample doubles with
    /// each half-life, so one that is dated days ahead would outweigh all others until that day.
    pub fn latest_sample(&self, now: Time) -> Option<Time> {
        let is_on = self.fixes.has(Fix::FutureSamplesAreRefused);
        is_on.then(|| now.later(CLOCK_SKEW.max(self.sampling_interval)))
    }

    /// The rules by which samples of a container are taken.
    pub fn rules(&self, overrides: Option<&Overrides>, tuning: &Tuning) -> ModelRules {
        let overrides = overrides.copied().unwrap_or_default();
        let tuning = if self.per_vpa_tuning { tuning } else { &Tuning::NONE };
        ModelRules {
            fixes: self.fixes,
            scheme: self.scheme,
            cpu_half_life: tuning.half_life.unwrap_or(self.cpu.half_life),
            memory_half_life: tuning.half_life.unwrap_or(self.memory.half_life),
            interval: overrides.interval.unwrap_or(self.interval),
            interval_count: overrides.interval_count.unwrap_or(self.interval_count),
            oom_ratio: overrides.oom_ratio.unwrap_or(self.oom_ratio),
            oom_min_bump: overrides.oom_min_bump.unwrap_or(self.oom_min_bump),
            per_replica_peaks: self.per_replica_peaks,
            margin: tuning.margin.unwrap_or(self.margin),
        }
    }
}

/// By which rules samples of one container are taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelRules {
    /// Which fixes are on.
    pub fixes: Fixes,
    /// Bucket boundaries.
    pub scheme: BucketScheme,
    /// Half-life of CPU samples.
    pub cpu_half_life: Duration,
    /// Half-life of memory peaks.
    pub memory_half_life: Duration,
    /// Length of a memory window.
    pub interval: Duration,
    /// How many windows history reaches back.
    pub interval_count: u32,
    /// Factor of an out-of-memory bump.
    pub oom_ratio: f64,
    /// Least bytes of an out-of-memory bump.
    pub oom_min_bump: f64,
    /// Also count the largest peak of all replicas.
    pub per_replica_peaks: bool,
    /// Share added to every percentile.
    pub margin: f64,
}

impl ModelRules {
    /// The half-lives in the form in which histories keep them.
    pub fn half_lives(&self) -> HalfLives {
        let seconds = |span: Duration| u32::try_from(span.as_secs()).unwrap_or(u32::MAX).max(1);
        HalfLives { cpu: seconds(self.cpu_half_life), memory: seconds(self.memory_half_life) }
    }

    /// What CPU histograms are measured by.
    pub fn cpu_histogram_config(&self) -> HistogramConfig<'static> {
        HistogramConfig { buckets: Buckets::cpu(self.scheme), half_life: Some(self.cpu_half_life) }
    }

    /// What memory histograms are measured by.
    pub fn memory_histogram_config(&self) -> HistogramConfig<'static> {
        HistogramConfig {
            buckets: Buckets::memory(self.scheme),
            half_life: Some(self.memory_half_life),
        }
    }

    /// How far back history reaches.
    pub fn memory_span(&self) -> Duration {
        self.interval.saturating_mul(self.interval_count)
    }
}

impl Default for ModelRules {
    fn default() -> Self {
        Settings::default().rules(None, &Tuning::NONE)
    }
}
