//! The settings of the model from flags, and the resulting rules for one container.

use std::time::Duration;

use crate::{
    history::{BucketScheme, HalfLives},
    types::Time,
};

use super::{
    buckets::Buckets,
    histogram::HistogramConfig,
    plan::{PlanRules, PlanSelection, PlanSettings},
    policy::Overrides,
    tuning_annotations::Tuning,
    weighting::HistoryWeighting,
};
use crate::types::{
    compat::{Compat, Fix, Fixes},
    quantity::Quantity,
};

const DAY: Duration = Duration::from_hours(24);

/// The maximum clock difference of synchronized nodes.
const CLOCK_SKEW: Duration = Duration::from_mins(2);

/// The settings of the model that flags can change. The defaults are upstream's.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one flag of its own")]
pub struct Settings {
    /// The enabled fixes (`--compat`, `--disable-fix`).
    pub fixes: Fixes,
    pub cpu: Percentiles,
    pub memory: Percentiles,
    /// Fraction that is added to every percentile (`--recommendation-margin-fraction`).
    pub margin: f64,
    /// Minimum CPU of a pod, in millicores (`--pod-recommendation-min-cpu-millicores`).
    pub pod_floor_millicores: f64,
    /// Minimum memory of a pod, in MiB (`--pod-recommendation-min-memory-mb`).
    pub pod_floor_mebibytes: f64,
    /// Length of a memory window (`--memory-aggregation-interval`).
    pub interval: Duration,
    /// Number of memory windows in the history (`--memory-aggregation-interval-count`).
    pub interval_count: u32,
    /// Factor of an OOM bump (`--oom-bump-up-ratio`).
    pub oom_ratio: f64,
    /// Minimum bytes of an OOM bump (`--oom-min-bump-up-bytes`).
    pub oom_min_bump: f64,
    /// Whether a policy may set `oomBumpUpRatio` and similar fields (feature gate `PerVPAConfig`).
    pub per_vpa_config: bool,
    /// CPU is rounded up to a multiple of this (`--round-cpu-millicores`).
    pub round_millicores: i64,
    /// Memory is rounded up to a multiple of this (`--round-memory-bytes`).
    pub round_bytes: i64,
    /// Whether memory is printed with two decimals and a binary suffix (`--humanize-memory`).
    pub humanize_memory: bool,
    /// Whether VPAs can request whole cores by annotation (`--cpu-integer-post-processor-enabled`).
    pub integer_cpu: bool,
    /// Maximum CPU of a container without a maximum in its policy (`--container-recommendation-max-allowed-cpu`).
    pub max_cpu: Option<Quantity>,
    /// Maximum memory of a container without a maximum in its policy (`--container-recommendation-max-allowed-memory`).
    pub max_memory: Option<Quantity>,
    /// How long a container may be missing from the pods of its VPA before its recommendation is removed.
    pub stale_after: Duration,
    /// Bucket boundaries (`--fine-buckets`).
    pub scheme: BucketScheme,
    /// Whether the peaks of the largest replica count, too (`--per-replica-peaks`).
    pub per_replica_peaks: bool,
    /// Maximum of the upper bound as a multiple of the target (`--upper-bound-factor`).
    pub upper_bound_factor: Option<f64>,
    /// Whether annotations may set percentile, margin, half-life and minimum (`--per-vpa-tuning`).
    pub per_vpa_tuning: bool,
    /// The fraction of periods in which a container may be throttled before its CPU is raised
    /// (`--cpu-throttling-target`); `None` never raises CPU.
    pub cpu_throttling_target: Option<f64>,
    /// The weight of single samples of a stored history (`--history-weighting`).
    pub history_weighting: HistoryWeighting,
    /// Profile and prices of planned requests.
    pub plan: PlanSettings,
    /// The interval of live samples, which determines how many samples a span of a stored history counts as.
    pub sampling_interval: Duration,
}

/// The percentiles and decay of one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    /// Percentile of the lower bound, 0 to 1.
    pub lower: f64,
    pub target: f64,
    pub upper: f64,
    /// Time that counts as one unit of confidence.
    pub confidence_interval: Duration,
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
            plan: PlanSettings::default(),
            sampling_interval: Duration::from_mins(1),
        }
    }
}

impl Settings {
    pub fn for_compat(compat: Compat) -> Self {
        let history_weighting = HistoryWeighting::for_compat(compat);
        Self { fixes: Fixes::for_compat(compat), history_weighting, ..Self::default() }
    }

    /// Returns the latest valid time of a sample; `None` accepts any, as upstream does. The weight of a sample doubles with
    /// each half-life, so a sample dated days ahead would outweigh all others until that day.
    pub fn latest_sample(&self, now: Time) -> Option<Time> {
        let is_on = self.fixes.has(Fix::FutureSamplesAreRefused);
        is_on.then(|| now.later(CLOCK_SKEW.max(self.sampling_interval)))
    }

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
            plan: tuning
                .profile
                .unwrap_or(self.plan.profile)
                .plan()
                .map(|profile| PlanRules::new(&self.plan, PlanSelection::of(profile))),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelRules {
    pub fixes: Fixes,
    pub scheme: BucketScheme,
    pub cpu_half_life: Duration,
    pub memory_half_life: Duration,
    pub interval: Duration,
    pub interval_count: u32,
    pub oom_ratio: f64,
    /// Minimum bytes of an OOM bump.
    pub oom_min_bump: f64,
    /// Whether the peaks of the largest replica count, too.
    pub per_replica_peaks: bool,
    /// Fraction that is added to every percentile.
    pub margin: f64,
    /// The rules of planned requests; `None` if percentiles decide.
    pub plan: Option<PlanRules>,
}

impl ModelRules {
    /// Returns the half-lives in seconds, as histories store them.
    pub fn half_lives(&self) -> HalfLives {
        let seconds = |span: Duration| u32::try_from(span.as_secs()).unwrap_or(u32::MAX).max(1);
        HalfLives { cpu: seconds(self.cpu_half_life), memory: seconds(self.memory_half_life) }
    }

    pub fn cpu_histogram_config(&self) -> HistogramConfig<'static> {
        HistogramConfig { buckets: Buckets::cpu(self.scheme), half_life: Some(self.cpu_half_life) }
    }

    pub fn memory_histogram_config(&self) -> HistogramConfig<'static> {
        HistogramConfig {
            buckets: Buckets::memory(self.scheme),
            half_life: Some(self.memory_half_life),
        }
    }

    pub fn memory_span(&self) -> Duration {
        self.interval.saturating_mul(self.interval_count)
    }
}

impl Default for ModelRules {
    fn default() -> Self {
        Settings::default().rules(None, &Tuning::NONE)
    }
}
