//! Points in time as the model needs them: whole nanoseconds since the Unix epoch in eight bytes.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time. Covers 1677 to 2262, which is every time a cluster can report; conversions from
/// outside clamp instead of failing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// From nanoseconds since the Unix epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// From whole seconds since the Unix epoch, clamped to what fits.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, rounded towards the past.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Nanoseconds from `earlier` to `self`; negative when `self` is the earlier one.
    pub const fn nanos_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time that lies `by` later.
    #[must_use]
    pub fn later(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// The time that lies `by` earlier.
    #[must_use]
    pub fn earlier(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)))
    }
}

impl From<jiff::Timestamp> for Time {
    fn from(timestamp: jiff::Timestamp) -> Self {
        let nanos = timestamp.as_nanosecond();
        Self(i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX }))
    }
}

impl From<Time> for jiff::Timestamp {
    fn from(time: Time) -> Self {
        // Every i64 of nanoseconds lies inside jiff's range, so the fallback is never taken.
        Self::from_nanosecond(i128::from(time.0)).unwrap_or(Self::UNIX_EPOCH)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        jiff::Timestamp::from(*self).fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse::<jiff::Timestamp>().map(Self::from).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses_as_rfc_3339() {
        let time = Time::from_nanos(1_767_225_600_000_000_001);
        assert_eq!(time.to_string(), "2026-01-01T00:00:00.000000001Z");
        let json = serde_json::to_string(&time).expect("serialises");
        assert_eq!(serde_json::from_str::<Time>(&json).expect("parses"), time);
    }

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Time::from_nanos(i64::MAX).later(Duration::MAX), Time::from_nanos(i64::MAX));
        assert_eq!(Time::from_nanos(i64::MIN).earlier(Duration::MAX), Time::from_nanos(i64::MIN));
        assert_eq!(Time::from_nanos(i64::MIN).nanos_since(Time::from_nanos(1)), i64::MIN);
    }
}
