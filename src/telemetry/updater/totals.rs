//! What one pass found, added up VPA by VPA until it is told.

use std::collections::BTreeMap;

use plimsoll_core::types::ObjectKey;

use crate::telemetry::labels::known_mode;

/// Sizes are told by the power of two that they reach.
pub(super) const SIZES: usize = 20;

/// A VPA as series know it.
#[derive(Clone, Copy, Debug)]
pub struct UpdatedVpa<'a> {
    /// The VPA.
    pub vpa: &'a ObjectKey,
    /// Its mode.
    pub mode: &'a str,
    /// How many pods it has.
    pub pods: usize,
}

/// What one pass found, VPA by VPA, until it is told.
#[derive(Debug, Default)]
pub struct PassTotals {
    pub(super) by_mode: BTreeMap<(String, String), [f64; 4]>,
    pub(super) by_size: BTreeMap<String, [f64; 3]>,
    pub(super) skipped: BTreeMap<&'static str, f64>,
    pub(super) heartbeats: BTreeMap<&'static str, f64>,
    pub(super) breakers: f64,
}

/// What happened to the pods of one VPA in a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct VpaTotals {
    /// Pods that would be changed, were there no limits.
    pub candidates: usize,
    /// Pods that were evicted.
    pub evicted: usize,
    /// Pods that were resized.
    pub resized: usize,
    /// Whether pods are resized rather than evicted.
    pub in_place: bool,
}

/// The power of two that a size reaches, as text.
pub(super) fn log2(size: usize) -> String {
    let power = if size < 2 { 0 } else { size.ilog2() as usize };
    power.min(SIZES).to_string()
}

impl PassTotals {
    /// Adds a VPA.
    pub fn add(&mut self, of: UpdatedVpa<'_>, tally: VpaTotals) {
        let flag = |count: usize| f64::from(u8::from(count > 0));
        let size = log2(of.pods);
        let mode = known_mode(of.mode).to_owned();
        let sums = self.by_mode.entry((mode, size.clone())).or_default();
        sums[0] += of.pods as f64;
        if tally.in_place {
            let sums = self.by_size.entry(size).or_default();
            sums[0] += tally.candidates as f64;
            sums[1] += flag(tally.candidates);
            sums[2] += flag(tally.resized);
        } else {
            sums[1] += tally.candidates as f64;
            sums[2] += flag(tally.candidates);
        }
        let sums = self.by_mode.entry((known_mode(of.mode).to_owned(), log2(of.pods))).or_default();
        sums[3] += flag(tally.evicted);
    }

    /// A pod was left alone.
    pub fn count_skipped(&mut self, why: &'static str) {
        *self.skipped.entry(why).or_default() += 1.0;
    }

    /// A VPA's recommender is known to be so.
    pub fn count_heartbeat(&mut self, state: &'static str) {
        *self.heartbeats.entry(state).or_default() += 1.0;
    }

    /// A VPA is left alone because its pods got worse.
    pub fn count_open_breaker(&mut self) {
        self.breakers += 1.0;
    }

    /// How many workloads are left alone because their pods got worse.
    pub fn open_breakers(&self) -> u64 {
        self.breakers as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_by_their_power_of_two() {
        for (size, power) in [(0, "0"), (1, "0"), (2, "1"), (3, "1"), (4, "2"), (1 << 21, "20")] {
            assert_eq!(log2(size), power, "{size}");
        }
    }
}
