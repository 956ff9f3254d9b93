//! Which pods count for a metric, and why the others do not.

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

/// Why a pod does not count as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotCounted {
    /// Ignored: it is being deleted.
    Terminating,
    /// Ignored: its phase is Failed.
    Failed,
    /// Ignored: its phase is Succeeded.
    Succeeded,
    /// Unready: its phase is Pending.
    Pending,
    /// Missing: there is no sample of it.
    NoSample,
    /// Unready: it has no condition `Ready`, or no start time.
    NoReadiness,
    /// Unready: it is young, and its sample is of before it was ready.
    Starting,
    /// Unready: it has not been ready since it started.
    NeverReady,
    /// Left out: the target does not own it.
    Foreign,
}

/// Pods by what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PodGroups {
    /// How many count with their own sample.
    pub ready: usize,
    /// They count with nothing on a way up.
    pub unready: BTreeSet<String>,
    /// They count with nothing on a way up, with the target on a way down.
    pub missing: BTreeSet<String>,
    /// They are as good as gone.
    pub ignored: BTreeSet<String>,
    /// Why, by the name of the pod.
    pub reasons: BTreeMap<String, NotCounted>,
}

/// What the age of a pod is measured by.
#[derive(Clone, Copy, Debug)]
pub struct ReadinessRules {
    now: Time,
    cpu_initialization_period: Duration,
    initial_readiness_delay: Duration,
}

impl ReadinessRules {
    /// Of the flags.
    pub fn new(config: &Config, now: Time) -> Self {
        Self {
            now,
            cpu_initialization_period: config.cpu_initialization_period,
            initial_readiness_delay: config.initial_readiness_delay,
        }
    }

    /// Whether CPU of a pod says nothing yet about its load.
    fn cpu_is_unready(self, pod: &Pod, sample: &Sample) -> Option<NotCounted> {
        let (Some(ready), Some(start)) = (pod.ready, pod.start_time) else {
            return Some(NotCounted::NoReadiness);
        };
        let since = ready.since.unwrap_or(Time::from_nanos(i64::MIN));
        let is_false = ready.status == ReadyStatus::False;
        if start.later(self.cpu_initialization_period) > self.now {
            // A whole window of measuring has to lie behind the moment when it got ready.
            let is_early = sample.timestamp < since.later(sample.window);
            return (is_false || is_early).then_some(NotCounted::Starting);
        }
        let never_ready = is_false && start.later(self.initial_readiness_delay) > since;
        never_ready.then_some(NotCounted::NeverReady)
    }
}

impl PodGroups {
    /// Sorts pods for a metric; CPU of a pod that is starting is no sign of load.
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

/// How many pods a Value target is multiplied by.
pub fn ready_pods(pods: &[&Pod], fixes: Fixes) -> usize {
    let stays = |pod: &Pod| !(pod.is_terminating && fixes.has(Fix::TerminatingPodsAreNotReady));
    pods.iter().filter(|pod| pod.is_ready() && stays(pod)).count()
}
