//! An array of 256 weights that only allocates memory for touched slots: a bitmap of touched slots and their values in
//! order. A histogram of eight days typically touches five to thirty slots.

/// Weights by slot. A slot that was never written reads 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sparse {
    touched: [u64; 4],
    values: Vec<f64>,
}

impl Sparse {
    pub fn get(&self, slot: u8) -> f64 {
        if self.is_touched(slot) { self.values[self.rank(slot)] } else { 0.0 }
    }

    /// Returns a mutable reference to the value of a slot, touching it.
    pub fn get_mut(&mut self, slot: u8) -> &mut f64 {
        let rank = self.rank(slot);
        if !self.is_touched(slot) {
            self.touched[usize::from(slot >> 6)] |= 1 << (slot & 63);
            // Reserve exactly one more: slots are added rarely and kept for days.
            self.values.reserve_exact(1);
            self.values.insert(rank, 0.0);
        }
        &mut self.values[rank]
    }

    /// Iterates over the touched slots from `low` to `high` in ascending order.
    pub fn range(&self, low: u8, high: u8) -> impl Iterator<Item = (u8, f64)> + '_ {
        self.iter().skip(self.rank(low)).take_while(move |(slot, _)| *slot <= high)
    }

    pub fn scale_range(&mut self, low: u8, high: u8, factor: f64) {
        let from = self.rank(low);
        let to = self.rank(high) + usize::from(self.is_touched(high));
        if from < to {
            for value in &mut self.values[from..to] {
                *value *= factor;
            }
        }
    }

    /// Iterates over all touched slots in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u8, f64)> + '_ {
        let mut word = 0;
        let mut bits = self.touched[0];
        self.values.iter().map(move |value| {
            while bits == 0 && word < 3 {
                word += 1;
                bits = self.touched[word];
            }
            let slot = (word as u32 * 64 + bits.trailing_zeros()) as u8;
            bits &= bits.wrapping_sub(1);
            (slot, *value)
        })
    }

    fn is_touched(&self, slot: u8) -> bool {
        self.touched[usize::from(slot >> 6)] & (1 << (slot & 63)) != 0
    }

    /// The number of touched slots below this one.
    fn rank(&self, slot: u8) -> usize {
        let word = usize::from(slot >> 6);
        let below: u32 = self.touched[..word].iter().map(|bits| bits.count_ones()).sum();
        let within = self.touched[word] & ((1 << (slot & 63)) - 1);
        (below + within.count_ones()) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sparse_array_behaves_like_a_dense_one(
            writes in prop::collection::vec((any::<u8>(), -1e9..1e9_f64), 0..300),
            (low, high) in (any::<u8>(), any::<u8>()),
        ) {
            let mut dense = [0.0; 256];
            let mut sparse = Sparse::default();
            for (slot, value) in writes {
                dense[usize::from(slot)] += value;
                *sparse.get_mut(slot) += value;
            }
            if low <= high {
                for value in &mut dense[usize::from(low)..=usize::from(high)] {
                    *value *= 0.5;
                }
                sparse.scale_range(low, high, 0.5);
                let expected: f64 = dense[usize::from(low)..=usize::from(high)].iter().sum();
                let actual: f64 = sparse.range(low, high).map(|(_, value)| value).sum();
                prop_assert!((expected - actual).abs() <= 1e-3);
                prop_assert!(sparse.range(low, high).all(|(slot, _)| slot >= low && slot <= high));
            }
            for slot in 0..=u8::MAX {
                prop_assert_eq!(dense[usize::from(slot)].to_bits(), sparse.get(slot).to_bits());
            }
            let slots: Vec<u8> = sparse.iter().map(|(slot, _)| slot).collect();
            prop_assert!(slots.is_sorted());
        }
    }
}
