//! The flags for leader election, with upstream's names. Each role defines the flag for the Lease name itself.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::go_values;
use crate::controllers::runtime::config::ElectionConfig;
use plimsoll_core::types::compat::Compat;

/// The timing of leader election.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Leader election")]
#[expect(clippy::struct_field_names, reason = "they are named as the flags are")]
pub struct LeaseTimes {
    /// Duration of the lease without renewal
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_LEASE_DURATION")]
    pub leader_elect_lease_duration: Duration,
    /// How long the leader tries to renew the lease before it gives up
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_RENEW_DEADLINE")]
    pub leader_elect_renew_deadline: Duration,
    /// Time between two attempts to acquire or renew the lease
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = go_values::positive_duration)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_RETRY_PERIOD")]
    pub leader_elect_retry_period: Duration,
}

/// Leader election.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub struct ElectionArgs {
    /// Enables leader election; only the leader writes [default: true, false with --compat=upstream]
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL", value_parser = go_values::boolean)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT", hide_env = true)]
    leader_elect: Option<bool>,
    #[command(flatten)]
    times: LeaseTimes,
    /// Kind of the lock object; only `leases` is supported
    #[arg(long, value_name = "KIND", default_value = "leases", value_parser = ["leases"])]
    #[arg(hide_possible_values = true)]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_RESOURCE_LOCK")]
    leader_elect_resource_lock: String,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_LEADER_ELECT_RESOURCE_NAMESPACE")]
    leader_elect_resource_namespace: String,
}

impl ElectionArgs {
    /// Builds the election settings for a Lease.
    pub fn election(&self, name: &str, compat: Compat) -> ElectionConfig {
        ElectionConfig {
            enabled: self.leader_elect.unwrap_or(compat == Compat::Plimsoll),
            explicitly_disabled: self.leader_elect == Some(false),
            lease_duration: self.times.leader_elect_lease_duration,
            renew_deadline: self.times.leader_elect_renew_deadline,
            retry_period: self.times.leader_elect_retry_period,
            name: name.to_owned(),
            namespace: self.leader_elect_resource_namespace.clone(),
        }
    }
}
