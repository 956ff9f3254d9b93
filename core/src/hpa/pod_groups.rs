//! Groups pods by whether they count for a metric, with reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use super::{
    config::Config,
    fixes::{Fix, Fixes},
    pod::{Pod, ReadyStatus},
    samples::Sample,
};
use crate::{scaling::pod_readiness::Phase, types::Time};

/// Why a pod does not count with its own sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotCounted {
    /// Ignored: the pod is being deleted.
    Terminating,
    /// Ignored: the phase is `Failed`.
    Failed,
    /// Ignored: the phase is `Succeeded`.
    Succeeded,
    /// Unready: the phase is `Pending`.
    Pending,
    /// Missing: there is no sample.
    NoSample,
    /// Unready: the pod has no condition `Ready`, or no start time.
    NoReadiness,
    /// Unready: the pod is young, and its sample was taken before it became ready.
    Starting,
    /// Unready: the pod has not been ready since it started.
    NeverReady,
    /// Ignored: the target does not own the pod.
    Foreign,
}

/// Pods by how they count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PodGroups {
    /// Number of pods that count with their own sample.
    pub ready: usize,
    /// Pods that count as 0 when scaling up.
    pub unready: BTreeSet<String>,
    /// Pods that count as 0 when scaling up, and as the target when scaling down.
    pub missing: BTreeSet<String>,
    /// Pods that do not count at all.
    pub ignored: BTreeSet<String>,
    pub reasons: BTreeMap<String, NotCounted>,
}

/// Numbers of pods by how they count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// Pods that count with their own sample.
    pub counted: usize,
    /// Pods that count as 0 when scaling up.
    pub unready: usize,
    /// Pods without a sample.
    pub missing: usize,
    /// Pods that do not count at all.
    pub ignored: usize,
    /// Pods of the selector that the target does not own.
    pub foreign: usize,
}

impl PodCounts {
    /// The counts of the groups and of the pods that the target does not own, which may be in any group.
    pub fn new(groups: &PodGroups, foreign: usize) -> Self {
        Self {
            counted: groups.ready,
            unready: groups.unready.len(),
            missing: groups.missing.len(),
            ignored: groups.ignored.len(),
            foreign,
        }
    }

    /// The name of each state and its count, in order of the names.
    pub const fn by_state(self) -> [(&'static str, usize); 5] {
        [
            ("counted", self.counted),
            ("foreign", self.foreign),
            ("ignored", self.ignored),
            ("missing", self.missing),
            ("unready", self.unready),
        ]
    }
}

/// Rules that decide whether the CPU usage of a pod counts.
#[derive(Clone, Copy, Debug)]
pub struct ReadinessRules {
    now: Time,
    cpu_initialization_period: Duration,
    initial_readiness_delay: Duration,
}

impl ReadinessRules {
    /// The rules from the flags.
    pub fn new(config: &Config, now: Time) -> Self {
        Self {
            now,
            cpu_initialization_period: config.cpu_initialization_period,
            initial_readiness_delay: config.initial_readiness_delay,
        }
    }

    /// The time of the pass.
    pub const fn now(self) -> Time {
        self.now
    }

    /// Why the CPU usage of a pod does not count yet; `None` if it does.
    fn cpu_is_unready(self, pod: &Pod, sample: &Sample) -> Option<NotCounted> {
        let (Some(ready), Some(start)) = (pod.ready, pod.start_time) else {
            return Some(NotCounted::NoReadiness);
        };
        let since = ready.since.unwrap_or(Time::from_nanos(i64::MIN));
        let is_false = ready.status == ReadyStatus::False;
        if start.later(self.cpu_initialization_period) > self.now {
            // The measurement window has to start after the pod became ready.
            let is_early = sample.timestamp < since.later(sample.window);
            return (is_false || is_early).then_some(NotCounted::Starting);
        }
        let never_ready = is_false && start.later(self.initial_readiness_delay) > since;
        never_ready.then_some(NotCounted::NeverReady)
    }
}

impl PodGroups {
    /// Groups pods for a metric. CPU usage of a starting pod does not count.
    pub fn of(
        pods: &[&Pod],
        samples: &BTreeMap<String, Sample>,
        is_cpu: bool,
        rules: ReadinessRules,
        fixes: Fixes,
    ) -> Self {
        let mut groups = Self::default();
        for pod in pods {
            let reason = if pod.is_terminating {
                Some(NotCounted::Terminating)
            } else if pod.phase == Phase::Failed {
                Some(NotCounted::Failed)
            } else if pod.phase == Phase::Succeeded && fixes.has(Fix::EndedPodsDoNotCount) {
                Some(NotCounted::Succeeded)
            } else if pod.phase == Phase::Pending {
                Some(NotCounted::Pending)
            } else {
                match samples.get(&pod.name) {
                    None => Some(NotCounted::NoSample),
                    Some(sample) if is_cpu => rules.cpu_is_unready(pod, sample),
                    Some(_) => None,
                }
            };
            groups.put(&pod.name, reason);
        }
        groups
    }

    fn put(&mut self, pod: &str, reason: Option<NotCounted>) {
        let Some(reason) = reason else {
            self.ready += 1;
            return;
        };
        let group = match reason {
            NotCounted::Terminating
            | NotCounted::Failed
            | NotCounted::Succeeded
            | NotCounted::Foreign => &mut self.ignored,
            NotCounted::NoSample => &mut self.missing,
            NotCounted::Pending
            | NotCounted::NoReadiness
            | NotCounted::Starting
            | NotCounted::NeverReady => &mut self.unready,
        };
        group.insert(pod.to_owned());
        self.reasons.insert(pod.to_owned(), reason);
    }
}

/// The number of ready pods that a `Value` target is multiplied by.
pub fn ready_pods(pods: &[&Pod], fixes: Fixes) -> usize {
    let counts = |pod: &Pod| !(pod.is_terminating && fixes.has(Fix::TerminatingPodsAreNotReady));
    pods.iter().filter(|pod| pod.is_ready() && counts(pod)).count()
}
