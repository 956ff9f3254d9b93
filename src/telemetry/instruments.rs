//! The three instruments, updated from many threads without a lock.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use plimsoll_core::types::Time;

use super::{
    definition::Definition,
    exposition::{write_float, write_sample},
};

/// A value that can be rendered as the samples of one series.
pub trait Instrument: Send + Sync {
    fn new(definition: &Definition) -> Self
    where
        Self: Sized;

    /// Renders the lines of the series with these labels.
    fn write(&self, definition: &Definition, labels: &str, text: &mut String);
}

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds: the last bucket is `+Inf`.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Counter {
    pub fn increment(&self) {
        self.add(1);
    }

    /// Sets the total of a count that is maintained elsewhere. It never decreases.
    pub fn set_total(&self, total: u64) {
        self.0.fetch_max(total, Relaxed);
    }

    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Instrument for Counter {
    fn new(_: &Definition) -> Self {
        Self::default()
    }

    fn write(&self, definition: &Definition, labels: &str, text: &mut String) {
        write_sample(text, definition.name, "", labels, self.get() as f64);
    }
}

impl Gauge {
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }

    /// Sets 1 if this holds, and 0 otherwise.
    pub fn set_bool(&self, holds: bool) {
        self.set(f64::from(u8::from(holds)));
    }

    /// Sets a time, in seconds since the Unix epoch.
    pub fn set_time(&self, at: Time) {
        self.set(at.as_nanos() as f64 / 1e9);
    }

    /// Adds `more`, which may be negative.
    pub fn add(&self, more: f64) {
        add_float(&self.0, more);
    }

    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

impl Instrument for Gauge {
    fn new(_: &Definition) -> Self {
        Self::default()
    }

    fn write(&self, definition: &Definition, labels: &str, text: &mut String) {
        write_sample(text, definition.name, "", labels, self.get());
    }
}

impl Histogram {
    pub fn observe_duration(&self, took: Duration) {
        self.observe(took.as_secs_f64());
    }

    /// Records an observation. NaN is ignored, because it would make the sum NaN until the process ends.
    pub fn observe(&self, value: f64) {
        if value.is_nan() {
            return;
        }
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.counts[bucket].fetch_add(1, Relaxed);
        add_float(&self.sum, value);
    }
}

impl Instrument for Histogram {
    fn new(definition: &Definition) -> Self {
        let bounds = definition.buckets;
        let counts = (0..=bounds.len()).map(|_| AtomicU64::default()).collect();
        Self { bounds, counts, sum: AtomicU64::default() }
    }

    fn write(&self, definition: &Definition, labels: &str, text: &mut String) {
        let mut with_bound = String::with_capacity(labels.len() + 24);
        with_bound.push_str(labels);
        if !labels.is_empty() {
            with_bound.push(',');
        }
        with_bound.push_str("le=\"");
        let stem = with_bound.len();
        // The count is the sum of the buckets that were read, so that both agree despite concurrent updates.
        let mut count = 0;
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        for (bound, bucket) in bounds.zip(&self.counts) {
            count += bucket.load(Relaxed);
            with_bound.truncate(stem);
            write_float(&mut with_bound, bound);
            with_bound.push('"');
            write_sample(text, definition.name, "_bucket", &with_bound, count as f64);
        }
        let sum = f64::from_bits(self.sum.load(Relaxed));
        write_sample(text, definition.name, "_sum", labels, sum);
        write_sample(text, definition.name, "_count", labels, count as f64);
    }
}

fn add_float(bits: &AtomicU64, more: f64) {
    let add = |value: u64| Some((f64::from_bits(value) + more).to_bits());
    // The closure always returns `Some`, so this never fails.
    let _ = bits.fetch_update(Relaxed, Relaxed, add);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::definition::histogram;

    #[test]
    fn bucket_bounds_are_inclusive() {
        let definition = histogram("x_seconds", "", &[0.5, 1e6]);
        let value = <Histogram as Instrument>::new(&definition);
        for observed in [0.5, 0.75, 2e6, f64::NAN] {
            value.observe(observed);
        }
        let mut text = String::new();
        value.write(&definition, "a=\"b\"", &mut text);
        let expected = [
            r#"x_seconds_bucket{a="b",le="0.5"} 1"#,
            r#"x_seconds_bucket{a="b",le="1e+06"} 2"#,
            r#"x_seconds_bucket{a="b",le="+Inf"} 3"#,
            r#"x_seconds_sum{a="b"} 2.00000125e+06"#,
            r#"x_seconds_count{a="b"} 3"#,
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
