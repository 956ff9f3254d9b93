//! What is remembered about one container of a VPA: samples in, state of a fixed small size kept.

use crate::{
    history::{Bump, HalfLives, Observed, Replica, Throttling, snapshot::richness},
    types::Time,
};
use std::time::Duration;

use super::{
    explanation::Basis,
    histogram::Axis,
    histogram::Histogram,
    policy::Overrides,
    pool::Pool,
    settings::Rules,
    window::{self, Rejected, Source},
};
use crate::types::{
    compat::Fix,
    units::{Bytes, MilliCpu},
};

/// Weight of one CPU sample.
pub(super) const CPU_WEIGHT: f64 = 0.1;

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
    /// Where it is measured.
    pub(super) throttling: Option<Box<Throttling>>,
    overrides: Option<Box<Overrides>>,
    pub(super) owner: Option<Box<str>>,
    /// What the weights of both histograms were added by.
    pub(super) half_lives: HalfLives,
    /// Whether what a storage remembered is part of this.
    pub(super) restored: bool,
    /// Whether that came as single samples. Upstream takes these as it takes live ones.
    pub(super) folded: bool,
    /// Whether all that a server had of the time before is part of this.
    pub(super) bootstrapped: bool,
    /// What came back, under upstream's rules: it is kept apart from what is seen, and both are pooled each
    /// time that somebody looks.
    pub(super) apart: Option<Box<Pool>>,
}

