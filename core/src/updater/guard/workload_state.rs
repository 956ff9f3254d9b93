//! What is remembered of one workload: its last changes and what came of them. Kept on its VPA, and written there
//! before each change, so that whoever comes next knows it.

use std::time::Duration;

use crate::types::Time;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::{infeasible::InfeasibleResizes, regression::Regression, rollout::Rollout};
use crate::{
    api::{ResourceList, vpa::TargetRef},
    sizing,
};

/// Key of the annotation on the VPA.
pub const ANNOTATION: &str = "plimsoll.dev/updates";

/// Bytes that the annotation may have.
pub const MAX_BYTES: usize = crate::api::annotations::MAX_STATE_BYTES;

/// Number of the format. It changes when old readers would misunderstand.
const VERSION: u32 = 1;

/// Pods whose last change is remembered.
const MAX_POD_CHANGES: usize = 256;

/// How long the last change of a pod is remembered.
const CHANGE_RETENTION: Duration = Duration::from_hours(24);

/// What was done to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It was evicted.
    Evicted,
    /// It was resized.
    Resized,
}

/// The last change of one pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PodChange {
    /// Its uid.
    pub uid: Box<str>,
    /// When.
    pub at: Time,
    /// What was done.
    pub what: ChangeKind,
    /// A hash over the resources that it was given, where it was resized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrote: Option<u64>,
    /// The generation of the pod before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// How often its containers had been restarted.
    #[serde(default)]
    pub restarts: u32,
}

/// Nothing is changed, because pods got worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenBreaker {
    /// Since when.
    pub since: Time,
    /// Until when.
    pub until: Time,
    /// What got worse.
    pub harm: Regression,
    /// How often that happened of late.
    pub trips: u32,
}

/// Nothing is changed, because somebody else writes other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalOverwrite {
    /// When that was seen.
    pub at: Time,
    /// The generation of the VPA at that time: when its user changes it, another try is made.
    pub generation: Option<i64>,
}

/// A second replica was asked for, to take the place of the only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surge {
    /// When.
    pub at: Time,
    /// Whether the pod whose place it takes was evicted.
    pub evicted: bool,
}

/// What is remembered of one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkloadState {
    /// The change that is being made, or was made last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The last change of each pod, the latest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub touches: Vec<PodChange>,
    /// Resizes that were found impossible.
    #[serde(skip_serializing_if = "InfeasibleResizes::is_empty")]
    pub refusals: InfeasibleResizes,
    /// Whether changes made pods worse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<OpenBreaker>,
    /// Whether somebody else writes other values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewritten: Option<ExternalOverwrite>,
    /// Whether a second replica was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surge: Option<Surge>,
}

/// Why what stands on the VPA does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateReadError {
    /// The VPA is for another workload now.
    #[error("it belongs to the workload that the VPA was for before")]
    Stale,
    /// Another format.
    #[error("its version is {0} and only {VERSION} can be read")]
    Version(u32),
    /// No format at all.
    #[error("it cannot be read ({0})")]
    Unreadable(String),
}

#[derive(Serialize)]
struct StoredState<'a> {
    v: u32,
    of: String,
    #[serde(flatten)]
    memory: &'a WorkloadState,
}

#[derive(Deserialize)]
struct StateHeader {
    v: u32,
    #[serde(default)]
    of: String,
}

fn target_fingerprint(target: &TargetRef) -> String {
    let mut bytes = Vec::with_capacity(64);
    hash_text(&mut bytes, &target.kind);
    hash_text(&mut bytes, &target.name);
    format!("{:016x}", XxHash3_64::oneshot(&bytes))
}

