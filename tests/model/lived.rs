//! A history that was read from a Prometheus against one that was lived: a recommender that took a sample a minute
//! from a metrics server for eight days, and one that asks for the same days at once.

use std::{ops::Range, thread, time::Duration};

use plimsoll_core::{
    history::{Measurement, Sample, Scheme},
    types::{Key, Time, VpaKey},
};
use plimsoll_core::{
    recommender::{
        Bootstrap, Directives, Fleet, OomKill, Recommendation, Settings, buckets::Buckets,
        fleet::Usage,
    },
    types::{
        compat::Compat,
        units::{Bytes, MilliCpu},
    },
};

use super::START;
use crate::support::{noise, tier};
use scraped::{Ask, Scraper, Series};
use world::{Manner, Pod, SPAN, Story, USUAL};

pub mod scraped;
pub mod world;

const MINUTES_A_DAY: f64 = 1_440.0;

/// The workloads, each in three sizes.
pub const MANNERS: [Manner; 13] = [
    Manner { replicas: 3, ..USUAL },
    Manner { name: "diurnal", daily: 0.8, ..USUAL },
    Manner { name: "long bursts", bursts: (1.5, 180, 900, 6.0), replicas: 1, ..USUAL },
    Manner { name: "short bursts", bursts: (8.0, 60, 180, 5.0), ..USUAL },
    Manner { name: "flickering", bursts: (40.0, 15, 60, 3.0), garbage: (0.2, 4.0), ..USUAL },
    Manner { name: "hourly job", life: (0.3, 1.0), replicas: 1, cores: 0.8, ..USUAL },
    Manner { name: "asleep at night", awake: (7, 21), daily: 0.5, ..USUAL },
    Manner { name: "rolled out daily", life: (24.0, 24.0), replicas: 3, ..USUAL },
    Manner { name: "leaks and is killed", leak: 25.0, replicas: 2, ..USUAL },
    Manner { name: "unmeasured at times", dark: 7.0, daily: 0.5, ..USUAL },
    Manner { name: "restarts", restarts: 6.0, bursts: (2.0, 60, 400, 3.0), ..USUAL },
    Manner { name: "unlike replicas", replicas: 5, unlike: 1.2, garbage: (0.4, 20.0), ..USUAL },
    Manner { name: "young", born: 6, bursts: (1.0, 120, 600, 4.0), ..USUAL },
];

/// The seeds of the stories, some at a time. The gate has one story of each manner; deep has three of each, three times, the
/// last of them with seeds of this run.
pub fn story_seeds() -> Vec<Range<u64>> {
    let drawn = 7 + 3 * (noise::seed(0) % 1_000_000);
    let one = std::iter::once(1..2).collect();
    tier::cases(one, vec![1..4, 4..7, drawn..drawn + 3])
}

/// How the bootstrap asks.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    scrape: i64,
    ask: Ask,
    step: i64,
    memory_step: i64,
}

/// The three numbers of both resources, as buckets, and confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Read {
    pub cpu: [i64; 3],
    pub memory: [i64; 3],
    pub confidence: f64,
    pub count: u64,
}

/// A time of the story.
pub fn time(second: i64) -> Time {
    Time::from_nanos(START.as_nanos() + second * 1_000_000_000)
}

fn key() -> VpaKey {
    VpaKey::new("team", "web")
}

fn fleet() -> Fleet {
    let mut fleet = Fleet::new(Settings::default(), Compat::Plimsoll);
    fleet.track(&key(), Directives::default(), START);
    fleet
}

fn kill(story: &Story) -> OomKill {
    let limit = Some(Bytes(story.request * 2));
    OomKill { request: Bytes(story.request), limit, usage: None }
}

fn kills(pod: &Pod) -> impl Iterator<Item = i64> {
    pod.runs.iter().filter(|run| run.killed).map(world::Run::end)
}

