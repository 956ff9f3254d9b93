//! `--watch`: reads a report every interval and shows it, until a signal.

mod repeat;
mod view;

use std::time::Duration;

use clap::Args;

pub use self::{repeat::repeat, view::WatchView};
use super::go_values;

const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_INTERVAL: Duration = Duration::from_hours(24);

/// Whether to show a report repeatedly.
#[derive(Clone, Copy, Debug, Args)]
pub struct WatchArgs {
    /// Reads again every INTERVAL [5s if not set], and shows what changed, until Ctrl-C
    #[arg(long, short, value_name = "INTERVAL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "5s", value_parser = parse_interval)]
    pub watch: Option<Duration>,
}

/// Parses the interval between two readings.
pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    go_values::positive_duration(text)
        .ok()
        .filter(|interval| (SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(interval))
        .ok_or_else(|| "give a duration from 1s to 24h, such as 5s or 1m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_between_a_second_and_a_day() {
        assert_eq!(parse_interval("1s"), Ok(SHORTEST_INTERVAL));
        assert_eq!(parse_interval("1m30s"), Ok(Duration::from_secs(90)));
        for bad in ["", "0s", "999ms", "5", "-5s", "24h0m1s", "1d"] {
            assert!(parse_interval(bad).is_err(), "{bad}");
        }
    }
}
