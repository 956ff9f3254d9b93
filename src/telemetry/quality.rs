//! Upstream's `vpa_quality_*`: the quality of recommendations, recorded for every sample and every change.

use super::{
    definition::{counter, histogram},
    family::Family,
    instruments::{Counter, Histogram},
    labels::{MODES_OR_NONE, SIZES, bool_label, known_mode, size_label},
    registry::metric_families,
};
use plimsoll_core::recommender::estimate::Resource;

const CORES: &[f64] = &powers_of_two(0.01);
/// From 1 MB to 65.536 GB.
const BYTES: &[f64] = &powers_of_two(1e6);
/// From -100 % to a factor of 100.
const SHARES: &[f64] = &[
    -1.0, -0.75, -0.5, -0.25, -0.1, -0.05, -0.025, -0.01, -0.005, -0.0025, -0.001, 0.0, 0.001,
    0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0,
];

const fn powers_of_two(first: f64) -> [f64; 17] {
    let mut bounds = [first; 17];
    let mut index = 1;
    while index < bounds.len() {
        // Doubled step by step, as upstream does: 0.01 * 2^i may differ in the last bit.
        bounds[index] = bounds[index - 1] * 2.0;
        index += 1;
    }
    bounds
}

const NO_SAMPLE: &str = "no such sample was seen";
const BY_RESOURCE: &[&str] = &["is_oom", "resource", "update_mode"];
const CPU_LABELS: &[&str] = &["recommendation_missing", "update_mode"];
const MEMORY_LABELS: &[&str] = &["is_oom", "recommendation_missing", "update_mode"];

metric_families! {
    /// The families of `vpa_quality_*`.
    #[derive(Clone, Debug)]
    pub struct Quality via pub new {
        relative: Family<Histogram, 3>[4 * MODES_OR_NONE] = histogram(
            "vpa_quality_usage_recommendation_relative_diffs",
            "Usage minus recommendation, relative to the recommendation.",
            SHARES,
        ).labels(BY_RESOURCE, "32 of 32").absent(NO_SAMPLE);
        missing: Family<Counter, 3>[4 * MODES_OR_NONE] = counter(
            "vpa_quality_usage_sample_missing_recommendation_count",
            "Samples of containers that have no recommendation and should have one.",
        ).labels(BY_RESOURCE, "32").absent(NO_SAMPLE);
        cpu_over: Family<Histogram, 2>[2 * MODES_OR_NONE] = histogram(
            "vpa_quality_cpu_recommendation_over_usage_diffs_cores",
            "How far the recommendation is above usage.",
            CORES,
        ).labels(CPU_LABELS, "16 of 20").unit("cores").absent(NO_SAMPLE);
        cpu_under: Family<Histogram, 2>[2 * MODES_OR_NONE] = histogram(
            "vpa_quality_cpu_recommendation_lower_equal_usage_diffs_cores",
            "How far the recommendation is below usage; a missing one counts as zero.",
            CORES,
        ).labels(CPU_LABELS, "16 of 20").unit("cores").absent(NO_SAMPLE);
        memory_over: Family<Histogram, 3>[4 * MODES_OR_NONE] = histogram(
            "vpa_quality_mem_recommendation_over_usage_diffs_bytes",
            "How far the recommendation is above usage.",
            BYTES,
        ).labels(MEMORY_LABELS, "32 of 20").unit("bytes").absent(NO_SAMPLE);
        memory_under: Family<Histogram, 3>[4 * MODES_OR_NONE] = histogram(
            "vpa_quality_mem_recommendation_lower_equal_usage_diffs_bytes",
            "How far the recommendation is below usage; a missing one counts as zero.",
            BYTES,
        ).labels(MEMORY_LABELS, "32 of 20").unit("bytes").absent(NO_SAMPLE);
        cpu: Family<Histogram, 1>[MODES_OR_NONE] = histogram(
            "vpa_quality_cpu_recommendations_cores",
            "The recommendation at the time of each sample.",
            CORES,
        ).labels(&["update_mode"], "8 of 20").unit("cores").absent(NO_SAMPLE);
        memory: Family<Histogram, 2>[2 * MODES_OR_NONE] = histogram(
            "vpa_quality_mem_recommendations_bytes",
            "The recommendation at the time of each sample.",
            BYTES,
        ).labels(&["is_oom", "update_mode"], "16 of 20").unit("bytes").absent(NO_SAMPLE);
        changes: Family<Histogram, 3>[2 * MODES_OR_NONE * (SIZES + 1)] = histogram(
            "vpa_quality_relative_recommendation_changes",
            "Change of a recommendation, relative to the previous one.",
            SHARES,
        ).labels(&["resource", "update_mode", "vpa_size_log2"], "336 of 32")
        .absent("no recommendation has followed another");
    }
}

impl Quality {
    /// Records a sample that was added to the history of a container whose scaling mode is not `Off`: its usage in cores or
    /// bytes, and the uncapped target at that time, if there is one. A target of zero counts as missing.
    pub fn observe_sample(
        &self,
        update_mode: Option<&str>,
        resource: Resource,
        is_oom: bool,
        usage: f64,
        recommendation: Option<f64>,
    ) {
        let mode = update_mode.map_or("", known_mode);
        let of_oom = bool_label(is_oom);
        let recommendation = recommendation.filter(|&value| value > 0.0);
        let missing = bool_label(recommendation.is_none());
        let value = recommendation.unwrap_or(0.0);
        if recommendation.is_some() {
            match resource {
                Resource::Cpu => self.cpu.with_labels([mode]).observe(value),
                Resource::Memory => self.memory.with_labels([of_oom, mode]).observe(value),
            }
            let share = (usage - value) / value;
            self.relative.with_labels([of_oom, resource.into(), mode]).observe(share);
        } else {
            self.missing.with_labels([of_oom, resource.into(), mode]).increment();
        }
        let (over, distance) = (value > usage, (usage - value).abs());
        match resource {
            Resource::Cpu => {
                let family = if over { &self.cpu_over } else { &self.cpu_under };
                family.with_labels([missing, mode]).observe(distance);
            }
            Resource::Memory => {
                let family = if over { &self.memory_over } else { &self.memory_under };
                family.with_labels([of_oom, missing, mode]).observe(distance);
            }
        }
    }

    /// Records a new recommendation of a container that already had one, changed or not, and the number of pods of the VPA.
    /// Nothing is recorded unless the previous one is above zero.
    pub fn observe_change(
        &self,
        update_mode: Option<&str>,
        resource: Resource,
        [old, new]: [f64; 2],
        pods: usize,
    ) {
        if old > 0.0 {
            let size = size_label(pods);
            let mode = update_mode.map_or("", known_mode);
            self.changes.with_labels([resource.into(), mode, &size]).observe(new / old - 1.0);
        }
    }
}