/// A recommender that lives through it all.
pub fn live(story: &Story, server: Scraper, offset: i64) -> Recommendation {
    let mut fleet = fleet();
    let sighting = fleet.sighting(&key()).expect("is tracked");
    fleet.loaded(&key(), sighting);
    let pods: Vec<(&Pod, Vec<Series>)> =
        story.pods.iter().map(|pod| (pod, server.scrape(pod, story, 1))).collect();
    for (pod, runs) in &pods {
        let (first, last) = (pod.runs[0].start, pod.runs.last().expect("ran").end());
        let mut minute = first / 60 * 60 + offset;
        let mut killed = kills(pod).peekable();
        while minute <= (last + 60).min(SPAN) {
            let now = time(minute);
            let running = runs
                .iter()
                .zip(&pod.runs)
                .find(|(_, run)| (run.start..=run.end()).contains(&minute));
            let usage =
                running.and_then(|(series, _)| scraped::usage_at(series, minute, server.every));
            if let Some((at, cores, bytes)) = usage {
                let usage = Usage {
                    pod: &pod.name,
                    container: "app",
                    at: time(at),
                    cpu: Some(MilliCpu((cores * 1000.0).ceil() as i64)),
                    memory: Some(Bytes(bytes as i64)),
                };
                fleet.take_usage(&key(), usage, now);
            }
            while let Some(at) = killed.next_if(|at| *at <= minute) {
                let whose = (&*pod.name, "app");
                fleet.take_kill(&key(), whose, (time(at), kill(story)), false, now);
            }
            minute += 60;
        }
    }
    fleet.see_container(&key(), "app", time(SPAN));
    fleet.recommend(&key(), time(SPAN)).expect("is loaded")
}

/// A recommender that asks at the end.
fn boot(story: &Story, plan: Plan, offset: i64) -> Recommendation {
    let prometheus = Scraper { every: plan.scrape, offset, fails: 200 };
    let mut fleet = fleet();
    let mut bootstrap = Bootstrap::new(fleet.settings(), time(SPAN));
    let app = Key::new(key(), "app");
    let mut take = |pod: &Pod, at: i64, covers: Option<i64>, measurement| {
        let covers = covers.map(|covers| Duration::from_secs(covers.unsigned_abs()));
        let sample = Sample { replica: (*pod.name).into(), at: time(at), covers, measurement };
        bootstrap.take(&app, &sample, |key| fleet.begin_folding(key));
    };
    for pod in &story.pods {
        let runs = prometheus.scrape(pod, story, 2);
        for (at, cores) in scraped::cpu(&runs, plan.ask, plan.step) {
            take(pod, at, Some(plan.step), Measurement::CpuCores(cores));
        }
        let mut killed = kills(pod).peekable();
        let out_of_memory = Measurement::OutOfMemory {
            request_bytes: story.request,
            limit_bytes: Some(story.request * 2),
        };
        for (at, bytes) in scraped::memory(&runs, plan.memory_step) {
            while let Some(killed) = killed.next_if(|killed| *killed <= at) {
                take(pod, killed, None, out_of_memory);
            }
            take(pod, at, Some(plan.memory_step), Measurement::MemoryBytes(bytes));
        }
        for killed in killed {
            take(pod, killed, None, out_of_memory);
        }
    }
    let sighting = fleet.sighting(&key()).expect("is tracked");
    for (key, folded) in bootstrap.finish() {
        fleet.take_folded(&key, folded, time(SPAN));
    }
    fleet.loaded(&key(), sighting);
    fleet.see_container(&key(), "app", time(SPAN));
    fleet.recommend(&key(), time(SPAN)).expect("is loaded")
}

/// What is compared of a recommendation.
pub fn read(said: &Recommendation) -> Read {
    let explanation = &said.containers[0].explanation;
    let (cpu, memory) = (explanation.cpu.as_ref(), explanation.memory.as_ref());
    let (cpu, memory) = (cpu.expect("CPU"), memory.expect("memory"));
    let bucket = |buckets: &Buckets, read: f64| i64::from(buckets.find(read * 1.000_001));
    let [cpu_buckets, memory_buckets] =
        [Buckets::cpu(Scheme::Standard), Buckets::memory(Scheme::Standard)];
    Read {
        cpu: [cpu.lower, cpu.target, cpu.upper].map(|step| bucket(cpu_buckets, step.read)),
        memory: [memory.lower, memory.target, memory.upper]
            .map(|step| bucket(memory_buckets, step.read)),
        confidence: cpu.evidence.confidence,
        count: cpu.evidence.samples,
    }
}

/// How many numbers were in the same bucket, how many one apart and how many farther; the largest error of confidence.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub cpu: [u32; 3],
    pub memory: [u32; 3],
    pub farthest: i64,
    pub confidence: f64,
    /// Pods, runs of their containers, and kills among these.
    pub events: [usize; 3],
    /// What was more than one bucket apart, or of another confidence.
    pub odd: Vec<String>,
}

