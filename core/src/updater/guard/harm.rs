//! How well pods are, and whether those that were changed are worse off than pods were before.

use std::{fmt, time::Duration};

use crate::types::Time;
use serde::{Deserialize, Serialize};

use super::super::life::{Life, Phase};

/// How many of some pods are in which trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// All of them.
    pub pods: u32,
    /// Not started for too long.
    pub pending: u32,
    /// Not ready for too long.
    pub unready: u32,
    /// Restarted.
    pub restarting: u32,
    /// Killed for their memory.
    pub out_of_memory: u32,
    /// Wanted, and not there.
    pub missing: u32,
}

/// What became worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Harm {
    /// Containers are killed for their memory.
    OutOfMemory,
    /// Containers are restarted.
    Restarting,
    /// Pods find no node.
    Pending,
    /// Pods do not get ready.
    Unready,
    /// No pod takes the place of one that was evicted.
    Missing,
    /// New pods are as the old ones were.
    NotApplied,
}

impl Harm {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::OutOfMemory,
        Self::Restarting,
        Self::Pending,
        Self::Unready,
        Self::Missing,
        Self::NotApplied,
    ];

    /// The word for it, the same in metrics, conditions, events and explanations.
    pub const fn word(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out_of_memory",
            Self::Restarting => "restarting",
            Self::Pending => "pending",
            Self::Unready => "unready",
            Self::Missing => "missing",
            Self::NotApplied => "not_applied",
        }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OutOfMemory => "pods that were changed are killed for their memory",
            Self::Restarting => "pods that were changed are restarted",
            Self::Pending => "pods that were changed find no node",
            Self::Unready => "pods that were changed do not get ready",
            Self::Missing => "no pods take the place of those that were evicted",
            Self::NotApplied => "new pods do not get what is recommended",
        })
    }
}

/// What is asked of a pod.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// What became of it.
    pub life: &'a Life,
    /// Since when its troubles count.
    pub since: Time,
    /// Restarts that do not count.
    pub restarts: u32,
}

impl Condition {
    /// Of these pods.
    pub fn of<'a>(
        pods: impl IntoIterator<Item = Watched<'a>>,
        ready_within: Duration,
        now: Time,
    ) -> Self {
        let mut found = Self::default();
        for Watched { life, since, restarts } in pods {
            let long_ago = |from: Time| from.max(since).later(ready_within) <= now;
            let is_pending = life.phase == Phase::Pending;
            let ended = life
                .containers
                .iter()
                .any(|one| one.last_ending.is_some_and(|ending| ending.finished >= since));
            let restarted = life.restarts() > restarts && ended;
            let backing_off = life.containers.iter().any(|one| one.backing_off);
            found.pods += 1;
            found.pending += u32::from(is_pending && long_ago(life.created));
            found.unready += u32::from(!is_pending && life.unready_since().is_some_and(long_ago));
            found.out_of_memory += u32::from(life.ran_out_of_memory_since(since));
            found.restarting += u32::from(backing_off || restarted);
        }
        found
    }

    /// Pods in trouble of a kind.
    pub fn in_trouble(&self, harm: Harm) -> u32 {
        match harm {
            Harm::OutOfMemory => self.out_of_memory,
            Harm::Restarting => self.restarting,
            Harm::Pending => self.pending,
            Harm::Unready => self.unready,
            Harm::Missing => self.missing,
            Harm::NotApplied => 0,
        }
    }

    /// What is worse than before, with so large a share of the pods allowed to be.
    pub fn worse_than(&self, before: &Self, share: f64) -> Option<Harm> {
        let allowed = (f64::from(self.pods) * share) as u32;
        Harm::ALL.into_iter().find(|harm| {
            let expected = match harm {
                Harm::Missing => before.missing,
                _ if before.pods == 0 => 0,
                _ => {
                    let part = u64::from(before.in_trouble(*harm)) * u64::from(self.pods);
                    part.div_ceil(u64::from(before.pods)) as u32
                }
            };
            self.in_trouble(*harm) > expected.saturating_add(allowed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::updater::life::{ContainerLife, Ending, Readiness};

    const NOW: Time = Time::from_secs(1_000_000);
    const GRACE: Duration = Duration::from_mins(10);

    fn ago(minutes: u64) -> Time {
        NOW.earlier(Duration::from_mins(minutes))
    }

    fn of(life: &Life, since: Time, restarts: u32) -> Condition {
        Condition::of([Watched { life, since, restarts }], GRACE, NOW)
    }

    #[test]
    fn each_trouble_counts_when_it_lasts_and_when_it_is_of_late() {
        let ready =
            Life { readiness: Readiness::Ready(ago(30)), created: ago(60), ..Life::default() };
        assert_eq!(of(&ready, ago(5), 0), Condition { pods: 1, ..Condition::default() });
        let pending = Life { phase: Phase::Pending, created: ago(11), ..Life::default() };
        assert_eq!(of(&pending, ago(20), 0).pending, 1);
        assert_eq!(of(&pending, ago(9), 0).pending, 0, "it was changed only a moment ago");
        let unready = Life { readiness: Readiness::Unready(ago(11)), ..ready.clone() };
        assert_eq!(of(&unready, ago(20), 0).unready, 1);
        let ending = |out_of_memory, minutes| ContainerLife {
            restarts: 2,
            last_ending: Some(Ending { out_of_memory, started: ago(70), finished: ago(minutes) }),
            ..ContainerLife::default()
        };
        let killed = Life { containers: vec![ending(true, 10)], ..ready.clone() };
        assert_eq!(of(&killed, ago(20), 2).out_of_memory, 1);
        assert_eq!(of(&killed, ago(5), 0).out_of_memory, 0, "that was before");
        assert_eq!(of(&killed, ago(20), 1).restarting, 1);
        assert_eq!(of(&killed, ago(20), 2).restarting, 0, "these were counted before");
        let backing_off = ContainerLife { backing_off: true, ..ContainerLife::default() };
        let crashing = Life { containers: vec![backing_off], ..ready };
        assert_eq!(of(&crashing, ago(5), 9).restarting, 1);
    }

    #[test]
    fn worse_is_what_more_pods_have_than_had_before() {
        let pods = |pods, unready| Condition { pods, unready, ..Condition::default() };
        for (before, after, share, expected) in [
            (pods(10, 0), pods(1, 1), 0.1, Some(Harm::Unready)),
            (pods(10, 0), pods(10, 1), 0.1, None),
            (pods(10, 0), pods(10, 2), 0.1, Some(Harm::Unready)),
            (pods(10, 5), pods(1, 1), 0.1, None),
            (pods(10, 5), pods(10, 6), 0.1, None),
            (pods(10, 5), pods(10, 7), 0.1, Some(Harm::Unready)),
            (pods(0, 0), pods(0, 0), 0.1, None),
        ] {
            assert_eq!(after.worse_than(&before, share), expected, "{before:?} {after:?}");
        }
        let missing = Condition { missing: 1, ..Condition::default() };
        assert_eq!(missing.worse_than(&pods(3, 0), 0.1), Some(Harm::Missing));
        assert_eq!(missing.worse_than(&missing, 0.1), None);
    }
}
