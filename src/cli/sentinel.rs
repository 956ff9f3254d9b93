//! The flags about the sentinel of `plimsoll horizontal --mode=replace`.

use std::time::Duration;

use clap::Args;
use plimsoll_core::hpa::sentinel::SentinelRules;

use super::go_values;
use crate::controllers::horizontal::config::SentinelConfig;

/// The longest and the shortest time between two reads of the sentinel.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Reads of the sentinel in each period of the HPA controller.
const POLLS_PER_PERIOD: u32 = 8;

/// How it is found out that the HPA controller of the cluster is off.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "HPA controller of the cluster")]
pub struct SentinelArgs {
    /// The period of the HPA controller that `--mode=replace` replaces: for four of them, and at least a minute, it must not
    /// write the status of an object that is made for this
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true)]
    builtin_sync_period: Duration,
    /// The minimum of that time
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go_values::positive_duration)]
    #[arg(hide = true)]
    sentinel_proof: Duration,
    /// How long after the HPA controller was found to be active it is checked again
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = go_values::positive_duration)]
    #[arg(hide = true)]
    sentinel_rearm: Duration,
}

impl SentinelArgs {
    pub fn config(&self) -> SentinelConfig {
        let (shortest, longest) = POLL_INTERVALS;
        let poll_interval = (self.builtin_sync_period / POLLS_PER_PERIOD).clamp(shortest, longest);
        let rules =
            SentinelRules::new(self.sentinel_proof, self.builtin_sync_period, self.sentinel_rearm);
        SentinelConfig { rules, poll_interval }
    }
}
