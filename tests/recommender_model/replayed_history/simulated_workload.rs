//! The true usage of a simulated workload, every five seconds for eight days, as the source of both live samples and
//! scrapes.

use crate::recommender_model::workload_mix::Random;

/// Seconds per tick.
pub const TICK: i64 = 5;
/// Seconds of the whole simulation.
pub const SPAN: i64 = 8 * 86_400;

/// One run of one container, during which its counter only grows.
#[derive(Clone, Debug)]
pub struct ContainerRun {
    /// Start of the run, in seconds since the start of the simulation.
    pub start: i64,
    /// CPU seconds used by the end of each tick.
    pub cpu: Vec<f64>,
    /// Bytes in use at the end of each tick.
    pub memory: Vec<f32>,
    /// Whether it was OOM-killed.
    pub killed: bool,
}

/// A simulated pod.
#[derive(Clone, Debug)]
pub struct SimulatedPod {
    /// Name of the pod.
    pub name: String,
    /// Runs of its container, in order.
    pub runs: Vec<ContainerRun>,
}

/// A workload with its simulated usage.
#[derive(Clone, Debug)]
pub struct SimulatedWorkload {
    /// Name of the behaviour.
    pub name: String,
    /// Memory request of its container.
    pub request: i64,
    /// All of its pods.
    pub pods: Vec<SimulatedPod>,
    /// Seconds in which nothing is scraped.
    pub unmeasured: Vec<(i64, i64)>,
}

impl ContainerRun {
    /// The end of the run.
    pub fn end(&self) -> i64 {
        self.start + self.cpu.len() as i64 * TICK
    }

    /// Its CPU counter and its memory at a time.
    pub fn at(&self, second: i64) -> Option<(f64, f64)> {
        let tick = usize::try_from((second - self.start) / TICK - 1).ok()?;
        Some((*self.cpu.get(tick)?, f64::from(self.memory[tick])))
    }
}

/// Parameters of a workload's behaviour.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadBehaviour {
    pub name: &'static str,
    /// Base usage in cores and MiB.
    pub cores: f64,
    pub mebibytes: f64,
    pub replicas: i64,
    /// Relative difference between noon and midnight.
    pub daily: f64,
    /// Bursts per hour, their minimum and maximum length in seconds, and their factor.
    pub bursts: (f64, i64, i64, f64),
    /// The share of memory that a garbage collection frees, and the minutes between collections.
    pub garbage_collection: (f64, f64),
    /// MiB leaked per hour; it is OOM-killed at twice its base memory.
    pub leak: f64,
    /// Hours between restarts without a kill; 0 for never.
    pub restarts: f64,
    /// Lifetime of a pod and interval between starts, in hours; 0 for the whole simulation.
    pub life: (f64, f64),
    /// Hours of the day in which it runs.
    pub active_hours: (i64, i64),
    /// Relative spread between replicas.
    pub replica_spread: f64,
    /// Hours of a gap in the scrapes; there are two gaps on average.
    pub dark: f64,
    /// Day on which it starts.
    pub born: i64,
}

/// Defaults of all behaviours.
pub const STEADY: WorkloadBehaviour = WorkloadBehaviour {
    name: "steady",
    cores: 0.25,
    mebibytes: 400.0,
    replicas: 2,
    daily: 0.2,
    bursts: (0.0, 0, 0, 1.0),
    garbage_collection: (0.1, 15.0),
    leak: 0.0,
    restarts: 0.0,
    life: (0.0, 0.0),
    active_hours: (0, 24),
    replica_spread: 0.0,
    dark: 0.0,
    born: 0,
};

/// The random suffix of a pod's name, in the characters that the API server uses.
fn suffix(number: usize) -> String {
    let letters = b"bcdfghjklmnpqrstvwxz2456789";
    let letter =
        |place: u32| char::from(letters[number / letters.len().pow(place) % letters.len()]);
    (0..5).rev().map(letter).collect()
}

/// A random number from 0 to 1.
fn share(noise: &mut Random) -> f64 {
    noise.below(1 << 30) as f64 / (1_u64 << 30) as f64
}

