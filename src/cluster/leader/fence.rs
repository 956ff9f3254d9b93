//! The fence: whether this process may write at this moment.

use std::{sync::Arc, time::Duration};

use plimsoll_core::types::Time;
use plimsoll_storage::NotLeader;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::clock::Clock;

/// By how much more than monotonic time the wall clock may have moved since the lease was renewed. A machine that is
/// suspended stops the one and, once it runs again, moves on the other.
const MAX_CLOCK_JUMP: Duration = Duration::from_secs(1);

/// Both clocks of the machine at one moment. The monotonic one is the real one on virtual time too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clocks {
    monotonic: std::time::Instant,
    wall: Time,
}

impl Clocks {
    pub fn now() -> Self {
        Self { monotonic: std::time::Instant::now(), wall: Clock::wall().now() }
    }

    /// How long the machine seems to have been suspended from then till now, if it was.
    fn suspended_until(self, now: Self) -> Option<Duration> {
        let passed = now.monotonic.saturating_duration_since(self.monotonic);
        // A clock that was put back says nothing.
        let moved = u64::try_from(now.wall.nanos_since(self.wall)).ok()?;
        let jump = Duration::from_nanos(moved).saturating_sub(passed);
        Some(jump).filter(|jump| *jump > MAX_CLOCK_JUMP)
    }
}

/// Says whether this process may write now. Clones are the same fence.
///
/// It looks at the clock whenever it is asked and not only when something happens: a process that was
/// frozen past the end of its lease finds that out before its next write, not after its next renewal. While a machine is
/// suspended its monotonic clock stands still, so the wall clock is looked at as well: where it has moved on by more, the fence
/// is closed until the next renewal.
#[derive(Clone, Debug)]
pub struct Fence {
    state: Arc<watch::Sender<State>>,
}

