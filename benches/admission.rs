//! Webhooks side by side: `cargo xtask bench admission`.
//!
//! A real control plane has VPAs with recommendations, and the Deployments and ReplicaSets of pods. Both admission
//! controllers run on it as separate processes and receive reviews of new pods over TLS, in turn, as fast as they
//! respond: on one connection, on eight, and over HTTP/2 like API servers; and on eight at half the rate of the
//! slower one. Every response must contain a patch.
//!
//! ```text
//! cargo xtask bench admission                        1,000 VPAs in 20 namespaces, and in one
//! cargo xtask bench admission --vpas 100 --rounds 1 --seconds 1 --layout spread
//! cargo xtask bench admission --ours=--compat=upstream
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "admission/cluster.rs"]
mod cluster;
#[path = "admission/http1_connection.rs"]
mod http1_connection;
#[path = "admission/load.rs"]
mod load;
#[path = "scale/process.rs"]
mod process;
#[path = "admission/results.rs"]
mod results;
#[path = "admission/review_request.rs"]
mod review_request;
#[allow(dead_code, unused_imports, reason = "the testbed offers what other tests need too")]
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "admission/webhook_pair.rs"]
mod webhook_pair;

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};

use self::{
    cluster::{Cluster, Layout},
    load::LoadPattern,
    results::{Comparison, Round},
    review_request::ReviewRequest,
    support::Testbed,
    webhook_pair::WebhookPair,
};

/// Warm-up before each load pattern, which is not measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// Webhooks side by side.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of VPAs
    #[arg(long, default_value_t = 1000)]
    vpas: usize,
    /// Containers of each pod
    #[arg(long, default_value_t = 2)]
    containers: usize,
    /// Rounds per load pattern; results are medians
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Duration of each round
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Only one implementation
    #[arg(long)]
    layout: Option<LayoutChoice>,
    /// A flag for both, such as --flag=--feature-gates=InPlace=true
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// A flag for Plimsoll, such as --ours=--compat=upstream
    #[arg(long, allow_hyphen_values = true)]
    ours: Vec<String>,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LayoutChoice {
    /// 20 namespaces
    Spread,
    /// A single namespace
    One,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let layouts = [(LayoutChoice::Spread, 20), (LayoutChoice::One, 1)];
    let mut tables = Vec::new();
    for (at, namespaces) in layouts {
        if arguments.layout.is_some_and(|only| only != at) {
            continue;
        }
        let layout = Layout {
            workloads: arguments.vpas,
            namespaces,
            containers: arguments.containers,
            pods: 0,
            is_calm: false,
        };
        let Some(columns) = compare(&arguments, &layout).await else { return ExitCode::SUCCESS };
        tables.push((layout, columns));
    }
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("\n`cargo xtask bench admission {}`, {}", words.join(" "), process::machine());
    let mut is_held = true;
    for (layout, columns) in &tables {
        let (text, held) = columns.table();
        let place = match layout.namespaces {
            1 => "one namespace".to_owned(),
            many => format!("{many} namespaces"),
        };
        println!("\n{} VPAs in {place}:\n\n{text}", layout.workloads);
        is_held &= held;
    }
    if is_held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs both. Returns `None` after reporting what is missing.
async fn compare(arguments: &Arguments, layout: &Layout) -> Option<Comparison> {
    let bed = Testbed::private().await?;
    let rivals = WebhookPair::on(&bed).await?;
    let begun = Instant::now();
    let cluster = Cluster::create(&bed, layout).await;
    let questions: Arc<[ReviewRequest]> = review_request::about(&bed, &cluster).await.into();
    let bytes: usize = questions.iter().map(|question| question.body.len()).sum();
    println!(
        "{} VPAs in {} namespaces, {} bytes a review: made in {:.0?}",
        layout.workloads,
        layout.namespaces,
        bytes / questions.len(),
        begun.elapsed()
    );
    let sides = rivals.start(&arguments.flags, &arguments.ours);
    for side in &sides {
        side.answers_all(&questions).await;
    }
    let mut columns = Comparison::default();
    for pattern in LoadPattern::ALL {
        let rate = columns.pace();
        for side in &sides {
            load::run(&side.address, pattern, WARM_UP, &questions, rate).await;
        }
        for round in 0..arguments.rounds.max(1) {
            // The first one finds caches as the other left them, so they alternate.
            let mut order: Vec<_> = sides.iter().collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for side in order {
                let before = side.process().cpu;
                let time = Duration::from_secs(arguments.seconds);
                let result = load::run(&side.address, pattern, time, &questions, rate).await;
                let figures = Round::of(result, side.process().cpu - before);
                println!("{:>8} {}: {figures}", side.name, pattern.words());
                columns.add(side.implementation, pattern, figures);
            }
        }
    }
    for side in &sides {
        columns.end(side.implementation, side.process());
    }
    Some(columns)
}
