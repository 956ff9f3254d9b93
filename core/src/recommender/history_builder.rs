//! Builds the history of one VPA from the single samples of a storage, without buffering samples.

use std::{sync::Arc, time::Duration};

use crate::{
    history::{Measurement, Resource, Sample, SampleBatch},
    types::Time,
};

use super::{
    container::ContainerHistory,
    decay_cache::DecayCache,
    early_samples::EarlySamples,
    memory_window::SampleRejected,
    model_settings::{ModelRules, Settings},
    oom::OomKill,
    sample_span::{SampleSpan, SpanCarry},
    vpa_settings::VpaSettings,
    weighting::HistoryWeighting,
};
use crate::types::units::{Bytes, MilliCpu};

/// With more pods than this, those that ended long before the others are dropped while samples still arrive.
const MAX_PODS: usize = 512;

#[derive(Clone, Debug, PartialEq)]
pub struct HistoryBuilder {
    pub(super) load_generation: u64,
    vpa_settings: VpaSettings,
    /// The first live samples; later stored samples are already known.
    early_samples: EarlySamples,
    containers: Vec<(Arc<str>, ContainerBuilder)>,
    /// Only samples strictly between these two times count, to fill a gap in a history.
    gap: Option<(Time, Time)>,
}

#[derive(Clone, Debug, PartialEq)]
struct ContainerBuilder {
    history: ContainerHistory,
    rules: ModelRules,
    cpu: SpanCarry,
    memory: SpanCarry,
    /// The time of the last sample of the history that this one continues; earlier samples are already part of it.
    known_until: Option<Time>,
    /// The number of pods at which old ones are pruned next.
    prune_at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleResult {
    Accepted,
    /// It is already part of the history, or was observed live.
    AlreadyKnown,
    /// It is negative or not a number.
    Invalid,
    InFuture,
    /// It is an OOM kill from before the last memory window.
    TooOld,
    /// It is not used in upstream mode.
    Ignored,
}

impl HistoryBuilder {
    pub(super) fn new(
        load_generation: u64,
        vpa_settings: VpaSettings,
        early_samples: EarlySamples,
    ) -> Self {
        Self { load_generation, vpa_settings, early_samples, containers: Vec::new(), gap: None }
    }

    /// Restricts the builder to the gap between these two times.
    #[must_use]
    pub fn for_gap(self, after: Time, before: Time) -> Self {
        Self { gap: Some((after, before)), ..self }
    }

    /// Continues from a container's history in another storage, whose samples do not count again.
    pub fn resume_from(&mut self, name: Arc<str>, history: ContainerHistory, settings: &Settings) {
        let mut container = ContainerBuilder::new(history, &name, &self.vpa_settings, settings);
        container.known_until = container.history.cpu_samples.last;
        match self.find(&name) {
            Ok(index) => self.containers[index].1 = container,
            Err(index) => self.containers.insert(index, (name, container)),
        }
    }

    pub(super) fn fills_gap(&self) -> bool {
        self.gap.is_some()
    }

    pub fn add_sample(
        &mut self,
        name: &Arc<str>,
        sample: &Sample,
        settings: &Settings,
        now: Time,
    ) -> SampleResult {
        if settings.latest_sample(now).is_some_and(|latest| sample.at > latest) {
            return SampleResult::InFuture;
        }
        let is_known = |(after, before)| sample.at <= after || sample.at >= before;
        if self.gap.is_some_and(is_known) {
            return SampleResult::AlreadyKnown;
        }
        let live = self.early_samples.first_seen(name, &sample.replica);
        let container = self.container(name, sample.at, settings, now);
        match settings.history_weighting {
            HistoryWeighting::Upstream => container.add_once(sample),
            HistoryWeighting::Duration => {
                container.add_sample(sample, (live, None), settings.sampling_interval)
            }
        }
    }

