//! Bucket boundaries: the bucket of a value, and the start of each bucket.

use std::sync::LazyLock;

use crate::history::BucketScheme;

use super::go_math::powi;

/// A bucket lighter than this counts as empty: a thousandth of the weight of the smallest CPU sample.
pub const EPSILON: f64 = 0.001 * 0.1;

/// The maximum number of buckets of a histogram: bucket numbers fit a byte.
pub const MAX_BUCKETS: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    starts: Box<[f64]>,
    pub epsilon: f64,
    layout: Layout,
    cells: CellIndex,
}

/// Maps cells to the bucket that each begins in. A cell is a range of floats that only differ in their last bits.
/// With 5 % growth per bucket no cell reaches further than into the next bucket.
#[derive(Clone, Debug, Default, PartialEq)]
struct CellIndex {
    first: u64,
    buckets: Box<[u8]>,
}

/// The bits that the floats of a cell share: sign, exponent, and five that divide each doubling into 32 cells.
const CELL_SHIFT: u32 = 52 - 5;
/// Relative distance to an edge within which the formula decides the bucket. Its rounding errors are a million
/// times smaller.
const EDGE_TOLERANCE: f64 = 1e-9;

#[derive(Clone, Debug, PartialEq)]
enum Layout {
    Linear { size: f64 },
    Exponential { first: f64, growth: f64, ln_ratio: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBuckets {
    /// A parameter is zero, negative or not a number.
    #[error("maximum, bucket size and epsilon must be above 0, and the ratio above 1")]
    OutOfRange,
    /// Bucket numbers would not fit a byte.
    #[error("more than 256 buckets")]
    TooMany,
}

impl Buckets {
    /// Buckets of equal size, up to and including the one that contains `max`.
    pub fn linear(max: f64, size: f64, epsilon: f64) -> Result<Self, InvalidBuckets> {
        if !(max > 0.0 && size > 0.0 && epsilon > 0.0) {
            return Err(InvalidBuckets::OutOfRange);
        }
        let count = (max / size).ceil() as usize + 1;
        if count > MAX_BUCKETS {
            return Err(InvalidBuckets::TooMany);
        }
        let starts = (0..count).map(|bucket| bucket as f64 * size).collect();
        Ok(Self { starts, epsilon, layout: Layout::Linear { size }, cells: CellIndex::default() })
    }

    /// Buckets that grow by `1 + growth` each, starting with one of size `first`.
    pub fn exponential(
        max: f64,
        first: f64,
        growth: f64,
        epsilon: f64,
    ) -> Result<Self, InvalidBuckets> {
        // The growth is computed back from the ratio, as upstream does: in binary (1 + 0.05) - 1 is not 0.05, and
        // the last digit of every bucket start depends on it.
        let ratio = 1.0 + growth;
        let growth = ratio - 1.0;
        if !(max > 0.0 && first > 0.0 && growth > 0.0 && epsilon > 0.0) {
            return Err(InvalidBuckets::OutOfRange);
        }
        let ln_ratio = ratio.ln();
        let count = ((max * growth / first + 1.0).ln() / ln_ratio).ceil() as usize + 1;
        if count > MAX_BUCKETS {
            return Err(InvalidBuckets::TooMany);
        }
        let starts: Box<[f64]> = (0..count)
            .map(|bucket| match bucket {
                0 => 0.0,
                _ => first * (powi(ratio, bucket as u32) - 1.0) / growth,
            })
            .collect();
        let cells = CellIndex::new(&starts);
        Ok(Self { starts, epsilon, layout: Layout::Exponential { first, growth, ln_ratio }, cells })
    }

    /// The boundaries for CPU, in cores.
    pub fn cpu(scheme: BucketScheme) -> &'static Self {
        static STANDARD: LazyLock<Buckets> = LazyLock::new(|| upstream_buckets(1000.0, 0.01));
        static FINE: LazyLock<Buckets> = LazyLock::new(|| upstream_buckets(1000.0, 0.001));
        match scheme {
            BucketScheme::Standard => &STANDARD,
            BucketScheme::Fine => &FINE,
        }
    }

    /// The boundaries for memory, in bytes.
    pub fn memory(scheme: BucketScheme) -> &'static Self {
        static STANDARD: LazyLock<Buckets> = LazyLock::new(|| upstream_buckets(1e12, 1e7));
        static FINE: LazyLock<Buckets> = LazyLock::new(|| upstream_buckets(1e12, 1_048_576.0));
        match scheme {
            BucketScheme::Standard => &STANDARD,
            BucketScheme::Fine => &FINE,
        }
    }

    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// The last bucket, which has no upper edge.
    pub fn last(&self) -> u8 {
        (self.starts.len() - 1) as u8
    }

    /// Returns the bucket of a value. Anything below the end of the first bucket, negative or NaN, is in the first
    /// bucket.
    pub fn find(&self, value: f64) -> u8 {
        self.cells.find(&self.starts, value).unwrap_or_else(|| self.find_by_formula(value))
    }

    /// Returns the bucket by upstream's formula.
    fn find_by_formula(&self, value: f64) -> u8 {
        let bucket = match self.layout {
            Layout::Linear { size } => value / size,
            Layout::Exponential { first, .. } if value < first => 0.0,
            Layout::Exponential { first, growth, ln_ratio } => {
                (value * growth / first + 1.0).ln() / ln_ratio
            }
        };
        // A float to integer cast truncates and saturates, and converts NaN to 0.
        (bucket as usize).min(self.starts.len() - 1) as u8
    }

    pub fn start(&self, bucket: u8) -> f64 {
        self.starts[usize::from(bucket).min(self.starts.len() - 1)]
    }

