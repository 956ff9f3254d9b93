//! History from a Prometheus, side by side: `cargo xtask bench history`.
//!
//! A real Prometheus 3.15 has eight days of 2,000 containers with a sample per minute. Each reader runs in its own
//! process and reports its cost: Plimsoll; the same requests with the responses discarded; the plain client crate;
//! upstream's recommender. Then Plimsoll reads 50,000 containers from a server that generates its responses.
//!
//! ```text
//! cargo xtask bench history                                     all of it, some minutes
//! cargo xtask bench history --only ours                         without upstream, which needs a control plane
//! cargo xtask bench history --only ours --containers 200 --days 1 --canned 5000 --runs 1
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "history/discarded_responses.rs"]
mod discarded_responses;
#[path = "history/generated_series.rs"]
mod generated_series;
#[path = "history/plain_client.rs"]
mod plain_client;
#[path = "history/plimsoll_reader.rs"]
mod plimsoll_reader;
#[path = "scale/process.rs"]
mod process;
#[path = "history/reader_process.rs"]
mod reader_process;
#[path = "history/results.rs"]
mod results;
#[allow(dead_code, unused_imports, reason = "the testbed offers what other tests need too")]
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "history/synthetic_prometheus.rs"]
mod synthetic_prometheus;
#[path = "history/upstream_process.rs"]
mod upstream_process;
#[path = "history/workload_mix.rs"]
mod workload_mix;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use jiff::Timestamp;
use plimsoll::controllers::runtime::prometheus::PrometheusConfig;

use self::{
    reader_process::{Figures, Side, Task},
    results::Comparison,
    support::{
        clock::wall_now,
        process_guard::ProcessState,
        prometheus_server::{PrometheusRelease, PrometheusServer},
    },
    synthetic_prometheus::SyntheticPrometheus,
    workload_mix::WorkloadMix,
};

/// History from a Prometheus, side by side.
#[derive(Debug, Parser)]
struct Arguments {
    /// Containers in the Prometheus, in multiples of 200
    #[arg(long, default_value_t = 2000)]
    containers: usize,
    /// Days of history
    #[arg(long, default_value_t = 8)]
    days: u32,
    /// Containers of the synthetic server
    #[arg(long, default_value_t = 50_000)]
    canned: usize,
    /// Hours of history of the synthetic server
    #[arg(long, default_value_t = 24)]
    canned_hours: u32,
    /// Runs of each reader; results are medians
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Concurrent queries
    #[arg(long, default_value_t = default_config().max_concurrent_queries)]
    queries: usize,
    /// Maximum bytes of history in flight
    #[arg(long, default_value_t = default_config().buffer_bytes)]
    budget: u64,
    /// Skip upstream's recommender
    #[arg(long)]
    only: Option<Only>,
    /// The task of a child process
    #[arg(long, hide = true)]
    child: Option<String>,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Only {
    Ours,
}

/// The configuration of a recommender without flags.
fn default_config() -> PrometheusConfig {
    plimsoll::cli::recommender_config(&[]).expect("valid flags").prometheus
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(task) = &arguments.child {
        let task: Task = serde_json::from_str(task).expect("a serialized task");
        println!("{}", serde_json::to_string(&task.perform()).expect("numbers"));
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let Some(columns) = runtime.block_on(compare_readers(&arguments)) else {
        return ExitCode::SUCCESS;
    };
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("\n`cargo xtask bench history {}`, {}\n", words.join(" "), process::machine());
    println!("{}", columns.figures());
    let (text, is_held) = columns.bounds();
    println!("{text}");
    if is_held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all readers. Returns `None` after reporting why there is no server.
async fn compare_readers(arguments: &Arguments) -> Option<Comparison> {
    let mix = WorkloadMix::of_hundreds(arguments.containers);
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("an hour");
    let begun = Instant::now();
    let history = generated_series::history(mix, end, arguments.days);
    let server = PrometheusServer::with_history(PrometheusRelease::V3, history).await?;
    println!(
        "{} containers for {} days, {:.1} M samples: written in {:.0?}",
        mix.all(),
        arguments.days,
        generated_series::samples(mix, arguments.days) as f64 / 1e6,
        begun.elapsed()
    );
    let folder = tempfile::tempdir().expect("a folder");
    let task = Task {
        side: Side::Idle,
        url: server.url(),
        end: end.as_second(),
        hours: 24 * arguments.days,
        mix,
        queries: arguments.queries.max(1),
        budget: arguments.budget,
        requests: folder.path().join("requests.json"),
        records: false,
    };

    // The first reader records its requests, and warms up the server's file cache for all.
    run(&server, &Task { side: Side::Ours, records: true, ..task.clone() }).await;
    let (mut idle, mut unread, mut curl, mut ours) = (vec![], vec![], vec![], vec![]);
    for _ in 0..arguments.runs.max(1) {
        for (side, figures) in [
            (Side::Idle, &mut idle),
            (Side::Unread, &mut unread),
            (Side::Curl, &mut curl),
            (Side::Ours, &mut ours),
        ] {
            figures.push(run(&server, &Task { side, ..task.clone() }).await);
        }
    }
    let plain = run(&server, &Task { side: Side::Plain, ..task.clone() }).await;
    let upstream = match arguments.only {
        Some(Only::Ours) => None,
        None => upstream_process::measure(&server, arguments.days.min(7)).await,
    };
    drop(server);

    let mix = WorkloadMix::of_fives(arguments.canned);
    let canned = SyntheticPrometheus::serve(mix, end).await;
    println!("{} containers for {} hours, made up", mix.all(), arguments.canned_hours);
    let task = Task { url: canned.url(), hours: arguments.canned_hours, mix, ..task };
    let large = Task { side: Side::Counted, ..task }.run().await;
    println!("{:>10}: {large}", "counted");
    let median = Figures::median;
    Some(Comparison {
        idle: median(idle),
        unread: median(unread),
        curl: median(curl),
        ours: median(ours),
        plain,
        upstream,
        large,
    })
}

/// Runs a task in its own process and measures the server's CPU time.
async fn run(server: &PrometheusServer, task: &Task) -> Figures {
    let busy = || match server.process_guard().state("prometheus") {
        Some(ProcessState::Running(id)) => process::read_stats(id).cpu,
        _ => 0.0,
    };
    let before = busy();
    let mut figures = task.run().await;
    // The server finishes its cleanup.
    tokio::time::sleep(Duration::from_millis(300)).await;
    figures.server = busy() - before;
    println!("{:>10}: {figures}", format!("{:?}", task.side).to_lowercase());
    figures
}
