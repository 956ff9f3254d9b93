//! A decaying histogram: the weight of samples halves every half-life. All arithmetic is in upstream's order, because
//! percentiles and checkpoints depend on the last bits.

use std::time::Duration;

use crate::{history::HistogramWeights, types::Time};

use super::{
    buckets::Buckets,
    decay_cache::DecayCache,
    go_math::{exp2, exp2_integer},
    sparse::Sparse,
};

/// The configuration of a histogram: its boundaries and half-life. Separate from the weights, because fifty thousand
/// histograms share a handful of configurations.
#[derive(Clone, Copy, Debug)]
pub struct HistogramConfig<'a> {
    /// Bucket boundaries.
    pub buckets: &'a Buckets,
    /// The half-life of samples; `None` for samples that do not decay.
    pub half_life: Option<Duration>,
}

/// A histogram: weights by bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    weights: Sparse,
    pub total: f64,
    /// The time at which a sample weighs 1. `None` on a decaying histogram means that it has no samples.
    pub reference: Option<Time>,
    /// First and last filled bucket; `min` is above `max` if there are none.
    min: u8,
    max: u8,
}

/// The reference is shifted if a sample would weigh more than two to the power of this.
const HALF_LIVES_BEFORE_SHIFT: i64 = 100;

/// Go's zero time, 1 January of year 1, in nanoseconds relative to the Unix epoch. References are multiples of the
/// half-life since then.
const GO_ZERO_TIME: i128 = -62_135_596_800 * 1_000_000_000;

impl Histogram {
    pub fn new(buckets: &Buckets) -> Self {
        Self {
            weights: Sparse::default(),
            total: 0.0,
            reference: None,
            min: buckets.last(),
            max: 0,
        }
    }

    /// Adds a sample. Ignores a weight that is negative or NaN.
    pub fn add(&mut self, config: HistogramConfig<'_>, value: f64, weight: f64, at: Time) {
        self.add_with_cache(config, value, weight, at, &mut DecayCache::default());
    }

    /// Adds one of many samples of the same times, with a cache of decay factors.
    pub fn add_with_cache(
        &mut self,
        config: HistogramConfig<'_>,
        value: f64,
        weight: f64,
        at: Time,
        cache: &mut DecayCache,
    ) {
        if weight.is_nan() || weight < 0.0 {
            return;
        }
        let weight = weight * self.decayed_weight(config, at, cache);
        let bucket = config.buckets.find(value);
        let slot = self.weights.get_mut(bucket);
        *slot += weight;
        let filled = *slot >= config.buckets.epsilon;
        self.total += weight;
        if filled {
            self.min = self.min.min(bucket);
            self.max = self.max.max(bucket);
        }
    }

    /// Subtracts a sample that was added with the same value, weight and time.
    pub fn subtract(&mut self, config: HistogramConfig<'_>, value: f64, weight: f64, at: Time) {
        if weight.is_nan() || weight < 0.0 {
            return;
        }
        let epsilon = config.buckets.epsilon;
        let floor = |left: f64| if left < epsilon { 0.0 } else { left };
        let weight = weight * self.decayed_weight(config, at, &mut DecayCache::default());
        let slot = self.weights.get_mut(config.buckets.find(value));
        *slot = floor(*slot - weight);
        self.total = floor(self.total - weight);
        self.trim_empty_buckets(config.buckets);
    }

