//! Updaters side by side: `cargo xtask bench updater`.
//!
//! A real control plane has VPAs with two pods each. The updaters run on it one at a time, alternating, as separate
//! processes with the same rates. First all pods are within their bounds and young, so that a pass checks each pod
//! and changes none. Then they are outside, and a pass evicts as many as it can: the server needs 100 ms for each
//! eviction.
//!
//! ```text
//! cargo xtask bench updater                          1,000 VPAs, 2,000 pods
//! cargo xtask bench updater --vpas 50 --rounds 1
//! cargo xtask bench updater --flag=--kube-api-qps=50 --flag=--kube-api-burst=100
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "admission/cluster.rs"]
mod cluster;
#[path = "scale/process.rs"]
mod process;
#[path = "updater/results.rs"]
mod results;
#[allow(dead_code, unused_imports, reason = "the testbed offers what other tests need too")]
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "updater/updater_process.rs"]
mod updater_process;

use std::{process::ExitCode, time::Instant};

use clap::Parser;

use self::{
    cluster::{Cluster, Layout},
    results::Comparison,
    support::{Testbed, recommender_pair::Implementation},
    updater_process::Updaters,
};

/// Updaters side by side.
#[derive(Debug, Parser)]
struct Arguments {
    /// VPAs, in 20 namespaces
    #[arg(long, default_value_t = 1000)]
    vpas: usize,
    /// Pods per VPA
    #[arg(long, default_value_t = 2)]
    pods: u64,
    /// Containers of each pod
    #[arg(long, default_value_t = 2)]
    containers: usize,
    /// Runs of each side; results are medians
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Passes without changes in each run
    #[arg(long, default_value_t = 5)]
    passes: u32,
    /// Duration of the pass that evicts, in seconds
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// A flag for both, such as --flag=--eviction-tolerance=1
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(columns) = compare(&arguments).await else { return ExitCode::SUCCESS };
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("\n`cargo xtask bench updater {}`, {}", words.join(" "), process::machine());
    let pods = arguments.vpas as u64 * arguments.pods;
    let (text, is_held) = columns.table();
    println!("\n{} VPAs, {pods} pods:\n\n{text}", arguments.vpas);
    if is_held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs both. Returns `None` after reporting what is missing.
async fn compare(arguments: &Arguments) -> Option<Comparison> {
    let bed = Testbed::private().await?;
    let mut flags = vec![
        // No webhook is needed, because no controller recreates the pods.
        "--use-admission-controller-status=false".to_owned(),
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ];
    flags.extend(arguments.flags.iter().cloned());
    let updaters = Updaters::on(&bed, flags).await?;
    let begun = Instant::now();
    let layout = Layout {
        workloads: arguments.vpas,
        namespaces: 20,
        containers: arguments.containers,
        pods: arguments.pods,
        is_calm: true,
    };
    let cluster = Cluster::create(&bed, &layout).await;
    println!("{} VPAs: made in {:.0?}", arguments.vpas, begun.elapsed());
    let mut columns = Comparison::default();
    for round in 0..arguments.rounds.max(1) {
        for side in order(round) {
            let run = updaters.run(side, 2, arguments.passes.max(1)).await;
            println!("{:>8}, nothing to do: {run}", updater_process::name(side));
            columns.calm(side, run);
        }
    }
    cluster.recommend(&bed, false).await;
    for round in 0..arguments.rounds.max(1) {
        for side in order(round) {
            cluster.fill(&bed).await;
            let run = updaters.run(side, arguments.seconds, 1).await;
            println!("{:>8}, much to do: {run}", updater_process::name(side));
            columns.busy(side, run);
        }
    }
    Some(columns)
}

/// The first one finds caches as the other left them, so they alternate.
const fn order(round: usize) -> [Implementation; 2] {
    if round.is_multiple_of(2) {
        [Implementation::Upstream, Implementation::Ours]
    } else {
        [Implementation::Ours, Implementation::Upstream]
    }
}
