//! Which pods of a workload count as ready, for external metrics and for resource metrics.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use crate::types::Time;

use super::{Scale, metric_source::Milli};
use crate::types::compat::{Fix, Fixes};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The pod is not scheduled, or its containers have not started.
    Pending,
    #[default]
    Running,
    /// All containers terminated with exit code 0.
    Succeeded,
    /// All containers terminated, at least one of them in failure.
    Failed,
    /// The phase is missing or unknown.
    Unknown,
}

/// The fields of a pod that readiness depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    pub name: Arc<str>,
    /// Whether the workload owns the pod. A pod may match the selector without being owned.
    pub owned_by_target: bool,
    pub phase: Phase,
    /// The status of the `Ready` condition and its last transition time.
    pub ready: Option<(bool, Time)>,
    /// When the kubelet accepted the pod.
    pub started: Option<Time>,
    pub terminating: bool,
    /// Whether the kubelet has not actuated all requests of the spec yet.
    pub resizing: bool,
}

/// Why nothing can be computed from the pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodsNotReady {
    #[error("no pods returned by selector while calculating replica count")]
    NoPods,
    #[error("among the {among} pods, none is ready. Skipping recommendation")]
    NoneReady { among: usize },
    #[error("{percent} % of the pods are unready, will not autoscale {object}")]
    TooFewReady {
        /// Percentage of ready pods, although upstream's message says unready.
        percent: i32,
        /// Namespace and name of the target.
        object: String,
    },
    #[error("did not receive metrics for any ready pods")]
    NoUsage,
}

/// Decides which pods of a workload count as ready.
#[derive(Clone, Copy, Debug)]
pub struct ReadinessPolicy<'a> {
    pub target: NamespacedName<'a>,
    /// How long a pending pod counts as ready.
    pub pending_counts_for: Duration,
    /// How long the CPU usage of a pod is ignored after it became ready.
    pub starting_ignored_for: Duration,
    pub min_ready_percent: i32,
    pub now: Time,
    /// Which of upstream's bugs are fixed.
    pub fixes: Fixes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespacedName<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
}

impl fmt::Display for NamespacedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Usage of a resource by pod name.
pub type Usage = BTreeMap<Arc<str>, Milli>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodGroups {
    /// Number of ready pods with usage.
    pub ready: u32,
    /// Pods whose usage is ignored.
    pub ignored: Vec<Arc<str>>,
    /// Number of the workload's pods that have not terminated.
    pub alive: u32,
}

impl ReadinessPolicy<'_> {
    /// The number of pods that count as ready, at least one. It is capped at `status.replicas`, because other workloads may
    /// share the selector, and surge pods of a rolling update are not counted.
    pub fn ready_pods(&self, pods: &[Pod], scale: Scale) -> Result<u32, PodsNotReady> {
        if pods.is_empty() {
            return Err(PodsNotReady::NoPods);
        }
        let candidates = pods.iter().filter(|pod| {
            pod.owned_by_target && !matches!(pod.phase, Phase::Failed | Phase::Succeeded)
        });
        let (mut among, mut ready) = (0_u32, 0_u32);
        for pod in candidates {
            among += 1;
            ready += u32::from(self.counts_as_ready(pod));
        }
        if ready == 0 {
            return Err(PodsNotReady::NoneReady { among: pods.len() });
        }
        let status_replicas = u32::try_from(scale.status_replicas).unwrap_or(0);
        let spec_replicas = u32::try_from(scale.spec_replicas).unwrap_or(0);
        // Ready pods although `status.replicas` is 0: the target does not report its replicas, or not yet.
        let is_unreported = status_replicas == 0 && self.fixes.has(Fix::MissingPodsForceNothing);
        let clamped = ready.min(if is_unreported { spec_replicas } else { status_replicas });
        self.ensure_enough_ready(clamped, among)?;
        if self.fixes.has(Fix::SurgePodsDoNotCount) {
            return Ok(clamped.min(spec_replicas));
        }
        Ok(clamped)
    }

    fn counts_as_ready(&self, pod: &Pod) -> bool {
        let Some((is_ready, since)) = pod.ready.filter(|_| pod.started.is_some()) else {
            return false;
        };
        if pod.terminating {
            return false;
        }
        let is_young = since.later(self.pending_counts_for) > self.now;
        (pod.phase == Phase::Running && is_ready) || (pod.phase == Phase::Pending && is_young)
    }

    /// Groups pods by whether their usage counts. CPU usage of a starting pod does not.
    pub fn group_pods(&self, pods: &[Pod], is_cpu: bool, usage: &Usage) -> PodGroups {
        let mut grouped = PodGroups::default();
        for pod in pods.iter().filter(|pod| pod.owned_by_target) {
            grouped.alive += u32::from(!matches!(pod.phase, Phase::Failed | Phase::Succeeded));
            if matches!(pod.phase, Phase::Failed | Phase::Pending) {
                grouped.ignored.push(Arc::clone(&pod.name));
            } else if usage.contains_key(&pod.name) {
                if is_cpu && self.is_starting(pod) {
                    grouped.ignored.push(Arc::clone(&pod.name));
                } else {
                    grouped.ready += 1;
                }
            }
        }
        grouped
    }

    fn is_starting(&self, pod: &Pod) -> bool {
        let (Some((true, since)), Some(started)) = (pod.ready, pod.started) else { return true };
        if self.fixes.has(Fix::ReadinessDelayEnds) {
            since.later(self.starting_ignored_for) > self.now
        } else {
            started.later(self.starting_ignored_for) > since
        }
    }

    /// The total usage of the pods that count, and their number.
    pub fn total_usage(
        &self,
        pods: &[Pod],
        is_cpu: bool,
        usage: &Usage,
    ) -> Result<(Milli, u32), PodsNotReady> {
        if pods.is_empty() {
            return Err(PodsNotReady::NoPods);
        }
        let PodGroups { ready, ignored, alive } = self.group_pods(pods, is_cpu, usage);
        // Usage of pods that the workload does not own stays in the sum, because the selector includes them.
        let counts = usage.iter().filter(|(name, _)| !ignored.contains(name));
        let values: Vec<Milli> = counts.map(|(_, value)| *value).collect();
        let among = if self.fixes.has(Fix::UnreadyPodsAreUnavailable) {
            alive
        } else {
            pods.len().saturating_sub(ignored.len()) as u32
        };
        if ready == 0 || among == 0 || values.is_empty() {
            return Err(PodsNotReady::NoUsage);
        }
        self.ensure_enough_ready(ready, among)?;
        Ok((values.into_iter().fold(0, Milli::saturating_add), ready))
    }

    fn ensure_enough_ready(&self, ready: u32, among: u32) -> Result<(), PodsNotReady> {
        let percent = (100 * u64::from(ready)).checked_div(among.into()).unwrap_or(100) as i32;
        if percent < self.min_ready_percent {
            return Err(PodsNotReady::TooFewReady { percent, object: self.target.to_string() });
        }
        Ok(())
    }
}

/// Whether an owner is the workload by upstream's rule: the names are equal, after stripping the hash suffix of a
/// ReplicaSet.
pub fn is_owner_by_name(kind: &str, name: &str, target: &str) -> bool {
    let name = match (kind, name.rsplit_once('-')) {
        ("ReplicaSet", Some((before, _))) => before,
        _ => name,
    };
    name == target
}
