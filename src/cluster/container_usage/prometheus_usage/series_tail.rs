//! The last points of a series: as many as the current usage needs.

use plimsoll_core::types::Time;

/// Two for a rate, and one more: the newest may be newer than the memory sample that it is reported with.
const MAX_POINTS: usize = 3;

/// The last points of a series, ordered by time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SeriesTail {
    points: [(Time, f64); MAX_POINTS],
    len: usize,
}

impl SeriesTail {
    /// Adds a point, which must be later than the others.
    pub(super) fn push(&mut self, at: Time, value: f64) {
        if self.len == MAX_POINTS {
            self.points.rotate_left(1);
            self.len -= 1;
        }
        self.points[self.len] = (at, value);
        self.len += 1;
    }

    pub(super) fn last(&self) -> Option<(Time, f64)> {
        self.points().last().copied()
    }

    pub(super) fn last_time(&self) -> Option<Time> {
        self.last().map(|(at, _)| at)
    }

    /// Whether to prefer this series over another one of the same container: the one with the later last point, else the one
    /// with more points, else the one with the larger value, as in a history.
    pub(super) fn is_preferred_over(&self, other: &Self) -> bool {
        let (own, theirs) = ((self.last_time(), self.len), (other.last_time(), other.len));
        own > theirs
            || (own == theirs && self.last().map(|(_, v)| v) > other.last().map(|(_, v)| v))
    }

    /// The rate of a counter per second between two adjacent points, with the time of the later one: the last two that are
    /// not after `until`, if there are any. A counter that was reset counts from zero.
    pub(super) fn rate(&self, until: Option<Time>) -> Option<(Time, f64)> {
        let points = self.points();
        let before = |limit: Time| points.iter().filter(|(at, _)| *at <= limit).count();
        let count = until.map_or(points.len(), before);
        let pair = points.get(..count).filter(|pair| pair.len() > 1).unwrap_or(points);
        let [.., (from, first), (to, second)] = pair else { return None };
        let seconds = to.nanos_since(*from) as f64 / 1e9;
        let increase = if second < first { *second } else { second - first };
        (seconds > 0.0).then(|| (*to, increase / seconds))
    }

    fn points(&self) -> &[(Time, f64)] {
        &self.points[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(points: &[(i64, f64)]) -> SeriesTail {
        let mut tail = SeriesTail::default();
        for (at, value) in points {
            tail.push(Time::from_secs(*at), *value);
        }
        tail
    }

    fn rate(points: &[(i64, f64)], until: Option<i64>) -> Option<(i64, f64)> {
        let rate = tail(points).rate(until.map(Time::from_secs));
        rate.map(|(at, value)| (at.as_secs(), value))
    }

    #[test]
    fn a_rate_is_computed_from_the_last_two_points() {
        let points = [(0, 0.0), (10, 100.0), (20, 105.0), (30, 107.5), (40, 112.5)];
        assert_eq!(rate(&points, None), Some((40, 0.5)));
        assert_eq!(rate(&points[..2], None), Some((10, 10.0)));
        assert_eq!(rate(&points[..1], None), None, "one point has no rate");
        assert_eq!(rate(&[], None), None);
    }

    #[test]
    fn a_counter_reset_gives_no_negative_rate() {
        assert_eq!(rate(&[(0, 1000.0), (10, 5.0)], None), Some((10, 0.5)));
        assert_eq!(rate(&[(0, 1000.0), (10, 0.0)], None), Some((10, 0.0)));
        assert_eq!(rate(&[(0, 1000.0), (10, 5.0), (20, 6.0)], None), Some((20, 0.1)));
    }

    #[test]
    fn a_rate_is_computed_up_to_the_given_time_if_possible() {
        let points = [(0, 0.0), (10, 1.0), (20, 3.0)];
        assert_eq!(rate(&points, Some(10)), Some((10, 0.1)));
        assert_eq!(rate(&points, Some(15)), Some((10, 0.1)));
        assert_eq!(rate(&points, Some(25)), Some((20, 0.2)));
        assert_eq!(rate(&points, Some(5)), Some((20, 0.2)), "no point is older");
    }

    #[test]
    fn the_freshest_of_several_series_is_preferred() {
        let (old, new) = (tail(&[(0, 9.0), (10, 9.0)]), tail(&[(11, 1.0)]));
        assert!(new.is_preferred_over(&old) && !old.is_preferred_over(&new));
        let (long, short) = (tail(&[(0, 1.0), (10, 1.0)]), tail(&[(10, 1.0)]));
        assert!(long.is_preferred_over(&short) && !short.is_preferred_over(&long));
        let (large, small) = (tail(&[(10, 2.0)]), tail(&[(10, 1.0)]));
        assert!(
            large.is_preferred_over(&small)
                && !small.is_preferred_over(&large)
                && !large.is_preferred_over(&large)
        );
        assert!(small.is_preferred_over(&SeriesTail::default()));
    }
}
