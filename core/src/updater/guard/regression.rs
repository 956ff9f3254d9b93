//! How well pods are, and whether those that were changed are worse off than pods were before.

use std::{fmt, time::Duration};

use crate::types::Time;
use serde::{Deserialize, Serialize};

use super::super::pod_status::{Phase, PodStatus};

/// How many of some pods are in which trouble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
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
pub enum Regression {
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

impl Regression {
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
    pub const fn as_str(self) -> &'static str {
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

impl fmt::Display for Regression {
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
pub struct ObservedPod<'a> {
    /// What became of it.
    pub status: &'a PodStatus,
    /// Since when its troubles count.
    pub since: Time,
    /// Restarts that do not count.
    pub restarts: u32,
}

impl Health {
    /// Of these pods.
    pub fn count<'a>(
        pods: impl IntoIterator<Item = ObservedPod<'a>>,
        ready_within: Duration,
        now: Time,
    ) -> Self {
        let mut found = Self::default();
        for ObservedPod { status: life, since, restarts } in pods {
            let long_ago = |from: Time| from.max(since).later(ready_within) <= now;
            let is_pending = life.phase == Phase::Pending;
            let ended = life
                .containers
                .iter()
                .any(|one| one.last_termination.is_some_and(|ending| ending.finished >= since));
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
    pub fn affected_by(&self, harm: Regression) -> u32 {
        match harm {
            Regression::OutOfMemory => self.out_of_memory,
            Regression::Restarting => self.restarting,
            Regression::Pending => self.pending,
            Regression::Unready => self.unready,
            Regression::Missing => self.missing,
            Regression::NotApplied => 0,
        }
    }

    /// What is worse than before, with so large a share of the pods allowed to be.
    pub fn worse_than(&self, before: &Self, share: f64) -> Option<Regression> {
        let allowed = (f64::from(self.pods) * share) as u32;
        Regression::ALL.into_iter().find(|harm| {
            let expected = match harm {
                Regression::Missing => before.missing,
                _ if before.pods == 0 => 0,
                _ => {
                    let part = u64::from(before.affected_by(*harm)) * u64::from(self.pods);
                    part.div_ceil(u64::from(before.pods)) as u32
                }
            };
            self.affected_by(*harm) > expected.saturating_add(allowed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::updater::pod_status::{ContainerStatus, Readiness, Termination};

    const NOW: Time = Time::from_secs(1_000_000);
    const GRACE: Duration = Duration::from_mins(10);

    fn ago(minutes: u64) -> Time {
        NOW.earlier(Duration::from_mins(minutes))
    }

    fn of(life: &PodStatus, since: Time, restarts: u32) -> Health {
        Health::count([ObservedPod { status: life, since, restarts }], GRACE, NOW)
    }

    #[test]
    fn each_trouble_counts_when_it_lasts_and_when_it_is_of_late() {
        let ready = PodStatus {
            readiness: Readiness::Ready(ago(30)),
            created: ago(60),
            ..PodStatus::default()
        };
        assert_eq!(of(&ready, ago(5), 0), Health { pods: 1, ..Health::default() });
        let pending = PodStatus { phase: Phase::Pending, created: ago(11), ..PodStatus::default() };
        assert_eq!(of(&pending, ago(20), 0).pending, 1);
        assert_eq!(of(&pending, ago(9), 0).pending, 0, "it was changed only a moment ago");
        let unready = PodStatus { readiness: Readiness::Unready(ago(11)), ..ready.clone() };
        assert_eq!(of(&unready, ago(20), 0).unready, 1);
        let ending = |out_of_memory, minutes| ContainerStatus {
            restarts: 2,
            last_termination: Some(Termination {
                out_of_memory,
                started: ago(70),
                finished: ago(minutes),
            }),
            ..ContainerStatus::default()
        };
        let killed = PodStatus { containers: vec![ending(true, 10)], ..ready.clone() };
        assert_eq!(of(&killed, ago(20), 2).out_of_memory, 1);
        assert_eq!(of(&killed, ago(5), 0).out_of_memory, 0, "that was before");
        assert_eq!(of(&killed, ago(20), 1).restarting, 1);
        assert_eq!(of(&killed, ago(20), 2).restarting, 0, "these were counted before");
        let backing_off = ContainerStatus { backing_off: true, ..ContainerStatus::default() };
        let crashing = PodStatus { containers: vec![backing_off], ..ready };
        assert_eq!(of(&crashing, ago(5), 9).restarting, 1);
    }

    #[test]
    fn worse_is_what_more_pods_have_than_had_before() {
        let pods = |pods, unready| Health { pods, unready, ..Health::default() };
        for (before, after, share, expected) in [
            (pods(10, 0), pods(1, 1), 0.1, Some(Regression::Unready)),
            (pods(10, 0), pods(10, 1), 0.1, None),
            (pods(10, 0), pods(10, 2), 0.1, Some(Regression::Unready)),
            (pods(10, 5), pods(1, 1), 0.1, None),
            (pods(10, 5), pods(10, 6), 0.1, None),
            (pods(10, 5), pods(10, 7), 0.1, Some(Regression::Unready)),
            (pods(0, 0), pods(0, 0), 0.1, None),
        ] {
            assert_eq!(after.worse_than(&before, share), expected, "{before:?} {after:?}");
        }
        let missing = Health { missing: 1, ..Health::default() };
        assert_eq!(missing.worse_than(&pods(3, 0), 0.1), Some(Regression::Missing));
        assert_eq!(missing.worse_than(&missing, 0.1), None);
    }
}
