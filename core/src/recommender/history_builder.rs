//! The history of one VPA, made of single samples as a storage hands them over. None of them is kept.

use std::{sync::Arc, time::Duration};

use crate::{
    history::{Measurement, Sample, SampleBatch, UsageMetric},
    types::Time,
};

use super::{
    container::ContainerHistory,
    decay_cache::DecayCache,
    early_samples::EarlySamples,
    memory_window::SampleRejected,
    oom::OomKill,
    sample_span::{SampleSpan, SpanCarry},
    settings::{ModelRules, Settings},
    vpa_settings::VpaSettings,
    weighting::HistoryWeighting,
};
use crate::types::units::{Bytes, MilliCpu};

/// With more pods than this, those that ended long before the others are forgotten while samples still come.
const MAX_PODS: usize = 512;

/// A VPA whose history is being made.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryBuilder {
    /// Which wait of the VPA for its history this is for.
    pub(super) load_generation: u64,
    vpa_settings: VpaSettings,
    /// The first live samples: what came after them is known better.
    early_samples: EarlySamples,
    containers: Vec<(Arc<str>, ContainerBuilder)>,
    /// Nothing else counts but what lies after the one and before the other: the time that a history lacks.
    gap: Option<(Time, Time)>,
}

/// One container of it.
#[derive(Clone, Debug, PartialEq)]
struct ContainerBuilder {
    history: ContainerHistory,
    rules: ModelRules,
    cpu: SpanCarry,
    memory: SpanCarry,
    /// Until when the history that this one goes on from was lived: what came before, it has seen.
    known_until: Option<Time>,
    /// At how many pods the next look for old ones is worth it.
    prune_at: usize,
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleResult {
    /// It counts.
    Accepted,
    /// It is part of the history already, or was seen live.
    AlreadyKnown,
    /// It cannot be: negative, or not a number.
    Invalid,
    /// Its time lies in the future.
    InFuture,
    /// A kill from before the last memory window.
    TooOld,
    /// Upstream's rules do not ask for it.
    Ignored,
}

impl HistoryBuilder {
    pub(super) fn new(sighting: u64, directives: VpaSettings, early: EarlySamples) -> Self {
        Self {
            load_generation: sighting,
            vpa_settings: directives,
            early_samples: early,
            containers: Vec::new(),
            gap: None,
        }
    }

    /// For a history that lacks only what lies between these two.
    #[must_use]
    pub fn for_gap(self, after: Time, before: Time) -> Self {
        Self { gap: Some((after, before)), ..self }
    }

    /// Goes on from what another storage remembered of a container: samples that it has do not count again.
    pub fn resume_from(&mut self, name: Arc<str>, history: ContainerHistory, settings: &Settings) {
        let mut container = ContainerBuilder::new(history, &name, &self.vpa_settings, settings);
        container.known_until = container.history.cpu_samples.last;
        match self.find(&name) {
            Ok(index) => self.containers[index].1 = container,
            Err(index) => self.containers.insert(index, (name, container)),
        }
    }

    /// Whether it is for what a history lacks in between.
    pub(super) fn fills_gap(&self) -> bool {
        self.gap.is_some()
    }

