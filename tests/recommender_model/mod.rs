//! The recommender's model: golden vectors, properties, and its documented memory use and speed.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::{
    history::{BucketScheme, HistogramWeights},
    types::Time,
};
use plimsoll_core::{
    recommender::{
        ContainerRecommendation, History, ModelRules, Recommendation, Settings, VpaSettings,
        histogram::Histogram, recommend,
    },
    types::{
        compat::Compat,
        units::{Bytes, MilliCpu},
    },
};

mod annotation_limits;
mod checkpoints;
mod crash_recovery;
mod estimates;
pub mod explanations;
mod fixes;
mod histograms;
mod history_bootstrap;
mod memory_size;
mod memory_windows;
mod options;
mod postprocessing;
mod properties;
pub mod replayed_history;
mod restarts;
mod sample_batches;
mod upstream;
mod workload_mix;

/// 2026-01-01T00:00:00Z, the start of the golden vectors' scenarios.
pub const START: Time = Time::from_secs(1_767_225_600);
pub const MINUTE: Duration = Duration::from_mins(1);
pub const HOUR: Duration = Duration::from_hours(1);
pub const MIB: i64 = 1 << 20;
pub const GIB: i64 = 1 << 30;

pub fn minute(minutes: u32) -> Time {
    START.later(MINUTE * minutes)
}

pub fn at(rfc3339: &str) -> Time {
    rfc3339.parse::<jiff::Timestamp>().expect("valid timestamp").into()
}

/// Both modes: a vector that contains no upstream bug holds in both.
pub const BOTH_MODES: [Compat; 2] = [Compat::Upstream, Compat::Plimsoll];

/// A VPA with the given containers, whose samples the tests add by hand.
pub struct VpaFixture {
    pub settings: Settings,
    pub directives: VpaSettings,
    pub history: History,
}

impl VpaFixture {
    pub fn new(compat: Compat) -> Self {
        Self {
            settings: Settings::for_compat(compat),
            directives: VpaSettings::default(),
            history: History::default(),
        }
    }

    pub fn annotated(compat: Compat, annotations: &[(&str, &str)]) -> Self {
        let annotations: BTreeMap<_, _> =
            annotations.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        Self { directives: VpaSettings::new(Vec::new(), &annotations), ..Self::new(compat) }
    }

    pub fn rules(&self) -> ModelRules {
        self.directives.rules(self.history.get("app"), &self.settings)
    }

    pub fn register_container(&mut self, container: &str, now: Time) {
        let rules = self.rules();
        self.history.container_mut(container, now, &rules);
    }

    pub fn cpu(&mut self, time: Time, millis: i64) -> bool {
        let rules = self.rules();
        let container = self.history.container_mut("app", time, &rules);
        container.add_cpu("pod-0", time, MilliCpu(millis), &rules).is_ok()
    }

    pub fn memory(&mut self, time: Time, bytes: i64) -> bool {
        self.replica_memory("pod-0", time, bytes)
    }

    pub fn replica_memory(&mut self, replica: &str, time: Time, bytes: i64) -> bool {
        let rules = self.rules();
        let container = self.history.container_mut("app", time, &rules);
        container.add_memory(replica, time, Bytes(bytes), &rules).is_ok()
    }

    pub fn recommend(&self, now: Time) -> Recommendation {
        recommend(&self.directives, &self.history, &self.settings, now)
    }

    pub fn app(&self, now: Time) -> ContainerRecommendation {
        let recommendation = self.recommend(now);
        let app = recommendation.containers.iter().find(|found| &*found.container == "app");
        app.expect("container has a recommendation").clone()
    }

    /// Target, lower and upper bound in millicores.
    pub fn cpu_numbers(&self, now: Time) -> [i64; 3] {
        let app = self.app(now);
        [app.target, app.lower, app.upper]
            .map(|amounts| amounts.cpu.expect("CPU is recommended").milli_value())
    }

    /// Target, lower and upper bound in bytes.
    pub fn memory_numbers(&self, now: Time) -> [i64; 3] {
        let app = self.app(now);
        [app.target, app.lower, app.upper]
            .map(|amounts| amounts.memory.expect("memory is recommended").value())
    }
}

/// The integers that a checkpoint has for this histogram.
pub fn encoded(histogram: &Histogram) -> Vec<(u8, u32)> {
    encoded_weights(&histogram.to_weights(BucketScheme::Standard))
}

pub fn assert_close(actual: f64, expected: f64) {
    let tolerance = 1e-9 * expected.abs().max(1.0);
    assert!((actual - expected).abs() <= tolerance, "{actual} is not {expected}");
}

/// The integers that a checkpoint has for these weights.
pub fn encoded_weights(weights: &HistogramWeights) -> Vec<(u8, u32)> {
    let checkpoint = plimsoll_core::history::checkpoint::encode(weights).expect("standard buckets");
    let mut buckets: Vec<(u8, u32)> = checkpoint
        .bucket_weights
        .iter()
        .map(|(bucket, weight)| {
            let weight = weight.as_u64().and_then(|weight| u32::try_from(weight).ok());
            (bucket.parse().expect("a bucket"), weight.expect("a whole number"))
        })
        .collect();
    buckets.sort_unstable();
    buckets
}

/// The memory histogram of `app` as in a checkpoint, including open windows.
pub fn encoded_memory(subject: &VpaFixture, now: Time) -> (Vec<(u8, u32)>, f64, Option<Time>) {
    let history = subject.history.get("app").expect("known");
    let memory = history.to_snapshot(now, &subject.rules()).memory;
    (encoded_weights(&memory), memory.total, memory.reference)
}