impl WorkloadBehaviour {
    /// Simulates eight days with this behaviour.
    pub fn simulate(&self, seed: u64) -> SimulatedWorkload {
        let mut noise = Random::new(seed);
        let mut pods = Vec::new();
        let size = 0.5 + 2.0 * share(&mut noise);
        for replica in 0..self.replicas {
            let unlike = 1.0 + self.replica_spread * (replica as f64 / self.replicas as f64 - 0.5);
            for (start, end) in self.pod_lifetimes(&mut noise) {
                let name = format!("web-6d4b9c7f5d-{}", suffix(pods.len()));
                let runs = self.runs(start, end, size * unlike, &mut noise);
                pods.push(SimulatedPod { name, runs });
            }
        }
        let mut dark = Vec::new();
        if self.dark > 0.0 {
            for half in 0..2 {
                let at = half * SPAN / 2 + noise.below(SPAN / 2 - 40_000);
                dark.push((at, at + (self.dark * 3600.0) as i64));
            }
        }
        let request = (self.mebibytes * size * 1_048_576.0) as i64;
        SimulatedWorkload { name: format!("{} {seed}", self.name), request, pods, unmeasured: dark }
    }

    /// Start and end of the consecutive pods of one replica.
    fn pod_lifetimes(&self, noise: &mut Random) -> Vec<(i64, i64)> {
        let tick = |second: i64| second / TICK * TICK;
        let first = self.born * 86_400 + noise.below(90);
        let (alive, between) = self.life;
        let mut intervals = Vec::new();
        if self.active_hours != (0, 24) {
            for day in 0..8 {
                let jitter = noise.below(120);
                let at = |hour: i64| tick(day * 86_400 + hour * 3600 + jitter);
                intervals.push((at(self.active_hours.0), at(self.active_hours.1)));
            }
        } else if alive > 0.0 {
            let mut at = first;
            while at < SPAN {
                let lasts = alive * 3600.0 * (0.8 + 0.4 * share(noise));
                intervals.push((tick(at), tick(at + lasts as i64).min(SPAN)));
                at += (between * 3600.0) as i64 + noise.below(30);
            }
        } else {
            intervals.push((tick(first), SPAN));
        }
        intervals
    }

    fn runs(&self, start: i64, end: i64, size: f64, noise: &mut Random) -> Vec<ContainerRun> {
        let mut runs = Vec::new();
        let mut at = start;
        while at < end - 60 {
            let lasts = if self.restarts > 0.0 {
                (self.restarts * 3600.0 * (0.2 + 1.6 * share(noise))) as i64
            } else {
                SPAN
            };
            let run = self.run(at, end.min(at + lasts), size, noise);
            at = run.end() + 10 + noise.below(8) * TICK;
            at = at / TICK * TICK;
            runs.push(run);
        }
        runs
    }

    fn run(&self, start: i64, end: i64, size: f64, noise: &mut Random) -> ContainerRun {
        let ticks = ((end - start) / TICK) as usize;
        let mut run = ContainerRun {
            start,
            cpu: Vec::with_capacity(ticks),
            memory: Vec::with_capacity(ticks),
            killed: false,
        };
        let (usual, heap) = (self.cores * size, self.mebibytes * size * 1_048_576.0);
        let (mut counter, mut slow, mut leaked, mut garbage) = (0.0, 0.0, 0.0, 0.0);
        let (mut burst_ends, mut burst) = (0, 1.0);
        let burst_odds = self.bursts.0 * TICK as f64 / 3600.0;
        for tick in 0..ticks {
            let second = start + tick as i64 * TICK;
            let of_day = (second % 86_400) as f64 / 86_400.0;
            let daily = 1.0 - self.daily * (of_day * std::f64::consts::TAU).cos();
            // Load that varies over minutes, plus noise.
            slow = 0.98 * slow + 0.06 * (share(noise) - 0.5);
            if second >= burst_ends {
                burst = 1.0;
                if share(noise) < burst_odds {
                    burst_ends =
                        second + self.bursts.1 + noise.below(self.bursts.2 - self.bursts.1);
                    burst = 1.0 + (self.bursts.3 - 1.0) * (0.3 + 0.7 * share(noise));
                }
            }
            let jitter = 0.9 + 0.2 * share(noise);
            let load = (daily * (1.0 + slow) * burst).max(0.05);
            counter += usual * load * jitter * TICK as f64;
            leaked += self.leak * 1_048_576.0 * TICK as f64 / 3600.0;
            garbage += self.garbage_collection.0 * TICK as f64 / 60.0 / self.garbage_collection.1
                * load.min(3.0);
            if garbage > self.garbage_collection.0 * (0.9 + 0.2 * share(noise)) {
                garbage = 0.0;
            }
            let more = 0.15 * (daily - 1.0) + 0.1 * (burst.min(5.0) - 1.0) + 0.05 * slow;
            let memory = heap * (0.8 + garbage + more) + leaked;
            run.cpu.push(counter);
            run.memory.push(memory as f32);
            if self.leak > 0.0 && memory > 2.0 * heap {
                run.killed = true;
                break;
            }
        }
        run
    }
}
