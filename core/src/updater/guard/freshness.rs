//! Whether what would be acted on is fresh: the recommender's heartbeat, and the admission controller's Lease.

use std::{str::FromStr, time::Duration};

use crate::types::Time;

use super::super::skip_reason::SkipReason;

/// `--recommender-heartbeat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeartbeatPolicy {
    /// Where there is one, it must be fresh.
    #[default]
    Auto,
    /// There must be one, and it must be fresh.
    Require,
    /// It is not looked at.
    Ignore,
}

impl FromStr for HeartbeatPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "require" => Ok(Self::Require),
            "ignore" => Ok(Self::Ignore),
            other => Err(format!("`{other}` is none of `auto`, `require`, `ignore`")),
        }
    }
}

/// What was seen of the recommender's heartbeat. Whether it changed in time is told by whoever watches it, on a clock
/// of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecommenderHeartbeat {
    /// It changed in time.
    Fresh {
        /// Whether the history behind the recommendations was read.
        history_loaded: bool,
    },
    /// It is there and does not change.
    Stale,
    /// There is none: a recommender of upstream's, or one that may not write it.
    Absent,
    /// It cannot be read.
    Unknown,
    /// It was not watched long enough to tell.
    NotYetObserved,
}

/// Whether recommendations may be acted on.
pub fn ensure_fresh(
    heartbeat: RecommenderHeartbeat,
    rule: HeartbeatPolicy,
) -> Result<(), SkipReason> {
    match (rule, heartbeat) {
        (HeartbeatPolicy::Ignore, _)
        | (_, RecommenderHeartbeat::Fresh { history_loaded: true })
        | (HeartbeatPolicy::Auto, RecommenderHeartbeat::Absent) => Ok(()),
        (_, RecommenderHeartbeat::Fresh { history_loaded: false }) => {
            Err(SkipReason::HistoryNotLoaded)
        }
        (_, RecommenderHeartbeat::Stale) => Err(SkipReason::RecommendationsStale),
        (_, RecommenderHeartbeat::Absent | RecommenderHeartbeat::Unknown) => {
            Err(SkipReason::HeartbeatUnknown)
        }
        (_, RecommenderHeartbeat::NotYetObserved) => Err(SkipReason::HeartbeatAwaited),
    }
}

/// What was seen of the admission controller's status Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionLeaseStatus {
    /// Nobody asks (`--use-admission-controller-status=false`).
    Ignored,
    /// The Lease, as it was read.
    Lease {
        /// When it was made.
        created: Option<Time>,
        /// When it was renewed last.
        renewed: Option<Time>,
        /// Whether anybody holds it. Upstream's are made by their holder; those that manifests make are nobody's at first.
        is_held: bool,
    },
    /// It could not be read, or is not there.
    Unreadable,
}

impl AdmissionLeaseStatus {
    /// Whether new pods will be sized, as upstream decides it: a Lease that its holder has just made counts as renewed.
    pub fn is_ready(self, now: Time, timeout: Duration) -> bool {
        match self {
            Self::Ignored => true,
            Self::Unreadable => false,
            Self::Lease { created, renewed, is_held } => {
                let created = created.filter(|_| is_held);
                created.into_iter().chain(renewed).any(|seen| seen.later(timeout) > now)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fresh_recommendations_with_history_are_acted_on() {
        use RecommenderHeartbeat::{Absent, Fresh, NotYetObserved, Stale, Unknown};
        let (loaded, loading) = (Fresh { history_loaded: true }, Fresh { history_loaded: false });
        for (heartbeat, auto, require) in [
            (loaded, None, None),
            (loading, Some(SkipReason::HistoryNotLoaded), Some(SkipReason::HistoryNotLoaded)),
            (Stale, Some(SkipReason::RecommendationsStale), Some(SkipReason::RecommendationsStale)),
            (Absent, None, Some(SkipReason::HeartbeatUnknown)),
            (Unknown, Some(SkipReason::HeartbeatUnknown), Some(SkipReason::HeartbeatUnknown)),
            (
                NotYetObserved,
                Some(SkipReason::HeartbeatAwaited),
                Some(SkipReason::HeartbeatAwaited),
            ),
        ] {
            assert_eq!(ensure_fresh(heartbeat, HeartbeatPolicy::Auto).err(), auto, "{heartbeat:?}");
            assert_eq!(
                ensure_fresh(heartbeat, HeartbeatPolicy::Require).err(),
                require,
                "{heartbeat:?}"
            );
            assert_eq!(ensure_fresh(heartbeat, HeartbeatPolicy::Ignore), Ok(()), "{heartbeat:?}");
        }
    }

    /// Section 6.12, Lease.
    #[test]
    fn a_lease_counts_when_it_was_made_or_renewed_within_the_time() {
        let (now, timeout) = (Time::from_secs(10_000), Duration::from_secs(10));
        let (new, old) = (Some(now), Some(now.earlier(Duration::from_mins(1))));
        for (created, renewed, expected) in
            [(new, None, true), (old, None, false), (old, new, true), (old, old, false)]
        {
            let lease = AdmissionLeaseStatus::Lease { created, renewed, is_held: true };
            assert_eq!(lease.is_ready(now, timeout), expected, "{lease:?}");
        }
        for (renewed, expected) in [(None, false), (old, false), (new, true)] {
            let lease = AdmissionLeaseStatus::Lease { created: new, renewed, is_held: false };
            assert_eq!(lease.is_ready(now, timeout), expected, "{lease:?}");
        }
        assert!(!AdmissionLeaseStatus::Unreadable.is_ready(now, timeout));
        assert!(AdmissionLeaseStatus::Ignored.is_ready(now, timeout));
    }
}