    /// Adds a batch of samples of a container. Calls `report` with the result of each.
    pub fn add_batch(
        &mut self,
        name: &Arc<str>,
        batch: SampleBatch<'_>,
        (settings, now): (&Settings, Time),
        decay_cache: &mut DecayCache,
        mut report: impl FnMut(SampleResult),
    ) {
        let Some(&(first, _)) = batch.points.first() else { return };
        if self.gap.is_some() || settings.history_weighting == HistoryWeighting::Upstream {
            return batch
                .samples()
                .for_each(|sample| report(self.add_sample(name, &sample, settings, now)));
        }
        let (live, latest) =
            (self.early_samples.first_seen(name, batch.replica), settings.latest_sample(now));
        let every = settings.sampling_interval;
        let container = self.container(name, first, settings, now);
        container.add_batch(batch, (live, latest), every, decay_cache, report);
    }

    /// Returns the builder of a container; creates it if necessary.
    fn container(
        &mut self,
        name: &Arc<str>,
        at: Time,
        settings: &Settings,
        now: Time,
    ) -> &mut ContainerBuilder {
        let index = self.find(name).unwrap_or_else(|index| {
            let rules = self.vpa_settings.rules(None, settings);
            let history = ContainerHistory::new(at.min(now), &rules);
            let container = ContainerBuilder::new(history, name, &self.vpa_settings, settings);
            self.containers.insert(index, (Arc::clone(name), container));
            index
        });
        &mut self.containers[index].1
    }

    pub(super) fn finish(self) -> impl Iterator<Item = (Arc<str>, ContainerHistory)> {
        let fills_gap = self.fills_gap();
        self.containers.into_iter().map(move |(name, container)| {
            let mut history = container.finish();
            // A gap says nothing about the time before it.
            history.bootstrapped = !fills_gap;
            (name, history)
        })
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.containers.binary_search_by(|(known, _)| (**known).cmp(name))
    }
}

impl ContainerBuilder {
    fn new(
        mut history: ContainerHistory,
        name: &str,
        vpa_settings: &VpaSettings,
        settings: &Settings,
    ) -> Self {
        // Upstream loads its history before it knows any VPA, so policies do not apply.
        let rules = match settings.history_weighting {
            HistoryWeighting::Upstream => vpa_settings.rules(None, settings),
            HistoryWeighting::Duration => vpa_settings.apply_policy(name, &mut history, settings),
        };
        let (cpu, memory) = (SpanCarry::default(), SpanCarry::default());
        Self { history, rules, cpu, memory, known_until: None, prune_at: MAX_PODS }
    }

    /// Adds a sample as upstream does: it counts once, whatever span it covers.
    fn add_once(&mut self, sample: &Sample) -> SampleResult {
        let Sample { replica, at, .. } = sample;
        let result = match sample.measurement {
            Measurement::CpuCores(cores) if cores.is_nan() => Err(SampleRejected::Negative),
            Measurement::CpuCores(cores) => {
                self.history.add_cpu(replica, *at, MilliCpu::from_cores(cores), &self.rules)
            }
            Measurement::MemoryBytes(bytes) if bytes.is_nan() => Err(SampleRejected::Negative),
            Measurement::MemoryBytes(bytes) => {
                self.history.add_memory(replica, *at, Bytes::from_f64(bytes), &self.rules)
            }
            Measurement::OutOfMemory { .. } => return SampleResult::Ignored,
        };
        SampleResult::from_result(result)
    }

