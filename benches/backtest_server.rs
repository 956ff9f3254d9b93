//! `plimsoll backtest` against a real Prometheus without a cluster: `cargo xtask bench backtest_server`.
//!
//! A real Prometheus 3.15 has 22 days of 2,000 containers of 1,000 Deployments with a sample per minute, and what
//! kube-state-metrics exports about them. The command runs as a separate process on the same cores: it reads the recordings
//! and replays seven policies. `cargo xtask bench backtest` measures the replay alone.
//!
//! ```text
//! cargo xtask bench backtest_server
//! cargo xtask bench backtest_server --containers 200 --policies current
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "recommend/command.rs"]
#[allow(dead_code, reason = "the benchmark of recommend needs more of it")]
mod command;
#[path = "recommend/kube_state.rs"]
mod kube_state;
#[path = "scale/process.rs"]
#[allow(dead_code, reason = "other benchmarks need more of it")]
mod process;
#[allow(dead_code, unused_imports, reason = "the testbed offers what other tests need too")]
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "history/workload_mix.rs"]
#[allow(dead_code, reason = "other benchmarks need more of it")]
mod workload_mix;

use std::{
    fs::File,
    process::{Command, ExitCode},
    time::Instant,
};

use clap::Parser;
use jiff::Timestamp;
use serde_json::Value;

use self::{
    command::Finished,
    support::{
        clock::wall_now,
        process_guard::ProcessState,
        prometheus_server::{PrometheusRelease, PrometheusServer},
    },
    workload_mix::WorkloadMix,
};

/// Deployments in a namespace, of two pods each.
const WORKLOADS: usize = 50;
const REPLICAS: usize = 2;
const MAX_SECONDS: f64 = 120.0;
const MAX_MEBIBYTES: f64 = 160.0;
/// The bounds are those of so many containers.
const MAX_CONTAINERS: usize = 2_000;

/// `plimsoll backtest` against a Prometheus.
#[derive(Debug, Parser)]
struct Arguments {
    /// Containers of pods, in multiples of 100
    #[arg(long, default_value_t = MAX_CONTAINERS)]
    containers: usize,
    /// Days to evaluate
    #[arg(long, default_value_t = 14)]
    days: u32,
    /// Days before them
    #[arg(long, default_value_t = 8)]
    warm_up_days: u32,
    /// Policies
    #[arg(long, default_value = "current,plimsoll,latency,cost,vpa,krr-simple,oracle")]
    policies: String,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(measure(&arguments)).unwrap_or(ExitCode::SUCCESS)
}

/// Returns `None` after reporting why there is no server.
async fn measure(arguments: &Arguments) -> Option<ExitCode> {
    let namespaces = arguments.containers.div_ceil(WORKLOADS * REPLICAS).max(1);
    let mix = WorkloadMix { namespaces, workloads: WORKLOADS, replicas: REPLICAS, containers: 1 };
    let end = Timestamp::from_second(wall_now().as_second() / 86_400 * 86_400).expect("a day");
    let days = arguments.warm_up_days + arguments.days;
    let begun = Instant::now();
    let history = kube_state::history(mix, end, days);
    let server = PrometheusServer::with_history(PrometheusRelease::V3, history).await?;
    println!("{} containers for {days} days: written in {:.0?}", mix.all(), begun.elapsed());
    let busy = || match server.process_guard().state("prometheus") {
        Some(ProcessState::Running(id)) => process::read_stats(id).cpu,
        _ => 0.0,
    };
    let before = busy();
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args([
        "backtest",
        "--source=prometheus",
        &format!("--prometheus-address={}", server.url()),
        &format!("--until={end}"),
        &format!("--days={}", arguments.days),
        &format!("--warm-up={}d", arguments.warm_up_days),
        &format!("--policies={}", arguments.policies),
        &format!("--output=json={}", report.display()),
    ]);
    let finished = Finished::of(command);
    let server_seconds = busy() - before;
    let report: Value =
        serde_json::from_reader(File::open(report).expect("a report")).expect("JSON");
    println!("{finished:?}\n{:#}", report["policies"][0]["cpuRequested"]);
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("\n`cargo xtask bench backtest_server {}`, {}\n", words.join(" "), process::machine());
    println!(
        "| {} containers, {} + {} days, {} policies | | at most |",
        mix.all(),
        arguments.warm_up_days,
        arguments.days,
        report["policies"].as_array().map_or(0, Vec::len)
    );
    println!("|---|---|---|");
    println!("| s | {:.1} | {MAX_SECONDS:.0} |", finished.seconds);
    println!("| s of CPU | {:.1} | |", finished.cpu_seconds);
    println!("| s of CPU of the server | {server_seconds:.1} | |");
    println!("| peak resident, MiB | {:.1} | {MAX_MEBIBYTES:.0} |", finished.peak_mebibytes);
    println!("| of it not pages of the program, MiB | {:.1} | |", finished.allocated_mebibytes);
    let is_held = finished.seconds <= MAX_SECONDS && finished.peak_mebibytes <= MAX_MEBIBYTES;
    let is_larger = mix.all() > MAX_CONTAINERS;
    Some(if is_held || is_larger { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
