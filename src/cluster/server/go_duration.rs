//! Formats durations like Go: `1h0m5.25s`, `3m20s`, `12.5ms`.

use std::{fmt::Write as _, time::Duration};

/// Formats a duration like Go's `time.Duration.String`.
pub fn go_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    for (unit, size) in [("ns", 1), ("µs", 1_000), ("ms", 1_000_000)] {
        if nanos < size * 1000 {
            return fraction(nanos, size) + unit;
        }
    }
    let (minutes, nanos) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
    let mut text = String::new();
    // Writing into a String cannot fail.
    if minutes >= 60 {
        let _ = write!(text, "{}h", minutes / 60);
    }
    if minutes > 0 {
        let _ = write!(text, "{}m", minutes % 60);
    }
    text + &fraction(nanos, 1_000_000_000) + "s"
}

/// `nanos / size` with as many decimals as needed.
fn fraction(nanos: u128, size: u128) -> String {
    let digits = size.ilog10() as usize;
    let text = format!("{}.{:0digits$}", nanos / size, nanos % size);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        for (nanos, expected) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (100_000_000, "100ms"),
            (1_000_000_000, "1s"),
            (10_000_000_000, "10s"),
            (60_000_000_000, "1m0s"),
            (200_500_000_000, "3m20.5s"),
            (305_000_000_001, "5m5.000000001s"),
            (3_600_000_000_000, "1h0m0s"),
            (86_465_000_000_000, "24h1m5s"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), expected);
        }
    }
}
