//! Recommenders on a large cluster, side by side: `cargo xtask bench scale`.
//!
//! A real control plane has thousands of VPAs, each with a Deployment, a ReplicaSet and a pod of five containers. A
//! metrics server reports usage that grows all the time, so that every status and checkpoint changes in every pass.
//! The recommenders run one after the other for some minutes, without history, and are measured from outside.
//!
//! ```text
//! cargo xtask bench scale                                        1,000 VPAs, default flags, 6 minutes each
//! cargo xtask bench scale --vpas 10000 --minutes 16 --upstream-minutes 6 --flag=--kube-api-qps=1000 --flag=--kube-api-burst=1000
//! cargo xtask bench scale --vpas 200 --minutes 3 --only upstream
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "scale/cluster.rs"]
#[allow(dead_code, reason = "the benchmark of the page needs more of it")]
mod cluster;
#[path = "scale/process.rs"]
mod process;
#[path = "scale/results.rs"]
mod results;
#[allow(dead_code, unused_imports, reason = "the testbed offers what other tests need too")]
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "scale/write_ages.rs"]
mod write_ages;

use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use tokio::time::{MissedTickBehavior, interval};

use self::{
    cluster::Cluster,
    results::{Figures, PassTimes},
    support::{
        MetricsServer, Testbed, bulk_objects,
        recommender_pair::{Implementation, RecommenderPair},
    },
    write_ages::WriteAges,
};

/// metrics-server's default resolution.
const SCRAPE: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often the recommenders' metrics are scraped: as often as a Prometheus does. Plimsoll has a dozen series per
/// container, and frequent scrapes would dominate the measurement.
const METRICS_INTERVAL: Duration = SCRAPE;
/// Workloads with an OOM kill halfway.
const KILLS: usize = 10;

/// Recommenders on a large cluster, side by side.
#[derive(Debug, Parser)]
struct Arguments {
    /// VPAs, each with five containers
    #[arg(long, default_value_t = 1000)]
    vpas: usize,
    /// Minutes that each recommender runs
    #[arg(long, default_value_t = 6)]
    minutes: u64,
    /// Minutes that upstream's runs, if different: it needs minutes for a pass over thousands
    #[arg(long)]
    upstream_minutes: Option<u64>,
    /// Only one implementation
    #[arg(long)]
    only: Option<Only>,
    /// A flag for both, such as --flag=--kube-api-qps=1000
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
enum Only {
    Ours,
    Upstream,
}

#[tokio::main]
async fn main() {
    let arguments = Arguments::parse();
    let sides: &[Implementation] = match arguments.only {
        Some(Only::Ours) => &[Implementation::Ours],
        Some(Only::Upstream) => &[Implementation::Upstream],
        None => &[Implementation::Upstream, Implementation::Ours],
    };
    let Some(bed) = Testbed::private().await else { return };
    let Some(peers) = RecommenderPair::new(&bed, sides).await else { return };
    let usage = MetricsServer::serve(&bed).await;
    let begun = Instant::now();
    let cluster = Cluster::create(&bed, arguments.vpas).await;
    println!("{} VPAs with all that belongs to them: {:.0?}", arguments.vpas, begun.elapsed());
    let mut columns = Vec::new();
    for side in sides {
        cluster.create_vpas(&bed).await;
        let figures = measure(&bed, &peers, &usage, &cluster, *side, &arguments).await;
        columns.push((*side, figures));
        cluster.remove_vpas(&bed).await;
    }
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("\n`cargo xtask bench scale {}`, {}\n", words.join(" "), process::machine());
    println!("{}", results::table(&columns));
}

async fn measure(
    bed: &Testbed,
    peers: &RecommenderPair,
    usage: &MetricsServer,
    cluster: &Cluster,
    side: Implementation,
    arguments: &Arguments,
) -> Figures {
    let mut tick = 0;
    let show = |tick: u64| usage.show(support::clock::wall_now(), cluster.samples(tick));
    show(tick);
    let statuses = WriteAges::watch(bed.client(), "VerticalPodAutoscaler", cluster.vpas()).await;
    let checkpoints =
        WriteAges::watch(bed.client(), "VerticalPodAutoscalerCheckpoint", cluster.checkpoints())
            .await;
    let mut flags: Vec<&str> = arguments.flags.iter().map(String::as_str).collect();
    if side == Implementation::Ours {
        flags.extend(arguments.ours.iter().map(String::as_str));
    }
    let name = format!("{side:?}").to_lowercase();
    let recommender = peers.start(side, &name, &flags);
    let id = peers.process_id(&recommender);
    let begun = Instant::now();
    let own = arguments.upstream_minutes.filter(|_| side == Implementation::Upstream);
    let (duration, mut shown) = (Duration::from_mins(own.unwrap_or(arguments.minutes)), begun);
    let mut passes = PassTimes::default();
    let (mut killed, mut read) = (None, begun);
    let mut looks = interval(POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while begun.elapsed() < duration {
        looks.tick().await;
        peers.assert_running(&recommender);
        if shown.elapsed() >= SCRAPE {
            tick += 1;
            show(tick);
            shown = Instant::now();
        }
        if killed.is_none() && begun.elapsed() > duration / 2 {
            let subjects = cluster.kill(bed, KILLS).await;
            statuses.await_writes(&subjects.vpas);
            checkpoints.await_writes(&subjects.checkpoints);
            killed = Some(Instant::now());
        }
        if read.elapsed() >= METRICS_INTERVAL {
            passes.read_metrics(&recommender).await;
            read = Instant::now();
        }
    }
    passes.read_metrics(&recommender).await;
    let figures = Figures {
        passes,
        statuses: statuses.summary(),
        checkpoints: checkpoints.summary(),
        process: process::read_stats(id),
        duration,
    };
    peers.stop(&recommender).await;
    figures
}
