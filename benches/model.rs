//! Speed and size of the recommender's model: `cargo xtask bench model`.
//!
//! ns per sample added, µs per recommendation, the time that 10,000 VPAs with 50,000 containers take on
//! one core, and bytes per container, on the mix of `tests/model/mix.rs`.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::{
    collections::BTreeMap,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll::{
    recommend::{Directives, History, Settings, recommend},
    units::{Bytes, MilliCpu},
};
use plimsoll_storage::{Time, VpaKey};

#[path = "../tests/model/mix.rs"]
mod mix;

const VPAS: usize = 10_000;
const RUNS: usize = 7;

fn main() {
    let settings = Settings::default();
    samples(&settings);
    let mut cluster = BTreeMap::new();
    let used = allocation_counter::measure(|| {
        for number in 0..VPAS {
            let namespace: Arc<str> = format!("team-{}", number % 100).into();
            let key = VpaKey::new(namespace, format!("workload-{number}"));
            cluster.insert(key, mix::vpa(number, Duration::from_mins(10), &settings));
        }
    });
    let containers = VPAS * mix::CONTAINERS;
    println!(
        "bytes per container, keys included      {:>10}",
        used.bytes_current / containers as i64
    );
    recompute(&cluster, &settings);
}

/// Every VPA recommended anew, from scratch, on this one thread.
fn recompute(cluster: &BTreeMap<VpaKey, History>, settings: &Settings) {
    let directives = Directives::default();
    let now = mix::end();
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
    let median = runs[RUNS / 2];
    let containers = (cluster.len() * mix::CONTAINERS) as f64;
    println!("µs per container recommended            {:>10.2}", micros(median) / containers);
    println!(
        "µs per VPA recommended                  {:>10.2}",
        micros(median) / cluster.len() as f64
    );
    println!(
        "ms for 10,000 VPAs / 50,000 containers  {:>10.1}  (min {:.1}, max {:.1}, {RUNS} runs)",
        micros(median) / 1e3,
        micros(runs[0]) / 1e3,
        micros(runs[RUNS - 1]) / 1e3,
    );
}

/// One CPU and one memory sample at a time into a container that has lived for days.
fn samples(settings: &Settings) {
    let rules = Directives::default().rules(None, settings);
    let mut history = mix::vpa(0, Duration::from_mins(10), settings);
    let mut noise = mix::Noise::new(7);
    let count = 2_000_000;
    let values: Vec<i64> = (0..4096).map(|_| noise.below(1_000_000_000)).collect();
    for (kind, is_cpu) in [("CPU", true), ("memory", false)] {
        let start = Instant::now();
        let mut at: Time = mix::end();
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
        let each = start.elapsed().as_nanos() as f64 / count as f64;
        println!("{:<40}{each:>10.1}", format!("ns per {kind} sample"));
    }
}

fn micros(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e3
}
