//! The history of one VPA, made of single samples as a storage hands them over. None of them is kept.

use std::{sync::Arc, time::Duration};

use crate::{
    history::{Gauge, Measurement, Run, Sample},
    types::Time,
};

use super::{
    container::ContainerHistory,
    directives::Directives,
    early::EarlySamples,
    fading::Fading,
    kill::OomKill,
    settings::{Rules, Settings},
    span::{Carry, Course},
    weighting::HistoryWeighting,
    window::Rejected,
};
use crate::types::units::{Bytes, MilliCpu};

/// With more pods than this, those that ended long before the others are forgotten while samples still come.
const MOST_PODS: usize = 512;

/// A VPA whose history is being made.
#[derive(Clone, Debug, PartialEq)]
pub struct Folding {
    /// Which wait of the VPA for its history this is for.
    pub(super) sighting: u64,
    directives: Directives,
    /// The first live samples: what came after them is known better.
    early: EarlySamples,
    containers: Vec<(Arc<str>, Container)>,
    /// Nothing else counts but what lies after the one and before the other: the time that a history lacks.
    gap: Option<(Time, Time)>,
}

/// One container of it.
#[derive(Clone, Debug, PartialEq)]
struct Container {
    history: ContainerHistory,
    rules: Rules,
    cpu: Carry,
    memory: Carry,
    /// Until when the history that this one goes on from was lived: what came before, it has seen.
    known: Option<Time>,
    /// At how many pods the next look for old ones is worth it.
    crowded: usize,
}

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folded {
    /// It counts.
    Taken,
    /// It is part of the history already, or was seen live.
    Known,
    /// It cannot be: negative, or not a number.
    Senseless,
    /// Its time lies in the future.
    InFuture,
    /// A kill from before the last memory window.
    TooOld,
    /// Upstream's rules do not ask for it.
    Ignored,
}

impl Folding {
    pub(super) fn new(sighting: u64, directives: Directives, early: EarlySamples) -> Self {
        Self { sighting, directives, early, containers: Vec::new(), gap: None }
    }

    /// For a history that lacks only what lies between these two.
    #[must_use]
    pub fn between(self, after: Time, before: Time) -> Self {
        Self { gap: Some((after, before)), ..self }
    }

    /// Goes on from what another storage remembered of a container: samples that it has do not count again.
    pub fn go_on_from(&mut self, name: Arc<str>, history: ContainerHistory, settings: &Settings) {
        let mut container = Container::new(history, &name, &self.directives, settings);
        container.known = container.history.cpu_seen.last;
        match self.find(&name) {
            Ok(index) => self.containers[index].1 = container,
            Err(index) => self.containers.insert(index, (name, container)),
        }
    }

    /// Whether it is for what a history lacks in between.
    pub(super) fn fills(&self) -> bool {
        self.gap.is_some()
    }

    /// Takes a sample of a container.
    pub fn take(
        &mut self,
        name: &Arc<str>,
        sample: &Sample,
        settings: &Settings,
        now: Time,
    ) -> Folded {
        if settings.latest_sample(now).is_some_and(|latest| sample.at > latest) {
            return Folded::InFuture;
        }
        if self.is_elsewhere(sample.at) {
            return Folded::Known;
        }
        let live = self.early.since(name, &sample.replica);
        let container = self.container(name, sample.at, settings, now);
        match settings.history_weighting {
            HistoryWeighting::Upstream => container.take_once(sample),
            HistoryWeighting::Duration => {
                container.take(sample, (live, None), settings.sampling_interval)
            }
        }
    }

    /// Takes a run of samples of a container, and tells of each what became of it.
    pub fn take_run(
        &mut self,
        name: &Arc<str>,
        run: Run<'_>,
        (settings, now): (&Settings, Time),
        fading: &mut Fading,
        mut tell: impl FnMut(Folded),
    ) {
        let Some(&(first, _)) = run.points.first() else { return };
        if self.gap.is_some() || settings.history_weighting == HistoryWeighting::Upstream {
            return run.samples().for_each(|sample| tell(self.take(name, &sample, settings, now)));
        }
        let (live, latest) = (self.early.since(name, run.replica), settings.latest_sample(now));
        let every = settings.sampling_interval;
        let container = self.container(name, first, settings, now);
        container.take_run(run, (live, latest), every, fading, tell);
    }

    /// Whether a time is not what is asked for.
    fn is_elsewhere(&self, at: Time) -> bool {
        self.gap.is_some_and(|(after, before)| at <= after || at >= before)
    }

    /// The container, which begins now if it is not there yet.
    fn container(
        &mut self,
        name: &Arc<str>,
        at: Time,
        settings: &Settings,
        now: Time,
    ) -> &mut Container {
        let place = self.find(name).unwrap_or_else(|place| {
            let rules = self.directives.rules(None, settings);
            let history = ContainerHistory::new(at.min(now), &rules);
            let container = Container::new(history, name, &self.directives, settings);
            self.containers.insert(place, (Arc::clone(name), container));
            place
        });
        &mut self.containers[place].1
    }

