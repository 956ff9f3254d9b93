//! What is remembered about one container of a VPA: samples in, state of a fixed small size kept.

use crate::{
    history::{HalfLives, OomBump, ReplicaState, SampleStats, Throttling, snapshot::sample_rank},
    types::Time,
};
use std::time::Duration;

use super::{
    aggregate::Aggregate,
    explanation::Basis,
    histogram::Histogram,
    histogram::HistogramConfig,
    memory_window::{self, MemorySource, SampleRejected},
    policy::Overrides,
    settings::ModelRules,
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
    pub(super) largest_replica: Option<Box<LargestReplicaPeaks>>,
    pub(super) cpu_samples: SampleStats,
    pub(super) memory_samples: SampleStats,
    pub(super) created: Time,
    pub(super) last_alive: Option<Time>,
    pub(super) replicas: Vec<ReplicaState>,
    pub(super) bump: Option<OomBump>,
    /// Where it is measured.
    pub(super) throttling: Option<Box<Throttling>>,
    overrides: Option<Box<Overrides>>,
    pub(super) owner: Option<Box<str>>,
    /// What the weights of both histograms were added by.
    pub(super) half_lives: HalfLives,
    /// Whether what a storage remembered is part of this.
    pub(super) restored: bool,
    /// Whether that came as single samples. Upstream takes these as it takes live ones.
    pub(super) built_from_samples: bool,
    /// Whether all that a server had of the time before is part of this.
    pub(super) bootstrapped: bool,
    /// What came back, under upstream's rules: it is kept apart from what is seen, and both are pooled each
    /// time that somebody looks.
    pub(super) restored_aggregate: Option<Box<Aggregate>>,
}

/// The peaks of whichever replica was largest in its window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LargestReplicaPeaks {
    pub(super) peaks: Histogram,
    pub(super) window: ReplicaState,
}

impl ContainerHistory {
    /// A container of which nothing is known.
    pub fn new(created: Time, rules: &ModelRules) -> Self {
        Self {
            cpu: Histogram::new(rules.cpu_histogram_config().buckets),
            memory: Histogram::new(rules.memory_histogram_config().buckets),
            largest_replica: None,
            cpu_samples: SampleStats::default(),
            memory_samples: SampleStats::default(),
            created,
            last_alive: None,
            replicas: Vec::new(),
            bump: None,
            throttling: None,
            overrides: None,
            owner: None,
            half_lives: rules.half_lives(),
            restored: false,
            built_from_samples: false,
            bootstrapped: false,
            restored_aggregate: None,
        }
    }

    /// Takes a CPU sample.
    pub fn add_cpu(
        &mut self,
        replica: &str,
        at: Time,
        usage: MilliCpu,
        rules: &ModelRules,
    ) -> Result<(), SampleRejected> {
        if usage.0 < 0 {
            return Err(SampleRejected::Negative);
        }
        self.adopt_half_lives(at, rules);
        let replica = find_or_add(&mut self.replicas, replica);
        if replica.last_cpu.is_some_and(|last| at <= last) {
            return Err(SampleRejected::OutOfOrder);
        }
        replica.last_cpu = Some(at);
        self.cpu.add(rules.cpu_histogram_config(), usage.as_cores(), CPU_WEIGHT, at);
        count_sample(&mut self.cpu_samples, at);
        Ok(())
    }

