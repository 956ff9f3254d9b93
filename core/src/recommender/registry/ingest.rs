//! What is seen of containers on its way into the histories of the fleet: that they are there, what they use, and that they
//! were killed or throttled.

use std::sync::Arc;

use crate::{
    history::Throttling,
    types::{ContainerKey, ObjectKey, Time},
};

use super::{HistoryState, VpaRegistry};
use crate::{
    recommender::{container::ContainerHistory, memory_window::SampleRejected, oom::OomKill},
    types::{
        compat::Fix,
        units::{Bytes, MilliCpu},
    },
};

/// One usage of one container.
#[derive(Clone, Copy, Debug)]
pub struct UsageSample<'a> {
    /// Name of the pod.
    pub pod: &'a str,
    /// Name of the container.
    pub container: &'a str,
    /// When it was measured.
    pub at: Time,
    /// CPU, when it is known.
    pub cpu: Option<MilliCpu>,
    /// Memory, when it is known.
    pub memory: Option<Bytes>,
}

/// What became of a usage: each resource that was there, taken or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageResult {
    /// CPU.
    pub cpu: Option<Result<(), SampleRejected>>,
    /// Memory.
    pub memory: Option<Result<(), SampleRejected>>,
}

/// What became of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OomResult {
    /// It counts, as a usage of so much memory.
    Counted(Bytes),
    /// It is part of the history already.
    Known,
    /// It lies before everything that history holds.
    Expired,
    /// It may have happened before this process began, and such kills are not wanted.
    Ignored,
    /// The history refused it.
    Refused(SampleRejected),
    /// Nobody asked about that container.
    Untracked,
}

impl OomResult {
    /// All words.
    pub const NAMES: [&str; 6] = ["counted", "known", "expired", "ignored", "refused", "untracked"];

    /// As metrics name it.
    pub const fn as_str(self) -> &'static str {
        let [counted, known, expired, ignored, refused, untracked] = Self::NAMES;
        match self {
            Self::Counted(_) => counted,
            Self::Known => known,
            Self::Expired => expired,
            Self::Ignored => ignored,
            Self::Refused(_) => refused,
            Self::Untracked => untracked,
        }
    }
}

impl UsageResult {
    /// Whether it was refused because it is from the future.
    pub fn is_in_future(self) -> bool {
        [self.cpu, self.memory].contains(&Some(Err(SampleRejected::InFuture)))
    }
}

impl VpaRegistry {
    /// Registers a container of a live pod.
    pub fn register_container(&mut self, key: &ObjectKey, container: &str, now: Time) {
        self.register(key, container, true, now);
    }

    /// Registers a container that only finished pods have. Its history starts if there is none, so that a Job that ran
    /// between two passes has one, but it is not alive: evicted and failed pods may be kept for weeks.
    pub fn register_finished_container(&mut self, key: &ObjectKey, container: &str, now: Time) {
        self.register(key, container, false, now);
    }

    fn register(&mut self, key: &ObjectKey, container: &str, is_live: bool, now: Time) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        let rules = watched.settings.rules(watched.history.get(container), &self.settings);
        let history = watched.history.get_or_start(container, now, &rules);
        if is_live {
            history.mark_alive(now);
        }
        watched.settings.apply_policy(container, history, &self.settings);
    }

    /// Takes a usage.
    pub fn add_usage(
        &mut self,
        key: &ObjectKey,
        usage: UsageSample<'_>,
        now: Time,
    ) -> Option<UsageResult> {
        let watched = self.vpas.get_mut(key)?;
        let UsageSample { pod, container, at, cpu, memory } = usage;
        if self.settings.latest_sample(now).is_some_and(|latest| at > latest) {
            let refused = Err(SampleRejected::InFuture);
            return Some(UsageResult {
                cpu: cpu.map(|_| refused),
                memory: memory.map(|_| refused),
            });
        }
        let rules = watched.settings.rules(watched.history.get(container), &self.settings);
        if watched.state != HistoryState::Loaded {
            watched.history.record_first_sample(container, pod, at, (cpu, memory));
        }
        let history = watched.history.container_mut(container, now, &rules);
        let taken = UsageResult {
            cpu: cpu.map(|cpu| history.add_cpu(pod, at, cpu, &rules)),
            memory: memory.map(|memory| history.add_memory(pod, at, memory, &rules)),
        };
        if taken.cpu == Some(Ok(())) || taken.memory == Some(Ok(())) {
            watched.last_sample = watched.last_sample.max(Some(at));
            watched.mark_changed(now, false);
        }
        Some(taken)
    }

    /// Takes an out-of-memory kill. One that may have happened long ago is held against what history reaches. One that
    /// is dated into the future happened by now at the latest.
    pub fn add_oom(
        &mut self,
        key: &ObjectKey,
        (pod, container): (&str, &str),
        (at, kill): (Time, OomKill),
        may_be_old: bool,
        now: Time,
    ) -> OomResult {
        let Some(watched) = self.vpas.get_mut(key) else { return OomResult::Untracked };
        let known = watched.history.get(container);
        let rules = watched.settings.rules(known, &self.settings);
        let is_ahead = self.settings.latest_sample(now).is_some_and(|latest| at > latest);
        // After a restart nothing tells such a kill from the one of this pod that was counted before.
        if is_ahead && may_be_old && known.is_some_and(|known| known.has_oom_of(pod)) {
            return OomResult::Known;
        }
        let at = if is_ahead { now } else { at };
        if may_be_old && at < now.earlier(rules.memory_span()) {
            return OomResult::Expired;
        }
        if known.is_some_and(|known| known.has_recorded_oom(pod, at, &rules)) {
            return OomResult::Known;
        }
        let history = watched.history.container_mut(container, now, &rules);
        match history.record_oom(pod, at, kill, &rules) {
            Ok(counted) => {
                watched.mark_changed(now, true);
                watched.count_oom(container);
                OomResult::Counted(counted)
            }
            Err(rejected) => OomResult::Refused(rejected),
        }
    }

    /// Takes an out-of-memory kill that a pod showed when it was first seen: nobody may have watched when it
    /// happened, or an earlier process may have counted it.
    pub fn add_oom_at_first_sight(
        &mut self,
        key: &ObjectKey,
        whose: (&str, &str),
        told: (Time, OomKill),
        now: Time,
    ) -> OomResult {
        if !self.settings.fixes.has(Fix::KillsInDowntimeCount) {
            return OomResult::Ignored;
        }
        self.add_oom(key, whose, told, true, now)
    }

    /// Notes how much a container was throttled, in place of what was measured before; not for a container that has no
    /// history.
    pub fn set_throttling(&mut self, key: &ContainerKey, measured: Throttling, now: Time) {
        self.update_throttling(key, now, |history| {
            history.set_throttling(measured);
            true
        });
    }

    /// Forgets how much a container was throttled: it has no CPU limit any more.
    pub fn clear_throttling(&mut self, key: &ContainerKey, now: Time) {
        self.update_throttling(key, now, ContainerHistory::clear_throttling);
    }

    fn update_throttling(
        &mut self,
        key: &ContainerKey,
        now: Time,
        change: impl FnOnce(&mut ContainerHistory) -> bool,
    ) {
        let Some(watched) = self.vpas.get_mut(&key.vpa) else { return };
        let of = |(name, _): &(&Arc<str>, &mut ContainerHistory)| ***name == *key.container;
        if watched.history.iter_mut().find(of).is_some_and(|(_, history)| change(history)) {
            watched.mark_changed(now, false);
        }
    }
}
