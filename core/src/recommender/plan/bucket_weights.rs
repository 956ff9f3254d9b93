//! Weights by hour of the day and bucket, seven bytes for each that is not zero.

/// A weight of 48 bits: seven of exponent and 41 of mantissa. Weights are sums of powers of two between 2^-63 and 2^64;
/// smaller ones are zero. The rounding of 2^-42 leaves ten digits of a plan, where 32-bit floats would leave five.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight([u16; 3]);

const MANTISSA_SHIFT: u32 = 11;
const MANTISSA_BITS: u32 = 52 - MANTISSA_SHIFT;
/// The biased exponent of a 64-bit float that is stored as 0.
const EXPONENT_OFFSET: u64 = 1023 - 64;
const MAX_EXPONENT: u64 = 127;

impl Weight {
    fn new(value: f64) -> Self {
        // Half of the last bit that is kept. The sum may carry into the exponent, which rounds up correctly.
        let bits = value.max(0.0).to_bits() + (1 << (MANTISSA_SHIFT - 1));
        let exponent = (bits >> 52).saturating_sub(EXPONENT_OFFSET);
        let mantissa = (bits >> MANTISSA_SHIFT) & ((1 << MANTISSA_BITS) - 1);
        let packed = match exponent {
            0 => 0,
            1..=MAX_EXPONENT => exponent << MANTISSA_BITS | mantissa,
            _ => (1 << 48) - 1,
        };
        Self::from_packed(packed)
    }

    fn from_packed(packed: u64) -> Self {
        Self([packed as u16, (packed >> 16) as u16, (packed >> 32) as u16])
    }

    fn packed(self) -> u64 {
        let [low, middle, high] = self.0.map(u64::from);
        high << 32 | middle << 16 | low
    }

    fn value(self) -> f64 {
        let packed = self.packed();
        if packed == 0 {
            return 0.0;
        }
        let exponent = (packed >> MANTISSA_BITS) + EXPONENT_OFFSET;
        let mantissa = packed & ((1 << MANTISSA_BITS) - 1);
        f64::from_bits(exponent << 52 | mantissa << MANTISSA_SHIFT)
    }

    fn to_bytes(self) -> [u8; 6] {
        let mut bytes = [0; 6];
        bytes.copy_from_slice(&self.packed().to_le_bytes()[..6]);
        bytes
    }

    fn from_bytes(bytes: [u8; 6]) -> Self {
        let mut packed = [0; 8];
        packed[..6].copy_from_slice(&bytes);
        Self::from_packed(u64::from_le_bytes(packed))
    }
}

/// Weights by slot and bucket, in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BucketWeights<const SLOTS: usize> {
    /// Where the entries of each slot end.
    ends: [u16; SLOTS],
    buckets: Vec<u8>,
    weights: Vec<Weight>,
}

impl<const SLOTS: usize> Default for BucketWeights<SLOTS> {
    fn default() -> Self {
        Self { ends: [0; SLOTS], buckets: Vec::new(), weights: Vec::new() }
    }
}

impl<const SLOTS: usize> BucketWeights<SLOTS> {
    pub fn add(&mut self, slot: usize, bucket: u8, weight: f64) {
        let range = self.range(slot);
        let end = range.end;
        match self.buckets[range.clone()].binary_search(&bucket) {
            Ok(index) => {
                let entry = &mut self.weights[range.start + index];
                *entry = Weight::new(entry.value() + weight);
            }
            Err(index) => {
                let weight = Weight::new(weight);
                if weight.packed() == 0 || end >= usize::from(u16::MAX) {
                    return;
                }
                // Entries are added rarely and kept for days, so nothing is reserved for more.
                self.buckets.reserve_exact(1);
                self.weights.reserve_exact(1);
                self.buckets.insert(range.start + index, bucket);
                self.weights.insert(range.start + index, weight);
                for end in &mut self.ends[slot..] {
                    *end += 1;
                }
            }
        }
    }

    /// Multiplies all weights, and drops those that become zero.
    pub fn scale(&mut self, factor: f64) {
        let mut scaled = Self::default();
        for slot in 0..SLOTS {
            for (bucket, weight) in self.slot(slot) {
                scaled.add(slot, bucket, weight * factor);
            }
        }
        *self = scaled;
    }

