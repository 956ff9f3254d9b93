//! What is remembered about the requests that an object shares with VPAs: the part in its record, and the measurements of the
//! last hour, which a new process makes again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::HpaRecord;
use crate::{
    coordination::{RecentUsage, Resource, State},
    types::Time,
};

/// The states of more requests are not stored, so that the record stays small.
const MAX_STORED: usize = 16;
/// Separates resource and container. No name contains it.
const SEPARATOR: char = '/';

/// The stored states of the requests that an object shares with VPAs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SharedStates {
    /// The kind and the name of the target that they are about.
    target: String,
    /// By resource and container.
    requests: BTreeMap<String, State>,
}

impl SharedStates {
    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// The states in the record of an object with this UID and target; those of another object or target do not count.
    pub fn of_record(record: &HpaRecord, uid: Option<&str>, (kind, name): (&str, &str)) -> Self {
        let is_other = record.memory.uid.is_some() && record.memory.uid.as_deref() != uid;
        let states = &record.shared_requests;
        if is_other || !states.is_about(kind, name) { Self::default() } else { states.clone() }
    }

    fn is_about(&self, kind: &str, name: &str) -> bool {
        self.target.split_once(SEPARATOR) == Some((kind, name))
    }

    /// The state of a request.
    pub fn state(&self, resource: Resource, container: Option<&str>) -> State {
        self.requests.get(&key(resource, container)).copied().unwrap_or_default()
    }

    /// The part whose changes are stored at once.
    #[must_use]
    pub fn without_times(&self) -> Self {
        let requests = self.requests.iter();
        let requests = requests.map(|(key, state)| (key.clone(), state.without_times()));
        Self { target: self.target.clone(), requests: requests.collect() }
    }
}

/// What one process remembers about the requests of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharedMemory {
    uid: Option<String>,
    states: SharedStates,
    recent: BTreeMap<String, RecentUsage>,
}

impl SharedMemory {
    /// The memory of a process that continues with the record of an object.
    pub fn restored(
        record: &HpaRecord,
        uid: Option<&str>,
        target: (&str, &str),
        now: Time,
    ) -> Self {
        let mut states = SharedStates::of_record(record, uid, target);
        for state in states.requests.values_mut() {
            *state = state.restored(now);
        }
        let mut memory = Self { uid: uid.map(str::to_owned), states, recent: BTreeMap::new() };
        memory.ensure_object(uid, target);
        memory
    }

    /// Forgets what is about another object or target.
    pub fn ensure_object(&mut self, uid: Option<&str>, (kind, name): (&str, &str)) {
        if self.uid.as_deref() == uid && self.states.is_about(kind, name) {
            return;
        }
        let target = format!("{kind}{SEPARATOR}{name}");
        let states = SharedStates { target, requests: BTreeMap::new() };
        *self = Self { uid: uid.map(str::to_owned), states, recent: BTreeMap::new() };
    }

    /// The state of a request.
    pub fn state(&self, resource: Resource, container: Option<&str>) -> State {
        self.states.state(resource, container)
    }

    pub fn to_store(&self, now: Time) -> SharedStates {
        let stored = self.states.requests.iter();
        let stored = stored.map(|(key, state)| (key.clone(), state.to_store(now)));
        let requests = stored.filter(|(_, state)| *state != State::default()).take(MAX_STORED);
        let requests: BTreeMap<_, _> = requests.collect();
        let target = if requests.is_empty() { String::new() } else { self.states.target.clone() };
        SharedStates { target, requests }
    }

    /// Replaces the state of a request. `next` gets the measurements of the last hour.
    pub(super) fn change(
        &mut self,
        (resource, container): (Resource, Option<&str>),
        next: impl FnOnce(&mut RecentUsage) -> State,
    ) {
        let key = key(resource, container);
        let mut recent = self.recent.remove(&key).unwrap_or_default();
        let after = next(&mut recent);
        if recent != RecentUsage::default() {
            self.recent.insert(key.clone(), recent);
        }
        if after == State::default() {
            self.states.requests.remove(&key);
        } else {
            self.states.requests.insert(key, after);
        }
    }

    /// Forgets the requests for which `is_kept` is false, but for the first ones: without them, a VPA that is back would start
    /// from requests that it has changed.
    pub(super) fn retain(&mut self, is_kept: impl Fn(Resource, Option<&str>) -> bool) {
        let is_kept = |key: &str| {
            let (resource, container) = match key.split_once(SEPARATOR) {
                Some((resource, container)) => (resource, Some(container)),
                None => (key, None),
            };
            let resource = match resource {
                "cpu" => Some(Resource::Cpu),
                "memory" => Some(Resource::Memory),
                _ => None,
            };
            resource.is_some_and(|resource| is_kept(resource, container))
        };
        self.recent.retain(|key, _| is_kept(key));
        self.states.requests.retain(|key, state| {
            if !is_kept(key) {
                *state = State { first_requests: state.first_requests, ..State::default() };
            }
            *state != State::default()
        });
    }
}

