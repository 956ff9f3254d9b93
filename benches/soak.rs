//! The recommender under churn for a long time: `cargo xtask soak --minutes 20`.
//!
//! On a real control plane with controllers and hollow nodes, VPAs, pods and whole namespaces are created and
//! deleted, several per second. At the end the process may use 10 % more memory than after five minutes, and its
//! object series must match the existing objects exactly.
#![expect(clippy::print_stdout, reason = "it prints its progress")]

#[path = "soak/churn.rs"]
mod churn;
#[path = "soak/exported_series.rs"]
mod exported_series;
#[allow(dead_code, unused_imports, reason = "the testbed offers what other tests need too")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};

use self::churn::Churn;
use self::support::random;
use self::support::recommender_pair::{Implementation, RecommenderPair};
use self::support::{MetricsServer, Testbed};

/// The baseline of memory: by then every kind of object has existed once.
const WARM_UP: Duration = Duration::from_mins(5);
const MOST_GROWTH: f64 = 1.1;
const REPORT: Duration = Duration::from_mins(1);
/// Long enough for the passes that notice the end of the churn.
const PATIENCE: Duration = Duration::from_mins(2);

/// The recommender under churn for a long time.
#[derive(Debug, Parser)]
struct Arguments {
    /// Duration in minutes
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Which recommender; upstream's has no object series to compare
    #[arg(long, default_value = "ours")]
    side: RecommenderChoice,
    /// A flag for the recommender, such as --flag=--recommender-interval=5s
    #[arg(long = "flag", allow_hyphen_values = true, default_values_t = ["--recommender-interval=10s".to_owned()])]
    flags: Vec<String>,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RecommenderChoice {
    Ours,
    Upstream,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match soak(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn soak(arguments: &Arguments) -> Result<(), String> {
    let not_run = || "not run".to_owned();
    let side = if arguments.side == RecommenderChoice::Ours {
        Implementation::Ours
    } else {
        Implementation::Upstream
    };
    let bed = Testbed::private().await.filter(Testbed::has_controllers).ok_or_else(not_run)?;
    let peers = RecommenderPair::new(&bed, &[side]).await.ok_or_else(not_run)?;
    bed.nodes().add("node", "1000", "4000Gi").await;
    let usage = MetricsServer::serve(&bed).await;
    let seed = random::seed(400);
    println!("{}={seed}", random::SEED);
    let mut churn = Churn::begin(&bed, &usage, seed).await;
    let flags: Vec<&str> = arguments.flags.iter().map(String::as_str).collect();
    let recommender = peers.start(side, "soaked", &flags);
    let id = peers.process_id(&recommender);

    let (begun, duration) = (Instant::now(), Duration::from_mins(arguments.minutes));
    let (mut warm, mut reported) = (None, Instant::now());
    while begun.elapsed() < duration {
        churn.step(&bed, &usage).await;
        peers.assert_running(&recommender);
        if warm.is_none() && begun.elapsed() >= WARM_UP.min(duration / 2) {
            warm = Some(resident(id));
        }
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            let minutes = begun.elapsed().as_secs() / 60;
            println!("{minutes:>3} min: {:>6.1} MiB, {churn}", mebibytes(resident(id)));
        }
    }
    let (warm, end) = (warm.ok_or("the soak was too short")?, resident(id));
    let growth = end as f64 / warm as f64;
    println!(
        "resident: {:.1} MiB when warm, {:.1} MiB in the end, ratio {growth:.3}",
        mebibytes(warm),
        mebibytes(end)
    );
    if side == Implementation::Ours {
        series_equal_live_objects(&bed, recommender.port).await?;
    }
    peers.stop(&recommender).await;
    if growth > MOST_GROWTH {
        return Err(format!("memory grew to {growth:.3} times that of minute five"));
    }
    Ok(())
}

async fn series_equal_live_objects(bed: &Testbed, port: u16) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let live = exported_series::live(bed).await;
        let shown = exported_series::shown(port).await;
        let gone: Vec<_> = shown.difference(&live).collect();
        let missing: Vec<_> = live.difference(&shown).collect();
        if gone.is_empty() && missing.is_empty() {
            println!("series of {} VPAs, which are all that live", live.len());
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            let some =
                |of: &[&String]| of.iter().take(5).map(ToString::to_string).collect::<Vec<_>>();
            return Err(format!(
                "series of {} objects that are gone, such as {:?}; none of {} that live, such as {:?}",
                gone.len(),
                some(&gone),
                missing.len(),
                some(&missing)
            ));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Resident memory of a process in bytes.
fn resident(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kibibytes.unwrap_or_default() * 1024
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
