//! Health of pods, and whether changed pods are worse than pods were before the change.

use std::{fmt, time::Duration};

use crate::types::Time;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::super::pod_status::{Phase, PodStatus};

/// Counts of unhealthy pods, by problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    pub pods: u32,
    /// Pods that have been pending for too long.
    pub pending: u32,
    /// Pods that have not been ready for too long.
    pub unready: u32,
    /// Pods with restarted containers.
    pub restarting: u32,
    /// Pods with OOM killed containers.
    pub out_of_memory: u32,
    /// Desired pods that do not exist.
    pub missing: u32,
}

/// What got worse after a change.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Regression {
    /// Containers are OOM killed.
    OutOfMemory,
    Restarting,
    /// Pods stay pending.
    Pending,
    /// Pods do not become ready.
    Unready,
    /// Evicted pods are not replaced.
    Missing,
    /// New pods do not get the recommended resources.
    NotApplied,
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OutOfMemory => "changed pods are OOM killed",
            Self::Restarting => "containers of changed pods restart",
            Self::Pending => "changed pods stay pending",
            Self::Unready => "changed pods do not become ready",
            Self::Missing => "evicted pods are not replaced",
            Self::NotApplied => "new pods do not get the recommended resources",
        })
    }
}

/// A pod whose health is checked.
#[derive(Clone, Copy, Debug)]
pub struct ObservedPod<'a> {
    pub status: &'a PodStatus,
    /// Problems before this time are ignored.
    pub since: Time,
    /// Number of restarts that are ignored.
    pub restarts: u32,
}

impl Health {
    pub fn count<'a>(
        pods: impl IntoIterator<Item = ObservedPod<'a>>,
        ready_within: Duration,
        now: Time,
    ) -> Self {
        let mut health = Self::default();
        for ObservedPod { status, since, restarts } in pods {
            let long_ago = |from: Time| from.max(since).later(ready_within) <= now;
            let is_pending = status.phase == Phase::Pending;
            let ended = status
                .containers
                .iter()
                .filter_map(|container| container.last_termination)
                .any(|termination| termination.finished >= since);
            let restarted = status.restarts() > restarts && ended;
            let backing_off = status.containers.iter().any(|container| container.backing_off);
            health.pods += 1;
            health.pending += u32::from(is_pending && long_ago(status.created));
            let is_unready = !is_pending && status.unready_since().is_some_and(long_ago);
            health.unready += u32::from(is_unready);
            health.out_of_memory += u32::from(status.ran_out_of_memory_since(since));
            health.restarting += u32::from(backing_off || restarted);
        }
        health
    }

    /// Returns the number of pods with a problem.
    pub fn affected_by(&self, regression: Regression) -> u32 {
        match regression {
            Regression::OutOfMemory => self.out_of_memory,
            Regression::Restarting => self.restarting,
            Regression::Pending => self.pending,
            Regression::Unready => self.unready,
            Regression::Missing => self.missing,
            Regression::NotApplied => 0,
        }
    }

    /// Returns what is worse than before, if more than this share of the pods is affected.
    pub fn worse_than(&self, before: &Self, share: f64) -> Option<Regression> {
        let allowed = (f64::from(self.pods) * share) as u32;
        Regression::VARIANTS.iter().copied().find(|regression| {
            let expected = match regression {
                Regression::Missing => before.missing,
                _ if before.pods == 0 => 0,
                _ => {
                    let part = u64::from(before.affected_by(*regression)) * u64::from(self.pods);
                    part.div_ceil(u64::from(before.pods)) as u32
                }
            };
            self.affected_by(*regression) > expected.saturating_add(allowed)
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

    fn health_of(status: &PodStatus, since: Time, restarts: u32) -> Health {
        Health::count([ObservedPod { status, since, restarts }], GRACE, NOW)
    }

    #[test]
    fn each_problem_counts_if_it_lasts_or_is_recent() {
        let ready = PodStatus {
            readiness: Readiness::Ready(ago(30)),
            created: ago(60),
            ..PodStatus::default()
        };
        assert_eq!(health_of(&ready, ago(5), 0), Health { pods: 1, ..Health::default() });
        let pending = PodStatus { phase: Phase::Pending, created: ago(11), ..PodStatus::default() };
        assert_eq!(health_of(&pending, ago(20), 0).pending, 1);
        assert_eq!(health_of(&pending, ago(9), 0).pending, 0, "it was changed only a moment ago");
        let unready = PodStatus { readiness: Readiness::Unready(ago(11)), ..ready.clone() };
        assert_eq!(health_of(&unready, ago(20), 0).unready, 1);
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
        assert_eq!(health_of(&killed, ago(20), 2).out_of_memory, 1);
        assert_eq!(health_of(&killed, ago(5), 0).out_of_memory, 0, "that was before");
        assert_eq!(health_of(&killed, ago(20), 1).restarting, 1);
        assert_eq!(health_of(&killed, ago(20), 2).restarting, 0, "these were counted before");
        let backing_off = ContainerStatus { backing_off: true, ..ContainerStatus::default() };
        let crashing = PodStatus { containers: vec![backing_off], ..ready };
        assert_eq!(health_of(&crashing, ago(5), 9).restarting, 1);
    }

    #[test]
    fn a_regression_is_a_problem_of_more_pods_than_before() {
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
