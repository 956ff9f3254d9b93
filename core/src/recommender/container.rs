//! The history of one container of a VPA: ingests samples into a state of small, bounded size.

use crate::{
    history::{
        HalfLives, OomBump, ReplicaState, SampleStats, Snapshot, Throttling, snapshot::sample_rank,
    },
    types::{PerResource, Time},
};
use std::time::Duration;

use super::{
    aggregate::{self, Aggregate},
    explanation::Resource,
    histogram::{Histogram, HistogramConfig},
    memory_window::{self, LargestReplicaPeaks, MemorySource, SampleRejected, find, index_or_add},
    model_settings::ModelRules,
    oom::{OomKill, latest_bump},
    plan::{ContainerPlan, CpuPlan, KnownRequests, PlanRules, PlanState},
    policy::Overrides,
    snapshot_conv::{self, InvalidSnapshot},
};
use crate::types::{
    compat::Fix,
    units::{Bytes, MilliCpu},
};

/// Weight of one CPU sample.
pub(super) const CPU_WEIGHT: f64 = 0.1;

/// The history of one container across all pods of its VPA.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerHistory {
    pub(super) cpu: Histogram,
    pub(super) memory: Histogram,
    /// Peaks of the largest replica, if enabled.
    pub(super) largest_replica: Option<Box<LargestReplicaPeaks>>,
    pub cpu_samples: SampleStats,
    pub memory_samples: SampleStats,
    pub(super) created: Time,
    pub(super) last_alive: Option<Time>,
    pub(super) replicas: Vec<ReplicaState>,
    pub bump: Option<OomBump>,
    pub(super) throttling: Option<Box<Throttling>>,
    /// The planned requests, where they are planned.
    pub(super) plan: Option<Box<ContainerPlan>>,
    overrides: Option<Box<Overrides>>,
    pub(super) owner: Option<Box<str>>,
    /// The half-lives that the weights of both histograms use.
    pub(super) half_lives: HalfLives,
    /// Whether stored history is part of this.
    pub(super) restored: bool,
    /// Whether it was built from stored single samples. Upstream treats these like live samples.
    pub(super) built_from_samples: bool,
    /// Whether the history before `created` was loaded from the server completely.
    pub(super) bootstrapped: bool,
    /// The restored history, in upstream mode: it is kept apart from the live samples, and both are merged for every
    /// recommendation.
    pub(super) restored_aggregate: Option<Box<Aggregate>>,
}

