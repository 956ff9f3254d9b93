//! Exponential backoff of requests that the API server refused. The state is persisted before each attempt and reverted
//! after it, so without backoff a blocked eviction would cost two useless writes in every pass.

use std::time::Duration;

use crate::types::Time;

use super::{pod_status::PodOwner, skip_reason::SkipReason};

/// Backoff after the first refusal. Passes are usually a minute apart, so the next pass retries.
const INITIAL_BACKOFF: Duration = Duration::from_secs(30);
/// Maximum backoff. A relaxed PodDisruptionBudget takes effect after this time at the latest.
const MAX_BACKOFF: Duration = Duration::from_mins(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedRequest {
    /// Eviction of any pod of this controller: one PodDisruptionBudget covers all of them.
    EvictAnyOf(PodOwner),
    /// Eviction of a pod, by uid.
    Evict(Box<str>),
    /// Resize of a pod, by uid.
    Resize(Box<str>),
    /// A second replica of this controller.
    Surge(PodOwner),
}

/// Returns the requests that make up an eviction of this pod.
pub fn eviction_requests(
    uid: &str,
    owner: Option<&PodOwner>,
) -> impl Iterator<Item = RefusedRequest> + use<> {
    let any_of_owner = owner.map(|owner| RefusedRequest::EvictAnyOf(owner.clone()));
    any_of_owner.into_iter().chain([RefusedRequest::Evict(uid.into())])
}

#[derive(Clone, Debug, PartialEq)]
struct BackoffEntry {
    request: RefusedRequest,
    reason: SkipReason,
    failures: u32,
    until: Time,
}

/// The refused requests that are backed off.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RefusalBackoff(Vec<BackoffEntry>);

impl RefusalBackoff {
    pub fn record_refusal(&mut self, request: RefusedRequest, reason: SkipReason, now: Time) {
        let at = self.0.iter().position(|entry| entry.request == request);
        let failures = at.map_or(0, |at| self.0.swap_remove(at).failures.saturating_add(1));
        let backoff = INITIAL_BACKOFF.saturating_mul(1 << failures.min(8)).min(MAX_BACKOFF);
        let until = now.later(backoff);
        self.0.push(BackoffEntry { request, reason, failures, until });
    }

    /// Removes the backoff of a request that succeeded.
    pub fn reset(&mut self, request: &RefusedRequest) {
        self.0.retain(|entry| entry.request != *request);
    }

    /// Returns why a request is backed off now; `None` if it is not.
    pub fn reason_for(&self, request: &RefusedRequest, now: Time) -> Option<&SkipReason> {
        let entry = self.0.iter().find(|entry| entry.request == *request)?;
        (entry.until > now).then_some(&entry.reason)
    }

    /// Removes requests that were not retried for a long time.
    pub fn prune(&mut self, now: Time) {
        self.0.retain(|entry| entry.until.later(MAX_BACKOFF) > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_request_backs_off_until_it_succeeds() {
        let mut now = Time::from_secs(1_000_000);
        let mut backoff = RefusalBackoff::default();
        let request =
            RefusedRequest::EvictAnyOf(PodOwner { kind: "ReplicaSet".into(), name: "web".into() });
        assert_eq!(backoff.reason_for(&request, now), None);
        for seconds in [30, 60, 120, 240, 300, 300] {
            backoff.record_refusal(request.clone(), SkipReason::DisruptionBudget, now);
            let until = now.later(Duration::from_secs(seconds));
            let early = until.earlier(Duration::from_secs(1));
            assert_eq!(
                backoff.reason_for(&request, early),
                Some(&SkipReason::DisruptionBudget),
                "{seconds}"
            );
            assert_eq!(backoff.reason_for(&request, until), None, "{seconds}");
            assert_eq!(backoff.reason_for(&RefusedRequest::Evict("a".into()), early), None);
            now = until;
        }
        backoff.prune(now);
        backoff.record_refusal(request.clone(), SkipReason::DisruptionBudget, now);
        assert!(
            backoff.reason_for(&request, now.later(Duration::from_secs(299))).is_some(),
            "it keeps counting"
        );
        backoff.reset(&request);
        assert_eq!(backoff, RefusalBackoff::default());
        backoff.record_refusal(request, SkipReason::Failed, now);
        backoff.prune(now.later(INITIAL_BACKOFF).later(MAX_BACKOFF));
        assert_eq!(backoff, RefusalBackoff::default(), "that was long ago");
    }
}