    /// Takes a sample of a container.
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
        if self.is_outside_gap(sample.at) {
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

    /// Takes a run of samples of a container, and tells of each what became of it.
    pub fn add_batch(
        &mut self,
        name: &Arc<str>,
        run: SampleBatch<'_>,
        (settings, now): (&Settings, Time),
        fading: &mut DecayCache,
        mut tell: impl FnMut(SampleResult),
    ) {
        let Some(&(first, _)) = run.points.first() else { return };
        if self.gap.is_some() || settings.history_weighting == HistoryWeighting::Upstream {
            return run
                .samples()
                .for_each(|sample| tell(self.add_sample(name, &sample, settings, now)));
        }
        let (live, latest) =
            (self.early_samples.first_seen(name, run.replica), settings.latest_sample(now));
        let every = settings.sampling_interval;
        let container = self.container(name, first, settings, now);
        container.add_batch(run, (live, latest), every, fading, tell);
    }

    /// Whether a time is not what is asked for.
    fn is_outside_gap(&self, at: Time) -> bool {
        self.gap.is_some_and(|(after, before)| at <= after || at >= before)
    }

    /// The container, which begins now if it is not there yet.
    fn container(
        &mut self,
        name: &Arc<str>,
        at: Time,
        settings: &Settings,
        now: Time,
    ) -> &mut ContainerBuilder {
        let place = self.find(name).unwrap_or_else(|place| {
            let rules = self.vpa_settings.rules(None, settings);
            let history = ContainerHistory::new(at.min(now), &rules);
            let container = ContainerBuilder::new(history, name, &self.vpa_settings, settings);
            self.containers.insert(place, (Arc::clone(name), container));
            place
        });
        &mut self.containers[place].1
    }

    /// What it came to, by container.
    pub(super) fn finish(self) -> impl Iterator<Item = (Arc<str>, ContainerHistory)> {
        let fills = self.fills_gap();
        self.containers.into_iter().map(move |(name, container)| {
            let mut history = container.finish();
            // What fills a gap tells nothing of the time before it.
            history.bootstrapped = !fills;
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
        directives: &VpaSettings,
        settings: &Settings,
    ) -> Self {
        // Upstream reads its history before it knows any VPA: what their policies set does not apply.
        let rules = match settings.history_weighting {
            HistoryWeighting::Upstream => directives.rules(None, settings),
            HistoryWeighting::Duration => directives.apply_policy(name, &mut history, settings),
        };
        let (cpu, memory) = (SpanCarry::default(), SpanCarry::default());
        Self { history, rules, cpu, memory, known_until: None, prune_at: MAX_PODS }
    }

    /// As upstream does: whatever the sample stands for, it counts once.
    fn add_once(&mut self, sample: &Sample) -> SampleResult {
        let Sample { replica, at, .. } = sample;
        let taken = match sample.measurement {
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
        SampleResult::from_result(taken)
    }

    /// As a recommender that lived through the span; `live` is when this pod was first seen live, `latest` how late a
    /// sample may be.
    fn add_sample(
        &mut self,
        sample: &Sample,
        (live, latest): (Option<Time>, Option<Time>),
        every: Duration,
    ) -> SampleResult {
        let Sample { replica, at, covers, .. } = sample;
        let (gauge, value) = match sample.measurement {
            Measurement::CpuCores(cores) => (UsageMetric::Cpu, cores),
            Measurement::MemoryBytes(bytes) => (UsageMetric::Memory, bytes),
            Measurement::OutOfMemory { .. } if live.is_some_and(|live| *at >= live) => {
                return SampleResult::AlreadyKnown;
            }
            Measurement::OutOfMemory { request_bytes, limit_bytes } => {
                let kill = (Bytes(request_bytes), limit_bytes.map(Bytes));
                let folded = self.add_oom(replica, *at, kill);
                self.prune_if_crowded(replica);
                return folded;
            }
        };
        let run = SampleBatch { replica, gauge, covers: *covers, points: &[(*at, value)] };
        let mut folded = SampleResult::Ignored;
        self.add_batch(run, (live, latest), every, &mut DecayCache::default(), |one| folded = one);
        folded
    }

    fn add_batch(
        &mut self,
        run: SampleBatch<'_>,
        (live, latest): (Option<Time>, Option<Time>),
        every: Duration,
        fading: &mut DecayCache,
        mut tell: impl FnMut(SampleResult),
    ) {
        let course = SampleSpan {
            batch: run,
            known_until: self.known_until,
            live_from: live,
            latest,
            sampling_interval: every,
        };
        let (history, rules) = (&mut self.history, &self.rules);
        let tell = |taken| tell(SampleResult::from_result(taken));
        match run.gauge {
            UsageMetric::Cpu => history.add_cpu_spans(course, (&mut self.cpu, fading), rules, tell),
            UsageMetric::Memory => history.add_memory_spans(course, &mut self.memory, rules, tell),
        }
        self.prune_if_crowded(run.replica);
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

    /// Forgets pods whose last sample lies two windows before the latest one: nothing of theirs is open. The one
    /// that is being read stays.
    fn forget_old_pods(&mut self, current: &str) {
        let seen = self.history.cpu_samples.last.max(self.history.memory_samples.last);
        let Some(limit) = seen.map(|last| last.earlier(self.rules.interval.saturating_mul(2)))
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
    fn from_result(taken: Result<(), SampleRejected>) -> Self {
        match taken {
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
