//! Options of an election: its Lease and its durations.

use std::time::Duration;

/// Options of an election, with the names and meanings of upstream's flags.
#[derive(Clone, Debug)]
pub struct ElectionOptions {
    pub name: String,
    pub namespace: String,
    /// Identity of this process; see [`identity`](super::super::election_rules::identity).
    pub identity: String,
    /// How long other processes wait before they acquire a Lease that is not renewed.
    pub lease_duration: Duration,
    /// How long the holder relies on a renewal.
    pub renew_deadline: Duration,
    /// Time between two renewals.
    pub retry_period: Duration,
}
