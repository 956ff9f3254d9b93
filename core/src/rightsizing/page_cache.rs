//! Memory without page cache: what a container needs if the kernel may drop the files that it has read.
//!
//! What it cannot give back is anonymous memory and mapped files. Shared memory, such as the buffers of a database, is part
//! of mapped files, so a rule by anonymous memory alone would be too low.

use super::{daily_peaks::DailyPeaks, thresholds::PageCacheThresholds};
use crate::types::units::{Bytes, round_up_to_multiple};

/// The share of days whose peak the target covers.
const COVERED_DAYS: f64 = 0.98;
/// The limit is at least this multiple of the peak, in percent.
const LIMIT_PERCENT: i128 = 130;

/// The memory of a container without page cache.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NeededMemory {
    /// Anonymous memory and mapped files of one pod, the peak of each day.
    pub needed: DailyPeaks,
    /// The median of page cache in use; `None` if unknown.
    pub active_file: Option<Bytes>,
}

/// How memory is measured (`--memory-signal`).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum MemorySignal {
    /// By the working set, which includes page cache in use.
    #[default]
    WorkingSet,
    /// Without page cache, where it is a large share of the working set.
    Need,
}

/// The memory that a container should request without page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeededTarget {
    /// The request.
    pub target: i64,
    pub least_limit: i64,
}

/// The target without page cache; `None` if page cache is a small share of the working set on most days, or if something is
/// unknown. `margin` is the share that is added.
pub fn needed_target(
    memory: &NeededMemory,
    working_set: &DailyPeaks,
    margin: f64,
    thresholds: &PageCacheThresholds,
) -> Option<NeededTarget> {
    let NeededMemory { needed, active_file } = memory;
    let days = needed.iter().filter_map(|peak| Some((peak, working_set.on_day_of(peak)?)));
    let (mut known, mut cached) = (0_usize, 0_usize);
    for (peak, of_day) in days {
        let cache = of_day.bytes.0.saturating_sub(peak.bytes.0) as f64;
        known += 1;
        cached += usize::from(cache >= thresholds.daily_share * of_day.bytes.as_f64());
    }
    if cached * 2 <= known {
        return None;
    }
    let kept = if thresholds.kept_share > 0.0 {
        active_file.as_ref()?.as_f64() * thresholds.kept_share
    } else {
        0.0
    };
    let covered = needed.percentile(COVERED_DAYS)?.as_f64();
    let target = whole_mebibytes(Bytes::from_f64(covered * (1.0 + margin) + kept).0);
    let least_limit = i128::from(needed.largest()?.bytes.0) * LIMIT_PERCENT / 100;
    let least_limit = i64::try_from(least_limit).map_or(i64::MAX, whole_mebibytes);
    Some(NeededTarget { target, least_limit: least_limit.max(target) })
}

fn whole_mebibytes(amount: i64) -> i64 {
    round_up_to_multiple(amount, 1 << 20).unwrap_or(amount)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        rightsizing::{evidence::MemoryPeak, testing::MI},
        types::Time,
    };

    fn daily(mebibytes: impl IntoIterator<Item = i64>) -> DailyPeaks {
        let mut peaks = DailyPeaks::default();
        for (day, amount) in mebibytes.into_iter().enumerate() {
            let at = Time::from_secs(day as i64 * 86_400 + 60);
            peaks.add(MemoryPeak { bytes: Bytes(amount * MI), at });
        }
        peaks
    }

    fn memory(needed: &[i64], active_file: Option<i64>) -> NeededMemory {
        NeededMemory {
            needed: daily(needed.iter().copied()),
            active_file: active_file.map(|amount| Bytes(amount * MI)),
        }
    }

    #[test]
    fn page_cache_is_left_out_if_it_is_a_large_share_on_most_days() {
        let thresholds = PageCacheThresholds::default();
        let working_set = daily([1000; 4]);
        for (name, needed, active_file, expected) in [
            // 400 and 15 %, and half of 200.
            ("large", &[400; 4][..], Some(200), Some((560, 560))),
            ("the largest day counts", &[400, 100, 100, 100], Some(0), Some((460, 520))),
            ("three of four days", &[700, 700, 700, 990], Some(0), Some((1139, 1287))),
            ("two of four days", &[700, 700, 990, 990], Some(0), None),
            ("small", &[900; 4], Some(0), None),
            ("no series of page cache", &[400; 4], None, None),
            ("no series of anonymous memory", &[], Some(0), None),
        ] {
            let found =
                needed_target(&memory(needed, active_file), &working_set, 0.15, &thresholds);
            let found = found.map(|found| (found.target / MI, found.least_limit / MI));
            assert_eq!(found, expected, "{name}");
        }
        let none = needed_target(&memory(&[400; 4], Some(0)), &daily([]), 0.15, &thresholds);
        assert_eq!(none, None, "without a working set nothing is known");
        let drops = PageCacheThresholds { kept_share: 0.0, ..thresholds };
        let found = needed_target(&memory(&[400; 4], None), &working_set, 0.0, &drops);
        let expected = NeededTarget { target: 400 * MI, least_limit: 520 * MI };
        assert_eq!(found, Some(expected), "page cache that is not kept need not be known");
    }

    proptest! {
        #[test]
        fn the_target_covers_what_is_needed(
            needed in prop::collection::vec(1..10_000_i64, 1..40),
            active_file in 0..10_000_i64,
        ) {
            let memory = memory(&needed, Some(active_file));
            let working_set = daily([100_000; 40]);
            let thresholds = PageCacheThresholds::default();
            let found = needed_target(&memory, &working_set, 0.15, &thresholds).expect("a target");
            let largest = needed.iter().max().expect("a day") * MI;
            prop_assert!(found.target >= memory.needed.percentile(0.9).expect("a day").0);
            prop_assert!(found.least_limit >= largest && found.least_limit >= found.target);
        }
    }
}
