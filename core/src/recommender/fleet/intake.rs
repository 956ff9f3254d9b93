//! What is seen of containers on its way into the histories of the fleet: that they are there, what they use, and that they
//! were killed or throttled.

use std::sync::Arc;

use crate::{
    history::Throttling,
    types::{Key, Time, VpaKey},
};

use super::{Fleet, HistoryState};
use crate::{
    recommender::{container::ContainerHistory, kill::OomKill, window::Rejected},
    types::{
        compat::Fix,
        units::{Bytes, MilliCpu},
    },
};

/// One usage of one container.
#[derive(Clone, Copy, Debug)]
pub struct Usage<'a> {
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
pub struct Taken {
    /// CPU.
    pub cpu: Option<Result<(), Rejected>>,
    /// Memory.
    pub memory: Option<Result<(), Rejected>>,
}

/// What became of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillOutcome {
    /// It counts, as a usage of so much memory.
    Counted(Bytes),
    /// It is part of the history already.
    Known,
    /// It lies before everything that history holds.
    Expired,
    /// It may have happened before this process began, and such kills are not wanted.
    Ignored,
    /// The history refused it.
    Refused(Rejected),
    /// Nobody asked about that container.
    Untracked,
}

impl KillOutcome {
    /// All words.
    pub const WORDS: [&str; 6] = ["counted", "known", "expired", "ignored", "refused", "untracked"];

    /// As metrics name it.
    pub const fn word(self) -> &'static str {
        let [counted, known, expired, ignored, refused, untracked] = Self::WORDS;
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

impl Taken {
    /// Whether it was refused because it is from the future.
    pub fn is_in_future(self) -> bool {
        [self.cpu, self.memory].contains(&Some(Err(Rejected::InFuture)))
    }
}

impl Fleet {
    /// Registers a container of a live pod.
    pub fn see_container(&mut self, key: &VpaKey, container: &str, now: Time) {
        self.register(key, container, true, now);
    }

    /// Registers a container that only finished pods have. Its history starts if there is none, so that a Job that ran
    /// between two passes has one, but it is not alive: evicted and failed pods may be kept for weeks.
    pub fn see_finished_container(&mut self, key: &VpaKey, container: &str, now: Time) {
        self.register(key, container, false, now);
    }

    fn register(&mut self, key: &VpaKey, container: &str, is_live: bool, now: Time) {
        let Some(watched) = self.vpas.get_mut(key) else { return };
        let rules = watched.directives.rules(watched.history.get(container), &self.settings);
        let history = watched.history.get_or_start(container, now, &rules);
        if is_live {
            history.mark_alive(now);
        }
        watched.directives.govern(container, history, &self.settings);
    }

    /// Takes a usage.
    pub fn take_usage(&mut self, key: &VpaKey, usage: Usage<'_>, now: Time) -> Option<Taken> {
        let watched = self.vpas.get_mut(key)?;
        let Usage { pod, container, at, cpu, memory } = usage;
        if self.settings.latest_sample(now).is_some_and(|latest| at > latest) {
            let refused = Err(Rejected::InFuture);
            return Some(Taken { cpu: cpu.map(|_| refused), memory: memory.map(|_| refused) });
        }
        let rules = watched.directives.rules(watched.history.get(container), &self.settings);
        if watched.state != HistoryState::Loaded {
            watched.history.note_first(container, pod, at, (cpu, memory));
        }
        let history = watched.history.container_mut(container, now, &rules);
        let taken = Taken {
            cpu: cpu.map(|cpu| history.add_cpu(pod, at, cpu, &rules)),
            memory: memory.map(|memory| history.add_memory(pod, at, memory, &rules)),
        };
        if taken.cpu == Some(Ok(())) || taken.memory == Some(Ok(())) {
            watched.last_sample = watched.last_sample.max(Some(at));
            watched.change(now, false);
        }
        Some(taken)
    }

    /// Takes an out-of-memory kill. One that may have happened long ago is held against what history reaches. One that
    /// is dated into the future happened by now at the latest.
    pub fn take_kill(
        &mut self,
        key: &VpaKey,
        (pod, container): (&str, &str),
        (at, kill): (Time, OomKill),
        may_be_old: bool,
        now: Time,
    ) -> KillOutcome {
        let Some(watched) = self.vpas.get_mut(key) else { return KillOutcome::Untracked };
        let known = watched.history.get(container);
        let rules = watched.directives.rules(known, &self.settings);
        let is_ahead = self.settings.latest_sample(now).is_some_and(|latest| at > latest);
        // After a restart nothing tells such a kill from the one of this pod that was counted before.
        if is_ahead && may_be_old && known.is_some_and(|known| known.has_kill_of(pod)) {
            return KillOutcome::Known;
        }
        let at = if is_ahead { now } else { at };
        if may_be_old && at < now.earlier(rules.memory_span()) {
            return KillOutcome::Expired;
        }
        if known.is_some_and(|known| known.knows_kill(pod, at, &rules)) {
            return KillOutcome::Known;
        }
        let history = watched.history.container_mut(container, now, &rules);
        match history.record_oom(pod, at, kill, &rules) {
            Ok(counted) => {
                watched.change(now, true);
                watched.note_kill(container);
                KillOutcome::Counted(counted)
            }
            Err(rejected) => KillOutcome::Refused(rejected),
        }
    }

    /// Takes an out-of-memory kill that a pod showed when it was first seen: nobody may have watched when it
    /// happened, or an earlier process may have counted it.
    pub fn take_kill_at_first_sight(
        &mut self,
        key: &VpaKey,
        whose: (&str, &str),
        told: (Time, OomKill),
        now: Time,
    ) -> KillOutcome {
        if !self.settings.fixes.has(Fix::KillsInDowntimeCount) {
            return KillOutcome::Ignored;
        }
        self.take_kill(key, whose, told, true, now)
    }

    /// Notes how much a container was throttled, in place of what was measured before; not for a container that has no
    /// history.
    pub fn note_throttling(&mut self, key: &Key, measured: Throttling, now: Time) {
        self.change_throttling(key, now, |history| {
            history.set_throttling(measured);
            true
        });
    }

    /// Forgets how much a container was throttled: it has no CPU limit any more.
    pub fn forget_throttling(&mut self, key: &Key, now: Time) {
        self.change_throttling(key, now, ContainerHistory::forget_throttling);
    }

    fn change_throttling(
        &mut self,
        key: &Key,
        now: Time,
        change: impl FnOnce(&mut ContainerHistory) -> bool,
    ) {
        let Some(watched) = self.vpas.get_mut(&key.vpa) else { return };
        let of = |(name, _): &(&Arc<str>, &mut ContainerHistory)| ***name == *key.container;
        if watched.history.iter_mut().find(of).is_some_and(|(_, history)| change(history)) {
            watched.change(now, false);
        }
    }
}