fn hash_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// A hash over what the containers of a pod ask for, so that it can be told whether somebody changed it since.
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
    /// As it stands on a VPA for this workload.
    pub fn read(text: &str, target: &TargetRef) -> Result<Self, StateReadError> {
        let unreadable = |error: serde_json::Error| StateReadError::Unreadable(error.to_string());
        let StateHeader { v, of } = serde_json::from_str(text).map_err(unreadable)?;
        if v != VERSION {
            return Err(StateReadError::Version(v));
        }
        if of != target_fingerprint(target) {
            return Err(StateReadError::Stale);
        }
        serde_json::from_str(text).map_err(unreadable)
    }

    /// As it is to stand on a VPA for this workload. Of too many pods those that were changed last are told.
    pub fn write(&self, target: &TargetRef) -> Option<String> {
        let mut memory = self.clone();
        loop {
            let written =
                StoredState { v: VERSION, of: target_fingerprint(target), memory: &memory };
            let text = serde_json::to_string(&written).ok()?;
            if text.len() <= MAX_BYTES {
                return Some(text);
            }
            if memory.touches.is_empty() {
                if memory.refusals.is_empty() {
                    return None;
                }
                memory.refusals = InfeasibleResizes::NONE;
            }
            let gone = memory.touches.len().div_ceil(8);
            memory.touches.drain(..gone);
        }
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The last change of a pod.
    pub fn pod_change(&self, uid: &str) -> Option<&PodChange> {
        self.touches.iter().rev().find(|touch| *touch.uid == *uid)
    }

    /// Notes the change of a pod, in place of the one before.
    pub fn record(&mut self, touch: PodChange) {
        self.touches.retain(|known| known.uid != touch.uid);
        self.touches.push(touch);
        let too_many = self.touches.len().saturating_sub(MAX_POD_CHANGES);
        self.touches.drain(..too_many);
    }

    /// Forgets what is of no account any more: pods that are gone, and what is long past.
    pub fn prune(&mut self, is_there: impl Fn(&str) -> bool, expiry: Duration, now: Time) {
        // A pod that was evicted may come into sight once more, by a list that is a little old.
        let recent = |touch: &PodChange| touch.at.later(Duration::from_mins(10)) > now;
        self.touches.retain(|touch| {
            (is_there(&touch.uid) && touch.at.later(CHANGE_RETENTION) > now) || recent(touch)
        });
        self.refusals.retain(is_there);
        self.refusals.expire(expiry, now);
    }

    /// Until when nothing is changed, if pods got worse.
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

    fn touch(uid: usize) -> PodChange {
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
        let mut memory = WorkloadState::default();
        for uid in 0..1000 {
            memory.record(touch(uid));
        }
        for uid in 0..100 {
            memory.refusals.record(&touch(uid).uid, RejectedBy::Node, Vec::new(), NOW);
        }
        memory.breaker = Some(OpenBreaker {
            since: NOW,
            until: NOW.later(CHANGE_RETENTION),
            harm: Regression::Pending,
            trips: 2,
        });
        memory.rewritten = Some(ExternalOverwrite { at: NOW, generation: Some(4) });
        memory.surge = Some(Surge { at: NOW, evicted: false });
        memory
    }

    #[test]
    fn what_was_written_is_read_by_the_same_workload_only() {
        for memory in [WorkloadState::default(), full()] {
            let text = memory.write(&target("web")).expect("it fits");
            assert!(text.len() <= MAX_BYTES, "{} bytes", text.len());
            let read = WorkloadState::read(&text, &target("web")).expect("is read");
            assert_eq!(read.touches.last(), memory.touches.last());
            assert_eq!((read.breaker, read.rewritten), (memory.breaker, memory.rewritten));
            assert_eq!(WorkloadState::read(&text, &target("db")), Err(StateReadError::Stale));
            let newer = text.replacen("\"v\":1", "\"v\":2", 1);
            assert_eq!(
                WorkloadState::read(&newer, &target("web")),
                Err(StateReadError::Version(2))
            );
        }
        for broken in ["", "{}", "[]", "{\"v\":1,\"of\":7}"] {
            let found = WorkloadState::read(broken, &target("web"));
            assert!(matches!(found, Err(StateReadError::Unreadable(_))), "{broken:?}: {found:?}");
        }
    }

    #[test]
    fn a_pod_has_one_last_change_and_is_forgotten_when_it_is_gone() {
        let mut memory = full();
        let last = touch(999);
        memory.record(PodChange { what: ChangeKind::Evicted, ..last.clone() });
        assert_eq!(memory.pod_change(&last.uid).map(|touch| touch.what), Some(ChangeKind::Evicted));
        assert_eq!(memory.touches.len(), MAX_POD_CHANGES);
        let later = NOW.later(Duration::from_mins(11));
        memory.prune(|uid| uid == &*touch(998).uid, Duration::from_hours(1), later);
        assert_eq!(memory.touches, [touch(998)]);
        assert!(memory.refusals.is_empty());
    }

    #[test]
    fn a_spec_in_other_words_has_the_same_hash_and_another_spec_has_not() {
        let of = |cpu: &str, memory: &str| {
            let list = ResourceList::cpu_and_memory(cpu.parse().ok(), memory.parse().ok());
            let resources = sizing::Resources { requests: Some(list), limits: None };
            spec_hash([("app", &resources)])
        };
        assert_eq!(of("1", "1Gi"), of("1000m", "1073741824"));
        assert_ne!(of("1", "1Gi"), of("1001m", "1Gi"));
        assert_ne!(of("1", "1Gi"), of("1", "x"));
    }
}
