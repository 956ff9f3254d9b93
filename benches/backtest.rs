//! The replay of `plimsoll backtest`: `cargo xtask bench backtest`.
//!
//! Generated workloads are replayed under seven policies by two threads, as the command does it, and reported. The
//! recordings of a part are generated before it is replayed; their time is measured apart.
//!
//! ```text
//! cargo xtask bench backtest
//! cargo xtask bench backtest --containers 500 --policies steady,balanced,tide
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "backtest/recordings.rs"]
mod recordings;

use std::{
    fs,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use plimsoll_core::backtest::{
    Policy, ReplaySettings, ReportInputs, WorkloadAccount, WorkloadRecording, replay, report,
};

use self::recordings::{Recordings, replicas};

const MAX_SECONDS: f64 = 120.0;
const MAX_MEBIBYTES: f64 = 160.0;
const MAX_CONTAINERS: u32 = 2_000;
/// Workloads that a thread has in memory at once: about the 12 MiB that are half of the default of --history-memory.
const PART: usize = 40;

/// The replay of `plimsoll backtest`.
#[derive(Debug, Parser)]
struct Arguments {
    /// Containers of pods that exist at the same time
    #[arg(long, default_value_t = MAX_CONTAINERS)]
    containers: u32,
    /// Days to evaluate
    #[arg(long, default_value_t = 14)]
    days: u32,
    /// Days before them
    #[arg(long, default_value_t = 8)]
    warm_up_days: u32,
    /// Policies
    #[arg(long, value_delimiter = ',')]
    #[arg(default_value = "current,plimsoll,latency,cost,vpa,krr-simple,oracle")]
    policies: Vec<Policy>,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let recordings = Recordings { warm_up_days: arguments.warm_up_days, days: arguments.days };
    let (mut workloads, mut containers) = (0, 0);
    while containers < arguments.containers {
        containers += replicas(workloads);
        workloads += 1;
    }
    let begun = Instant::now();
    let (accounts, generating) = run(&arguments, recordings, workloads);
    let evaluation = recordings.evaluation();
    let report = report::build(
        &accounts,
        &ReportInputs {
            version: "1.0.0".to_owned(),
            scope: "shop".to_owned(),
            warm_up_from: evaluation.warm_up_from,
            from: evaluation.from,
            until: evaluation.until,
            policies: arguments.policies.iter().map(Policy::label).collect(),
            currency: None,
            cpu_core_hour: None,
            memory_gib_hour: None,
            replicas: ReplaySettings::default().replicas,
            remarks: Vec::new(),
        },
    );
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = cpu_seconds();
    let generating = generating.as_secs_f64();
    let mebibytes = peak_mebibytes();
    println!("\n| policy | CPU, cores | short, % | memory, GiB | OOM kills | changes a day |");
    println!("|---|---|---|---|---|---|");
    for policy in &report.policies {
        println!(
            "| {} | {:.2} | {:.3} | {:.2} | {} | {:.3} |",
            policy.name,
            policy.cpu_requested,
            policy.cpu_short_time.unwrap_or_default() * 100.0,
            policy.memory_requested.unwrap_or_default(),
            policy.oom_kills,
            policy.changes_per_day
        );
    }
    println!(
        "\n| {workloads} workloads, {containers} containers, {} + {} days, {} policies, {} threads | | at most |",
        arguments.warm_up_days,
        arguments.days,
        arguments.policies.len(),
        arguments.threads
    );
    println!("|---|---|---|");
    println!("| s | {seconds:.1} | {MAX_SECONDS:.0} |");
    println!("| s of CPU | {cpu:.1} | |");
    println!("| s of it to generate the recordings | {generating:.1} | |");
    println!("| peak resident, MiB | {mebibytes:.1} | {MAX_MEBIBYTES:.0} |");
    let is_held = seconds <= MAX_SECONDS && mebibytes <= MAX_MEBIBYTES;
    if is_held || containers > MAX_CONTAINERS { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Replays all workloads. Returns their accounts in order, and the time to generate recordings, summed over threads.
fn run(
    arguments: &Arguments,
    recordings: Recordings,
    workloads: u32,
) -> (Vec<WorkloadAccount>, Duration) {
    let evaluation = recordings.evaluation();
    let settings = ReplaySettings::default();
    let next = AtomicU32::new(0);
    let done = Mutex::new((Vec::new(), Duration::ZERO));
    let part = (PART as u32).min(workloads.div_ceil(arguments.threads)).max(1);
    thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                loop {
                    let first = next.fetch_add(part, Ordering::Relaxed);
                    if first >= workloads {
                        return;
                    }
                    let begun = Instant::now();
                    let indices = first..(first + part).min(workloads);
                    let part: Vec<WorkloadRecording> =
                        indices.map(|index| recordings.workload(index)).collect();
                    let generating = begun.elapsed();
                    let replayed: Vec<WorkloadAccount> = part
                        .into_iter()
                        .map(|of| replay(&of, &evaluation, &arguments.policies, &settings))
                        .collect();
                    let mut done = done.lock().expect("no thread panicked");
                    done.0.extend(replayed);
                    done.1 += generating;
                }
            });
        }
    });
    done.into_inner().expect("no thread panicked")
}

/// CPU time of this process in seconds.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may contain any character; after it, the times are fields 12 and 13, in units of 10 ms.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after.split_whitespace().skip(11).take(2);
    ticks.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The peak of resident memory of this process.
fn peak_mebibytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.unwrap_or(f64::NAN) / 1_024.0
}
