//! Options of an election: its Lease and its durations, and their validation.

use std::time::Duration;

/// Options of an election, with the names and meanings of upstream's flags.
#[derive(Clone, Debug)]
pub struct ElectionOptions {
    /// Name of the Lease.
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElectionError {
    /// Two processes could both act as the leader.
    #[error(
        "the lease duration ({lease_duration:?}) must be longer than the renew deadline ({renew_deadline:?}): raise it"
    )]
    RenewDeadlineTooLong { lease_duration: Duration, renew_deadline: Duration },
    /// A single late renewal would lose the Lease.
    #[error(
        "the renew deadline ({renew_deadline:?}) must be longer than 1.2 retry periods ({retry_period:?}): raise it"
    )]
    RetryPeriodTooLong { renew_deadline: Duration, retry_period: Duration },
    /// The Lease would be renewed in a busy loop.
    #[error("the retry period must be above 0: the default is 2s")]
    NoRetryPeriod,
}

impl ElectionOptions {
    /// Checks the durations by client-go's rules.
    pub fn validate(&self) -> Result<(), ElectionError> {
        let Self { lease_duration, renew_deadline, retry_period, .. } = *self;
        if lease_duration <= renew_deadline {
            return Err(ElectionError::RenewDeadlineTooLong { lease_duration, renew_deadline });
        }
        if renew_deadline <= retry_period.mul_f64(1.2) {
            return Err(ElectionError::RetryPeriodTooLong { renew_deadline, retry_period });
        }
        if retry_period.is_zero() {
            return Err(ElectionError::NoRetryPeriod);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_that_allow_two_leaders_are_rejected() {
        let options = |lease, deadline, retry| ElectionOptions {
            name: "lease".into(),
            namespace: "ns".into(),
            identity: "a".into(),
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(deadline),
            retry_period: Duration::from_millis(retry),
        };
        assert_eq!(options(15_000, 10_000, 2_000).validate(), Ok(()));
        for (lease, deadline, retry, words) in [
            (10_000, 10_000, 2_000, "longer than the renew deadline"),
            (15_000, 2_400, 2_000, "1.2 retry periods"),
            (15_000, 10_000, 0, "above 0"),
        ] {
            let message = options(lease, deadline, retry).validate().expect_err(words).to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}
