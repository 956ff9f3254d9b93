//! The peak of memory of each day, and whether the same weekday stands out.

use super::evidence::MemoryPeak;
use crate::types::units::Bytes;

/// Maximum number of days that are kept, the latest ones.
const MAX_DAYS: usize = 400;
const SECONDS_PER_DAY: i64 = 86_400;

/// Weeks in which the same weekday has to stand out.
const WEEKS: usize = 3;
/// With more weekdays that stand out, the target is too low and there is no weekly shape.
const MAX_WEEKDAYS: usize = 2;

/// The peak of memory of each day in UTC, in order of time. Days without samples are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DailyPeaks(Vec<MemoryPeak>);

impl DailyPeaks {
    /// Adds a peak. The first of equal ones counts.
    pub fn add(&mut self, peak: MemoryPeak) {
        let day = |peak: &MemoryPeak| peak.at.as_secs().div_euclid(SECONDS_PER_DAY);
        // Peaks mostly arrive in order of time.
        if self.0.last().is_none_or(|last| day(last) < day(&peak)) {
            self.0.push(peak);
        } else {
            match self.0.binary_search_by_key(&day(&peak), day) {
                Ok(index) if peak.bytes > self.0[index].bytes => self.0[index] = peak,
                Ok(_) => {}
                Err(index) => self.0.insert(index, peak),
            }
        }
        if self.0.len() > MAX_DAYS {
            self.0.remove(0);
        }
    }

    /// Releases spare capacity: in a large cluster, thousands of containers have some.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }

    /// The days in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &MemoryPeak> {
        self.0.iter()
    }

    /// Whether there is no day.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn on_day_of(&self, peak: &MemoryPeak) -> Option<&MemoryPeak> {
        let day = |peak: &MemoryPeak| peak.at.as_secs().div_euclid(SECONDS_PER_DAY);
        self.0.binary_search_by_key(&day(peak), day).ok().map(|index| &self.0[index])
    }

    /// The largest peak; of equal ones the later.
    pub fn largest(&self) -> Option<MemoryPeak> {
        self.0.iter().max_by_key(|peak| (peak.bytes, peak.at)).copied()
    }

    /// The smallest amount that at least this share of the days does not exceed.
    pub fn percentile(&self, share: f64) -> Option<Bytes> {
        let mut amounts: Vec<Bytes> = self.0.iter().map(|peak| peak.bytes).collect();
        amounts.sort_unstable();
        let rank = (share.clamp(0.0, 1.0) * amounts.len() as f64).ceil() as usize;
        amounts.get(rank.saturating_sub(1)).copied()
    }

    /// The weekday on which peaks exceed a target week after week, while those of most other weekdays do not.
    pub fn weekly_above(&self, target: Bytes) -> Option<WeeklyPeaks> {
        let mut above: [Vec<i64>; 7] = Default::default();
        for peak in self.0.iter().filter(|peak| peak.bytes > target) {
            let day = peak.at.as_secs().div_euclid(SECONDS_PER_DAY);
            // The epoch was a Thursday.
            let weekday = (day + 3).rem_euclid(7);
            if let Some(days) = usize::try_from(weekday).ok().and_then(|day| above.get_mut(day)) {
                days.push(day);
            }
        }
        if above.iter().filter(|days| !days.is_empty()).count() > MAX_WEEKDAYS {
            return None;
        }
        let weekday = (0..above.len()).max_by_key(|day| above[*day].len())?;
        let weeks = above[weekday].len();
        (weeks >= WEEKS).then_some(WeeklyPeaks { weekday: WEEKDAYS[weekday], weeks })
    }
}

const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// A weekday on which peaks exceed the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeeklyPeaks {
    /// Its name, in UTC.
    pub weekday: &'static str,
    pub weeks: usize,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::Time;

    /// A Monday: 2026-11-02.
    const MONDAY: i64 = 20_759;

    fn peak(day: i64, bytes: i64) -> MemoryPeak {
        MemoryPeak { bytes: Bytes(bytes), at: Time::from_secs(day * SECONDS_PER_DAY + 7_200) }
    }

    fn peaks(days: impl IntoIterator<Item = (i64, i64)>) -> DailyPeaks {
        let mut peaks = DailyPeaks::default();
        days.into_iter().for_each(|(day, bytes)| peaks.add(peak(day, bytes)));
        peaks
    }

    #[test]
    fn a_day_has_its_largest_peak() {
        let found = peaks([(5, 10), (5, 30), (5, 20), (3, 7), (4, 1)]);
        let found: Vec<i64> = found.iter().map(|peak| peak.bytes.0).collect();
        assert_eq!(found, [7, 1, 30]);
    }

    #[test]
    fn percentiles_are_amounts_of_days() {
        let found = peaks((1..=8).map(|day| (day, day * 10)));
        for (share, expected) in [(0.0, 10), (0.5, 40), (0.75, 60), (0.98, 80), (1.0, 80)] {
            assert_eq!(found.percentile(share), Some(Bytes(expected)), "{share}");
        }
        assert_eq!(DailyPeaks::default().percentile(0.5), None);
    }

    #[test]
    fn the_same_weekday_of_three_weeks_stands_out() {
        let usual = |day: i64| (MONDAY + day, 100);
        let month = || (0..28).map(usual);
        let with =
            |extra: &[i64]| peaks(month().chain(extra.iter().map(|day| (MONDAY + day, 300))));
        let monday = |weeks| Some(WeeklyPeaks { weekday: "Monday", weeks });
        for (name, above, expected) in [
            ("none", &[][..], None),
            ("two Mondays", &[0, 7], None),
            ("three Mondays", &[0, 7, 21], monday(3)),
            ("four Mondays", &[0, 7, 14, 21], monday(4)),
            ("three Mondays and a Friday", &[0, 7, 14, 4], monday(3)),
            ("too many weekdays", &[0, 7, 14, 1, 2], None),
            ("three days in a row", &[0, 1, 2], None),
            ("Sundays", &[6, 13, 20], Some(WeeklyPeaks { weekday: "Sunday", weeks: 3 })),
        ] {
            assert_eq!(with(above).weekly_above(Bytes(200)), expected, "{name}");
        }
        assert_eq!(with(&[0, 7, 14]).weekly_above(Bytes(300)), None, "not above");
        assert_eq!(with(&[0, 7, 14]).weekly_above(Bytes(99)), None, "every day is above");
    }

    proptest! {
        #[test]
        fn days_are_sorted_and_limited_whatever_their_order(
            added in prop::collection::vec((0..1_000_i64, 0..1_000_i64), 0..1_500),
        ) {
            let found = peaks(added.iter().copied());
            let days: Vec<i64> = found.iter().map(|peak| peak.at.as_secs()).collect();
            prop_assert!(days.is_sorted() && days.len() <= MAX_DAYS);
            if added.len() <= MAX_DAYS {
                let largest = added.iter().map(|(_, bytes)| *bytes).max();
                prop_assert_eq!(found.largest().map(|peak| peak.bytes.0), largest);
            }
        }
    }
}
