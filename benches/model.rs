//! Speed and size of the recommender's model compared with upstream's: `cargo xtask bench model`.
//!
//! Both sides process the same samples, the mix of `tests/recommender_model/workload_mix.rs`, in one run on one
//! thread. Upstream's side is `tests/cluster/autoscaler/model`; without Go only Plimsoll's results are printed.
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::{
    collections::BTreeMap,
    hint::black_box,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_core::{
    recommender::{History, Settings, VpaSettings, recommend},
    types::units::{Bytes, MilliCpu},
};

#[path = "../tests/recommender_model/workload_mix.rs"]
mod workload_mix;

const VPAS: usize = 10_000;
const RUNS: usize = 7;

fn main() {
    // Cargo passes `--bench` to every benchmark; this one has no options.
    let peer = peer();
    println!("{:<44}{:>10}{:>12}{:>9}", "", "plimsoll", "upstream", "ratio");
    for (name, ours) in ours() {
        match peer.iter().find(|(other, _)| *other == name) {
            Some((_, theirs)) => {
                println!("{name:<44}{ours:>10.1}{theirs:>12.1}{:>9.3}", ours / theirs);
            }
            None => println!("{name:<44}{ours:>10.1}"),
        }
    }
}

/// Upstream's results by the same names; empty if they are not available.
fn peer() -> Vec<(String, f64)> {
    let output = xtask::test_programs::autoscaler_model()
        .and_then(|program| Ok(Command::new(program).arg("bench").output()?));
    let output = match output {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            println!("upstream's side failed: {}", String::from_utf8_lossy(&output.stderr));
            return Vec::new();
        }
        Err(reason) => {
            println!("upstream's side is left out: {reason:#}");
            return Vec::new();
        }
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(name, number)| Some((name.to_owned(), number.parse().ok()?)))
        .collect()
}

fn ours() -> Vec<(&'static str, f64)> {
    let settings = Settings::default();
    let mut figures = samples(&settings);
    let mut cluster = BTreeMap::new();
    let used = allocation_counter::measure(|| {
        for number in 0..VPAS {
            let namespace: Arc<str> = format!("team-{}", number % 100).into();
            let key = ObjectKey::new(namespace, format!("workload-{number}"));
            cluster.insert(key, workload_mix::vpa(number, Duration::from_mins(10), &settings));
        }
    });
    let containers = VPAS * workload_mix::CONTAINERS;
    let each = used.bytes_current as f64 / containers as f64;
    figures.push(("bytes per container, keys included", each));
    let pass = recompute(&cluster, &settings);
    figures.push(("ms for 10,000 VPAs / 50,000 containers", pass.as_secs_f64() * 1e3));
    figures.push(("µs per container recommended", pass.as_secs_f64() * 1e6 / containers as f64));
    figures.push(("µs per VPA recommended", pass.as_secs_f64() * 1e6 / VPAS as f64));
    figures
}

/// Recomputes all recommendations on this thread; returns the median of the runs.
fn recompute(cluster: &BTreeMap<ObjectKey, History>, settings: &Settings) -> Duration {
    let directives = VpaSettings::default();
    let now = workload_mix::end();
    let mut runs: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            for history in cluster.values() {
                black_box(recommend(&directives, black_box(history), settings, now));
            }
            start.elapsed()
        })
        .collect();
    runs.sort_unstable();
    runs[RUNS / 2]
}

/// Adds samples one at a time to a container with days of history.
fn samples(settings: &Settings) -> Vec<(&'static str, f64)> {
    let rules = VpaSettings::default().rules(None, settings);
    let mut history = workload_mix::vpa(0, Duration::from_mins(10), settings);
    let mut noise = workload_mix::Random::new(7);
    let count = 2_000_000;
    let values: Vec<i64> = (0..4096).map(|_| noise.below(1_000_000_000)).collect();
    let mut figures = Vec::new();
    for (name, is_cpu) in [("ns per CPU sample", true), ("ns per memory sample", false)] {
        let start = Instant::now();
        let mut at: Time = workload_mix::end();
        for index in 0..count {
            at = at.later(Duration::from_millis(100));
            let value = values[index % values.len()];
            let container = history.container_mut("container-0", at, &rules);
            let taken = if is_cpu {
                container.add_cpu("pod-0", at, MilliCpu(value / 1_000_000), &rules)
            } else {
                container.add_memory("pod-0", at, Bytes(value), &rules)
            };
            let _ = black_box(taken);
        }
        figures.push((name, start.elapsed().as_nanos() as f64 / count as f64));
    }
    figures
}
