//! History loaded from Prometheus compared with live samples: one recommender reads a sample per minute from the
//! metrics API for eight days, the other loads the same days at once.

use std::{ops::Range, thread, time::Duration};

use plimsoll_core::{
    history::{BucketScheme, Measurement, Sample},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_core::{
    recommender::{
        HistoryBootstrap, OomKill, Recommendation, Settings, VpaRegistry, VpaSettings,
        buckets::Buckets, registry::UsageSample,
    },
    types::{
        compat::Compat,
        units::{Bytes, MilliCpu},
    },
};

use super::START;
use crate::support::{random, tier};
use simulated_scrape::{RateFunction, ScrapeSchedule, Series};
use simulated_workload::{SPAN, STEADY, SimulatedPod, SimulatedWorkload, WorkloadBehaviour};

pub mod simulated_scrape;
pub mod simulated_workload;

const MINUTES_A_DAY: f64 = 1_440.0;

/// The workloads, each in three sizes.
pub const BEHAVIOURS: [WorkloadBehaviour; 13] = [
    WorkloadBehaviour { replicas: 3, ..STEADY },
    WorkloadBehaviour { name: "diurnal", daily: 0.8, ..STEADY },
    WorkloadBehaviour { name: "long bursts", bursts: (1.5, 180, 900, 6.0), replicas: 1, ..STEADY },
    WorkloadBehaviour { name: "short bursts", bursts: (8.0, 60, 180, 5.0), ..STEADY },
    WorkloadBehaviour {
        name: "flickering",
        bursts: (40.0, 15, 60, 3.0),
        garbage_collection: (0.2, 4.0),
        ..STEADY
    },
    WorkloadBehaviour { name: "hourly job", life: (0.3, 1.0), replicas: 1, cores: 0.8, ..STEADY },
    WorkloadBehaviour { name: "asleep at night", active_hours: (7, 21), daily: 0.5, ..STEADY },
    WorkloadBehaviour { name: "rolled out daily", life: (24.0, 24.0), replicas: 3, ..STEADY },
    WorkloadBehaviour { name: "leaks and is killed", leak: 25.0, replicas: 2, ..STEADY },
    WorkloadBehaviour { name: "unmeasured at times", dark: 7.0, daily: 0.5, ..STEADY },
    WorkloadBehaviour { name: "restarts", restarts: 6.0, bursts: (2.0, 60, 400, 3.0), ..STEADY },
    WorkloadBehaviour {
        name: "unlike replicas",
        replicas: 5,
        replica_spread: 1.2,
        garbage_collection: (0.4, 20.0),
        ..STEADY
    },
    WorkloadBehaviour { name: "young", born: 6, bursts: (1.0, 120, 600, 4.0), ..STEADY },
];

/// Ranges of seeds for the simulated workloads. The gate simulates each behaviour once; the deep tier three times in
/// each of three ranges, the last of which depends on the seed of the run.
pub fn workload_seeds() -> Vec<Range<u64>> {
    let drawn = 7 + 3 * (random::seed(0) % 1_000_000);
    let one = std::iter::once(1..2).collect();
    tier::cases(one, vec![1..4, 4..7, drawn..drawn + 3])
}

/// The queries of a bootstrap.
#[derive(Clone, Copy, Debug)]
pub struct QueryPlan {
    scrape: i64,
    ask: RateFunction,
    step: i64,
    memory_step: i64,
}

/// The three numbers of both resources, as buckets, and the confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparedEstimate {
    pub cpu: [i64; 3],
    pub memory: [i64; 3],
    pub confidence: f64,
    pub count: u64,
}

/// A time of the simulation.
pub fn time(second: i64) -> Time {
    Time::from_nanos(START.as_nanos() + second * 1_000_000_000)
}

fn key() -> ObjectKey {
    ObjectKey::new("team", "web")
}

fn fleet() -> VpaRegistry {
    let mut fleet = VpaRegistry::new(Settings::default(), Compat::Plimsoll);
    fleet.track(&key(), VpaSettings::default(), START);
    fleet
}

