//! Groups VPAs by the length of the gap in their histories.
//!
//! VPAs that are read together are queried as far back as the one with the longest gap. A workload that was scaled to
//! zero a week ago must not cause queries over a week for all others.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::types::Time;

/// Gaps shorter than this are in the same group.
const MIN_GAP: Duration = Duration::from_hours(1);

/// Groups entries by age: within a group, no age is more than twice another, except below `MIN_GAP`.
pub(super) fn group_similar<T>(
    entries: impl IntoIterator<Item = (Time, T)>,
    now: Time,
) -> impl Iterator<Item = Vec<(Time, T)>> {
    let mut groups: BTreeMap<u32, Vec<(Time, T)>> = BTreeMap::new();
    for (time, entry) in entries {
        let hours = now.nanos_since(time).max(0).unsigned_abs() / MIN_GAP.as_nanos() as u64;
        groups.entry(u64::BITS - hours.leading_zeros()).or_default().push((time, entry));
    }
    groups.into_values()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vpas_with_long_and_short_gaps_are_queried_separately() {
        let now = Time::from_secs(10_000_000);
        let ago = |minutes: u64| (now.earlier(Duration::from_mins(minutes)), minutes);
        let lacking = [0, 3, 59, 60, 70, 119, 130, 239, 300, 7 * 1440, 8 * 1440].map(ago);
        let groups: Vec<Vec<u64>> = group_similar(lacking, now)
            .map(|group| group.into_iter().map(|(_, minutes)| minutes).collect())
            .collect();
        let expected: [&[u64]; 5] =
            [&[0, 3, 59], &[60, 70, 119], &[130, 239], &[300], &[7 * 1440, 8 * 1440]];
        assert_eq!(groups, expected);
        let ahead = [(now.later(MIN_GAP), "clock"), (now, "now")];
        assert_eq!(group_similar(ahead, now).count(), 1);
    }
}