impl Figures {
    /// Compares a workload that was lived with the same that was read.
    pub fn take(&mut self, story: &Story, lived: &Read, read: &Read) {
        let runs = story.pods.iter().map(|pod| pod.runs.len()).sum();
        let events = [story.pods.len(), runs, story.pods.iter().flat_map(kills).count()];
        self.see(events);
        let mut farthest = 0;
        for (into, lived, read) in
            [(&mut self.cpu, lived.cpu, read.cpu), (&mut self.memory, lived.memory, read.memory)]
        {
            for (lived, read) in lived.into_iter().zip(read) {
                let apart = (lived - read).abs();
                into[usize::try_from(apart.min(2)).expect("up to 2")] += 1;
                farthest = farthest.max(apart);
            }
        }
        // A run begins and ends between two minutes, so it may have a sample more or less; a day's worth of samples is a
        // confidence of one.
        let of_edges = runs as f64 / MINUTES_A_DAY;
        let apart = ((read.confidence - lived.confidence).abs() - of_edges).max(0.0);
        let confidence = apart / lived.confidence;
        if farthest > 1 || confidence > 0.02 {
            self.odd.push(format!("{}: lived {lived:?}, read {read:?}", story.name));
        }
        self.farthest = self.farthest.max(farthest);
        self.confidence = self.confidence.max(confidence);
    }

    /// Nine in ten numbers are the same, none is farther than one bucket, and confidence is the same but for two in a
    /// hundred and a sample a run.
    pub fn are_good_enough(&self, workloads: u32, what: &str) {
        let numbers: u32 = self.cpu.iter().chain(&self.memory).sum();
        assert_eq!(numbers, workloads * 6, "three numbers of two resources of each workload");
        let [pods, runs, kills] = self.events;
        // Enough happens to the stories of each seed.
        let seeds = workloads as usize / MANNERS.len();
        let enough = pods > 100 * seeds && runs > pods + 30 * seeds && kills > 6 * seeds;
        assert!(enough, "{:?}", self.events);
        let equal = self.cpu[0] + self.memory[0];
        assert!(numbers - equal <= numbers.div_ceil(10), "{what}: {self:?}");
        assert!(self.farthest <= 1, "{what}: {self:?}");
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
        self.odd.extend_from_slice(&other.odd);
    }
}

/// Lives the stories of these seeds, with a metrics server that measures so often, and reads them by each plan.
fn compare(plans: &[Plan], manners: &[Manner], server: i64, seeds: Range<u64>) -> Vec<Figures> {
    let of_seed = |seed: u64| {
        let mut figures = vec![Figures::default(); plans.len()];
        for (kind, manner) in (0..).zip(manners) {
            let story = manner.live(seed * 100 + kind);
            let offset = |scrape: i64| (seed.cast_signed() * 7 + 5) % scrape;
            let living = Scraper { every: server, offset: offset(server), fails: 200 };
            let lived = read(&live(&story, living, (seed.cast_signed() * 23) % 60));
            for (plan, figures) in plans.iter().zip(&mut figures) {
                let read = read(&boot(&story, *plan, offset(plan.scrape)));
                figures.take(&story, &lived, &read);
            }
        }
        figures
    };
    let mut figures = vec![Figures::default(); plans.len()];
    thread::scope(|scope| {
        let each: Vec<_> = seeds.map(|seed| scope.spawn(move || of_seed(seed))).collect();
        for seed in each {
            let of_seed = seed.join().expect("no life ends in a panic");
            figures.iter_mut().zip(&of_seed).for_each(|(figures, of_seed)| figures.add(of_seed));
        }
    });
    figures
}

/// The plan of the bootstrap for this scrape interval: CPU over the last two scrapes, each minute; memory as the
/// maximum of five minutes.
fn plan(scrape: i64) -> Plan {
    Plan { scrape, ask: Ask::Last(scrape * 21 / 10), step: 60, memory_step: 300 }
}

#[test]
fn what_is_read_recommends_what_was_lived() {
    let plans = [plan(15), plan(30)];
    for seeds in story_seeds() {
        let workloads = seeds.clone().count() * MANNERS.len();
        for (plan, figures) in plans.iter().zip(compare(&plans, &MANNERS, 15, seeds.clone())) {
            figures.are_good_enough(workloads as u32, &format!("{seeds:?}: {plan:?}"));
        }
    }
}

#[test]
fn means_over_longer_times_would_lose_the_bursts() {
    let mean = |step| Plan { ask: Ask::Mean(step), step, ..plan(30) };
    let sampled = Plan { step: 300, ..plan(30) };
    let plans = [mean(300), mean(900), sampled];
    let [five, fifteen, sampled] = &compare(&plans, &MANNERS[2..5], 15, 1..3)[..] else {
        panic!("three plans have three figures");
    };
    assert!(five.farthest > 1 && fifteen.farthest > five.farthest, "{five:?} {fifteen:?}");
    // A step may be longer where a server is slow, as long as the window is not.
    assert!(sampled.farthest <= 2 && sampled.cpu[0] > five.cpu[0], "{sampled:?}");
}
