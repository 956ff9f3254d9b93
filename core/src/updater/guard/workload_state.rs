//! The persisted state of one workload: its recent changes and their results. Stored in an annotation of its VPA before
//! each change, so that a restarted updater or a new leader can read it.

use std::time::Duration;

use crate::types::Time;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use twox_hash::XxHash3_64;

use super::{infeasible::InfeasibleResizes, regression::Regression, rollout::Rollout};
use crate::{
    api::{
        ResourceList,
        state::{StateError, hash_text, read_state, write_state},
        vpa::TargetRef,
    },
    coordination::Resource,
    sizing,
};

/// Key of the annotation on the VPA.
pub const ANNOTATION: &str = "plimsoll.dev/updates";

/// Maximum size of the annotation in bytes.
pub const MAX_BYTES: usize = crate::api::state::MAX_STATE_BYTES;

/// Version of the format. It is increased when old readers would misinterpret it.
const VERSION: u32 = 1;

/// Maximum number of pods whose last change is stored.
const MAX_POD_CHANGES: usize = 256;

/// How long the last change of a pod is stored.
const CHANGE_RETENTION: Duration = Duration::from_hours(24);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    Evicted,
    /// The pod was resized in place.
    Resized,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PodChange {
    pub uid: Box<str>,
    pub at: Time,
    pub what: ChangeKind,
    /// For a resize, the hash of the new resources.
    pub wrote: Option<u64>,
    /// `metadata.generation` of the pod before the change.
    pub generation: Option<i64>,
    /// Number of container restarts before the change.
    #[serde(default)]
    pub restarts: u32,
}

/// The open circuit breaker of a workload: changes are blocked because pods regressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenBreaker {
    pub since: Time,
    /// When it closes.
    pub until: Time,
    /// What got worse.
    pub harm: Regression,
    /// How often it opened recently.
    pub trips: u32,
}

/// Changes are blocked because another writer overwrote the recommended values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalOverwrite {
    /// When that was detected.
    pub at: Time,
    /// Generation of the VPA at that time. A change of the VPA unblocks changes.
    pub generation: Option<i64>,
}

/// A second replica was requested, to replace the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surge {
    pub at: Time,
    /// Whether the old pod was evicted.
    pub evicted: bool,
}

/// The last change of a request that an autoscaler of replicas uses too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTurn {
    pub resource: Resource,
    /// When the first pod was changed.
    pub at: Time,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkloadState {
    /// The current or last rollout.
    pub rollout: Option<Rollout>,
    /// The last change of each pod, ordered by time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub touches: Vec<PodChange>,
    #[serde(skip_serializing_if = "InfeasibleResizes::is_empty")]
    pub refusals: InfeasibleResizes,
    /// The circuit breaker, if it was opened.
    pub breaker: Option<OpenBreaker>,
    /// The last external overwrite, if any.
    pub rewritten: Option<ExternalOverwrite>,
    /// The requested second replica, if any.
    pub surge: Option<Surge>,
    /// When requests were changed that an autoscaler of replicas uses too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<RequestTurn>,
}

fn target_fingerprint(target: &TargetRef) -> u64 {
    let mut bytes = Vec::with_capacity(64);
    hash_text(&mut bytes, &target.kind);
    hash_text(&mut bytes, &target.name);
    XxHash3_64::oneshot(&bytes)
}

/// Hashes the resources of a pod's containers, to detect whether another writer changed them.
pub fn spec_hash<'a>(
    containers: impl IntoIterator<Item = (&'a str, &'a sizing::Resources)>,
) -> u64 {
    let mut bytes = Vec::with_capacity(256);
    for (name, resources) in containers {
        hash_text(&mut bytes, name);
        hash_list(&mut bytes, resources.requests());
        hash_list(&mut bytes, resources.limits());
    }
    XxHash3_64::oneshot(&bytes)
}

fn hash_list(bytes: &mut Vec<u8>, list: &ResourceList) {
    let amounts = [list.cpu(), list.memory()];
    for amount in amounts {
        let nanos = amount.map_or(i128::MIN, crate::types::quantity::Quantity::nanos);
        bytes.extend_from_slice(&nanos.to_le_bytes());
    }
}

impl WorkloadState {
    /// Parses the annotation of a VPA with this target.
    pub fn read(text: &str, target: &TargetRef) -> Result<Self, StateError> {
        let of = (target_fingerprint(target), "it belongs to a previous target of the VPA");
        read_state(text, VERSION, Some(of))
    }

    /// Serializes the annotation of a VPA with this target. If it does not fit, the oldest pod changes are dropped.
    pub fn write(&self, target: &TargetRef) -> Option<String> {
        let mut state = self.clone();
        loop {
            let text = write_state(&state, VERSION, Some(target_fingerprint(target))).ok()?;
            if text.len() <= MAX_BYTES {
                return Some(text);
            }
            if state.touches.is_empty() {
                if state.refusals.is_empty() {
                    return None;
                }
                state.refusals = InfeasibleResizes::NONE;
            }
            let dropped = state.touches.len().div_ceil(8);
            state.touches.drain(..dropped);
        }
    }

    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the last change of a pod.
    pub fn pod_change(&self, uid: &str) -> Option<&PodChange> {
        self.touches.iter().rev().find(|change| *change.uid == *uid)
    }

