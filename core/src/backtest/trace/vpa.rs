//! Upstream's VerticalPodAutoscaler on a series: its percentiles and bounds, and when its updater acts.

use std::time::Duration;

use super::rule::SeriesRule;
use crate::{
    history::BucketScheme,
    recommender::{
        buckets::Buckets,
        estimate::{LOWER_BOUND_FACTOR, UPPER_BOUND_FACTOR, confidence_multiplier},
        histogram::{Histogram, HistogramConfig},
    },
    types::Time,
};

const DAY: f64 = 86_400.0;
const MARGIN: f64 = 0.15;
const SHARES: [f64; 3] = [0.5, 0.9, 0.95];
const WEIGHT: f64 = 0.1;
/// How old a pod must be to be changed within bounds, in seconds, and by how much. The clock of a pod starts after the decision
/// to change it, so that it is a little younger than the time since then.
const LIFETIME: f64 = 12.0 * 3600.0;
const THRESHOLD: f64 = 0.1;

pub(super) struct Vpa {
    floor: f64,
    config: HistogramConfig<'static>,
    usage: Histogram,
    first: Option<f64>,
    last: f64,
    samples: u64,
    changed: f64,
}

impl Vpa {
    pub fn new(floor: f64, scheme: BucketScheme, start: f64) -> Self {
        let buckets = Buckets::cpu(scheme);
        Self {
            floor,
            config: HistogramConfig { buckets, half_life: Some(Duration::from_hours(24)) },
            usage: Histogram::new(buckets),
            first: None,
            last: start,
            samples: 0,
            changed: start,
        }
    }

    /// The lower bound, target and upper bound.
    fn estimates(&self) -> [f64; 3] {
        let [lower, target, upper] =
            self.usage.percentiles(self.config.buckets, SHARES).map(|value| value * (1.0 + MARGIN));
        let lifespan = (self.last - self.first.unwrap_or(self.last)) / DAY;
        let confidence = lifespan.min(self.samples as f64 / 1440.0);
        [
            (lower * confidence_multiplier(LOWER_BOUND_FACTOR, confidence)).max(self.floor),
            target.max(self.floor),
            (upper * confidence_multiplier(UPPER_BOUND_FACTOR, confidence)).max(self.floor),
        ]
    }
}

impl SeriesRule for Vpa {
    fn take(&mut self, at: f64, cores: f64, _: f64) {
        self.usage.add(self.config, cores, WEIGHT, Time::from_nanos((at * 1e9) as i64));
        self.first.get_or_insert(at);
        self.last = at;
        self.samples += 1;
    }

    fn decide(&mut self, at: f64, request: f64) -> f64 {
        let [lower, target, upper] = self.estimates();
        let is_outside = request < lower || request > upper;
        let is_far = (target - request).abs() >= THRESHOLD * request;
        if is_outside || is_far && at - self.changed > LIFETIME {
            self.changed = at;
            return target;
        }
        request
    }
}