    pub fn merge(&mut self, config: HistogramConfig<'_>, other: &Self) {
        let moved;
        let mut other = other;
        if config.half_life.is_some() {
            match (self.reference, other.reference) {
                // An unset reference counts as earlier than all others.
                (ours, Some(theirs)) if ours.is_none_or(|ours| ours < theirs) => {
                    self.shift_reference(config, theirs);
                }
                (Some(ours), theirs) if theirs.is_none_or(|theirs| theirs < ours) => {
                    let mut copy = other.clone();
                    copy.shift_reference(config, ours);
                    moved = copy;
                    other = &moved;
                }
                _ => {}
            }
        }
        if other.min <= other.max {
            for (bucket, weight) in other.weights.range(other.min, other.max) {
                *self.weights.get_mut(bucket) += weight;
            }
        }
        self.total += other.total;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Multiplies all weights. Ignores a factor that is negative or NaN.
    pub fn scale(&mut self, buckets: &Buckets, factor: f64) {
        if factor.is_nan() || factor < 0.0 {
            return;
        }
        if self.min <= self.max {
            self.weights.scale_range(self.min, self.max, factor);
        }
        self.total *= factor;
        self.trim_empty_buckets(buckets);
    }

    /// Whether no bucket is filled.
    pub fn is_empty(&self, buckets: &Buckets) -> bool {
        self.weights.get(self.min) < buckets.epsilon
    }

    /// Returns the upper edge of the bucket that contains this percentile (0 to 1); 0 if the histogram is empty.
    pub fn percentile(&self, buckets: &Buckets, share: f64) -> f64 {
        if self.is_empty(buckets) {
            return 0.0;
        }
        let threshold = share * self.total;
        let mut sum = 0.0;
        let mut found = self.max;
        for (bucket, weight) in self.weights.range(self.min, self.max) {
            sum += weight;
            // Stop at the last filled bucket whatever the sum is: the total also includes residues outside of filled
            // buckets.
            if sum >= threshold || bucket == self.max {
                found = bucket;
                break;
            }
        }
        buckets.upper_edge(found)
    }

    /// Returns several percentiles in one pass; `shares` must be ascending.
    pub fn percentiles<const N: usize>(&self, buckets: &Buckets, shares: [f64; N]) -> [f64; N] {
        if self.is_empty(buckets) || !shares.is_sorted() {
            return shares.map(|share| self.percentile(buckets, share));
        }
        let mut edges = [0.0; N];
        let (mut sum, mut next) = (0.0, 0);
        for (bucket, weight) in self.weights.range(self.min, self.max) {
            sum += weight;
            while next < N && (sum >= shares[next] * self.total || bucket == self.max) {
                edges[next] = buckets.upper_edge(bucket);
                next += 1;
            }
            if next == N {
                break;
            }
        }
        edges
    }

    pub fn to_weights(&self, scheme: crate::history::BucketScheme) -> HistogramWeights {
        HistogramWeights {
            scheme,
            reference: self.reference,
            total: self.total,
            buckets: self.weights.iter().filter(|(_, weight)| *weight != 0.0).collect(),
            span: (self.min <= self.max).then_some((self.min, self.max)),
        }
    }

    /// Restores a histogram from its weights. Returns an error for invalid weights, such as those of a bucket that does not
    /// exist or a weight that is not a number.
    pub fn from_weights(buckets: &Buckets, weights: &HistogramWeights) -> Result<Self, String> {
        let last = buckets.last();
        // Far above any possible weight, and far below an overflow of sums.
        let is_valid = |number: f64| (0.0..=1e100).contains(&number);
        if !is_valid(weights.total) {
            return Err(format!("total weight {} is not a positive number", weights.total));
        }
        let mut histogram = Self::new(buckets);
        histogram.total = weights.total;
        histogram.reference = weights.reference;
        for &(bucket, weight) in &weights.buckets {
            if bucket > last {
                return Err(format!("bucket {bucket} does not exist; the last one is {last}"));
            }
            if !is_valid(weight) {
                return Err(format!("weight {weight} of bucket {bucket} is not a positive number"));
            }
            *histogram.weights.get_mut(bucket) = weight;
        }
        if let Some((min, max)) = weights.span {
            if min > max || max > last {
                return Err(format!("invalid range of non-empty buckets: {min} to {max}"));
            }
            (histogram.min, histogram.max) = (min, max);
            histogram.trim_empty_buckets(buckets);
        }
        Ok(histogram)
    }

    /// Converts the weights to other boundaries: each bucket's weight moves to the bucket of its midpoint.
    #[must_use]
    pub fn rebucketed(&self, from: &Buckets, to: &Buckets) -> Self {
        let mut result = Self::new(to);
        for (bucket, weight) in self.weights.iter() {
            let middle = f64::midpoint(from.start(bucket), from.upper_edge(bucket));
            let target = to.find(middle);
            let slot = result.weights.get_mut(target);
            *slot += weight;
            if *slot >= to.epsilon {
                result.min = result.min.min(target);
                result.max = result.max.max(target);
            }
        }
        result.total = self.total;
        result.reference = self.reference;
        result
    }

    /// Converts the weights to another half-life. The weight of samples at `now`, relative to each other and to a new
    /// sample, stays the same.
    pub fn change_half_life(
        &mut self,
        from: HistogramConfig<'_>,
        to: HistogramConfig<'_>,
        now: Time,
    ) {
        let (Some(old), Some(new), Some(reference)) =
            (nanos(from.half_life), nanos(to.half_life), self.reference)
        else {
            return;
        };
        let moved = round_to_multiple(now, new);
        let before = now.nanos_since(reference) as f64 / old as f64;
        let after = now.nanos_since(moved) as f64 / new as f64;
        let factor = exp2((after - before).clamp(-1000.0, 1000.0));
        self.weights.scale_range(0, u8::MAX, factor);
        self.total *= factor;
        self.reference = Some(moved);
        self.trim_empty_buckets(to.buckets);
    }

    /// Returns the weight of a sample of this time relative to one at the reference. Shifts the reference first if weights
    /// would become too large.
    fn decayed_weight(
        &mut self,
        config: HistogramConfig<'_>,
        at: Time,
        cache: &mut DecayCache,
    ) -> f64 {
        let Some(half_life) = nanos(config.half_life) else { return 1.0 };
        let limit = half_life.saturating_mul(HALF_LIVES_BEFORE_SHIFT);
        let reference = match self.reference {
            Some(reference) if at.nanos_since(reference) <= limit => reference,
            _ => {
                self.shift_reference(config, at);
                self.reference.unwrap_or(at)
            }
        };
        cache.factor(at.nanos_since(reference), half_life)
    }

    /// Shifts the reference to the multiple of the half-life nearest to `to`.
    fn shift_reference(&mut self, config: HistogramConfig<'_>, to: Time) {
        let Some(half_life) = nanos(config.half_life) else { return };
        let to = round_to_multiple(to, half_life);
        if let Some(reference) = self.reference {
            let halvings = reference.nanos_since(to) as f64 / half_life as f64;
            self.scale(config.buckets, exp2_integer((halvings + 0.5).floor()));
        }
        self.reference = Some(to);
    }

    fn trim_empty_buckets(&mut self, buckets: &Buckets) {
        let (epsilon, last) = (buckets.epsilon, buckets.last());
        while self.min < last && self.weights.get(self.min) < epsilon {
            self.min += 1;
        }
        while self.max > 0 && self.weights.get(self.max) < epsilon {
            self.max -= 1;
        }
    }
}

fn nanos(half_life: Option<Duration>) -> Option<i64> {
    half_life.map(|span| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX).max(1))
}

