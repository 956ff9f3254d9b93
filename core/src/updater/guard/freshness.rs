//! Freshness of the recommender's heartbeat and of the admission controller's Lease.

use std::time::Duration;

use strum::EnumString;

use crate::types::Time;

use super::super::skip_reason::SkipReason;

/// `--recommender-heartbeat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = String, parse_err_fn = unknown_policy)]
pub enum HeartbeatPolicy {
    /// A heartbeat must be fresh if there is one.
    #[default]
    Auto,
    /// There must be a fresh heartbeat.
    Require,
    Ignore,
}

fn unknown_policy(text: &str) -> String {
    format!("invalid value `{text}`; use auto, require or ignore")
}

/// The observed state of the recommender's heartbeat. The observer decides whether it was renewed in time, by its own
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecommenderHeartbeat {
    /// It was renewed in time.
    Fresh { history_loaded: bool },
    /// It exists but was not renewed.
    Stale,
    /// It does not exist: the recommender is upstream's, or is not allowed to write it.
    Absent,
    /// It could not be read.
    Unknown,
    /// It was not observed for long enough.
    NotYetObserved,
}

/// Returns an error if the recommendations are too old to act on.
pub fn ensure_fresh(
    heartbeat: RecommenderHeartbeat,
    policy: HeartbeatPolicy,
) -> Result<(), SkipReason> {
    match (policy, heartbeat) {
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

/// Whether new pods will be sized by the status Lease of the admission controller, as upstream decides it: a held Lease that
/// was just created counts as renewed. Upstream's Lease is created by its holder; one from a manifest has none at first.
pub fn is_admission_ready(
    created: Option<Time>,
    renewed: Option<Time>,
    is_held: bool,
    timeout: Duration,
    now: Time,
) -> bool {
    let created = created.filter(|_| is_held);
    created.into_iter().chain(renewed).any(|seen| seen.later(timeout) > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_require_fresh_recommendations_with_history() {
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
    fn a_lease_is_ready_if_created_or_renewed_within_the_timeout() {
        let (now, timeout) = (Time::from_secs(10_000), Duration::from_secs(10));
        let (new, old) = (Some(now), Some(now.earlier(Duration::from_mins(1))));
        for (created, renewed, expected) in
            [(new, None, true), (old, None, false), (old, new, true), (old, old, false)]
        {
            let is_ready = is_admission_ready(created, renewed, true, timeout, now);
            assert_eq!(is_ready, expected, "{created:?} {renewed:?}");
        }
        for (renewed, expected) in [(None, false), (old, false), (new, true)] {
            let is_ready = is_admission_ready(new, renewed, false, timeout, now);
            assert_eq!(is_ready, expected, "{renewed:?}");
        }
    }
}
