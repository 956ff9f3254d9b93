//! What is remembered about one container of a VPA: samples in, state of a fixed small size kept.

use plimsoll_storage::{Bump, Observed, Replica, Time};

use super::{
    histogram::Histogram,
    policy::Overrides,
    settings::Rules,
    window::{self, Rejected, Source},
};
use crate::{
    compat::Fix,
    units::{Bytes, MilliCpu},
};

/// Weight of one CPU sample.
const CPU_WEIGHT: f64 = 0.1;

/// The history of one container over all pods of its VPA.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerHistory {
    pub(super) cpu: Histogram,
    pub(super) memory: Histogram,
    /// Peaks of the largest replica, where asked for.
    pub(super) fleet: Option<Box<Fleet>>,
    pub(super) cpu_seen: Observed,
    pub(super) memory_seen: Observed,
    pub(super) created: Time,
    pub(super) last_alive: Option<Time>,
    pub(super) replicas: Vec<Replica>,
    pub(super) bump: Option<Bump>,
    overrides: Option<Box<Overrides>>,
    pub(super) owner: Option<Box<str>>,
}

/// The peaks of whichever replica was largest in its window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fleet {
    pub(super) peaks: Histogram,
    pub(super) window: Replica,
}

/// A container that was killed for lack of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// Its memory request when it was killed; 0 when it had none.
    pub request: Bytes,
    /// Its memory limit when it was killed: it did use that much.
    pub limit: Option<Bytes>,
}

impl ContainerHistory {
    /// A container of which nothing is known.
    pub fn new(created: Time, rules: &Rules) -> Self {
        Self {
            cpu: Histogram::new(rules.cpu_axis().buckets),
            memory: Histogram::new(rules.memory_axis().buckets),
            fleet: None,
            cpu_seen: Observed::default(),
            memory_seen: Observed::default(),
            created,
            last_alive: None,
            replicas: Vec::new(),
            bump: None,
            overrides: None,
            owner: None,
        }
    }

    /// Takes a CPU sample.
    pub fn add_cpu(
        &mut self,
        replica: &str,
        at: Time,
        usage: MilliCpu,
        rules: &Rules,
    ) -> Result<(), Rejected> {
        if usage.0 < 0 {
            return Err(Rejected::Negative);
        }
        let replica = find_or_add(&mut self.replicas, replica);
        if replica.last_cpu.is_some_and(|last| at <= last) {
            return Err(Rejected::OutOfOrder);
        }
        replica.last_cpu = Some(at);
        self.cpu.add(rules.cpu_axis(), usage.as_cores(), CPU_WEIGHT, at);
        see(&mut self.cpu_seen, at);
        Ok(())
    }

    /// Takes a memory sample.
    pub fn add_memory(
        &mut self,
        replica: &str,
        at: Time,
        usage: Bytes,
        rules: &Rules,
    ) -> Result<(), Rejected> {
        self.take_memory(replica, at, usage, Source::Usage, rules)
    }

    /// Takes an out-of-memory kill: the container is given credit for more than it had.
    pub fn record_oom(
        &mut self,
        replica: &str,
        at: Time,
        kill: OomKill,
        rules: &Rules,
    ) -> Result<(), Rejected> {
        if kill.request.0 < 0 {
            return Err(Rejected::Negative);
        }
        let known = find_or_add(&mut self.replicas, replica);
        if known.last_memory.is_some_and(|last| at < last.earlier(rules.interval)) {
            return Err(Rejected::TooOld);
        }
        let peak = known.usage_peak.unwrap_or(0);
        let base = self.observed_need(at, kill, rules).0.max(peak);
        let added = base.saturating_add(Bytes::from_f64(rules.oom_min_bump).0);
        let counted = added.max(Bytes(base).scale(rules.oom_ratio).0);
        self.take_memory(replica, at, Bytes(counted), Source::Bump, rules)?;
        self.bump = Some(Bump { at, base, counted });
        Ok(())
    }

    /// Notes that a live pod has this container.
    pub fn mark_alive(&mut self, now: Time) {
        self.last_alive = self.last_alive.max(Some(now));
    }

    /// Forgets the pods that are gone. What they used stays.
    pub fn retain_replicas(&mut self, lives: impl Fn(&str) -> bool) {
        self.replicas.retain(|replica| lives(&replica.name));
        self.replicas.shrink_to_fit();
    }

    /// The pods that have state of their own.
    pub fn replicas(&self) -> impl Iterator<Item = &str> {
        self.replicas.iter().map(|replica| &*replica.name)
    }

    /// Takes over what the policy says about this container. Upstream keeps an override that was taken
    /// out of the policy; with the fix the default comes back.
    pub fn apply_policy(&mut self, overrides: Option<&Overrides>, rules: &Rules) {
        let wanted = overrides.copied().unwrap_or_default();
        let merged = match &self.overrides {
            Some(kept) if !rules.fixes.has(Fix::RemovedOverrideRestoresDefault) => {
                wanted.or(**kept)
            }
            _ => wanted,
        };
        self.overrides = (!merged.is_empty()).then(|| Box::new(merged));
    }

