//! The demo's workloads under each profile: `cargo xtask bench demo`.
//!
//! The cluster of the demo lives some days as it is, with the requests that its workloads began with. What it used is
//! recorded, and lived again under each policy by `plimsoll backtest`, with the real updater, on several seeds.
//!
//! ```text
//! cargo xtask bench demo
//! cargo xtask bench demo --seeds 3 --days 15 --policies current,plimsoll,latency,cost
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "../src/report/demo/workloads.rs"]
#[allow(dead_code, reason = "the demo itself needs more of it")]
mod workloads;

use clap::Parser;
use plimsoll_core::{
    backtest::{
        Evaluation, LifeRecorder, Policy, ReplaySettings, ReportInputs, replay,
        report::{BacktestReport, build},
    },
    sim::{Cluster, UpdatePolicy},
    types::Time,
};

/// The demo's first midnight, a Monday.
const START: Time = Time::from_secs(1_767_571_200);
const DAY_SECONDS: i64 = 86_400;
const MINUTES_PER_DAY: u32 = 1_440;
/// The policy that the others are compared with.
const DEFAULT: &str = "plimsoll";

/// The demo's workloads under each profile.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seeds of the load, from 1
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Days to evaluate, after one that only feeds the policies
    #[arg(long, default_value_t = 8)]
    days: u32,
    /// Policies
    #[arg(long, value_delimiter = ',')]
    #[arg(default_value = "current,plimsoll,vpa,steady,balanced,tide")]
    policies: Vec<Policy>,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = Arguments::parse();
    let reports: Vec<BacktestReport> =
        (1..=arguments.seeds).map(|seed| live(&arguments, seed)).collect();
    println!(
        "| {} seeds, {} days | CPU requested, cores | of {DEFAULT} | seeds with less | CPU short, time | memory requested, \
         GiB | OOM kills | fewest and most | changes a workload and day |",
        arguments.seeds, arguments.days
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let default = arguments.policies.iter().position(|policy| &*policy.name == DEFAULT);
    for (index, policy) in arguments.policies.iter().enumerate() {
        let of = |figure: &dyn Fn(&BacktestReport) -> f64| -> f64 {
            reports.iter().map(figure).sum::<f64>() / reports.len().max(1) as f64
        };
        let cores = |index: usize| of(&|report| report.policies[index].cpu_requested);
        let (compared, less) = default.map_or_else(
            || (String::new(), String::new()),
            |default| {
                let is_less = |report: &&BacktestReport| {
                    report.policies[index].cpu_requested < report.policies[default].cpu_requested
                };
                let less = reports.iter().filter(is_less).count();
                (format!("{:.0} %", 100.0 * cores(index) / cores(default)), less.to_string())
            },
        );
        let kills = reports.iter().map(|report| report.policies[index].oom_kills);
        println!(
            "| `{}` | {:.2} | {compared} | {less} | {:.2} % | {:.1} | {:.1} | {} to {} | {:.2} |",
            policy.name,
            cores(index),
            of(&|report| 100.0 * report.policies[index].cpu_short_time.unwrap_or(f64::NAN)),
            of(&|report| report.policies[index].memory_requested.unwrap_or(f64::NAN)),
            of(&|report| report.policies[index].oom_kills as f64),
            kills.clone().min().unwrap_or_default(),
            kills.max().unwrap_or_default(),
            of(&|report| report.policies[index].changes_per_day),
        );
    }
}

/// The report of one seed.
fn live(arguments: &Arguments, seed: u64) -> BacktestReport {
    let days = 1 + arguments.days;
    let demo = workloads::workloads().into_iter().map(|of| of.workload).collect();
    let mut cluster =
        Cluster::new(demo, seed, START, UpdatePolicy::Off).expect("the demo's workloads are valid");
    let mut recorder = LifeRecorder::new(START, cluster.workloads());
    for _ in 0..days * MINUTES_PER_DAY {
        cluster.step(&mut recorder);
    }
    let at = |day: u32| Time::from_secs(START.as_secs() + DAY_SECONDS * i64::from(day));
    let evaluation = Evaluation { warm_up_from: START, from: at(1), until: at(days) };
    let settings = ReplaySettings::default();
    let accounts: Vec<_> = recorder
        .into_recordings()
        .iter()
        .map(|recording| replay::replay(recording, &evaluation, &arguments.policies, &settings))
        .collect();
    let inputs = ReportInputs {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        scope: format!("the demo with seed {seed}"),
        warm_up_from: evaluation.warm_up_from,
        from: evaluation.from,
        until: evaluation.until,
        policies: arguments.policies.iter().map(Policy::label).collect(),
        currency: None,
        cpu_core_hour: None,
        memory_gib_hour: None,
        replicas: settings.replicas,
        remarks: Vec::new(),
    };
    build(&accounts, &inputs)
}
