//! Bucket boundaries: which bucket a value falls into, and where each bucket starts.

use std::sync::LazyLock;

use plimsoll_storage::Scheme;

/// Weight below which a bucket counts as empty: a thousandth of the smallest CPU sample.
pub const EPSILON: f64 = 0.001 * 0.1;

/// A histogram has at most this many buckets: bucket numbers fit a byte.
pub const MOST_BUCKETS: usize = 256;

/// The boundaries of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    starts: Box<[f64]>,
    epsilon: f64,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Linear { size: f64 },
    Exponential { first: f64, growth: f64, ln_ratio: f64 },
}

/// Boundaries that make no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBuckets {
    /// A parameter is zero, negative or not a number.
    #[error("maximum, bucket size and epsilon must be above 0, and the ratio above 1")]
    OutOfRange,
    /// Bucket numbers would not fit a byte.
    #[error("more than 256 buckets")]
    TooMany,
}

impl Buckets {
    /// Buckets of one size, up to and including the one that holds `max`.
    pub fn linear(max: f64, size: f64, epsilon: f64) -> Result<Self, BadBuckets> {
        if !(max > 0.0 && size > 0.0 && epsilon > 0.0) {
            return Err(BadBuckets::OutOfRange);
        }
        let count = (max / size).ceil() as usize + 1;
        if count > MOST_BUCKETS {
            return Err(BadBuckets::TooMany);
        }
        let starts = (0..count).map(|bucket| bucket as f64 * size).collect();
        Ok(Self { starts, epsilon, kind: Kind::Linear { size } })
    }

    /// Buckets whose sizes grow by `1 + growth` each, beginning with one of size `first`.
    pub fn exponential(
        max: f64,
        first: f64,
        growth: f64,
        epsilon: f64,
    ) -> Result<Self, BadBuckets> {
        // The ratio is formed first and the growth taken back from it, as upstream does it: in binary
        // (1 + 0.05) - 1 is not 0.05, and the last digit of every bucket start depends on it.
        let ratio = 1.0 + growth;
        let growth = ratio - 1.0;
        if !(max > 0.0 && first > 0.0 && growth > 0.0 && epsilon > 0.0) {
            return Err(BadBuckets::OutOfRange);
        }
        let ln_ratio = ratio.ln();
        let count = ((max * growth / first + 1.0).ln() / ln_ratio).ceil() as usize + 1;
        if count > MOST_BUCKETS {
            return Err(BadBuckets::TooMany);
        }
        let starts = (0..count)
            .map(|bucket| match bucket {
                0 => 0.0,
                _ => first * (raise(ratio, bucket as u32) - 1.0) / growth,
            })
            .collect();
        Ok(Self { starts, epsilon, kind: Kind::Exponential { first, growth, ln_ratio } })
    }

    /// The boundaries for CPU, in cores.
    pub fn cpu(scheme: Scheme) -> &'static Self {
        static STANDARD: LazyLock<Buckets> = LazyLock::new(|| fixed(1000.0, 0.01));
        static FINE: LazyLock<Buckets> = LazyLock::new(|| fixed(1000.0, 0.001));
        match scheme {
            Scheme::Standard => &STANDARD,
            Scheme::Fine => &FINE,
        }
    }

    /// The boundaries for memory, in bytes.
    pub fn memory(scheme: Scheme) -> &'static Self {
        static STANDARD: LazyLock<Buckets> = LazyLock::new(|| fixed(1e12, 1e7));
        static FINE: LazyLock<Buckets> = LazyLock::new(|| fixed(1e12, 1_048_576.0));
        match scheme {
            Scheme::Standard => &STANDARD,
            Scheme::Fine => &FINE,
        }
    }

    /// Number of buckets.
    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// The highest bucket, which has no upper edge.
    pub fn last(&self) -> u8 {
        (self.starts.len() - 1) as u8
    }

    /// Weight below which a bucket counts as empty.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// The bucket that a value falls into. Anything below the first bucket's end, negative or not a
    /// number lands in the first one.
    pub fn find(&self, value: f64) -> u8 {
        let bucket = match self.kind {
            Kind::Linear { size } => value / size,
            Kind::Exponential { first, .. } if value < first => 0.0,
            Kind::Exponential { first, growth, ln_ratio } => {
                (value * growth / first + 1.0).ln() / ln_ratio
            }
        };
        // A float to integer cast truncates and saturates, and turns NaN into 0.
        (bucket as usize).min(self.starts.len() - 1) as u8
    }

    /// Where a bucket starts.
    pub fn start(&self, bucket: u8) -> f64 {
        self.starts[usize::from(bucket).min(self.starts.len() - 1)]
    }

    /// What a percentile that ends in this bucket reads: the bucket's upper edge, or the start of the
    /// last bucket, which has none.
    pub fn upper_edge(&self, bucket: u8) -> f64 {
        self.start(bucket.saturating_add(1))
    }
}