    /// The overrides in force.
    pub fn overrides(&self) -> Option<&Overrides> {
        self.overrides.as_deref()
    }

    /// What was seen of the CPU.
    pub fn cpu_seen(&self) -> Observed {
        self.cpu_seen
    }

    /// What was seen of the memory, out-of-memory kills included.
    pub fn memory_seen(&self) -> Observed {
        self.memory_seen
    }

    /// The latest out-of-memory bump.
    pub fn bump(&self) -> Option<Bump> {
        self.bump
    }

    /// Whether nothing was seen that counts as history.
    pub fn is_empty(&self, rules: &Rules) -> bool {
        self.evidence(rules).count == 0
    }

    /// Whether the history lies so far back that it says nothing any more.
    pub fn is_expired(&self, now: Time, rules: &Rules) -> bool {
        let since = self.evidence(rules).last.unwrap_or(self.created);
        now >= since.later(rules.memory_span())
    }

    /// The samples that confidence rests on. Upstream looks at CPU alone; a container that has only
    /// memory samples then counts as unknown.
    pub fn evidence(&self, rules: &Rules) -> Observed {
        if self.cpu_seen.count == 0 && rules.fixes.has(Fix::MemoryOnlyHistoryCounts) {
            self.memory_seen
        } else {
            self.cpu_seen
        }
    }

    /// Adds what another history of the same container knows.
    pub fn merge(&mut self, other: &Self, rules: &Rules) {
        self.cpu.merge(rules.cpu_axis(), &other.cpu);
        self.memory.merge(rules.memory_axis(), &other.memory);
        match (&mut self.fleet, &other.fleet) {
            (Some(ours), Some(theirs)) => ours.peaks.merge(rules.memory_axis(), &theirs.peaks),
            (None, Some(theirs)) => self.fleet = Some(theirs.clone()),
            (_, None) => {}
        }
        for (ours, theirs) in
            [(&mut self.cpu_seen, other.cpu_seen), (&mut self.memory_seen, other.memory_seen)]
        {
            ours.count = ours.count.saturating_add(theirs.count);
            ours.first = earliest(ours.first, theirs.first);
            ours.last = ours.last.max(theirs.last);
        }
        self.created = self.created.min(other.created);
        self.last_alive = self.last_alive.max(other.last_alive);
        self.bump = match (self.bump, other.bump) {
            (Some(ours), Some(theirs)) if theirs.at > ours.at => Some(theirs),
            (ours, theirs) => ours.or(theirs),
        };
        for replica in &other.replicas {
            let at = self.replicas.binary_search_by(|known| known.name.cmp(&replica.name));
            if let Err(index) = at {
                self.replicas.insert(index, replica.clone());
            }
        }
    }

    /// What the kill shows that the container needed, bumps left aside. With a limit it was killed at
    /// the limit, so the request below it was in use too. Without one the request proves nothing if it
    /// was raised by an earlier bump: then what that bump started from stands.
    fn observed_need(&self, at: Time, kill: OomKill, rules: &Rules) -> Bytes {
        if !rules.fixes.has(Fix::OomBumpRestsOnObservation) || kill.limit.is_some() {
            return kill.request;
        }
        match self.bump {
            Some(bump) if at < bump.at.later(rules.memory_span()) => {
                Bytes(kill.request.0.min(bump.base))
            }
            _ => kill.request,
        }
    }

    fn take_memory(
        &mut self,
        replica: &str,
        at: Time,
        usage: Bytes,
        source: Source,
        rules: &Rules,
    ) -> Result<(), Rejected> {
        let (axis, sample) = (rules.memory_axis(), (at, usage, source));
        let replica = find_or_add(&mut self.replicas, replica);
        window::add(replica, &mut self.memory, axis, rules.interval, rules.fixes, sample)?;
        see(&mut self.memory_seen, at);
        if rules.per_replica_peaks {
            let fleet = self.fleet.get_or_insert_with(|| {
                Box::new(Fleet {
                    peaks: Histogram::new(axis.buckets),
                    window: window::new_replica("*"),
                })
            });
            // Samples of different replicas come in any order: only the window itself orders them.
            fleet.window.last_memory = None;
            let Fleet { peaks, window } = &mut **fleet;
            window::add(window, peaks, axis, rules.interval, rules.fixes, sample)?;
        }
        Ok(())
    }
}

/// Replicas are kept in order of their names, so that a fleet of thousands is searched in a few steps.
fn find_or_add<'a>(replicas: &'a mut Vec<Replica>, name: &str) -> &'a mut Replica {
    let index = match replicas.binary_search_by(|replica| (*replica.name).cmp(name)) {
        Ok(index) => index,
        Err(index) => {
            if replicas.len() < 8 {
                replicas.reserve_exact(1);
            }
            replicas.insert(index, window::new_replica(name));
            index
        }
    };
    &mut replicas[index]
}

fn see(seen: &mut Observed, at: Time) {
    seen.count += 1;
    seen.first = earliest(seen.first, Some(at));
    seen.last = seen.last.max(Some(at));
}

fn earliest(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