    /// Records a change of a pod, and replaces the last one.
    pub fn record(&mut self, change: PodChange) {
        self.touches.retain(|known| known.uid != change.uid);
        self.touches.push(change);
        let too_many = self.touches.len().saturating_sub(MAX_POD_CHANGES);
        self.touches.drain(..too_many);
    }

    /// Removes entries of deleted pods, and expired entries.
    pub fn prune(&mut self, is_there: impl Fn(&str) -> bool, expiry: Duration, now: Time) {
        // An evicted pod may reappear in a stale list.
        let recent = |change: &PodChange| change.at.later(Duration::from_mins(10)) > now;
        self.touches.retain(|change| {
            (is_there(&change.uid) && change.at.later(CHANGE_RETENTION) > now) || recent(change)
        });
        self.refusals.retain(is_there);
        self.refusals.expire(expiry, now);
    }

    /// Returns when a request was last changed that an autoscaler of replicas uses too.
    pub fn request_changed(&self, resource: Resource) -> Option<Time> {
        self.turns.iter().find(|turn| turn.resource == resource).map(|turn| turn.at)
    }

    /// Records that a request is about to be changed that an autoscaler of replicas uses too.
    pub fn record_request_change(&mut self, resource: Resource, at: Time) {
        self.turns.retain(|turn| turn.resource != resource);
        self.turns.push(RequestTurn { resource, at });
    }

    /// Returns when the circuit breaker closes, if it is open.
    pub fn breaker_open_until(&self, now: Time) -> Option<Time> {
        self.breaker.map(|opened| opened.until).filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::updater::guard::infeasible::RejectedBy;

    const NOW: Time = Time::from_secs(1_800_000_000);

    fn target(name: &str) -> TargetRef {
        TargetRef { api_version: None, kind: "Deployment".into(), name: name.into() }
    }

    fn change(uid: usize) -> PodChange {
        PodChange {
            uid: format!("01234567-89ab-cdef-0123-{uid:012}").into(),
            at: NOW,
            what: ChangeKind::Resized,
            wrote: Some(u64::MAX - uid as u64),
            generation: Some(2),
            restarts: 3,
        }
    }

    fn full() -> WorkloadState {
        let mut state = WorkloadState::default();
        for uid in 0..1000 {
            state.record(change(uid));
        }
        for uid in 0..100 {
            state.refusals.record(&change(uid).uid, RejectedBy::Node, Vec::new(), NOW);
        }
        state.breaker = Some(OpenBreaker {
            since: NOW,
            until: NOW.later(CHANGE_RETENTION),
            harm: Regression::Pending,
            trips: 2,
        });
        state.rewritten = Some(ExternalOverwrite { at: NOW, generation: Some(4) });
        state.surge = Some(Surge { at: NOW, evicted: false });
        state.record_request_change(Resource::Cpu, NOW.earlier(CHANGE_RETENTION));
        state.record_request_change(Resource::Cpu, NOW);
        state
    }

    #[test]
    fn persisted_state_is_read_only_by_the_same_workload() {
        for state in [WorkloadState::default(), full()] {
            let text = state.write(&target("web")).expect("it fits");
            assert!(text.len() <= MAX_BYTES, "{} bytes", text.len());
            let read = WorkloadState::read(&text, &target("web")).expect("is read");
            assert_eq!(read.touches.last(), state.touches.last());
            assert_eq!((read.breaker, read.rewritten), (state.breaker, state.rewritten));
            assert_eq!(read.turns, state.turns);
            assert_eq!(read.request_changed(Resource::Memory), None);
            let other = WorkloadState::read(&text, &target("db"));
            assert!(matches!(other, Err(StateError::Stale(_))), "{other:?}");
            let newer = text.replacen("\"v\":1", "\"v\":2", 1);
            let newer = WorkloadState::read(&newer, &target("web"));
            assert_eq!(newer, Err(StateError::Version { found: 2, expected: 1 }));
        }
        for broken in ["", "{}", "[]", "{\"v\":1,\"of\":7}"] {
            let found = WorkloadState::read(broken, &target("web"));
            assert!(matches!(found, Err(StateError::Malformed(_))), "{broken:?}: {found:?}");
        }
    }

    #[test]
    fn a_pod_has_one_last_change_which_is_dropped_with_the_pod() {
        let mut state = full();
        let last = change(999);
        state.record(PodChange { what: ChangeKind::Evicted, ..last.clone() });
        let kind = state.pod_change(&last.uid).map(|change| change.what);
        assert_eq!(kind, Some(ChangeKind::Evicted));
        assert_eq!(state.touches.len(), MAX_POD_CHANGES);
        let later = NOW.later(Duration::from_mins(11));
        state.prune(|uid| uid == &*change(998).uid, Duration::from_hours(1), later);
        assert_eq!(state.touches, [change(998)]);
        assert!(state.refusals.is_empty());
    }

    #[test]
    fn equal_specs_have_the_same_hash_and_others_have_not() {
        let hash_of = |cpu: &str, memory: &str| {
            let list = ResourceList::cpu_and_memory(cpu.parse().ok(), memory.parse().ok());
            let resources = sizing::Resources { requests: Some(list), limits: None };
            spec_hash([("app", &resources)])
        };
        assert_eq!(hash_of("1", "1Gi"), hash_of("1000m", "1073741824"));
        assert_ne!(hash_of("1", "1Gi"), hash_of("1001m", "1Gi"));
        assert_ne!(hash_of("1", "1Gi"), hash_of("1", "x"));
    }
}