    /// Takes a memory sample.
    pub fn add_memory(
        &mut self,
        replica: &str,
        at: Time,
        usage: Bytes,
        rules: &ModelRules,
    ) -> Result<(), SampleRejected> {
        self.add_memory_amount(replica, at, usage, MemorySource::Usage, rules).map(drop)
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
                && memory_window::open_peak(replica).is_some()
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
    pub fn apply_policy(&mut self, overrides: Option<&Overrides>, rules: &ModelRules) {
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
    pub fn cpu_samples(&self) -> SampleStats {
        self.cpu_samples
    }

    /// What was seen of the memory, out-of-memory kills included.
    pub fn memory_samples(&self) -> SampleStats {
        self.memory_samples
    }

    /// The latest out-of-memory bump.
    pub fn bump(&self) -> Option<OomBump> {
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
    pub(super) fn clear_throttling(&mut self) -> bool {
        self.throttling.take().is_some()
    }

    /// Whether it was made of single samples that a storage has.
    pub fn is_built_from_samples(&self) -> bool {
        self.built_from_samples
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
    pub fn sample_rank(&self) -> u64 {
        sample_rank(self.cpu_samples, self.memory_samples)
    }

    /// The largest CPU usage in cores and memory usage in bytes that the buckets still hold.
    pub fn peaks(&self, rules: &ModelRules) -> (Option<f64>, Option<f64>) {
        let top = |histogram: &Histogram, axis: HistogramConfig<'_>| {
            let empty = histogram.is_empty(axis.buckets);
            (!empty).then(|| histogram.percentile(axis.buckets, 1.0))
        };
        let pool = self.aggregate(rules);
        (
            top(pool.cpu(), rules.cpu_histogram_config()),
            top(pool.memory(), rules.memory_histogram_config()),
        )
    }

    /// Whether the history lies so far back that it says nothing any more.
    pub fn is_expired(&self, now: Time, rules: &ModelRules) -> bool {
        // Upstream keeps for ever the checkpoints that it read at its start.
        if self.restored && !self.built_from_samples && !rules.fixes.has(Fix::StaleContainersLeave)
        {
            return false;
        }
        let last = if rules.fixes.has(Fix::MemoryOnlyHistoryCounts) {
            self.cpu_samples.last.max(self.memory_samples.last)
        } else {
            self.cpu_samples.last
        };
        now >= last.unwrap_or(self.created).later(rules.memory_span())
    }

    /// The samples that confidence in memory rests on. Upstream looks at CPU alone; a container that has
    /// only memory samples, or all but one of them, then counts as unknown.
    pub fn memory_evidence(&self, rules: &ModelRules) -> (Basis, SampleStats) {
        let memory = self.cpu_samples.count <= 1
            && self.memory_samples.count > self.cpu_samples.count
            && rules.fixes.has(Fix::MemoryOnlyHistoryCounts);
        if memory { (Basis::Memory, self.memory_samples) } else { (Basis::Cpu, self.cpu_samples) }
    }

    /// What both histograms are measured by now.
    pub(super) fn histogram_configs(
        &self,
        rules: &ModelRules,
    ) -> (HistogramConfig<'static>, HistogramConfig<'static>) {
        let span = |seconds: u32| Some(Duration::from_secs(u64::from(seconds)));
        (
            HistogramConfig {
                half_life: span(self.half_lives.cpu),
                ..rules.cpu_histogram_config()
            },
            HistogramConfig {
                half_life: span(self.half_lives.memory),
                ..rules.memory_histogram_config()
            },
        )
    }

    /// Brings the histograms over when a half-life was changed.
    pub(super) fn adopt_half_lives(&mut self, now: Time, rules: &ModelRules) {
        let wanted = rules.half_lives();
        if self.half_lives == wanted {
            return;
        }
        let (cpu, memory) = self.histogram_configs(rules);
        self.half_lives = wanted;
        let (new_cpu, new_memory) = self.histogram_configs(rules);
        self.cpu.change_half_life(cpu, new_cpu, now);
        memory_window::remove_open_peaks(&mut self.memory, memory, &self.replicas);
        self.memory.change_half_life(memory, new_memory, now);
        memory_window::restore_open_peaks(&mut self.memory, new_memory, &self.replicas);
        if let Some(apart) = self.restored_aggregate.as_deref_mut() {
            apart.cpu.change_half_life(cpu, new_cpu, now);
            apart.memory.change_half_life(memory, new_memory, now);
        }
        if let Some(LargestReplicaPeaks { peaks, window }) = self.largest_replica.as_deref_mut() {
            memory_window::remove_open_peaks(peaks, memory, std::slice::from_ref(window));
            peaks.change_half_life(memory, new_memory, now);
            memory_window::restore_open_peaks(peaks, new_memory, std::slice::from_ref(window));
        }
    }

    pub(super) fn add_memory_amount(
        &mut self,
        replica: &str,
        at: Time,
        usage: Bytes,
        source: MemorySource,
        rules: &ModelRules,
    ) -> Result<bool, SampleRejected> {
        self.adopt_half_lives(at, rules);
        let place = replica_index(&mut self.replicas, replica);
        self.add_memory_amount_at(place, at, usage, source, rules)
    }

    /// Takes memory of the pod at this place, after the history has adopted these rules.
    pub(super) fn add_memory_amount_at(
        &mut self,
        place: usize,
        at: Time,
        usage: Bytes,
        source: MemorySource,
        rules: &ModelRules,
    ) -> Result<bool, SampleRejected> {
        let (axis, sample) = (rules.memory_histogram_config(), (at, usage, source));
        let (replica, peaks) = (&mut self.replicas[place], &mut self.memory);
        let counts = memory_window::add_to_window(
            replica,
            peaks,
            axis,
            rules.interval,
            rules.fixes,
            sample,
        )?;
        count_sample(&mut self.memory_samples, at);
        if rules.per_replica_peaks {
            let fleet = self.largest_replica.get_or_insert_with(|| {
                Box::new(LargestReplicaPeaks {
                    peaks: Histogram::new(axis.buckets),
                    window: memory_window::new_replica("*"),
                })
            });
            // Samples of different replicas come in any order: only the window itself orders them.
            fleet.window.last_memory = None;
            let LargestReplicaPeaks { peaks, window } = &mut **fleet;
            memory_window::add_to_window(window, peaks, axis, rules.interval, rules.fixes, sample)?;
        }
        Ok(counts)
    }
}

/// Replicas are kept in order of their names, so that a fleet of thousands is searched in a few steps.
pub(super) fn replica_index(replicas: &mut Vec<ReplicaState>, name: &str) -> usize {
    replicas.binary_search_by(|replica| (*replica.name).cmp(name)).unwrap_or_else(|place| {
        if replicas.len() < 8 {
            replicas.reserve_exact(1);
        }
        replicas.insert(place, memory_window::new_replica(name));
        place
    })
}

/// The one of this name.
pub(super) fn find_or_add<'a>(
    replicas: &'a mut Vec<ReplicaState>,
    name: &str,
) -> &'a mut ReplicaState {
    let place = replica_index(replicas, name);
    &mut replicas[place]
}

fn count_sample(seen: &mut SampleStats, at: Time) {
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