fn oom_kill(workload: &SimulatedWorkload) -> OomKill {
    let limit = Some(Bytes(workload.request * 2));
    OomKill { request: Bytes(workload.request), limit, usage: None }
}

fn oom_times(pod: &SimulatedPod) -> impl Iterator<Item = i64> {
    pod.runs.iter().filter(|run| run.killed).map(simulated_workload::ContainerRun::end)
}

/// A recommender that ingests all samples live.
pub fn recommend_from_samples(
    workload: &SimulatedWorkload,
    server: ScrapeSchedule,
    offset: i64,
) -> Recommendation {
    let mut fleet = fleet();
    let generation = fleet.load_generation(&key()).expect("container is tracked");
    fleet.mark_loaded(&key(), generation);
    let pods: Vec<(&SimulatedPod, Vec<Series>)> =
        workload.pods.iter().map(|pod| (pod, server.scrape(pod, workload, 1))).collect();
    for (pod, runs) in &pods {
        let (first, last) = (pod.runs[0].start, pod.runs.last().expect("ran").end());
        let mut minute = first / 60 * 60 + offset;
        let mut killed = oom_times(pod).peekable();
        while minute <= (last + 60).min(SPAN) {
            let now = time(minute);
            let running = runs
                .iter()
                .zip(&pod.runs)
                .find(|(_, run)| (run.start..=run.end()).contains(&minute));
            let usage = running
                .and_then(|(series, _)| simulated_scrape::usage_at(series, minute, server.every));
            if let Some((at, cores, bytes)) = usage {
                let usage = UsageSample {
                    pod: &pod.name,
                    container: "app",
                    at: time(at),
                    cpu: Some(MilliCpu((cores * 1000.0).ceil() as i64)),
                    memory: Some(Bytes(bytes as i64)),
                };
                fleet.ingest().add_usage(&key(), usage, now);
            }
            while let Some(at) = killed.next_if(|at| *at <= minute) {
                let replica = (&*pod.name, "app");
                fleet.ingest().add_oom(&key(), replica, (time(at), oom_kill(workload)), false, now);
            }
            minute += 60;
        }
    }
    fleet.ingest().register_container(&key(), "app", time(SPAN));
    fleet.recommend(&key(), time(SPAN)).expect("is loaded")
}

/// A recommender that loads the history at the end.
fn recommend_from_history(
    workload: &SimulatedWorkload,
    plan: QueryPlan,
    offset: i64,
) -> Recommendation {
    let prometheus = ScrapeSchedule { every: plan.scrape, offset, fails: 200 };
    let mut fleet = fleet();
    let mut bootstrap = HistoryBootstrap::new(&fleet.settings, time(SPAN));
    let app = ContainerKey::new(key(), "app");
    let mut take = |pod: &SimulatedPod, at: i64, covers: Option<i64>, measurement| {
        let covers = covers.map(|covers| Duration::from_secs(covers.unsigned_abs()));
        let sample = Sample { replica: (*pod.name).into(), at: time(at), covers, measurement };
        bootstrap.add_sample(&app, &sample, |key| fleet.start_history(key));
    };
    for pod in &workload.pods {
        let runs = prometheus.scrape(pod, workload, 2);
        for (at, cores) in simulated_scrape::cpu(&runs, plan.ask, plan.step) {
            take(pod, at, Some(plan.step), Measurement::CpuCores(cores));
        }
        let mut killed = oom_times(pod).peekable();
        let out_of_memory = Measurement::OutOfMemory {
            request_bytes: workload.request,
            limit_bytes: Some(workload.request * 2),
        };
        for (at, bytes) in simulated_scrape::memory(&runs, plan.memory_step) {
            while let Some(killed) = killed.next_if(|killed| *killed <= at) {
                take(pod, killed, None, out_of_memory);
            }
            take(pod, at, Some(plan.memory_step), Measurement::MemoryBytes(bytes));
        }
        for killed in killed {
            take(pod, killed, None, out_of_memory);
        }
    }
    let generation = fleet.load_generation(&key()).expect("container is tracked");
    for (key, folded) in bootstrap.finish() {
        fleet.merge_history(&key, folded, time(SPAN));
    }
    fleet.mark_loaded(&key(), generation);
    fleet.ingest().register_container(&key(), "app", time(SPAN));
    fleet.recommend(&key(), time(SPAN)).expect("is loaded")
}