    /// Adds a sample as a recommender that had observed its span would have. `live` is the time when this pod was first
    /// observed live, `latest` the maximum time of a sample.
    fn add_sample(
        &mut self,
        sample: &Sample,
        (live, latest): (Option<Time>, Option<Time>),
        every: Duration,
    ) -> SampleResult {
        let Sample { replica, at, covers, .. } = sample;
        let (gauge, value) = match sample.measurement {
            Measurement::CpuCores(cores) => (Resource::Cpu, cores),
            Measurement::MemoryBytes(bytes) => (Resource::Memory, bytes),
            Measurement::OutOfMemory { .. } if live.is_some_and(|live| *at >= live) => {
                return SampleResult::AlreadyKnown;
            }
            Measurement::OutOfMemory { request_bytes, limit_bytes } => {
                let kill = (Bytes(request_bytes), limit_bytes.map(Bytes));
                let result = self.add_oom(replica, *at, kill);
                self.prune_if_crowded(replica);
                return result;
            }
        };
        let batch = SampleBatch { replica, gauge, covers: *covers, points: &[(*at, value)] };
        let mut result = SampleResult::Ignored;
        let set_result = |new| result = new;
        self.add_batch(batch, (live, latest), every, &mut DecayCache::default(), set_result);
        result
    }

    fn add_batch(
        &mut self,
        batch: SampleBatch<'_>,
        (live, latest): (Option<Time>, Option<Time>),
        every: Duration,
        decay_cache: &mut DecayCache,
        mut report: impl FnMut(SampleResult),
    ) {
        let span = SampleSpan {
            batch,
            known_until: self.known_until,
            live_from: live,
            latest,
            sampling_interval: every,
        };
        let (history, rules) = (&mut self.history, &self.rules);
        let report = |result| report(SampleResult::from_result(result));
        match batch.gauge {
            Resource::Cpu => {
                span.add_cpu_to(history, (&mut self.cpu, decay_cache), rules, report);
            }
            Resource::Memory => span.add_memory_to(history, &mut self.memory, rules, report),
        }
        self.prune_if_crowded(batch.replica);
    }

    fn add_oom(
        &mut self,
        replica: &str,
        at: Time,
        (request, limit): (Bytes, Option<Bytes>),
    ) -> SampleResult {
        let (history, rules) = (&mut self.history, &self.rules);
        if history.has_recorded_oom(replica, at, rules) {
            return SampleResult::AlreadyKnown;
        }
        let kill = OomKill { request, limit, usage: None };
        SampleResult::from_result(history.record_oom(replica, at, kill, rules).map(drop))
    }

    fn prune_if_crowded(&mut self, current: &str) {
        if self.history.replicas.len() >= self.prune_at {
            self.forget_old_pods(current);
        }
    }

    /// Drops pods whose last sample is two windows before the latest one, so they have no open window. Keeps the current
    /// pod.
    fn forget_old_pods(&mut self, current: &str) {
        let latest = self.history.cpu_samples.last.max(self.history.memory_samples.last);
        let Some(limit) = latest.map(|last| last.earlier(self.rules.interval.saturating_mul(2)))
        else {
            return;
        };
        self.history.replicas.retain(|replica| {
            let last = replica.last_cpu.max(replica.last_memory);
            *replica.name == *current || last.is_some_and(|last| last >= limit)
        });
        self.prune_at = self.history.replicas.len().saturating_mul(2).max(MAX_PODS);
    }

    fn finish(self) -> ContainerHistory {
        let mut history = self.history;
        let last = history.cpu_samples.last.max(history.memory_samples.last);
        history.created = earliest_of(history.created, &history);
        history.last_alive = history.last_alive.max(last);
        (history.restored, history.built_from_samples) = (true, true);
        history.replicas.shrink_to_fit();
        history
    }
}

impl SampleResult {
    fn from_result(result: Result<(), SampleRejected>) -> Self {
        match result {
            Ok(()) => Self::Accepted,
            Err(SampleRejected::OutOfOrder | SampleRejected::Duplicate) => Self::AlreadyKnown,
            Err(SampleRejected::Negative) => Self::Invalid,
            Err(SampleRejected::InFuture) => Self::InFuture,
            Err(SampleRejected::TooOld) => Self::TooOld,
        }
    }
}

fn earliest_of(created: Time, history: &ContainerHistory) -> Time {
    let first =
        [history.cpu_samples.first, history.memory_samples.first].into_iter().flatten().min();
    first.map_or(created, |first| created.min(first))
}
