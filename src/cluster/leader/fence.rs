//! The fence: whether this process may write now.

use std::{sync::Arc, time::Duration};

use plimsoll_core::types::Time;
use plimsoll_storage::NotLeader;
use tokio::{sync::watch, time::Instant};

use crate::cluster::clock::Clock;

/// How much further than the monotonic clock the wall clock may have advanced since the Lease was renewed. While a
/// machine is suspended its monotonic clock stops; the wall clock is ahead once it resumes.
const MAX_CLOCK_JUMP: Duration = Duration::from_secs(1);

/// Both clocks of the machine at one moment. With tokio's paused time, `monotonic` is still the real clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clocks {
    monotonic: std::time::Instant,
    wall: Time,
}

impl Clocks {
    pub fn now() -> Self {
        Self { monotonic: std::time::Instant::now(), wall: Clock::wall().now() }
    }

    /// How long the machine seems to have been suspended between `self` and `now`; `None` if it was not.
    fn suspended_until(self, now: Self) -> Option<Duration> {
        let passed = now.monotonic.saturating_duration_since(self.monotonic);
        // A clock that was set back proves nothing.
        let moved = u64::try_from(now.wall.nanos_since(self.wall)).ok()?;
        let jump = Duration::from_nanos(moved).saturating_sub(passed);
        Some(jump).filter(|jump| *jump > MAX_CLOCK_JUMP)
    }
}

/// Whether this process may write now. Clones share the same state.
///
/// Each check reads the clock: a process that was frozen past the expiry of its Lease notices before its next write, not
/// after its next renewal. While a machine is suspended its monotonic clock stops, so the wall clock is compared too: if it
/// has advanced further, the fence is closed until the next renewal.
#[derive(Clone, Debug)]
pub struct Fence {
    state: Arc<watch::Sender<State>>,
}

/// One period of leadership, from a grant to its revocation or expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    grant: Grant,
    /// The number of grants: the fence may be revoked and granted again between two reads.
    term: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grant {
    /// Without an election.
    Always,
    /// The expiry of the grant, and when the Lease was renewed.
    Instant(Instant, Clocks),
    Revoked,
}

impl Grant {
    fn is_valid(self) -> bool {
        match self {
            Self::Always => true,
            Self::Instant(end, renewed) => {
                Instant::now() < end && renewed.suspended_until(Clocks::now()).is_none()
            }
            Self::Revoked => false,
        }
    }
}

impl Fence {
    /// A fence that always permits writes, for a process without an election.
    pub fn open() -> Self {
        Self::new(Grant::Always)
    }

    /// A fence that permits no writes until it is granted.
    pub fn closed() -> Self {
        Self::new(Grant::Revoked)
    }

    fn new(grant: Grant) -> Self {
        Self { state: Arc::new(watch::Sender::new(State { grant, term: 0 })) }
    }

    /// Permits writes until `end`, by the machine's monotonic clock.
    pub fn grant_until(&self, end: Instant) {
        self.grant_since(Clocks::now(), end);
    }

    /// Like [`Self::grant_until`], for a Lease that was renewed at `renewed`: the machine may have been suspended since.
    pub(super) fn grant_since(&self, renewed: Clocks, end: Instant) {
        self.state.send_modify(|state| {
            state.term += u64::from(!state.grant.is_valid());
            state.grant = Grant::Instant(end, renewed);
        });
    }

    /// Permits no more writes.
    pub fn revoke(&self) {
        self.state.send_modify(|state| state.grant = Grant::Revoked);
    }

    pub fn is_granted(&self) -> bool {
        self.term().is_some()
    }

    /// The current term; `None` if no write may start now.
    pub fn term(&self) -> Option<Term> {
        let state = *self.state.borrow();
        state.grant.is_valid().then_some(Term(state.term))
    }

    /// Like [`Fence::is_granted`], with the reason.
    pub fn check(&self) -> Result<(), NotLeader> {
        let grant = self.state.borrow().grant;
        match grant {
            _ if grant.is_valid() => Ok(()),
            Grant::Instant(end, renewed) => {
                Err(NotLeader(match renewed.suspended_until(Clocks::now()) {
                    Some(jump) if Instant::now() < end => format!(
                        "machine was suspended for {} ms, or its clock set forward, since the leader Lease was renewed",
                        jump.as_millis()
                    ),
                    _ => format!(
                        "the leader Lease expired {} ms ago and was not renewed",
                        end.elapsed().as_millis()
                    ),
                }))
            }
            Grant::Always | Grant::Revoked => {
                Err(NotLeader("this process does not hold the leader Lease".into()))
            }
        }
    }

