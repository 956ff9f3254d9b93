//! What is remembered about one container of a VPA: samples in, state of a fixed small size kept.

use plimsoll_storage::{Bump, HalfLives, Observed, Replica, Time, snapshot::richness};
use std::time::Duration;

use super::{
    explanation::Basis,
    histogram::Axis,
    histogram::Histogram,
    history::Early,
    policy::Overrides,
    pool::Pool,
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
    /// What the weights of both histograms were added by.
    pub(super) half_lives: HalfLives,
    /// Whether what a storage remembered is part of this.
    pub(super) restored: bool,
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

/// A container that was killed for lack of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// Its memory request when it was killed; 0 when it had none.
    pub request: Bytes,
    /// Its memory limit when it was killed. Pods do not say whether the limit or the node ended them; a
    /// container with a limit counts as killed at it.
    pub limit: Option<Bytes>,
    /// What it was seen to use, where whoever killed it says so (an eviction does).
    pub usage: Option<Bytes>,
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
            half_lives: rules.half_lives(),
            restored: false,
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

    /// Takes an out-of-memory kill: the container is given credit for more than it had. Answers for how much.
    pub fn record_oom(
        &mut self,
        replica: &str,
        at: Time,
        kill: OomKill,
        rules: &Rules,
    ) -> Result<Bytes, Rejected> {
        if kill.request.0 < 0 || kill.usage.is_some_and(|usage| usage.0 < 0) {
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
        let is_peak = self.take_memory(replica, at, Bytes(counted), Source::Bump, rules)?;
        let known = find_or_add(&mut self.replicas, replica);
        known.last_kill = known.last_kill.max(Some(at));
        if is_peak {
            self.remember_bump(Bump { at, base, counted }, rules);
        }
        Ok(Bytes(counted))
    }

    /// Whether a kill that a pod still shows is part of this history already. A history that came back
    /// without its pods does not say: then a kill counts if its window was still open when it was saved,
    /// because checkpoints leave out what is open.
    pub fn knows_kill(&self, replica: &str, at: Time, rules: &Rules) -> bool {
        let known = self.replicas.binary_search_by(|known| (*known.name).cmp(replica));
        match known.ok().map(|index| &self.replicas[index]) {
            Some(Replica { last_kill: Some(last), .. }) => at <= *last,
            Some(_) => false,
            None => {
                let closed = self.cpu_seen.last.map(|last| last.earlier(rules.interval));
                self.restored && closed.is_some_and(|closed| at <= closed)
            }
        }
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
        // Upstream keeps for ever what it read at its start.
        if self.restored && !rules.fixes.has(Fix::StaleContainersLeave) {
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

    /// Adds what is remembered of the same container. Of what was seen first since, that counts once which is
    /// remembered as well; a history that came back without its pods does not say, and upstream counts it twice.
    pub(super) fn merge<'a>(
        &mut self,
        remembered: &Self,
        early: impl Iterator<Item = &'a Early>,
        rules: &Rules,
    ) {
        let mut remembered = remembered.clone();
        // Both sides are brought to the same measure first.
        let now = self.memory_seen.last.max(self.cpu_seen.last).unwrap_or(self.created);
        self.adopt(now, rules);
        remembered.adopt(now, rules);
        self.forget_known(&remembered, early, rules);
        let axis = rules.memory_axis();
        match (&mut self.apart, remembered.apart.take()) {
            (Some(ours), Some(theirs)) => ours.merge(&theirs, rules),
            (ours, theirs) => *ours = ours.take().or(theirs),
        }
        self.cpu.merge(rules.cpu_axis(), &remembered.cpu);
        self.memory.merge(axis, &remembered.memory);
        match (&mut self.fleet, remembered.fleet.take()) {
            (Some(ours), Some(theirs)) => {
                ours.peaks.merge(axis, &theirs.peaks);
                window::join(&mut ours.peaks, axis, &mut ours.window, &theirs.window);
            }
            (ours, theirs) => *ours = ours.take().or(theirs),
        }
        for (ours, theirs) in [
            (&mut self.cpu_seen, remembered.cpu_seen),
            (&mut self.memory_seen, remembered.memory_seen),
        ] {
            ours.count = ours.count.saturating_add(theirs.count);
            ours.first = earliest(ours.first, theirs.first);
            ours.last = ours.last.max(theirs.last);
        }
        self.created = self.created.min(remembered.created);
        self.last_alive = self.last_alive.max(remembered.last_alive);
        self.owner = self.owner.take().or(remembered.owner);
        if let Some(bump) = remembered.bump {
            self.remember_bump(bump, rules);
        }
        for replica in remembered.replicas {
            match self.replicas.binary_search_by(|known| known.name.cmp(&replica.name)) {
                Ok(index) => {
                    window::join(&mut self.memory, axis, &mut self.replicas[index], &replica);
                }
                Err(index) => self.replicas.insert(index, replica),
            }
        }
        self.restored |= remembered.restored;
    }

    /// Takes out what is part of what is remembered too. Peaks need nothing: of one window the larger stands.
    fn forget_known<'a>(
        &mut self,
        remembered: &Self,
        early: impl Iterator<Item = &'a Early>,
        rules: &Rules,
    ) {
        for Early { pod, at, cpu, has_memory, .. } in early {
            let known = remembered.replicas.binary_search_by(|known| known.name.cmp(pod));
            let Some(known) = known.ok().map(|index| &remembered.replicas[index]) else { continue };
            if let Some(cpu) = cpu.filter(|cpu| cpu.0 >= 0 && Some(*at) <= known.last_cpu) {
                self.cpu.subtract(rules.cpu_axis(), cpu.as_cores(), CPU_WEIGHT, *at);
                self.cpu_seen.count = self.cpu_seen.count.saturating_sub(1);
            }
            if *has_memory && Some(*at) <= known.last_memory {
                self.memory_seen.count = self.memory_seen.count.saturating_sub(1);
            }
        }
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

    /// Keeps the largest bump that is still part of the history.
    fn remember_bump(&mut self, bump: Bump, rules: &Rules) {
        let stands = self.bump.is_some_and(|known| {
            bump.at < known.at.later(rules.memory_span()) && known.counted > bump.counted
        });
        if !stands {
            let at = self.bump.map_or(bump.at, |known| known.at.max(bump.at));
            self.bump = Some(Bump { at, ..bump });
        }
    }

    /// What the kill shows that the container needed, bumps left aside. Without a limit it was killed for
    /// a starved node, whatever it used; then a request that an earlier bump raised proves nothing, and
    /// what that bump started from stands.
    fn observed_need(&self, at: Time, kill: OomKill, rules: &Rules) -> Bytes {
        if let Some(usage) = kill.usage {
            return usage;
        }
        let bump = self.bump.filter(|bump| {
            rules.fixes.has(Fix::OomBumpRestsOnObservation)
                && kill.limit.is_none()
                && at < bump.at.later(rules.memory_span())
                && kill.request.0 <= most_of_bump(*bump, rules)
        });
        bump.map_or(kill.request, |bump| Bytes(kill.request.0.min(bump.base)))
    }

    fn take_memory(
        &mut self,
        replica: &str,
        at: Time,
        usage: Bytes,
        source: Source,
        rules: &Rules,
    ) -> Result<bool, Rejected> {
        self.adopt(at, rules);
        let (axis, sample) = (rules.memory_axis(), (at, usage, source));
        let replica = find_or_add(&mut self.replicas, replica);
        let peaks = &mut self.memory;
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

/// The largest request that recommending a bump could have led to: one bucket of leeway for rounding, and
/// the margin. A request above that was raised by something else.
fn most_of_bump(bump: Bump, rules: &Rules) -> i64 {
    let buckets = rules.memory_axis().buckets;
    let edge = buckets.upper_edge(buckets.find(bump.counted as f64).saturating_add(1));
    Bytes::from_f64(edge * (1.0 + rules.margin)).0
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
    seen.count = seen.count.saturating_add(1);
    seen.first = earliest(seen.first, Some(at));
    seen.last = seen.last.max(Some(at));
}

fn earliest(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