    /// Iterates over the buckets of a slot and their weights.
    pub fn slot(&self, slot: usize) -> impl Iterator<Item = (u8, f64)> + '_ {
        let range = self.range(slot);
        let weights = self.weights[range.clone()].iter().map(|weight| weight.value());
        self.buckets[range].iter().copied().zip(weights)
    }

    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    /// The lowest and the highest bucket with a weight.
    pub fn bucket_range(&self) -> Option<(u8, u8)> {
        Some((*self.buckets.iter().min()?, *self.buckets.iter().max()?))
    }

    /// Writes the number of entries of each slot, then buckets and weights.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for slot in 0..SLOTS {
            // A slot has at most one entry for each of the 224 buckets.
            out.push(self.range(slot).len() as u8);
        }
        out.extend_from_slice(&self.buckets);
        out.extend(self.weights.iter().flat_map(|weight| weight.to_bytes()));
    }

    /// Reads what `encode` wrote; `None` if it is truncated or not in order.
    pub fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let counts = bytes.split_off(..SLOTS)?;
        let total = counts.iter().map(|count| usize::from(*count)).sum();
        let buckets = bytes.split_off(..total)?;
        let (weights, rest) = bytes.split_off(..total * 6)?.as_chunks::<6>();
        let mut ends = [0; SLOTS];
        let mut end = 0;
        for (slot, count) in ends.iter_mut().zip(counts) {
            let of_slot = &buckets[usize::from(end)..][..usize::from(*count)];
            let is_sorted = of_slot.is_sorted_by(|a, b| a < b);
            let is_known =
                of_slot.last().is_none_or(|last| usize::from(*last) < super::buckets::BUCKETS);
            if !is_sorted || !is_known {
                return None;
            }
            end += u16::from(*count);
            *slot = end;
        }
        rest.is_empty().then(|| Self {
            ends,
            buckets: buckets.to_vec(),
            weights: weights.iter().map(|bytes| Weight::from_bytes(*bytes)).collect(),
        })
    }

    fn range(&self, slot: usize) -> std::ops::Range<usize> {
        let start = if slot == 0 { 0 } else { usize::from(self.ends[slot - 1]) };
        start..usize::from(self.ends[slot])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn weights_keep_twelve_digits(value in 1e-18..1e19_f64) {
            let kept = Weight::new(value).value();
            prop_assert!((kept / value - 1.0).abs() < 1e-12, "{value} became {kept}");
        }

        #[test]
        fn weights_behave_like_a_dense_array(
            adds in prop::collection::vec((0..24_usize, 0..224_u8, 0.1..1e6_f64), 0..200),
        ) {
            let mut dense = vec![0.0; 24 * 224];
            let mut sparse = BucketWeights::<24>::default();
            for (slot, bucket, weight) in adds {
                dense[slot * 224 + usize::from(bucket)] += weight;
                sparse.add(slot, bucket, weight);
            }
            sparse.scale(0.5);
            let mut found = vec![0.0; 24 * 224];
            for slot in 0..24 {
                for (bucket, weight) in sparse.slot(slot) {
                    found[slot * 224 + usize::from(bucket)] = weight;
                }
            }
            for (dense, found) in dense.iter().zip(&found) {
                prop_assert!((dense * 0.5 - found).abs() <= 1e-11 * dense, "{dense} {found}");
            }
            let mut bytes = Vec::new();
            sparse.encode(&mut bytes);
            let mut rest = &bytes[..];
            prop_assert_eq!(BucketWeights::decode(&mut rest), Some(sparse));
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn weights_out_of_range_become_zero_or_the_largest() {
        assert_eq!(Weight::new(0.0).value(), 0.0);
        assert_eq!(Weight::new(1e-30).value(), 0.0);
        assert!(Weight::new(1e300).value() > 1.8e19);
        let mut weights = BucketWeights::<1>::default();
        weights.add(0, 7, 1.0);
        weights.scale(1e-30);
        assert_eq!(weights.len(), 0);
    }
}
