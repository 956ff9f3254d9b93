//! The buckets of planned CPU usage: upstream's growth of 5 %, from a first bucket of one millicore.

use std::sync::LazyLock;

pub const BUCKETS: usize = 224;

/// Boundaries and middles of the buckets, in cores.
#[derive(Debug)]
pub struct PlanBuckets {
    pub(super) starts: [f64; BUCKETS + 1],
    middles: [f64; BUCKETS],
}

static PLAN_BUCKETS: LazyLock<PlanBuckets> = LazyLock::new(PlanBuckets::new);

pub fn plan_buckets() -> &'static PlanBuckets {
    &PLAN_BUCKETS
}

impl PlanBuckets {
    fn new() -> Self {
        let mut starts = [0.0; BUCKETS + 1];
        let (mut start, mut width) = (0.0, 0.001);
        for slot in &mut starts {
            *slot = start;
            start += width;
            width *= 1.05;
        }
        let middles = std::array::from_fn(|index| 0.5 * (starts[index] + starts[index + 1]));
        Self { starts, middles }
    }

    /// Returns the bucket of a usage. The last bucket has no upper end.
    pub fn find(&self, cores: f64) -> u8 {
        let inner = &self.starts[1..BUCKETS];
        // NaN ends in the first bucket; samples that are not finite are rejected before.
        inner.partition_point(|start| *start <= cores) as u8
    }

    /// Returns the upper end of a bucket.
    pub fn end(&self, bucket: u8) -> f64 {
        self.starts[(usize::from(bucket) + 1).min(BUCKETS)]
    }

    pub fn middle(&self, bucket: u8) -> f64 {
        self.middles[usize::from(bucket).min(BUCKETS - 1)]
    }
}
