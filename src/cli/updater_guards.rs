//! The flags for the disruption guards. All are on by default, and each can be set or disabled.

use std::{str::FromStr, time::Duration};

use clap::{ArgAction, Args};

use super::{go_values, parsed_flags::ParsedFlags};
use plimsoll_core::{
    types::compat::Compat,
    updater::guard::{
        Allowance, BreakerSettings, CanarySettings, CoolDown, GuardSettings, HeartbeatPolicy,
        MaintenanceWindows,
    },
};

/// The maximum number of changes per hour: a number or a share of the pods, whichever is greater, or no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ParsedAllowance(Option<Allowance>);

impl FromStr for ParsedAllowance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted =
            || "give a number, a share such as 10%, both such as 100,10%, or off".to_owned();
        if text == "off" {
            return Ok(Self(None));
        }
        let mut allowance = Allowance { at_least: 0, share: 0.0 };
        for part in text.split(',') {
            let part = part.trim();
            match part.strip_suffix('%') {
                Some(share) => {
                    let share: f64 = share.parse().map_err(|_| wanted())?;
                    if !(0.0..=1000.0).contains(&share) {
                        return Err(wanted());
                    }
                    allowance.share = share / 100.0;
                }
                None => allowance.at_least = part.parse().map_err(|_| wanted())?,
            }
        }
        Ok(Self(Some(allowance)))
    }
}

/// The disruption guards.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Guards (all off with --compat=upstream, unless they are set)")]
pub struct GuardArgs {
    /// Heartbeat of the recommender: `auto` requires a fresh one if there is one, `require`, `ignore`
    #[arg(long, value_name = "RULE", default_value = "auto")]
    recommender_heartbeat: HeartbeatPolicy,
    /// Maximum evictions and restarting resizes per hour: a number or a share of the pods, whichever is greater
    #[arg(long, value_name = "NUMBER,SHARE", default_value = "100,10%")]
    max_disruptions_per_hour: ParsedAllowance,
    /// Maximum evictions and restarting resizes per hour in each namespace
    #[arg(long, value_name = "NUMBER,SHARE", default_value = "30,20%", hide_short_help = true)]
    max_namespace_disruptions_per_hour: ParsedAllowance,
    /// Maximum resizes without restart per hour
    #[arg(long, value_name = "NUMBER,SHARE", default_value = "500,50%", hide_short_help = true)]
    max_resizes_per_hour: ParsedAllowance,
    /// Maximum resizes without restart per hour in each namespace
    #[arg(long, value_name = "NUMBER,SHARE", default_value = "150,100%", hide_short_help = true)]
    max_namespace_resizes_per_hour: ParsedAllowance,
    /// Cooldown of a workload after a change; doubles with each change in quick succession; 0 disables it
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = go_values::duration)]
    cool_down: Duration,
    /// The cooldown for pods that are repeatedly OOM-killed or are not ready at all
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    cool_down_urgent: Duration,
    /// The maximum cooldown
    #[arg(long, value_name = "DURATION", default_value = "8h", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    cool_down_max: Duration,
    /// Maintenance windows for changes, such as `0 22 * * mon-fri for 6h`; always open if not set
    #[arg(long, value_name = "WINDOWS", default_value = "")]
    change_window: String,
    /// How long to watch the first changed pod before changing others; 0 disables it
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = go_values::duration)]
    canary_watch: Duration,
    /// Stops changing a workload if its changed pods are worse than before
    #[arg(long, action = ArgAction::Set, default_value = "true", value_name = "BOOL")]
    circuit_breaker: bool,
    /// Share of the changed pods that may be worse before the breaker opens
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = go_values::fraction)]
    #[arg(hide_short_help = true)]
    circuit_breaker_share: f64,
    /// How long a changed pod may take to become ready
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true)]
    circuit_breaker_ready_within: Duration,
    /// How long the breaker of a workload stays open; doubles each time, up to a day
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true)]
    circuit_breaker_rest: Duration,
    /// Number of workloads with an open breaker within an hour that stops all changes in the cluster; at most two of a
    /// namespace count
    #[arg(long, value_name = "COUNT", default_value = "5", value_parser = go_values::integer_between(1_u32, u32::MAX))]
    #[arg(hide_short_help = true)]
    circuit_breaker_workloads: u32,
    /// Maximum consecutive evictions without evidence that new pods get the recommended resources; one until the first
    /// evidence; 0 means no limit
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = go_values::integer_between(0_u32, u32::MAX))]
    #[arg(hide_short_help = true)]
    max_unproven_evictions: u32,
    /// How long to pause a workload whose resources another writer overwrites; 0 disables it
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = go_values::duration)]
    #[arg(hide_short_help = true)]
    rewritten_rest: Duration,
    /// Starts a second replica of a Deployment before evicting its only one
    #[arg(long, action = ArgAction::Set, default_value = "false", value_name = "BOOL")]
    surge: bool,
}

