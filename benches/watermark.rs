//! The watermark controller on a large cluster: `cargo xtask bench watermark`.
//!
//! A real control plane has thousands of objects, each with a Deployment, its pods and its own metric: an External
//! metric that the API server proxies to a metrics server, or a query to a real Prometheus. The controller runs as a
//! process with its default flags. The metric sources count whether each object was evaluated in each period.
//!
//! Datadog's controller cannot be built here. `results.rs` has its results as measured on a similar testbed.
//!
//! ```text
//! cargo xtask bench watermark                                500 and 2,000 objects, 10,000 on Prometheus, and busy
//! cargo xtask bench watermark --only busy                    half of 2,000 objects scale in each period
//! cargo xtask bench watermark --only prometheus --objects 1000
//! cargo xtask bench watermark --only external --objects 500 --flag=-workers=8
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "watermark/cluster.rs"]
mod cluster;
#[path = "watermark/metric_sources.rs"]
mod metric_sources;
#[path = "watermark/poll_periods.rs"]
mod poll_periods;
#[path = "scale/process.rs"]
mod process;
#[path = "watermark/results.rs"]
mod results;
#[allow(dead_code, unused_imports, reason = "the testbed offers what other tests need too")]
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "watermark/workload.rs"]
mod workload;
#[path = "watermark/write_order.rs"]
mod write_order;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;

use self::{
    cluster::Cluster,
    metric_sources::Source,
    results::{Case, Figures},
    support::{
        Testbed, plimsoll_process::PlimsollProcesses, process_guard::ProcessState,
        skipped::report_skipped,
    },
    write_order::RecordedWrites,
};

/// The controller's default period.
const PERIOD: Duration = Duration::from_secs(15);
/// Timeout until every object has a status.
const PATIENCE: Duration = Duration::from_mins(10);
/// Interval between two polls of all statuses, multiplied by the number of objects: polling uses CPU of the measured
/// processes.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Periods in which values change before a busy controller is measured.
const BUSY_TICKS: u32 = 3;
const NAME: &str = "watermark";

/// The watermark controller on a large cluster.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only one kind of metric source
    #[arg(long)]
    only: Option<Source>,
    /// Only this number of objects
    #[arg(long)]
    objects: Option<usize>,
    /// Pods per object
    #[arg(long, default_value_t = 2)]
    pods: usize,
    /// Number of measured periods
    #[arg(long, default_value_t = 8)]
    periods: u32,
    /// A flag for the controller, such as --flag=-workers=8
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(reason) = PlimsollProcesses::missing_role("watermark") {
        report_skipped(reason);
        return ExitCode::SUCCESS;
    }
    let mut measured = Vec::new();
    for case in cases(&arguments) {
        let Some(figures) = measure(&case, &arguments).await else { return ExitCode::SUCCESS };
        println!("{case}: {figures}");
        measured.push((case, figures));
    }
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("\n`cargo xtask bench watermark {}`, {}\n", words.join(" "), process::machine());
    let (text, is_held) = results::table(&measured);
    println!("{text}");
    if is_held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn cases(arguments: &Arguments) -> Vec<Case> {
    let all = [
        (Source::External, 500),
        (Source::External, 2000),
        (Source::Prometheus, 10_000),
        (Source::Busy, 2000),
    ];
    let mut cases: Vec<Case> = all
        .into_iter()
        .filter(|(source, _)| arguments.only.is_none_or(|only| only == *source))
        .map(|(source, objects)| Case { source, objects, pods: arguments.pods })
        .collect();
    if let Some(objects) = arguments.objects {
        for case in &mut cases {
            case.objects = objects;
        }
        cases.dedup();
    }
    cases
}

/// Runs the controller on a private testbed. Returns `None` after reporting what is missing.
async fn measure(case: &Case, arguments: &Arguments) -> Option<Figures> {
    let bed = Testbed::private().await?;
    let begun = Instant::now();
    let cluster = Cluster::create(&bed, case).await;
    let source = metric_sources::serve(&bed, &cluster, case.source).await?;
    println!("{case}: made in {:.0?}", begun.elapsed());
    let ours = PlimsollProcesses::new(&bed);
    let mut flags: Vec<String> = source.flags();
    let recorded = match case.source {
        Source::Busy => Some(RecordedWrites::start(&bed).await),
        Source::External | Source::Prometheus => None,
    };
    flags.extend(recorded.as_ref().map(RecordedWrites::flag));
    flags.extend(arguments.flags.iter().cloned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let begun = Instant::now();
    let port = ours.watermark(NAME, &flags);
    source.set(0);
    warm_up(&bed, &cluster).await;
    let warm = begun.elapsed();
    if case.source == Source::Busy {
        // Until more writes wait than the rate limit allows.
        for tick in 1..=BUSY_TICKS {
            source.set(tick);
            tokio::time::sleep(PERIOD).await;
        }
    }
    let (start, from) = (support::clock::wall_now(), Instant::now());
    let before = process::read_stats(id(&bed));
    let duration = PERIOD * arguments.periods;
    // As often as a Prometheus scrapes, so that its cost counts.
    for tick in 1.. {
        if from.elapsed() >= duration {
            break;
        }
        source.set(tick + BUSY_TICKS);
        let scraped =
            support::http_get::http_get(&format!("http://127.0.0.1:{port}/metrics")).await;
        assert!(scraped.is_some(), "it serves metrics");
        let next = from + (PERIOD * tick).min(duration);
        tokio::time::sleep_until(next.into()).await;
    }
    let (after, took) = (process::read_stats(id(&bed)), from.elapsed());
    let periods = source.periods(start, PERIOD, arguments.periods);
    let writes = recorded.map(|recorded| recorded.order(from, &source.reads()));
    let figures = Figures { periods, before, after, took, warm, period: PERIOD, writes };
    bed.process_guard().signal(NAME, "KILL");
    Some(figures)
}

/// Waits until every object has a status, and returns how long that took.
async fn warm_up(bed: &Testbed, cluster: &Cluster) {
    let begun = Instant::now();
    loop {
        let undecided = cluster.undecided(bed).await;
        if undecided == 0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{undecided} objects have no status");
        id(bed);
        tokio::time::sleep(POLL_INTERVAL * cluster.objects().len() as u32).await;
    }
}

/// The process id. Panics with the log tail if the process has ended.
fn id(bed: &Testbed) -> u32 {
    match bed.process_guard().state(NAME) {
        Some(ProcessState::Running(id)) => id,
        other => panic!("it is {other:?}\n{}", bed.process_guard().log_tail(NAME, 15)),
    }
}