/// The production boundaries: 5 % growth, as checkpoints of version v3 have them.
fn fixed(max: f64, first: f64) -> Buckets {
    Buckets::exponential(max, first, 0.05, EPSILON).unwrap_or_else(|_| {
        // Constants that the tests of this file walk through; kept total instead of panicking.
        Buckets { starts: Box::new([0.0]), epsilon: EPSILON, kind: Kind::Linear { size: max } }
    })
}

/// A power by squaring, lowest bit first. A correctly rounded power differs from what upstream computes
/// in the last bits of almost every bucket, and in one whole byte of one of them.
pub(super) fn raise(base: f64, exponent: u32) -> f64 {
    let (mut result, mut square, mut left) = (1.0, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result *= square;
        }
        left >>= 1;
        if left > 0 {
            square *= square;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn production_schemes_have_176_buckets_and_the_published_anchors() {
        let (cpu, memory) = (Buckets::cpu(Scheme::Standard), Buckets::memory(Scheme::Standard));
        assert_eq!((cpu.count(), memory.count()), (176, 176));
        assert!((cpu.epsilon() - 1e-4).abs() < 1e-18);
        for (bucket, cores, bytes) in [
            (1, 0.01, 1e7),
            (2, 0.020_499_999_999_999_987, 20_499_999.999_999_989),
            (4, 0.043_101_249_999_999_966, 43_101_249.999_999_963),
            (9, 0.110_265_643_195_703_06, 110_265_643.195_703_06),
            (37, 1.016_281_388_554_090_4, 1_016_281_388.554_090_4),
            (175, 1_021.109_408_904_860_1, 1_021_109_408_904.86),
        ] {
            assert_eq!(cpu.start(bucket).to_bits(), f64::to_bits(cores), "CPU bucket {bucket}");
            assert_eq!(memory.start(bucket).to_bits(), f64::to_bits(bytes), "bucket {bucket}");
        }
    }

    #[test]
    fn the_fine_schemes_start_at_one_millicore_and_one_mebibyte_and_fit_a_byte() {
        let (cpu, memory) = (Buckets::cpu(Scheme::Fine), Buckets::memory(Scheme::Fine));
        assert!(cpu.count() > 200 && memory.count() > 200);
        assert!((cpu.start(1) - 0.001).abs() < 1e-12);
        assert!((memory.start(1) - 1_048_576.0).abs() < 1e-3);
    }

    #[test]
    fn senseless_boundaries_are_refused() {
        assert_eq!(Buckets::linear(0.0, 1.0, 1.0), Err(BadBuckets::OutOfRange));
        assert_eq!(Buckets::linear(1.0, 1.0, f64::NAN), Err(BadBuckets::OutOfRange));
        assert_eq!(Buckets::exponential(1.0, 1.0, 0.0, 1.0), Err(BadBuckets::OutOfRange));
        assert_eq!(Buckets::linear(1000.0, 1.0, 1.0), Err(BadBuckets::TooMany));
    }

    #[test]
    fn odd_values_land_in_a_bucket_that_exists() {
        let cpu = Buckets::cpu(Scheme::Standard);
        for (value, bucket) in
            [(f64::NAN, 0), (-1.0, 0), (f64::NEG_INFINITY, 0), (f64::INFINITY, 175), (1e300, 175)]
        {
            assert_eq!(cpu.find(value), bucket, "{value}");
        }
    }
}