/// The compared parts of a recommendation.
pub fn estimate_of(recommendation: &Recommendation) -> ComparedEstimate {
    let explanation = &recommendation.containers[0].explanation;
    let (cpu, memory) = (explanation.cpu.as_ref(), explanation.memory.as_ref());
    let (cpu, memory) = (cpu.expect("CPU"), memory.expect("memory"));
    let bucket = |buckets: &Buckets, read: f64| i64::from(buckets.find(read * 1.000_001));
    let [cpu_buckets, memory_buckets] =
        [Buckets::cpu(BucketScheme::Standard), Buckets::memory(BucketScheme::Standard)];
    ComparedEstimate {
        cpu: [cpu.lower, cpu.target, cpu.upper].map(|step| bucket(cpu_buckets, step.read)),
        memory: [memory.lower, memory.target, memory.upper]
            .map(|step| bucket(memory_buckets, step.read)),
        confidence: cpu.evidence.confidence,
        count: cpu.evidence.samples,
    }
}

/// Numbers in the same bucket, one bucket apart, and farther apart; the largest error of the confidence.
#[derive(Clone, Debug, Default)]
pub struct EstimateErrors {
    pub cpu: [u32; 3],
    pub memory: [u32; 3],
    pub farthest: i64,
    pub confidence: f64,
    /// Pods, runs of their containers, and OOM kills among these.
    pub events: [usize; 3],
    /// Numbers more than one bucket apart, or with a different confidence.
    pub outliers: Vec<String>,
}

impl EstimateErrors {
    /// Compares the live estimate of a workload with the one from history.
    pub fn add_comparison(
        &mut self,
        workload: &SimulatedWorkload,
        live_run: &ComparedEstimate,
        read: &ComparedEstimate,
    ) {
        let runs = workload.pods.iter().map(|pod| pod.runs.len()).sum();
        let events = [workload.pods.len(), runs, workload.pods.iter().flat_map(oom_times).count()];
        self.see(events);
        let mut farthest = 0;
        for (into, live_run, read) in [
            (&mut self.cpu, live_run.cpu, read.cpu),
            (&mut self.memory, live_run.memory, read.memory),
        ] {
            for (live_run, read) in live_run.into_iter().zip(read) {
                let apart = (live_run - read).abs();
                into[usize::try_from(apart.min(2)).expect("at most 2")] += 1;
                farthest = farthest.max(apart);
            }
        }
        // A run starts and ends between two minutes, so it may have one sample more or less; the samples of one day
        // add 1 to the confidence.
        let of_edges = runs as f64 / MINUTES_A_DAY;
        let apart = ((read.confidence - live_run.confidence).abs() - of_edges).max(0.0);
        let confidence = apart / live_run.confidence;
        if farthest > 1 || confidence > 0.02 {
            self.outliers.push(format!("{}: lived {live_run:?}, read {read:?}", workload.name));
        }
        self.farthest = self.farthest.max(farthest);
        self.confidence = self.confidence.max(confidence);
    }

    /// Asserts that nine in ten numbers are equal and none is more than one bucket off, except for one in a hundred of CPU,
    /// which may be two buckets off: the usage of some workloads changes within a scrape interval, so that a high percentile
    /// depends on when they were scraped. The confidence is equal up to two percent and one sample per run.
    pub fn assert_good_enough(&self, workloads: u32, what: &str) {
        let numbers: u32 = self.cpu.iter().chain(&self.memory).sum();
        assert_eq!(numbers, workloads * 6, "three numbers of two resources of each workload");
        let [pods, runs, kills] = self.events;
        // The simulated workloads of each seed have enough events.
        let seeds = workloads as usize / BEHAVIOURS.len();
        let enough = pods > 100 * seeds && runs > pods + 30 * seeds && kills > 6 * seeds;
        assert!(enough, "{:?}", self.events);
        let equal = self.cpu[0] + self.memory[0];
        assert!(numbers - equal <= numbers.div_ceil(10), "{what}: {self:?}");
        let [_, _, far_cpu] = self.cpu;
        let [_, _, far_memory] = self.memory;
        assert!(far_memory == 0 && far_cpu <= numbers / 100, "{what}: {self:?}");
        assert!(self.farthest <= 2, "{what}: {self:?}");
        assert!(self.confidence <= 0.02, "{what}: {self:?}");
    }