/// The peaks of whichever replica was largest in its window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fleet {
    pub(super) peaks: Histogram,
    pub(super) window: Replica,
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
            throttling: None,
            overrides: None,
            owner: None,
            half_lives: rules.half_lives(),
            restored: false,
            folded: false,
            bootstrapped: false,
            apart: None,
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
        self.adopt(at, rules);
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
        self.take_memory(replica, at, usage, Source::Usage, rules).map(drop)
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

    /// Whether a window with a peak closed after `since`, and by `now`.
    pub fn has_window_closed(&self, since: Time, now: Time) -> bool {
        self.replicas.iter().any(|replica| {
            replica.window_end.is_some_and(|end| since < end && end <= now)
                && window::open_peak(replica).is_some()
        })
    }

    /// Whether a pod has state of its own.
    pub fn has_replica(&self, name: &str) -> bool {
        self.replicas.binary_search_by(|replica| (*replica.name).cmp(name)).is_ok()
    }

    /// The pods that have state of their own.
    pub fn replicas(&self) -> impl ExactSizeIterator<Item = &str> {
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

    /// How much of its time it was kept from the CPU that it wanted, where that was measured.
    pub fn throttling(&self) -> Option<&Throttling> {
        self.throttling.as_deref()
    }

    /// Notes how much that was, in place of what was measured before.
    pub fn set_throttling(&mut self, measured: Throttling) {
        self.throttling = Some(Box::new(measured));
    }

    /// Forgets what was measured: nothing holds the container back any more. Answers whether there was anything.
    pub(super) fn forget_throttling(&mut self) -> bool {
        self.throttling.take().is_some()
    }

    /// Whether it was made of single samples that a storage has.
    pub fn is_folded(&self) -> bool {
        self.folded
    }

    /// The topmost scalable owner of the pods, as a storage keeps it (`apps/Deployment/web`).
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Notes the topmost scalable owner of the pods.
    pub fn set_owner(&mut self, owner: impl Into<Box<str>>) {
        self.owner = Some(owner.into());
    }

    /// How much was seen, counted as a stored snapshot counts it.
    pub fn richness(&self) -> u64 {
        richness(self.cpu_seen, self.memory_seen)
    }

    /// The largest CPU usage in cores and memory usage in bytes that the buckets still hold.
    pub fn peaks(&self, rules: &Rules) -> (Option<f64>, Option<f64>) {
        let top = |histogram: &Histogram, axis: Axis<'_>| {
            let empty = histogram.is_empty(axis.buckets);
            (!empty).then(|| histogram.percentile(axis.buckets, 1.0))
        };
        let pool = self.pooled(rules);
        (top(pool.cpu(), rules.cpu_axis()), top(pool.memory(), rules.memory_axis()))
    }

    /// Whether the history lies so far back that it says nothing any more.
    pub fn is_expired(&self, now: Time, rules: &Rules) -> bool {
        // Upstream keeps for ever the checkpoints that it read at its start.
        if self.restored && !self.folded && !rules.fixes.has(Fix::StaleContainersLeave) {
            return false;
        }
        let last = if rules.fixes.has(Fix::MemoryOnlyHistoryCounts) {
            self.cpu_seen.last.max(self.memory_seen.last)
        } else {
            self.cpu_seen.last
        };
        now >= last.unwrap_or(self.created).later(rules.memory_span())
    }

    /// The samples that confidence in memory rests on. Upstream looks at CPU alone; a container that has
    /// only memory samples, or all but one of them, then counts as unknown.
    pub fn evidence(&self, rules: &Rules) -> (Basis, Observed) {
        let memory = self.cpu_seen.count <= 1
            && self.memory_seen.count > self.cpu_seen.count
            && rules.fixes.has(Fix::MemoryOnlyHistoryCounts);
        if memory { (Basis::Memory, self.memory_seen) } else { (Basis::Cpu, self.cpu_seen) }
    }

    /// What both histograms are measured by now.
    pub(super) fn axes(&self, rules: &Rules) -> (Axis<'static>, Axis<'static>) {
        let span = |seconds: u32| Some(Duration::from_secs(u64::from(seconds)));
        (
            Axis { half_life: span(self.half_lives.cpu), ..rules.cpu_axis() },
            Axis { half_life: span(self.half_lives.memory), ..rules.memory_axis() },
        )
    }

    /// Brings the histograms over when a half-life was changed.
    pub(super) fn adopt(&mut self, now: Time, rules: &Rules) {
        let wanted = rules.half_lives();
        if self.half_lives == wanted {
            return;
        }
        let (cpu, memory) = self.axes(rules);
        self.half_lives = wanted;
        let (new_cpu, new_memory) = self.axes(rules);
        self.cpu.change_half_life(cpu, new_cpu, now);
        window::lift(&mut self.memory, memory, &self.replicas);
        self.memory.change_half_life(memory, new_memory, now);
        window::lower(&mut self.memory, new_memory, &self.replicas);
        if let Some(apart) = self.apart.as_deref_mut() {
            apart.cpu.change_half_life(cpu, new_cpu, now);
            apart.memory.change_half_life(memory, new_memory, now);
        }
        if let Some(Fleet { peaks, window }) = self.fleet.as_deref_mut() {
            window::lift(peaks, memory, std::slice::from_ref(window));
            peaks.change_half_life(memory, new_memory, now);
            window::lower(peaks, new_memory, std::slice::from_ref(window));
        }
    }

    pub(super) fn take_memory(
        &mut self,
        replica: &str,
        at: Time,
        usage: Bytes,
        source: Source,
        rules: &Rules,
    ) -> Result<bool, Rejected> {
        self.adopt(at, rules);
        let place = place_of(&mut self.replicas, replica);
        self.take_memory_of(place, at, usage, source, rules)
    }

    /// Takes memory of the pod at this place, after the history has adopted these rules.
    pub(super) fn take_memory_of(
        &mut self,
        place: usize,
        at: Time,
        usage: Bytes,
        source: Source,
        rules: &Rules,
    ) -> Result<bool, Rejected> {
        let (axis, sample) = (rules.memory_axis(), (at, usage, source));
        let (replica, peaks) = (&mut self.replicas[place], &mut self.memory);
        let counts = window::add(replica, peaks, axis, rules.interval, rules.fixes, sample)?;
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
        Ok(counts)
    }
}

/// Replicas are kept in order of their names, so that a fleet of thousands is searched in a few steps.
pub(super) fn place_of(replicas: &mut Vec<Replica>, name: &str) -> usize {
    replicas.binary_search_by(|replica| (*replica.name).cmp(name)).unwrap_or_else(|place| {
        if replicas.len() < 8 {
            replicas.reserve_exact(1);
        }
        replicas.insert(place, window::new_replica(name));
        place
    })
}

/// The one of this name.
pub(super) fn find_or_add<'a>(replicas: &'a mut Vec<Replica>, name: &str) -> &'a mut Replica {
    let place = place_of(replicas, name);
    &mut replicas[place]
}

fn see(seen: &mut Observed, at: Time) {
    seen.count = seen.count.saturating_add(1);
    seen.first = earliest(seen.first, Some(at));
    seen.last = seen.last.max(Some(at));
}

pub(super) fn earliest(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
