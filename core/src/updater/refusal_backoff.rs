//! What the server did not do when it was asked: the same is not asked again at once, and more seldom each time. Each try
//! is booked before it is made, so one in every pass would be two writes in vain a pass, for as long as a budget holds.

use std::time::Duration;

use crate::types::Time;

use super::{pod_status::PodOwner, skip_reason::SkipReason};

/// After the first time. Passes are a minute apart as a rule, so the next one still asks.
const INITIAL_BACKOFF: Duration = Duration::from_secs(30);
/// The longest. Whoever loosens a budget waits that long, at most, until it is seen.
const MAX_BACKOFF: Duration = Duration::from_mins(5);

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedRequest {
    /// That any pod of this controller is let go: one budget answers for all of them.
    EvictAnyOf(PodOwner),
    /// That this pod is evicted, by its uid.
    Evict(Box<str>),
    /// That this pod is resized, by its uid.
    Resize(Box<str>),
    /// That this controller gets a second replica.
    Surge(PodOwner),
}

#[derive(Clone, Debug, PartialEq)]
struct BackoffEntry {
    request: RefusedRequest,
    reason: SkipReason,
    failures: u32,
    until: Time,
}

/// What is not asked for now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RefusalBackoff(Vec<BackoffEntry>);

impl RefusalBackoff {
    /// It was asked for, and was not done.
    pub fn record_refusal(&mut self, asked: RefusedRequest, why: SkipReason, now: Time) {
        let at = self.0.iter().position(|rest| rest.request == asked);
        let times = at.map_or(0, |at| self.0.swap_remove(at).failures.saturating_add(1));
        let until = now.later(INITIAL_BACKOFF.saturating_mul(1 << times.min(8)).min(MAX_BACKOFF));
        self.0.push(BackoffEntry { request: asked, reason: why, failures: times, until });
    }

    /// It was done.
    pub fn reset(&mut self, asked: &RefusedRequest) {
        self.0.retain(|rest| rest.request != *asked);
    }

    /// Why it is not asked for now, if it is not.
    pub fn reason_for(&self, asked: &RefusedRequest, now: Time) -> Option<&SkipReason> {
        let rest = self.0.iter().find(|rest| rest.request == *asked)?;
        (rest.until > now).then_some(&rest.reason)
    }

    /// Forgets what was not asked for again for long.
    pub fn prune(&mut self, now: Time) {
        self.0.retain(|rest| rest.until.later(MAX_BACKOFF) > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_asked_more_seldom_each_time_until_it_is_done() {
        let mut now = Time::from_secs(1_000_000);
        let mut rests = RefusalBackoff::default();
        let asked =
            RefusedRequest::EvictAnyOf(PodOwner { kind: "ReplicaSet".into(), name: "web".into() });
        assert_eq!(rests.reason_for(&asked, now), None);
        for seconds in [30, 60, 120, 240, 300, 300] {
            rests.record_refusal(asked.clone(), SkipReason::DisruptionBudget, now);
            let until = now.later(Duration::from_secs(seconds));
            let early = until.earlier(Duration::from_secs(1));
            assert_eq!(
                rests.reason_for(&asked, early),
                Some(&SkipReason::DisruptionBudget),
                "{seconds}"
            );
            assert_eq!(rests.reason_for(&asked, until), None, "{seconds}");
            assert_eq!(rests.reason_for(&RefusedRequest::Evict("a".into()), early), None);
            now = until;
        }
        rests.prune(now);
        rests.record_refusal(asked.clone(), SkipReason::DisruptionBudget, now);
        assert!(
            rests.reason_for(&asked, now.later(Duration::from_secs(299))).is_some(),
            "it counts on"
        );
        rests.reset(&asked);
        assert_eq!(rests, RefusalBackoff::default());
        rests.record_refusal(asked, SkipReason::Failed, now);
        rests.prune(now.later(INITIAL_BACKOFF).later(MAX_BACKOFF));
        assert_eq!(rests, RefusalBackoff::default(), "that was long ago");
    }
}