    /// Returns the value of a percentile that ends in this bucket: the upper edge of the bucket, or the start of the
    /// last bucket, which has no upper edge.
    pub fn upper_edge(&self, bucket: u8) -> f64 {
        self.start(bucket.saturating_add(1))
    }
}

impl CellIndex {
    /// Covers the end of the first bucket to the start of the last one.
    fn new(starts: &[f64]) -> Self {
        let [_, low, .., high] = starts else { return Self::default() };
        let first = low.to_bits() >> CELL_SHIFT;
        let bucket_of = |cell: u64| {
            let begin = f64::from_bits(cell << CELL_SHIFT);
            starts.partition_point(|start| *start <= begin).saturating_sub(1) as u8
        };
        Self { first, buckets: (first..=high.to_bits() >> CELL_SHIFT).map(bucket_of).collect() }
    }

    /// Returns the bucket of a value that is in one of the cells and not close to an edge.
    #[inline]
    fn find(&self, starts: &[f64], value: f64) -> Option<u8> {
        let cell = (value.to_bits() >> CELL_SHIFT).checked_sub(self.first)?;
        let begin = *self.buckets.get(cell as usize)?;
        let next = *starts.get(usize::from(begin) + 1)?;
        let bucket = begin + u8::from(value >= next);
        let (low, high) = (starts[usize::from(bucket)], *starts.get(usize::from(bucket) + 1)?);
        let is_clear =
            value > low * (1.0 + EDGE_TOLERANCE) && value < high * (1.0 - EDGE_TOLERANCE);
        is_clear.then_some(bucket)
    }
}

/// The production boundaries: 5 % growth, as in checkpoints of version v3.
fn upstream_buckets(max: f64, first: f64) -> Buckets {
    Buckets::exponential(max, first, 0.05, EPSILON).unwrap_or_else(|_| {
        // The constants are valid, which the tests of this file check; this fallback avoids a panic.
        let (starts, kind) = (Box::new([0.0]), Layout::Linear { size: max });
        Buckets { starts, epsilon: EPSILON, layout: kind, cells: CellIndex::default() }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn standard_schemes_have_176_buckets_and_the_published_starts() {
        let (cpu, memory) =
            (Buckets::cpu(BucketScheme::Standard), Buckets::memory(BucketScheme::Standard));
        assert_eq!((cpu.count(), memory.count()), (176, 176));
        assert!((cpu.epsilon - 1e-4).abs() < 1e-18);
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
    fn fine_schemes_start_at_one_millicore_and_one_mebibyte_and_fit_a_byte() {
        let (cpu, memory) = (Buckets::cpu(BucketScheme::Fine), Buckets::memory(BucketScheme::Fine));
        assert!(cpu.count() > 200 && memory.count() > 200);
        assert!((cpu.start(1) - 0.001).abs() < 1e-12);
        assert!((memory.start(1) - 1_048_576.0).abs() < 1e-3);
    }

    #[test]
    fn invalid_boundaries_are_rejected() {
        assert_eq!(Buckets::linear(0.0, 1.0, 1.0), Err(InvalidBuckets::OutOfRange));
        assert_eq!(Buckets::linear(1.0, 1.0, f64::NAN), Err(InvalidBuckets::OutOfRange));
        assert_eq!(Buckets::exponential(1.0, 1.0, 0.0, 1.0), Err(InvalidBuckets::OutOfRange));
        assert_eq!(Buckets::linear(1000.0, 1.0, 1.0), Err(InvalidBuckets::TooMany));
    }

    fn all() -> impl Iterator<Item = Buckets> {
        let production = [BucketScheme::Standard, BucketScheme::Fine]
            .into_iter()
            .flat_map(|scheme| [Buckets::cpu(scheme).clone(), Buckets::memory(scheme).clone()]);
        let others = [(10.0, 1.0, 1.0), (1e6, 0.5, 0.3), (1.0, 0.01, 0.011), (2.0, 1.0, 0.5)];
        production.chain(others.into_iter().map(|(max, first, growth)| {
            Buckets::exponential(max, first, growth, EPSILON).expect("at most 256")
        }))
    }

    #[test]
    fn around_every_edge_a_value_is_in_the_bucket_of_the_formula() {
        for buckets in all() {
            for &start in &buckets.starts {
                let steps = (0..2000).chain((0..63).map(|power| 1 << power));
                for step in steps {
                    for bits in
                        [start.to_bits().wrapping_add(step), start.to_bits().wrapping_sub(step)]
                    {
                        let value = f64::from_bits(bits);
                        assert_eq!(
                            buckets.find(value),
                            buckets.find_by_formula(value),
                            "{value:e}"
                        );
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_value_is_in_the_bucket_of_the_formula(
            share in 0.0..1.1_f64,
            power in -3.0..13.0_f64,
            millicores in 0..2_000_000_i64,
            bytes in 0..2_000_000_000_000_i64,
            any in any::<f64>(),
        ) {
            let values = [share, 10_f64.powf(power), millicores as f64 / 1000.0, bytes as f64, any];
            for buckets in all() {
                for value in values {
                    prop_assert_eq!(buckets.find(value), buckets.find_by_formula(value), "{:e}", value);
                }
            }
        }
    }

    #[test]
    fn extreme_values_are_in_an_existing_bucket() {
        let cpu = Buckets::cpu(BucketScheme::Standard);
        for (value, bucket) in
            [(f64::NAN, 0), (-1.0, 0), (f64::NEG_INFINITY, 0), (f64::INFINITY, 175), (1e300, 175)]
        {
            assert_eq!(cpu.find(value), bucket, "{value}");
        }
    }
}