impl GuardArgs {
    /// Builds the guard settings. In `upstream` mode only guards that were set explicitly are on.
    pub fn guards(&self, compat: Compat, typed: &ParsedFlags) -> Result<GuardSettings, String> {
        let on = |name: &str| compat == Compat::Plimsoll || !typed.set_among(&[name]).is_empty();
        let is_set = |duration: Duration| !duration.is_zero();
        let windows = match self.change_window.trim() {
            "" => MaintenanceWindows::ALWAYS,
            text => text.parse().map_err(|why| format!("--change-window: {why}"))?,
        };
        let allowance = |name: &str, parsed: ParsedAllowance| parsed.0.filter(|_| on(name));
        let default = GuardSettings::default().cool_down;
        let cool_down = CoolDown {
            base: self.cool_down,
            urgent: self.cool_down_urgent.min(self.cool_down),
            max: self.cool_down_max.max(self.cool_down),
            forget_after: default.map_or(self.cool_down_max, |default| default.forget_after),
        };
        let breaker = BreakerSettings {
            share: self.circuit_breaker_share,
            ready_within: self.circuit_breaker_ready_within,
            open_for: self.circuit_breaker_rest,
            max_open_for: MAX_COOL_DOWN.max(self.circuit_breaker_rest),
            cluster_trips: self.circuit_breaker_workloads,
        };
        Ok(GuardSettings {
            heartbeat: if on("recommender_heartbeat") {
                self.recommender_heartbeat
            } else {
                HeartbeatPolicy::Ignore
            },
            cluster_disruptions: allowance(
                "max_disruptions_per_hour",
                self.max_disruptions_per_hour,
            ),
            namespace_disruptions: allowance(
                "max_namespace_disruptions_per_hour",
                self.max_namespace_disruptions_per_hour,
            ),
            cluster_resizes: allowance("max_resizes_per_hour", self.max_resizes_per_hour),
            namespace_resizes: allowance(
                "max_namespace_resizes_per_hour",
                self.max_namespace_resizes_per_hour,
            ),
            cool_down: Some(cool_down).filter(|_| on("cool_down") && is_set(self.cool_down)),
            maintenance_windows: windows,
            breaker: Some(breaker).filter(|_| on("circuit_breaker") && self.circuit_breaker),
            canary: Some(CanarySettings { watch: self.canary_watch })
                .filter(|_| on("canary_watch") && is_set(self.canary_watch)),
            max_unproven_evictions: Some(self.max_unproven_evictions)
                .filter(|max| on("max_unproven_evictions") && *max > 0),
            surge: self.surge,
            external_overwrite_pause: Some(self.rewritten_rest)
                .filter(|pause| on("rewritten_rest") && is_set(*pause)),
        })
    }
}

/// The maximum time for which the breaker of a workload stays open.
const MAX_COOL_DOWN: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disruption_limit_is_a_number_a_percentage_both_or_off() {
        let of = |text: &str| text.parse::<ParsedAllowance>().map(|allowed| allowed.0);
        let some = |at_least, share| Ok(Some(Allowance { at_least, share }));
        assert_eq!(of("100,10%"), some(100, 0.1));
        assert_eq!(of("10%, 100"), some(100, 0.1));
        assert_eq!(of("0"), some(0, 0.0));
        assert_eq!(of("25%"), some(0, 0.25));
        assert_eq!(of("off"), Ok(None));
        for bad in ["", "x", "10%%", "-1", "-1%", "100,x"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