/// Rounds to the nearest multiple of `step` since Go's zero time; halves round up.
fn round_to_multiple(time: Time, step: i64) -> Time {
    let step = i128::from(step);
    let since = i128::from(time.as_nanos()) - GO_ZERO_TIME;
    let remainder = since.rem_euclid(step);
    let rounded =
        if remainder + remainder < step { since - remainder } else { since + (step - remainder) };
    let nanos = rounded + GO_ZERO_TIME;
    let clamped = nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    Time::from_nanos(clamped as i64)
}

#[cfg(test)]
mod tests {
    use crate::history::BucketScheme;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(hours: i64) -> Time {
        Time::from_secs(1_767_225_600 + hours * 3600)
    }

    /// Two pods with two windows each, in which the other pod has the larger peak: each bucket has half of the weight, and
    /// the last bit of a sum decides the median.
    #[test]
    fn a_median_between_equal_weights_equals_upstreams() {
        let minutes = |minutes: i64| Time::from_secs(1_767_225_600 + minutes * 60);
        let config = HistogramConfig {
            buckets: Buckets::memory(BucketScheme::Standard),
            half_life: Some(HOUR * 24),
        };
        for (minute, is_low) in [(73, true), (86, false), (123, true), (299, false)] {
            let mut histogram = Histogram::new(config.buckets);
            for (bytes, at) in
                [(1e8, minute), (1e9, minute), (1e9, minute + 720), (1e8, minute + 720)]
            {
                histogram.add(config, bytes, 1.0, minutes(at));
            }
            let median = histogram.percentile(config.buckets, 0.5);
            assert_eq!(median < 5e8, is_low, "windows that end at minute {minute}: {median}");
        }
    }

    #[test]
    fn a_merge_does_not_change_the_merged_histogram() {
        let config = HistogramConfig {
            buckets: Buckets::cpu(BucketScheme::Standard),
            half_life: Some(HOUR * 24),
        };
        let (mut older, mut younger) =
            (Histogram::new(config.buckets), Histogram::new(config.buckets));
        older.add(config, 0.1, 0.1, at(0));
        younger.add(config, 1.0, 0.1, at(72));
        let before = older.clone();
        younger.merge(config, &older);
        assert_eq!(older, before);
        assert!((younger.total - 0.1125).abs() < 1e-12);
    }

    #[test]
    fn several_percentiles_at_once_equal_single_ones() {
        let config = HistogramConfig {
            buckets: Buckets::cpu(BucketScheme::Standard),
            half_life: Some(HOUR * 24),
        };
        let mut histogram = Histogram::new(config.buckets);
        let shares = [-0.1, 0.0, 0.5, 0.9, 0.95, 1.0, 1.1];
        assert_eq!(histogram.percentiles(config.buckets, shares), [0.0; 7]);
        for step in 0..500 {
            histogram.add(config, f64::from(step % 37) / 10.0, 0.1, at(i64::from(step)));
        }
        let single = shares.map(|share| histogram.percentile(config.buckets, share));
        assert_eq!(histogram.percentiles(config.buckets, shares), single);
    }

    #[test]
    fn a_change_of_buckets_keeps_the_weight_and_nearly_the_percentiles() {
        let (from, to) =
            (Buckets::memory(BucketScheme::Standard), Buckets::memory(BucketScheme::Fine));
        let config = HistogramConfig { buckets: from, half_life: Some(HOUR * 24) };
        let mut histogram = Histogram::new(from);
        for step in 0..200 {
            histogram.add(config, 3e8 + f64::from(step) * 4e6, 1.0, at(i64::from(step)));
        }
        let finer = histogram.rebucketed(from, to);
        assert_eq!(finer.total.to_bits(), histogram.total.to_bits());
        let (coarse, fine) = (histogram.percentile(from, 0.9), finer.percentile(to, 0.9));
        assert!((coarse - fine).abs() / coarse < 0.06, "{coarse} {fine}");
    }
}
