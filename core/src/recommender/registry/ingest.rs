//! Ingestion: adds containers, usage samples, OOM kills and throttling to the histories.

use std::collections::HashMap;

use crate::{
    history::Throttling,
    types::{ContainerKey, ObjectKey, PerResource, Time},
};

use super::{HistoryState, VpaState};
use crate::{
    recommender::{
        memory_window::SampleRejected, model_settings::Settings, oom::OomKill, plan::KnownRequests,
    },
    types::{
        compat::Fix,
        units::{Bytes, MilliCpu},
    },
};

#[derive(Clone, Copy, Debug)]
pub struct UsageSample<'a> {
    pub pod: &'a str,
    pub container: &'a str,
    pub at: Time,
    /// CPU usage, if known.
    pub cpu: Option<MilliCpu>,
    /// Memory usage, if known.
    pub memory: Option<Bytes>,
}

/// The result of adding a usage sample, for each resource that it has.
pub type UsageResult = PerResource<Result<(), SampleRejected>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum OomResult {
    /// It was counted as a usage of this much memory.
    Counted(Bytes),
    Known,
    Expired,
    /// It may have happened before this process started, and such OOM kills are ignored.
    Ignored,
    Refused(SampleRejected),
    Untracked,
}

/// Adds to the histories of the VPAs of a registry.
#[derive(Debug)]
pub struct Ingest<'a> {
    pub(super) vpas: &'a mut HashMap<ObjectKey, VpaState>,
    pub(super) settings: &'a Settings,
}

impl Ingest<'_> {
    pub fn register_container(&mut self, key: &ObjectKey, container: &str, now: Time) {
        self.register(key, container, true, now);
    }

    /// Registers a container that only finished pods have. Starts its history if there is none, so that a Job that ran
    /// between two passes has one, but does not mark it alive: evicted and failed pods may exist for weeks.
    pub fn register_finished_container(&mut self, key: &ObjectKey, container: &str, now: Time) {
        self.register(key, container, false, now);
    }

    fn register(&mut self, key: &ObjectKey, container: &str, is_live: bool, now: Time) {
        let Some(vpa) = self.vpas.get_mut(key) else { return };
        let rules = vpa.settings.rules(vpa.history.get(container), self.settings);
        let history = vpa.history.get_or_start(container, now, &rules);
        if is_live {
            history.mark_alive(now);
        }
        vpa.settings.apply_policy(container, history, self.settings);
    }

    pub fn add_usage(
        &mut self,
        key: &ObjectKey,
        usage: UsageSample<'_>,
        now: Time,
    ) -> Option<UsageResult> {
        let vpa = self.vpas.get_mut(key)?;
        let UsageSample { pod, container, at, cpu, memory } = usage;
        if self.settings.latest_sample(now).is_some_and(|latest| at > latest) {
            let rejected = Err(SampleRejected::InFuture);
            return Some(UsageResult {
                cpu: cpu.map(|_| rejected),
                memory: memory.map(|_| rejected),
            });
        }
        let rules = vpa.settings.rules(vpa.history.get(container), self.settings);
        if vpa.state != HistoryState::Loaded {
            vpa.history.record_first_sample(container, pod, at, (cpu, memory));
        }
        let history = vpa.history.container_mut(container, now, &rules);
        let result = UsageResult {
            cpu: cpu.map(|cpu| history.add_cpu(pod, at, cpu, &rules)),
            memory: memory.map(|memory| history.add_memory(pod, at, memory, &rules)),
        };
        if result.cpu == Some(Ok(())) || result.memory == Some(Ok(())) {
            vpa.last_sample = vpa.last_sample.max(Some(at));
            vpa.mark_changed(now, false);
        }
        Some(result)
    }

    /// Records the requests of a pod's container, for planned requests. Does nothing for a container without a history.
    pub fn observe_requests(&mut self, key: &ObjectKey, container: &str, requests: KnownRequests) {
        let Some(vpa) = self.vpas.get_mut(key) else { return };
        let rules = vpa.settings.rules(None, self.settings);
        if rules.plan.is_none() {
            return;
        }
        if let Some(history) = vpa.history.get_mut(container) {
            history.observe_requests(requests, &rules);
        }
    }

    /// Adds an OOM kill. If `may_be_old`, it is ignored if it is older than the history. A time in the future is replaced by
    /// `now`.
    pub fn add_oom(
        &mut self,
        key: &ObjectKey,
        (pod, container): (&str, &str),
        (at, kill): (Time, OomKill),
        may_be_old: bool,
        now: Time,
    ) -> OomResult {
        let Some(vpa) = self.vpas.get_mut(key) else { return OomResult::Untracked };
        let existing = vpa.history.get(container);
        let rules = vpa.settings.rules(existing, self.settings);
        let is_ahead = self.settings.latest_sample(now).is_some_and(|latest| at > latest);
        // After a restart such a kill cannot be distinguished from one of this pod that was counted before.
        if is_ahead && may_be_old && existing.is_some_and(|existing| existing.has_oom_of(pod)) {
            return OomResult::Known;
        }
        let at = if is_ahead { now } else { at };
        if may_be_old && at < now.earlier(rules.memory_span()) {
            return OomResult::Expired;
        }
        if existing.is_some_and(|existing| existing.has_recorded_oom(pod, at, &rules)) {
            return OomResult::Known;
        }
        let history = vpa.history.container_mut(container, now, &rules);
        match history.record_oom(pod, at, kill, &rules) {
            Ok(counted) => {
                vpa.mark_changed(now, true);
                vpa.count_oom(container);
                OomResult::Counted(counted)
            }
            Err(rejected) => OomResult::Refused(rejected),
        }
    }

    /// Adds an OOM kill that a pod showed when it was first observed. It may have happened while no recommender was running,
    /// or an earlier process may have counted it.
    pub fn add_oom_at_first_sight(
        &mut self,
        key: &ObjectKey,
        pod_and_container: (&str, &str),
        time_and_kill: (Time, OomKill),
        now: Time,
    ) -> OomResult {
        if !self.settings.fixes.has(Fix::KillsInDowntimeCount) {
            return OomResult::Ignored;
        }
        self.add_oom(key, pod_and_container, time_and_kill, true, now)
    }

    /// Sets the throttling of a container, or removes it because the container has no CPU limit any more. Does nothing for
    /// a container without a history.
    pub fn set_throttling(&mut self, key: &ContainerKey, measured: Option<Throttling>, now: Time) {
        let Some(vpa) = self.vpas.get_mut(&key.vpa) else { return };
        let Some(history) = vpa.history.get_mut(&key.container) else { return };
        if measured.is_some() || history.throttling().is_some() {
            history.set_throttling(measured);
            vpa.mark_changed(now, false);
        }
    }
}