    /// What it came to, by container.
    pub(super) fn finish(self) -> impl Iterator<Item = (Arc<str>, ContainerHistory)> {
        let fills = self.fills();
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

impl Container {
    fn new(
        mut history: ContainerHistory,
        name: &str,
        directives: &Directives,
        settings: &Settings,
    ) -> Self {
        // Upstream reads its history before it knows any VPA: what their policies set does not apply.
        let rules = match settings.history_weighting {
            HistoryWeighting::Upstream => directives.rules(None, settings),
            HistoryWeighting::Duration => directives.govern(name, &mut history, settings),
        };
        let (cpu, memory) = (Carry::default(), Carry::default());
        Self { history, rules, cpu, memory, known: None, crowded: MOST_PODS }
    }

    /// As upstream does: whatever the sample stands for, it counts once.
    fn take_once(&mut self, sample: &Sample) -> Folded {
        let Sample { replica, at, .. } = sample;
        let taken = match sample.measurement {
            Measurement::CpuCores(cores) if cores.is_nan() => Err(Rejected::Negative),
            Measurement::CpuCores(cores) => {
                self.history.add_cpu(replica, *at, MilliCpu::from_cores(cores), &self.rules)
            }
            Measurement::MemoryBytes(bytes) if bytes.is_nan() => Err(Rejected::Negative),
            Measurement::MemoryBytes(bytes) => {
                self.history.add_memory(replica, *at, Bytes::from_f64(bytes), &self.rules)
            }
            Measurement::OutOfMemory { .. } => return Folded::Ignored,
        };
        Folded::of(taken)
    }

    /// As a recommender that lived through the span; `live` is when this pod was first seen live, `latest` how late a
    /// sample may be.
    fn take(
        &mut self,
        sample: &Sample,
        (live, latest): (Option<Time>, Option<Time>),
        every: Duration,
    ) -> Folded {
        let Sample { replica, at, covers, .. } = sample;
        let (gauge, value) = match sample.measurement {
            Measurement::CpuCores(cores) => (Gauge::Cpu, cores),
            Measurement::MemoryBytes(bytes) => (Gauge::Memory, bytes),
            Measurement::OutOfMemory { .. } if live.is_some_and(|live| *at >= live) => {
                return Folded::Known;
            }
            Measurement::OutOfMemory { request_bytes, limit_bytes } => {
                let kill = (Bytes(request_bytes), limit_bytes.map(Bytes));
                let folded = self.take_kill(replica, *at, kill);
                self.make_room(replica);
                return folded;
            }
        };
        let run = Run { replica, gauge, covers: *covers, points: &[(*at, value)] };
        let mut folded = Folded::Ignored;
        self.take_run(run, (live, latest), every, &mut Fading::default(), |one| folded = one);
        folded
    }

    fn take_run(
        &mut self,
        run: Run<'_>,
        (live, latest): (Option<Time>, Option<Time>),
        every: Duration,
        fading: &mut Fading,
        mut tell: impl FnMut(Folded),
    ) {
        let course = Course { run, known: self.known, live, latest, every };
        let (history, rules) = (&mut self.history, &self.rules);
        let tell = |taken| tell(Folded::of(taken));
        match run.gauge {
            Gauge::Cpu => history.add_cpu_spans(course, (&mut self.cpu, fading), rules, tell),
            Gauge::Memory => history.add_memory_spans(course, &mut self.memory, rules, tell),
        }
        self.make_room(run.replica);
    }

    fn take_kill(
        &mut self,
        replica: &str,
        at: Time,
        (request, limit): (Bytes, Option<Bytes>),
    ) -> Folded {
        let (history, rules) = (&mut self.history, &self.rules);
        if history.knows_kill(replica, at, rules) {
            return Folded::Known;
        }
        let kill = OomKill { request, limit, usage: None };
        Folded::of(history.record_oom(replica, at, kill, rules).map(drop))
    }

    fn make_room(&mut self, current: &str) {
        if self.history.replicas.len() >= self.crowded {
            self.forget_old_pods(current);
        }
    }

    /// Forgets pods whose last sample lies two windows before the latest one: nothing of theirs is open. The one
    /// that is being read stays.
    fn forget_old_pods(&mut self, current: &str) {
        let seen = self.history.cpu_seen.last.max(self.history.memory_seen.last);
        let Some(limit) = seen.map(|last| last.earlier(self.rules.interval.saturating_mul(2)))
        else {
            return;
        };
        self.history.replicas.retain(|replica| {
            let last = replica.last_cpu.max(replica.last_memory);
            *replica.name == *current || last.is_some_and(|last| last >= limit)
        });
        self.crowded = self.history.replicas.len().saturating_mul(2).max(MOST_PODS);
    }

    fn finish(self) -> ContainerHistory {
        let mut history = self.history;
        let last = history.cpu_seen.last.max(history.memory_seen.last);
        history.created = earliest_of(history.created, &history);
        history.last_alive = history.last_alive.max(last);
        (history.restored, history.folded) = (true, true);
        history.replicas.shrink_to_fit();
        history
    }
}

impl Folded {
    fn of(taken: Result<(), Rejected>) -> Self {
        match taken {
            Ok(()) => Self::Taken,
            Err(Rejected::OutOfOrder | Rejected::Repeated) => Self::Known,
            Err(Rejected::Negative) => Self::Senseless,
            Err(Rejected::InFuture) => Self::InFuture,
            Err(Rejected::TooOld) => Self::TooOld,
        }
    }
}

fn earliest_of(created: Time, history: &ContainerHistory) -> Time {
    let first = [history.cpu_seen.first, history.memory_seen.first].into_iter().flatten().min();
    first.map_or(created, |first| created.min(first))
}
