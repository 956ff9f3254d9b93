//! `plimsoll recommend` against a real Prometheus without a cluster: `cargo xtask bench recommend`.
//!
//! A real Prometheus 3.15 has eight days of 1,000 containers with a sample per minute, and what kube-state-metrics
//! exports about them. The command runs as a process of its own; its report has the number of queries, and of bytes as they
//! were transferred and after decompression. KRR cannot be installed here: its figures are those of an earlier run on the
//! same kind of machine, for each container.
//!
//! ```text
//! cargo xtask bench recommend
//! cargo xtask bench recommend --containers 10000 --days 1 --step 5m
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "recommend/command.rs"]
#[allow(dead_code, reason = "the benchmark of backtest needs more of it")]
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

use std::{process::ExitCode, time::Instant};

use clap::Parser;
use jiff::Timestamp;

use self::{
    command::Run,
    support::{
        clock::wall_now,
        process_guard::ProcessState,
        prometheus_server::{PrometheusRelease, PrometheusServer},
    },
    workload_mix::WorkloadMix,
};

/// Workloads in a namespace.
const WORKLOADS: usize = 50;
/// Queries of KRR for each container.
const KRR_QUERIES: f64 = 7.0;
/// Seconds of KRR for each further container.
const KRR_SECONDS: f64 = 0.073;
/// MB of responses of KRR for each container.
const KRR_MEGABYTES: f64 = 0.52;
/// CPU seconds of the server for each container.
const KRR_SERVER_SECONDS: f64 = 0.032;

/// `plimsoll recommend` against a Prometheus.
#[derive(Debug, Parser)]
struct Arguments {
    /// Containers, each of its own workload, in multiples of 50
    #[arg(long, default_value_t = 1000)]
    containers: usize,
    /// Days of history
    #[arg(long, default_value_t = 8)]
    days: u32,
    /// Step of CPU samples
    #[arg(long, default_value = "1m")]
    step: String,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let Some((run, server_seconds)) = runtime.block_on(measure(&arguments)) else {
        return ExitCode::SUCCESS;
    };
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("\n`cargo xtask bench recommend {}`, {}\n", words.join(" "), process::machine());
    let count = arguments.containers as f64;
    let (max_seconds, max_megabytes, max_resident) = bounds(&arguments);
    println!(
        "| {} containers, {} days, step {} | Plimsoll | KRR | at most | |",
        arguments.containers, arguments.days, arguments.step
    );
    println!("|---|---|---|---|---|");
    let rows = [
        ("s", run.seconds, KRR_SECONDS * count, max_seconds),
        ("queries", run.queries, KRR_QUERIES * count, max_queries(&arguments)),
        ("MB transferred, compressed", run.transferred, f64::NAN, max_megabytes),
        ("MB of responses", run.decoded, KRR_MEGABYTES * count, None),
        ("peak resident, MiB", run.peak_mebibytes, f64::NAN, max_resident),
        ("of it not pages of the program, MiB", run.allocated_mebibytes, f64::NAN, None),
        ("s of CPU of the server", server_seconds, KRR_SERVER_SECONDS * count, None),
    ];
    let mut all_held = run.containers == arguments.containers;
    for (what, ours, krr, at_most) in rows {
        let krr = if krr.is_nan() { String::new() } else { format!("{krr:.0}") };
        let (at_most, verdict) = at_most.map_or((String::new(), ""), |most| {
            let is_held = ours <= most;
            all_held &= is_held;
            (format!("{most:.0}"), if is_held { "held" } else { "**NOT HELD**" })
        });
        println!("| {what} | {ours:.1} | {krr} | {at_most} | {verdict} |");
    }
    println!("| containers with a number | {} | | {} | |", run.containers, arguments.containers);
    println!(
        "\nKRR: 7 queries, 73 ms, 0.52 MB and 32 ms of CPU of the server for each container, at d6baa74 with 14 days."
    );
    if all_held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The bound on queries: 200 for 1,000 containers in 20 namespaces for eight days.
fn max_queries(arguments: &Arguments) -> Option<f64> {
    (arguments.containers >= 1000).then_some(0.2 * arguments.containers as f64)
}

/// The bounds on seconds, transferred MB and MiB of memory.
fn bounds(arguments: &Arguments) -> (Option<f64>, Option<f64>, Option<f64>) {
    let containers = arguments.containers as f64;
    let share = containers / 1000.0 * f64::from(arguments.days) / 8.0;
    let is_fine = arguments.step == "1m";
    let seconds = if is_fine { 10.0 } else { 4.0 };
    let megabytes = if is_fine { 150.0 } else { 50.0 };
    (Some(seconds * share.max(1.0)), Some(megabytes * share.max(1.0)), Some(96.0))
}

/// Returns the run and the CPU seconds of the server, or `None` after reporting why there is no server.
async fn measure(arguments: &Arguments) -> Option<(Run, f64)> {
    let namespaces = arguments.containers.div_ceil(WORKLOADS).max(1);
    let mix = WorkloadMix { namespaces, workloads: WORKLOADS, replicas: 1, containers: 1 };
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("an hour");
    let begun = Instant::now();
    let history = kube_state::history(mix, end, arguments.days);
    let server = PrometheusServer::with_history(PrometheusRelease::V3, history).await?;
    println!(
        "{} containers for {} days: written in {:.0?}",
        mix.all(),
        arguments.days,
        begun.elapsed()
    );
    let busy = || match server.process_guard().state("prometheus") {
        Some(ProcessState::Running(id)) => process::read_stats(id).cpu,
        _ => 0.0,
    };
    // The first run warms up the file cache of the server.
    let mut last = None;
    for _ in 0..2 {
        let before = busy();
        let run = Run::new(&server.url(), end, arguments.days, &arguments.step);
        println!("{run:?}");
        last = Some((run, busy() - before));
    }
    last
}