    /// Waits until writes may start, and returns the term.
    pub async fn acquired(&self) -> Term {
        let mut changes = self.state.subscribe();
        loop {
            // The sender lives as long as `self`, so this cannot fail.
            let _ = changes.wait_for(|state| state.grant.is_valid()).await;
            // The grant may have expired since.
            if let Some(term) = self.term() {
                return term;
            }
        }
    }

    /// Returns once that term has ended, by revocation or expiry, even if another term has begun since.
    pub async fn revoked(&self, term: Term) {
        let mut changes = self.state.subscribe();
        loop {
            let State { grant, term: current_term } = *changes.borrow_and_update();
            let end = match grant {
                _ if current_term != term.0 || !grant.is_valid() => return,
                Grant::Instant(end, _) => Some(end),
                Grant::Always | Grant::Revoked => None,
            };
            let expired = tokio::time::sleep_until(end.unwrap_or_else(Instant::now));
            tokio::select! {
                () = expired, if end.is_some() => {}
                _ = changes.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fence_is_granted_until_its_end() {
        let now = Instant::now();
        let fence = Fence::closed();
        assert!(fence.check().is_err());
        fence.clone().grant_until(now + Duration::from_hours(1));
        assert_eq!(fence.check(), Ok(()), "a clone is the same fence");
        // As for a process that was frozen past the expiry: nothing was revoked, time just passed.
        fence.grant_until(now);
        let refusal = fence.check().expect_err("the grant expired");
        assert!(refusal.to_string().contains("expired"), "{refusal}");
        assert!(!fence.is_granted());
        fence.revoke();
        assert!(!fence.is_granted());
        assert!(Fence::open().is_granted());
    }

    #[test]
    fn a_suspended_machine_loses_its_fence() {
        let renewed = Clocks::now();
        let after = |monotonic, wall| Clocks {
            monotonic: renewed.monotonic + Duration::from_millis(monotonic),
            wall: renewed.wall.later(Duration::from_millis(wall)),
        };
        for (monotonic, wall, suspended) in [
            (0, 0, None),
            (8_000, 8_000, None),
            // A clock that is slewed.
            (8_000, 8_900, None),
            (8_000, 2_000, None),
            (8_000, 9_001, Some(1_001)),
            (10, 60_010, Some(60_000)),
        ] {
            let jump = renewed.suspended_until(after(monotonic, wall));
            assert_eq!(jump, suspended.map(Duration::from_millis), "{monotonic} {wall}");
        }
        let set_back = Clocks { wall: renewed.wall.earlier(Duration::from_hours(1)), ..renewed };
        assert_eq!(renewed.suspended_until(set_back), None);

        let fence = Fence::closed();
        let end = Instant::now() + Duration::from_hours(1);
        let before = Clocks { wall: renewed.wall.earlier(Duration::from_mins(1)), ..renewed };
        fence.state.send_modify(|state| state.grant = Grant::Instant(end, before));
        let refusal = fence.check().expect_err("the machine was suspended").to_string();
        assert!(!fence.is_granted() && refusal.contains("suspended"), "{refusal}");
        fence.grant_until(end);
        assert_eq!(fence.check(), Ok(()), "a renewal shows that the Lease is still held");
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_are_notified_of_granted_revoked_and_expired_fences() {
        let fence = Fence::closed();
        let (held, other) = (fence.clone(), fence.clone());
        let waits = tokio::spawn(async move { held.acquired().await });
        let end = Instant::now() + Duration::from_secs(10);
        other.grant_until(end);
        let term = waits.await.expect("held");
        fence.revoked(term).await;
        assert_eq!(Instant::now(), end, "exactly at the expiry");
        assert!(!fence.is_granted(), "the grant expired");
        fence.grant_until(Instant::now() + Duration::from_hours(1));
        let term = fence.acquired().await;
        let waits = tokio::spawn(async move { other.revoked(term).await });
        fence.revoke();
        waits.await.expect("lost");
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_term_is_over_even_if_another_began_unobserved() {
        let fence = Fence::closed();
        let hour = Duration::from_hours(1);
        fence.grant_until(Instant::now() + hour);
        let first = fence.acquired().await;
        fence.grant_until(Instant::now() + hour);
        assert_eq!(fence.term(), Some(first), "a renewal does not start a term");
        fence.revoke();
        assert_eq!(fence.term(), None);
        fence.grant_until(Instant::now() + hour);
        fence.revoked(first).await;
        let second = fence.acquired().await;
        assert_ne!(second, first);
        tokio::time::sleep(2 * hour).await;
        fence.grant_until(Instant::now() + hour);
        fence.revoked(second).await;
        assert_ne!(fence.acquired().await, second, "an expired term has ended as well");
    }
}