impl ContainerHistory {
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
            plan: None,
            overrides: None,
            owner: None,
            half_lives: rules.half_lives(),
            restored: false,
            built_from_samples: false,
            bootstrapped: false,
            restored_aggregate: None,
        }
    }

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
        let index = index_or_add(&mut self.replicas, replica);
        let replica = &mut self.replicas[index];
        if replica.last_cpu.is_some_and(|last| at <= last) {
            return Err(SampleRejected::OutOfOrder);
        }
        replica.last_cpu = Some(at);
        self.add_planned_cpu(at, usage.as_cores(), true, rules);
        self.cpu.add(rules.cpu_histogram_config(), usage.as_cores(), CPU_WEIGHT, at);
        count_sample(&mut self.cpu_samples, at);
        Ok(())
    }

    pub fn add_memory(
        &mut self,
        replica: &str,
        at: Time,
        usage: Bytes,
        rules: &ModelRules,
    ) -> Result<(), SampleRejected> {
        self.adopt_half_lives(at, rules);
        let index = index_or_add(&mut self.replicas, replica);
        self.add_memory_amount_at(index, at, usage, MemorySource::Usage, rules).map(drop)
    }

    /// Records an OOM kill: adds a bumped memory amount. Returns that amount.
    pub fn record_oom(
        &mut self,
        replica: &str,
        at: Time,
        kill: OomKill,
        rules: &ModelRules,
    ) -> Result<Bytes, SampleRejected> {
        let bump = kill.bump(at, find(&self.replicas, replica), self.bump, rules)?;
        let counted = Bytes(bump.counted);
        self.adopt_half_lives(at, rules);
        let index = index_or_add(&mut self.replicas, replica);
        let is_peak = self.add_memory_amount_at(index, at, counted, MemorySource::Bump, rules)?;
        let replica = &mut self.replicas[index];
        replica.last_kill = replica.last_kill.max(Some(at));
        if let Some((plan, rules)) = self.plan_at(at, rules) {
            let amounts = [Some(kill.request), kill.limit, kill.usage];
            let killed_at = amounts.into_iter().flatten().map(|amount| amount.0).max();
            plan.add_oom(rules, at, killed_at.unwrap_or(0).max(0) as f64);
        }
        if is_peak {
            self.bump = Some(latest_bump(self.bump, bump, rules));
        }
        Ok(counted)
    }

    /// Adds a CPU sample to the plan only, if there is one.
    pub(super) fn add_planned_cpu(
        &mut self,
        at: Time,
        cores: f64,
        is_live: bool,
        rules: &ModelRules,
    ) {
        if let Some((plan, rules)) = self.plan_at(at, rules) {
            plan.add_cpu(rules, at, cores, is_live);
        }
    }

    /// Records the requests of a pod, for the plan.
    pub fn observe_requests(&mut self, requests: KnownRequests, rules: &ModelRules) {
        if let Some(plan) = self.plan.as_mut().filter(|_| rules.plan.is_some()) {
            plan.observe_requests(requests);
        }
    }

    /// Decides on planned requests. `fallback` has the requests to continue from if no pod has any.
    pub fn decide_plan(&mut self, rules: &ModelRules, now: Time, fallback: KnownRequests) {
        if let (Some(plan), Some(rules)) = (&mut self.plan, &rules.plan) {
            plan.decide(rules, now, fallback);
        }
    }

    pub fn plan(&self) -> Option<&ContainerPlan> {
        self.plan.as_deref()
    }

    /// Returns the plan for a sample, if requests are planned: at first one from the histograms, or an empty one.
    fn plan_at<'a>(
        &mut self,
        at: Time,
        rules: &'a ModelRules,
    ) -> Option<(&mut ContainerPlan, &'a PlanRules)> {
        let Some(plan_rules) = &rules.plan else {
            self.plan = None;
            return None;
        };
        if self.plan.is_none() {
            let state = self.plan_from_histograms(rules).unwrap_or_else(|| PlanState::new(at));
            self.plan = Some(Box::new(ContainerPlan::new(state)));
        }
        self.plan.as_deref_mut().map(|plan| (plan, plan_rules))
    }

    /// Starts a plan from the histograms. `None` without CPU samples.
    pub(super) fn plan_from_histograms(&self, rules: &ModelRules) -> Option<PlanState> {
        let plan_rules = rules.plan.as_ref()?;
        let samples = self.cpu_samples;
        let (first, last) = (samples.first?, samples.last?);
        let (cpu, memory) = aggregate::merged(self, rules);
        let buckets = rules.cpu_histogram_config().buckets;
        let weights = cpu.to_weights(rules.scheme).buckets;
        let middles = weights.into_iter().map(|(bucket, weight)| {
            let edges = [buckets.start(bucket), buckets.upper_edge(bucket)];
            (edges.iter().sum::<f64>() / 2.0, weight)
        });
        let mut state = PlanState::new(first);
        state.cpu = CpuPlan::from_histogram(&plan_rules.cpu, [first, last], samples.count, middles);
        let buckets = rules.memory_histogram_config().buckets;
        if !memory.is_empty(buckets) {
            let at = self.memory_samples.last.unwrap_or(last);
            state.memory.add(&plan_rules.memory, at, memory.percentile(buckets, 1.0));
        }
        Some(state)
    }

    /// Whether an OOM kill in a pod's status is already part of this history. A stored history without pods does not tell:
    /// then a kill is new if its window was still open when the history was saved, because checkpoints leave out open
    /// windows.
    pub fn has_recorded_oom(&self, replica: &str, at: Time, rules: &ModelRules) -> bool {
        if let Some(replica) = find(&self.replicas, replica) {
            return replica.last_kill.is_some_and(|last| at <= last);
        }
        let closed = self.cpu_samples.last.map(|last| last.earlier(rules.interval));
        self.restored && closed.is_some_and(|closed| at <= closed)
    }

    pub fn has_oom_of(&self, replica: &str) -> bool {
        find(&self.replicas, replica).is_some_and(|replica| replica.last_kill.is_some())
    }

    /// Records that a live pod has this container.
    pub fn mark_alive(&mut self, now: Time) {
        self.last_alive = self.last_alive.max(Some(now));
    }

    /// Drops the state of deleted pods. Their samples stay.
    pub fn retain_replicas(&mut self, is_alive: impl Fn(&str) -> bool) {
        self.replicas.retain(|replica| is_alive(&replica.name));
        self.replicas.shrink_to_fit();
    }

    /// Whether a memory window with a peak closed after `since` and by `now`.
    pub fn has_window_closed(&self, since: Time, now: Time) -> bool {
        self.replicas.iter().any(|replica| {
            replica.window_end.is_some_and(|end| since < end && end <= now)
                && memory_window::open_peak(replica).is_some()
        })
    }

    /// Whether this pod has state.
    pub fn has_replica(&self, name: &str) -> bool {
        find(&self.replicas, name).is_some()
    }

    /// The pods with state.
    pub fn replicas(&self) -> impl ExactSizeIterator<Item = &str> {
        self.replicas.iter().map(|replica| &*replica.name)
    }

    /// Applies the policy of this container. Upstream keeps an override that was removed from the policy; the fix
    /// restores the default.
    pub fn apply_policy(&mut self, overrides: Option<Overrides>, rules: &ModelRules) {
        let new = overrides.unwrap_or_default();
        let merged = match &self.overrides {
            Some(existing) if !rules.fixes.has(Fix::RemovedOverrideRestoresDefault) => {
                new.or(**existing)
            }
            _ => new,
        };
        self.overrides = (!merged.is_empty()).then(|| Box::new(merged));
    }

    pub fn overrides(&self) -> Option<&Overrides> {
        self.overrides.as_deref()
    }

    pub fn throttling(&self) -> Option<&Throttling> {
        self.throttling.as_deref()
    }

    pub fn set_throttling(&mut self, measured: Option<Throttling>) {
        self.throttling = measured.map(Box::new);
    }

    pub fn to_snapshot(&self, now: Time, rules: &ModelRules) -> Snapshot {
        snapshot_conv::to_snapshot(self, now, rules)
    }

    /// Restores a history from a snapshot. In upstream mode it is restored as from a checkpoint: without open windows, with
    /// weights as ten-thousandths of the largest, and times in whole seconds.
    pub fn from_snapshot(
        snapshot: &Snapshot,
        now: Time,
        rules: &ModelRules,
    ) -> Result<Self, InvalidSnapshot> {
        snapshot_conv::from_snapshot(snapshot, now, rules)
    }

    /// The topmost scalable owner of the pods, in the format of the storage (`apps/Deployment/web`).
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Sets the topmost scalable owner of the pods.
    pub fn set_owner(&mut self, owner: impl Into<Box<str>>) {
        self.owner = Some(owner.into());
    }

    /// Ranks the history by its number of samples, as [`Snapshot::sample_rank`](crate::history::Snapshot::sample_rank).
    pub fn sample_rank(&self) -> u64 {
        sample_rank(self.cpu_samples, self.memory_samples)
    }

    /// The largest CPU usage in cores and memory usage in bytes that the buckets still have.
    pub fn peaks(&self, rules: &ModelRules) -> PerResource<f64> {
        let top = |histogram: &Histogram, config: HistogramConfig<'_>| {
            let empty = histogram.is_empty(config.buckets);
            (!empty).then(|| histogram.percentile(config.buckets, 1.0))
        };
        let (cpu, memory) = aggregate::merged(self, rules);
        PerResource {
            cpu: top(&cpu, rules.cpu_histogram_config()),
            memory: top(&memory, rules.memory_histogram_config()),
        }
    }

    /// Percentiles (0 to 1, ascending) of CPU in cores or memory peaks in bytes, as estimates read them.
    pub fn percentiles<const N: usize>(
        &self,
        resource: Resource,
        shares: [f64; N],
        rules: &ModelRules,
    ) -> [f64; N] {
        let (cpu, memory) = aggregate::merged(self, rules);
        match resource {
            Resource::Cpu => cpu.percentiles(rules.cpu_histogram_config().buckets, shares),
            Resource::Memory => memory.percentiles(rules.memory_histogram_config().buckets, shares),
        }
    }

    pub fn is_expired(&self, now: Time, rules: &ModelRules) -> bool {
        // Upstream never expires the checkpoints that it loaded at startup.
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

    /// The samples that determine the confidence in memory. Upstream only uses CPU samples, so a container with only
    /// memory samples, or with at most one CPU sample, counts as unknown.
    pub fn memory_evidence(&self, rules: &ModelRules) -> (Resource, SampleStats) {
        let use_memory = self.cpu_samples.count <= 1
            && self.memory_samples.count > self.cpu_samples.count
            && rules.fixes.has(Fix::MemoryOnlyHistoryCounts);
        if use_memory {
            (Resource::Memory, self.memory_samples)
        } else {
            (Resource::Cpu, self.cpu_samples)
        }
    }

    /// The histogram configurations with the half-lives that the weights use.
    pub(super) fn histogram_configs(
        &self,
        rules: &ModelRules,
    ) -> (HistogramConfig<'static>, HistogramConfig<'static>) {
        let half_life = |seconds: u32| Some(Duration::from_secs(u64::from(seconds)));
        (
            HistogramConfig {
                half_life: half_life(self.half_lives.cpu),
                ..rules.cpu_histogram_config()
            },
            HistogramConfig {
                half_life: half_life(self.half_lives.memory),
                ..rules.memory_histogram_config()
            },
        )
    }

    /// Converts the histograms if a half-life was changed.
    pub(super) fn adopt_half_lives(&mut self, now: Time, rules: &ModelRules) {
        let new = rules.half_lives();
        if self.half_lives == new {
            return;
        }
        let (cpu, memory) = self.histogram_configs(rules);
        self.half_lives = new;
        let (new_cpu, new_memory) = self.histogram_configs(rules);
        self.cpu.change_half_life(cpu, new_cpu, now);
        memory_window::remove_open_peaks(&mut self.memory, memory, &self.replicas);
        self.memory.change_half_life(memory, new_memory, now);
        memory_window::restore_open_peaks(&mut self.memory, new_memory, &self.replicas);
        if let Some(restored) = self.restored_aggregate.as_deref_mut() {
            restored.cpu.change_half_life(cpu, new_cpu, now);
            restored.memory.change_half_life(memory, new_memory, now);
        }
        if let Some(largest) = self.largest_replica.as_deref_mut() {
            largest.change_half_life(memory, new_memory, now);
        }
    }

    /// Adds memory to the pod at this index; the half-lives must be up to date.
    pub(super) fn add_memory_amount_at(
        &mut self,
        index: usize,
        at: Time,
        usage: Bytes,
        source: MemorySource,
        rules: &ModelRules,
    ) -> Result<bool, SampleRejected> {
        let sample = (at, usage, source);
        let (replica, peaks) = (&mut self.replicas[index], &mut self.memory);
        let counts = memory_window::add_to_window(replica, peaks, sample, rules)?;
        if source == MemorySource::Usage
            && let Some((plan, rules)) = self.plan_at(at, rules)
        {
            plan.add_memory(rules, at, usage.0 as f64);
        }
        count_sample(&mut self.memory_samples, at);
        if rules.per_replica_peaks {
            let largest = self.largest_replica.get_or_insert_with(|| {
                Box::new(LargestReplicaPeaks::new(rules.memory_histogram_config()))
            });
            largest.add(sample, rules)?;
        }
        Ok(counts)
    }
}

fn count_sample(stats: &mut SampleStats, at: Time) {
    stats.count = stats.count.saturating_add(1);
    stats.first = earliest(stats.first, Some(at));
    stats.last = stats.last.max(Some(at));
}

pub(super) fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