/// One time of holding the fence, from gaining it to losing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    grant: Grant,
    /// How often it was gained: it may be lost and gained again while nobody looks.
    term: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grant {
    /// There is no election.
    Always,
    /// The end of what the lease gives, and when it was renewed.
    Instant(Instant, Clocks),
    /// Not ours.
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
    /// One that lets every write through: there is no election.
    pub fn open() -> Self {
        Self::new(Grant::Always)
    }

    /// One that lets no write through until it is held.
    pub fn closed() -> Self {
        Self::new(Grant::Revoked)
    }

    fn new(until: Grant) -> Self {
        Self { state: Arc::new(watch::Sender::new(State { grant: until, term: 0 })) }
    }

    /// Lets writes through until then, of the machine's monotonic time.
    pub fn grant_until(&self, end: Instant) {
        self.grant_since(Clocks::now(), end);
    }

    /// The same, by a lease that was renewed after the clocks stood there: the machine may have been suspended since.
    pub(super) fn grant_since(&self, renewed: Clocks, end: Instant) {
        self.state.send_modify(|state| {
            state.term += u64::from(!state.grant.is_valid());
            state.grant = Grant::Instant(end, renewed);
        });
    }

    /// Lets no more writes through.
    pub fn revoke(&self) {
        self.state.send_modify(|state| state.grant = Grant::Revoked);
    }

    /// Whether a write may begin now.
    pub fn is_granted(&self) -> bool {
        self.term().is_some()
    }

    /// The term in which writes may begin now, if they may.
    pub fn term(&self) -> Option<Term> {
        let state = *self.state.borrow();
        state.grant.is_valid().then_some(Term(state.term))
    }

    /// As [`Fence::is_held`], with the reason.
    pub fn check(&self) -> Result<(), NotLeader> {
        let until = self.state.borrow().grant;
        match until {
            _ if until.is_valid() => Ok(()),
            Grant::Instant(end, renewed) => {
                Err(NotLeader(match renewed.suspended_until(Clocks::now()) {
                    Some(jump) if Instant::now() < end => format!(
                        "the machine was suspended for {} ms, or its clock was set forward, since the lease was renewed",
                        jump.as_millis()
                    ),
                    _ => format!(
                        "the lease ran out {} ms ago and was not renewed",
                        end.elapsed().as_millis()
                    ),
                }))
            }
            Grant::Always | Grant::Revoked => {
                Err(NotLeader("another process holds the lease, or none".into()))
            }
        }
    }

    /// Returns once writes may begin, and in which term.
    pub async fn acquired(&self) -> Term {
        let mut changes = self.state.subscribe();
        loop {
            // The sender lives as long as `self`, so this cannot fail.
            let _ = changes.wait_for(|state| state.grant.is_valid()).await;
            // It may have run out since.
            if let Some(term) = self.term() {
                return term;
            }
        }
    }

    /// Returns once that term is over, be it given up or run out, and even if another one has begun since.
    pub async fn revoked(&self, term: Term) {
        let mut changes = self.state.subscribe();
        loop {
            let State { grant: until, term: now } = *changes.borrow_and_update();
            let end = match until {
                _ if now != term.0 || !until.is_valid() => return,
                Grant::Instant(end, _) => Some(end),
                Grant::Always | Grant::Revoked => None,
            };
            let runs_out = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = runs_out => {}
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
    fn a_fence_is_held_until_its_end_and_no_longer() {
        let now = Instant::now();
        let fence = Fence::closed();
        assert!(fence.check().is_err());
        fence.clone().grant_until(now + Duration::from_hours(1));
        assert_eq!(fence.check(), Ok(()), "a clone is the same fence");
        // What a process finds that was frozen past the end: nobody told it, time just passed.
        fence.grant_until(now);
        let refusal = fence.check().expect_err("it ran out");
        assert!(refusal.to_string().contains("ran out"), "{refusal}");
        assert!(!fence.is_granted());
        fence.revoke();
        assert!(!fence.is_granted());
        assert!(Fence::open().is_granted());
    }

    #[test]
    fn a_machine_that_was_suspended_holds_no_fence_over_it() {
        let renewed = Clocks::now();
        let after = |monotonic, wall| Clocks {
            monotonic: renewed.monotonic + Duration::from_millis(monotonic),
            wall: renewed.wall.later(Duration::from_millis(wall)),
        };
        for (monotonic, wall, suspended) in [
            (0, 0, None),
            (8_000, 8_000, None),
            // A clock that is corrected a little at a time.
            (8_000, 8_900, None),
            (8_000, 2_000, None),
            (8_000, 9_001, Some(1_001)),
            (10, 60_010, Some(60_000)),
        ] {
            let found = renewed.suspended_until(after(monotonic, wall));
            assert_eq!(found, suspended.map(Duration::from_millis), "{monotonic} {wall}");
        }
        let set_back = Clocks { wall: renewed.wall.earlier(Duration::from_hours(1)), ..renewed };
        assert_eq!(renewed.suspended_until(set_back), None);

        let fence = Fence::closed();
        let end = Instant::now() + Duration::from_hours(1);
        let before = Clocks { wall: renewed.wall.earlier(Duration::from_mins(1)), ..renewed };
        fence.state.send_modify(|state| state.grant = Grant::Instant(end, before));
        let refusal = fence.check().expect_err("it was suspended").to_string();
        assert!(!fence.is_granted() && refusal.contains("suspended"), "{refusal}");
        fence.grant_until(end);
        assert_eq!(fence.check(), Ok(()), "a renewal shows that the lease is still there");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_hears_of_holding_releasing_and_running_out() {
        let fence = Fence::closed();
        let (held, other) = (fence.clone(), fence.clone());
        let waits = tokio::spawn(async move { held.acquired().await });
        let end = Instant::now() + Duration::from_secs(10);
        other.grant_until(end);
        let term = waits.await.expect("held");
        fence.revoked(term).await;
        assert_eq!(Instant::now(), end, "neither sooner nor later");
        assert!(!fence.is_granted(), "it ran out by itself");
        fence.grant_until(Instant::now() + Duration::from_hours(1));
        let term = fence.acquired().await;
        let waits = tokio::spawn(async move { other.revoked(term).await });
        fence.revoke();
        waits.await.expect("lost");
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_that_ended_is_over_even_if_another_began_before_anybody_looked() {
        let fence = Fence::closed();
        let hour = Duration::from_hours(1);
        fence.grant_until(Instant::now() + hour);
        let first = fence.acquired().await;
        fence.grant_until(Instant::now() + hour);
        assert_eq!(fence.term(), Some(first), "a renewal begins no term");
        fence.revoke();
        assert_eq!(fence.term(), None);
        fence.grant_until(Instant::now() + hour);
        fence.revoked(first).await;
        let second = fence.acquired().await;
        assert_ne!(second, first);
        tokio::time::sleep(2 * hour).await;
        fence.grant_until(Instant::now() + hour);
        fence.revoked(second).await;
        assert_ne!(fence.acquired().await, second, "one that ran out is over as well");
    }
}