    fn see(&mut self, events: [usize; 3]) {
        self.events.iter_mut().zip(events).for_each(|(seen, more)| *seen += more);
    }

    fn add(&mut self, other: &Self) {
        self.see(other.events);
        for (into, of) in [(&mut self.cpu, other.cpu), (&mut self.memory, other.memory)] {
            for (into, of) in into.iter_mut().zip(of) {
                *into += of;
            }
        }
        self.farthest = self.farthest.max(other.farthest);
        self.confidence = self.confidence.max(other.confidence);
        self.outliers.extend_from_slice(&other.outliers);
    }
}

/// Simulates these seeds with this scrape interval of the metrics server, and loads the history with each plan.
fn compare(
    plans: &[QueryPlan],
    manners: &[WorkloadBehaviour],
    server: i64,
    seeds: Range<u64>,
) -> Vec<EstimateErrors> {
    let of_seed = |seed: u64| {
        let mut figures = vec![EstimateErrors::default(); plans.len()];
        for (kind, behaviour) in (0..).zip(manners) {
            let workload = behaviour.simulate(seed * 100 + kind);
            let offset = |scrape: i64| (seed.cast_signed() * 7 + 5) % scrape;
            let living = ScrapeSchedule { every: server, offset: offset(server), fails: 200 };
            let live_run = estimate_of(&recommend_from_samples(
                &workload,
                living,
                (seed.cast_signed() * 23) % 60,
            ));
            for (plan, figures) in plans.iter().zip(&mut figures) {
                let read =
                    estimate_of(&recommend_from_history(&workload, *plan, offset(plan.scrape)));
                figures.add_comparison(&workload, &live_run, &read);
            }
        }
        figures
    };
    let mut figures = vec![EstimateErrors::default(); plans.len()];
    thread::scope(|scope| {
        let each: Vec<_> = seeds.map(|seed| scope.spawn(move || of_seed(seed))).collect();
        for seed in each {
            let of_seed = seed.join().expect("no panic");
            figures.iter_mut().zip(&of_seed).for_each(|(figures, of_seed)| figures.add(of_seed));
        }
    });
    figures
}

/// The bootstrap's queries for this scrape interval: CPU from the last two scrapes, every minute; memory as the
/// maximum over five minutes.
fn plan(scrape: i64) -> QueryPlan {
    QueryPlan { scrape, ask: RateFunction::Last(scrape * 21 / 10), step: 60, memory_step: 300 }
}

#[test]
fn a_history_of_range_queries_gives_the_recommendation_of_live_samples() {
    let plans = [plan(15), plan(30)];
    for seeds in workload_seeds() {
        let workloads = seeds.clone().count() * BEHAVIOURS.len();
        for (plan, figures) in plans.iter().zip(compare(&plans, &BEHAVIOURS, 15, seeds.clone())) {
            figures.assert_good_enough(workloads as u32, &format!("{seeds:?}: {plan:?}"));
        }
    }
}

#[test]
fn averages_over_longer_steps_lose_bursts() {
    let mean = |step| QueryPlan { ask: RateFunction::Mean(step), step, ..plan(30) };
    let sampled = QueryPlan { step: 300, ..plan(30) };
    let plans = [mean(300), mean(900), sampled];
    let [five, fifteen, sampled] = &compare(&plans, &BEHAVIOURS[2..5], 15, 1..3)[..] else {
        panic!("three plans give three results");
    };
    assert!(five.farthest > 1 && fifteen.farthest > five.farthest, "{five:?} {fifteen:?}");
    // The step may be longer if a server is slow, as long as the window is not.
    assert!(sampled.farthest <= 2 && sampled.cpu[0] > five.cpu[0], "{sampled:?}");
}
