//! The totals of one pass, summed over VPAs.

use std::collections::BTreeMap;

use plimsoll_core::types::ObjectKey;

use crate::telemetry::labels::known_mode;

/// Number of size classes, which are powers of two of the number of pods.
pub(super) const SIZES: usize = 20;

/// A VPA with the values of its labels.
#[derive(Clone, Copy, Debug)]
pub struct UpdatedVpa<'a> {
    /// The VPA.
    pub vpa: &'a ObjectKey,
    /// The update mode.
    pub mode: &'a str,
    /// The number of pods.
    pub pods: usize,
}

/// The totals of one pass.
#[derive(Debug, Default)]
pub struct PassTotals {
    pub(super) by_mode: BTreeMap<(String, String), [f64; 4]>,
    pub(super) by_size: BTreeMap<String, [f64; 3]>,
    pub(super) skipped: BTreeMap<&'static str, f64>,
    pub(super) heartbeats: BTreeMap<&'static str, f64>,
    pub(super) breakers: f64,
}

/// The totals of one VPA in a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct VpaTotals {
    /// Pods that would be updated without limits.
    pub candidates: usize,
    /// Pods that were evicted.
    pub evicted: usize,
    /// Pods that were resized.
    pub resized: usize,
    /// Whether pods are resized in place rather than evicted.
    pub in_place: bool,
}

/// The size class of a number of pods, as a label value.
pub(super) fn log2(size: usize) -> String {
    let power = if size < 2 { 0 } else { size.ilog2() as usize };
    power.min(SIZES).to_string()
}

impl PassTotals {
    /// Adds the totals of a VPA.
    pub fn add(&mut self, vpa: UpdatedVpa<'_>, totals: VpaTotals) {
        let flag = |count: usize| f64::from(u8::from(count > 0));
        let size = log2(vpa.pods);
        let mode = known_mode(vpa.mode).to_owned();
        let sums = self.by_mode.entry((mode, size.clone())).or_default();
        sums[0] += vpa.pods as f64;
        if totals.in_place {
            let sums = self.by_size.entry(size).or_default();
            sums[0] += totals.candidates as f64;
            sums[1] += flag(totals.candidates);
            sums[2] += flag(totals.resized);
        } else {
            sums[1] += totals.candidates as f64;
            sums[2] += flag(totals.candidates);
        }
        let sums =
            self.by_mode.entry((known_mode(vpa.mode).to_owned(), log2(vpa.pods))).or_default();
        sums[3] += flag(totals.evicted);
    }

    /// Counts a skipped pod.
    pub fn count_skipped(&mut self, why: &'static str) {
        *self.skipped.entry(why).or_default() += 1.0;
    }

    /// Counts a VPA by the heartbeat of its recommender.
    pub fn count_heartbeat(&mut self, state: &'static str) {
        *self.heartbeats.entry(state).or_default() += 1.0;
    }

    /// Counts a workload whose updates are paused because updated pods regressed.
    pub fn count_open_breaker(&mut self) {
        self.breakers += 1.0;
    }

    /// The number of workloads whose updates are paused because updated pods regressed.
    pub fn open_breakers(&self) -> u64 {
        self.breakers as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_sizes_are_grouped_by_powers_of_two() {
        for (size, power) in [(0, "0"), (1, "0"), (2, "1"), (3, "1"), (4, "2"), (1 << 21, "20")] {
            assert_eq!(log2(size), power, "{size}");
        }
    }
}
