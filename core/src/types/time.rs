//! Points in time: nanoseconds since the Unix epoch in eight bytes.

use std::{fmt, num::NonZeroU64, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time from 1677 to 2262, which covers every time that a cluster can report. Conversions from other
/// types clamp instead of failing.
///
/// Stored with the sign bit flipped, so that unsigned order is the order of time and an `Option<Time>` takes
/// eight bytes too: a recommender holds millions of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(NonZeroU64);

const SIGN_BIT: u64 = 1 << 63;

impl Time {
    /// The Unix epoch.
    pub const EPOCH: Self = Self::from_nanos(0);

    /// From nanoseconds since the Unix epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        // The one value that flips to zero is the earliest nanosecond; it becomes the next one.
        match NonZeroU64::new(nanos as u64 ^ SIGN_BIT) {
            Some(flipped) => Self(flipped),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// From whole seconds since the Unix epoch, clamped to the range.
    pub const fn from_secs(secs: i64) -> Self {
        Self::from_nanos(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> i64 {
        (self.0.get() ^ SIGN_BIT) as i64
    }

    /// Whole seconds since the Unix epoch, rounded down.
    pub const fn as_secs(self) -> i64 {
        self.as_nanos().div_euclid(1_000_000_000)
    }

    /// Nanoseconds from `earlier` to `self`; negative if `self` is earlier.
    pub const fn nanos_since(self, earlier: Self) -> i64 {
        self.as_nanos().saturating_sub(earlier.as_nanos())
    }

    #[must_use]
    pub fn later(self, by: Duration) -> Self {
        Self::from_nanos(
            self.as_nanos().saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)),
        )
    }

    #[must_use]
    pub fn earlier(self, by: Duration) -> Self {
        Self::from_nanos(
            self.as_nanos().saturating_sub(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)),
        )
    }
}

impl Default for Time {
    fn default() -> Self {
        Self::EPOCH
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<jiff::Timestamp> for Time {
    fn from(timestamp: jiff::Timestamp) -> Self {
        let nanos = timestamp.as_nanosecond();
        Self::from_nanos(i64::try_from(nanos).unwrap_or(if nanos < 0 {
            i64::MIN
        } else {
            i64::MAX
        }))
    }
}

impl From<Time> for jiff::Timestamp {
    fn from(time: Time) -> Self {
        // jiff's range includes every i64 of nanoseconds, so the fallback is never used.
        Self::from_nanosecond(i128::from(time.as_nanos())).unwrap_or(Self::UNIX_EPOCH)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        jiff::Timestamp::from(*self).fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_i64(self.as_nanos())
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return i64::deserialize(deserializer).map(Self::from_nanos);
        }
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse::<jiff::Timestamp>().map(Self::from).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_and_parsed_as_rfc_3339() {
        let time = Time::from_nanos(1_767_225_600_000_000_001);
        assert_eq!(time.to_string(), "2026-01-01T00:00:00.000000001Z");
        let json = serde_json::to_string(&time).expect("serialises");
        assert_eq!(serde_json::from_str::<Time>(&json).expect("parses"), time);
    }

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Time::from_nanos(i64::MAX).later(Duration::MAX), Time::from_nanos(i64::MAX));
        assert_eq!(Time::from_nanos(i64::MIN).earlier(Duration::MAX), Time::from_nanos(i64::MIN));
        assert_eq!(Time::from_nanos(i64::MIN).nanos_since(Time::from_nanos(5)), i64::MIN);
    }

    #[test]
    fn order_and_value_survive_the_internal_representation() {
        let nanos = [i64::MIN + 1, -5, -1, 0, 1, 5, i64::MAX];
        assert!(nanos.map(Time::from_nanos).is_sorted());
        assert_eq!(nanos.map(|nanos| Time::from_nanos(nanos).as_nanos()), nanos);
        assert_eq!(size_of::<Option<Time>>(), 8);
    }
}
