//! Which pods of a workload count as ready, for metrics that belong to no pod and for what pods use.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use crate::types::Time;

use super::{Scale, metric_value::Milli};
use crate::types::compat::{Fix, Fixes};

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It is not scheduled, or its containers have not started.
    Pending,
    /// It runs.
    #[default]
    Running,
    /// All containers ended with exit code 0.
    Succeeded,
    /// All containers ended, at least one of them in failure.
    Failed,
    /// Not reported, or not known.
    Unknown,
}

/// A pod, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it belongs to the workload, and not only to its selector.
    pub owned_by_target: bool,
    /// How far it is.
    pub phase: Phase,
    /// Whether it is ready, and since when that is so.
    pub ready: Option<(bool, Time)>,
    /// When its node accepted it.
    pub started: Option<Time>,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// Why pods do not let anything be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodsNotReady {
    /// There are none.
    #[error("no pods returned by selector while calculating replica count")]
    NoPods,
    /// None of them is ready.
    #[error("among the {among} pods, none is ready. Skipping recommendation")]
    NoneReady {
        /// So many there are.
        among: usize,
    },
    /// Too few of them are ready.
    #[error("{percent} % of the pods are unready, will not autoscale {object}")]
    TooFewReady {
        /// The share of those that are ready, whatever the text says.
        percent: i32,
        /// Namespace and name of the target.
        object: String,
    },
    /// Of none that is ready it is known what it uses.
    #[error("did not receive metrics for any ready pods")]
    NoUsage,
}

/// What is asked about the pods of a workload.
#[derive(Clone, Copy, Debug)]
pub struct ReadinessPolicy<'a> {
    /// Namespace and name of the target, for texts.
    pub target: NamespacedName<'a>,
    /// How long a pod that is pending counts as ready.
    pub pending_counts_for: Duration,
    /// How long the CPU of a pod that became ready does not count.
    pub starting_ignored_for: Duration,
    /// Less than this percentage of ready pods is too little.
    pub min_ready_percent: i32,
    /// The time.
    pub now: Time,
    /// Which of upstream's defects are mended.
    pub fixes: Fixes,
}

/// An object by its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespacedName<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl fmt::Display for NamespacedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What pods use of a resource, by their names.
pub type Usage = BTreeMap<Arc<str>, Milli>;

/// Pods by what is known of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodGroups {
    /// So many are ready.
    pub ready: u32,
    /// Those whose usage does not count.
    pub ignored: Vec<Arc<str>>,
    /// Pods of the workload that have not ended.
    pub alive: u32,
}

impl ReadinessPolicy<'_> {
    /// How many pods count as ready, and at least one. A workload that shares its selector with others has no more of
    /// them than it says itself, and those that a rolling update has for a while on top are not more to do the work.
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
        let told = u32::try_from(scale.status_replicas).unwrap_or(0);
        let wanted = u32::try_from(scale.spec_replicas).unwrap_or(0);
        // Ready pods of a target that has none are of one that does not say how many it has, or not yet.
        let is_untold = told == 0 && self.fixes.has(Fix::MissingPodsForceNothing);
        let clamped = ready.min(if is_untold { wanted } else { told });
        self.ensure_enough_ready(clamped, among)?;
        if self.fixes.has(Fix::SurgePodsDoNotCount) {
            return Ok(clamped.min(wanted));
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

    /// Sorts pods by whether what they use counts. CPU of a pod that is only starting does not.
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

    /// What the pods that count use together, and how many they are.
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
        // Usage of pods that do not belong to the workload stays in the sum: whoever selects them means them.
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

/// Whether an owner is the workload by upstream's rule: of its name, where that of a ReplicaSet loses what stands behind
/// its last dash.
pub fn is_owner_by_name(kind: &str, name: &str, target: &str) -> bool {
    let name = match (kind, name.rsplit_once('-')) {
        ("ReplicaSet", Some((before, _))) => before,
        _ => name,
    };
    name == target
}