fn key(resource: Resource, container: Option<&str>) -> String {
    match container {
        None => resource.to_string(),
        Some(container) => format!("{resource}{SEPARATOR}{container}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        coordination::{UsagePerPod, idle::IdleSpan},
        hpa::HpaState,
    };

    const NOW: Time = Time::from_secs(1_800_000_000);
    const WEB: (&str, &str) = ("Deployment", "web");
    const FIRST: State =
        State { first_requests: Some(400), lacks_replicas_since: None, raised: None, idle: None };

    const CPU: (Resource, Option<&str>) = (Resource::Cpu, None);

    fn memory() -> SharedMemory {
        let mut memory = SharedMemory::default();
        memory.ensure_object(Some("1"), WEB);
        memory.change(CPU, |_| FIRST);
        memory
    }

    fn record(uid: Option<&str>) -> HpaRecord {
        let memory = self::memory();
        HpaRecord {
            shared_requests: memory.to_store(NOW),
            memory: HpaState { uid: uid.map(str::to_owned), ..HpaState::default() },
            ..HpaRecord::default()
        }
    }

    #[test]
    fn only_the_record_of_the_same_object_and_target_counts() {
        for (stored_uid, uid, target, expected) in [
            (Some("1"), Some("1"), WEB, FIRST),
            (None, Some("1"), WEB, FIRST),
            (Some("1"), Some("2"), WEB, State::default()),
            (Some("1"), Some("1"), ("Deployment", "db"), State::default()),
            (Some("1"), Some("1"), ("StatefulSet", "web"), State::default()),
        ] {
            let record = record(stored_uid);
            let states = SharedStates::of_record(&record, uid, target);
            assert_eq!(states.state(Resource::Cpu, None), expected, "{uid:?} {target:?}");
            let restored = SharedMemory::restored(&record, uid, target, NOW);
            assert_eq!(restored.state(Resource::Cpu, None), expected);
        }
    }

    #[test]
    fn a_process_forgets_what_is_about_another_object() {
        for (uid, target, is_kept) in
            [("1", WEB, true), ("2", WEB, false), ("1", ("Deployment", "db"), false)]
        {
            let mut memory = memory();
            memory.ensure_object(Some(uid), target);
            let state = memory.state(Resource::Cpu, None);
            assert_eq!(state == FIRST, is_kept, "{uid} {target:?}");
        }
    }

    #[test]
    fn requests_are_separate_by_resource_and_container() {
        let mut memory = memory();
        let app = State { first_requests: Some(7), ..State::default() };
        memory.change((Resource::Cpu, Some("app")), |_| app);
        let first = |resource, container| memory.state(resource, container).first_requests;
        assert_eq!(first(Resource::Cpu, None), Some(400));
        assert_eq!(first(Resource::Cpu, Some("app")), Some(7));
        assert_eq!(first(Resource::Memory, None), None);
    }

    #[test]
    fn only_first_requests_outlast_a_vpa_that_is_gone() {
        let mut memory = memory();
        let idle = Some(IdleSpan { since: NOW, last: NOW });
        let usage = UsagePerPod::of_all(10, 1);
        memory.change(CPU, |recent| {
            recent.add(usage, NOW);
            State { idle, ..FIRST }
        });
        memory.change((Resource::Memory, None), |_| State { idle, ..State::default() });
        let mut kept = memory.clone();
        kept.retain(|_, _| true);
        assert_eq!(kept, memory);
        memory.retain(|_, _| false);
        assert_eq!(memory, self::memory());
    }

    #[test]
    fn nothing_to_remember_is_not_stored() {
        let mut memory = SharedMemory::default();
        memory.ensure_object(Some("1"), WEB);
        let idle = Some(IdleSpan { since: NOW.earlier(Duration::from_mins(30)), last: NOW });
        memory.change(CPU, |_| State { idle, ..State::default() });
        assert_eq!(memory.to_store(NOW), SharedStates::default());
        memory.change(CPU, |_| FIRST);
        let text = serde_json::to_string(&memory.to_store(NOW)).expect("serializes");
        assert_eq!(text, r#"{"target":"Deployment/web","requests":{"cpu":{"firstRequests":400}}}"#);
    }
}
