//! History out of a Prometheus, side by side: `cargo xtask bench history`.
//!
//! A real Prometheus 3.15 has eight days of 2,000 containers, a sample a minute. Each side reads them in a process of
//! its own, which says what that took: ours; the very same requests, their answers dropped unread; the plain client
//! crate; upstream's recommender. Then ours reads 50,000 containers from a server that makes its answers up.
//!
//! ```text
//! cargo xtask bench history                                     all of it, some minutes
//! cargo xtask bench history --only ours                         without upstream, which needs a control plane
//! cargo xtask bench history --only ours --containers 200 --days 1 --canned 5000 --runs 1
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[path = "history/canned.rs"]
mod canned;
#[path = "history/load.rs"]
mod load;
#[path = "history/mix.rs"]
mod mix;
#[path = "history/plain.rs"]
mod plain;
#[path = "scale/process.rs"]
mod process;
#[path = "history/series.rs"]
mod series;
#[path = "history/side.rs"]
mod side;
#[allow(dead_code, unused_imports, reason = "the testbed offers what other tests need too")]
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "history/table.rs"]
mod table;
#[path = "history/unread.rs"]
mod unread;
#[path = "history/upstream.rs"]
mod upstream;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use jiff::Timestamp;
use plimsoll::run::prometheus::PrometheusConfig;

use self::{
    canned::Canned,
    mix::Mix,
    side::{Figures, Side, Task},
    support::{
        clock::wall_now,
        keeper::State,
        prometheus::{Prometheus, Release},
    },
    table::Columns,
};

/// History out of a Prometheus, side by side.
#[derive(Debug, Parser)]
struct Arguments {
    /// Containers in the Prometheus, by two hundreds
    #[arg(long, default_value_t = 2000)]
    containers: usize,
    /// Days of them
    #[arg(long, default_value_t = 8)]
    days: u32,
    /// Containers of the server that makes its answers up
    #[arg(long, default_value_t = 50_000)]
    canned: usize,
    /// Hours of them
    #[arg(long, default_value_t = 24)]
    canned_hours: u32,
    /// How often each side reads; figures are medians
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Queries under way at once
    #[arg(long, default_value_t = PrometheusConfig::default().queries)]
    queries: usize,
    /// Bytes of history that wait to be taken in
    #[arg(long, default_value_t = PrometheusConfig::default().budget)]
    budget: u64,
    /// Leaves upstream's recommender out
    #[arg(long)]
    only: Option<Only>,
    /// What a process of our own is to do
    #[arg(long, hide = true)]
    child: Option<String>,
    /// What cargo hands to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Only {
    Ours,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(task) = &arguments.child {
        let task: Task = serde_json::from_str(task).expect("our own words");
        println!("{}", serde_json::to_string(&task.perform()).expect("numbers"));
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let Some(columns) = runtime.block_on(compare(&arguments)) else { return ExitCode::SUCCESS };
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("\n`cargo xtask bench history {}`, {}\n", words.join(" "), process::machine());
    println!("{}", columns.figures());
    let (text, is_held) = columns.bounds();
    println!("{text}");
    if is_held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Lets each side read. `None` after noting why there is no server.
async fn compare(arguments: &Arguments) -> Option<Columns> {
    let mix = Mix::of_hundreds(arguments.containers);
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("an hour");
    let begun = Instant::now();
    let history = series::history(mix, end, arguments.days);
    let server = Prometheus::with_history(Release::Three, history).await?;
    println!(
        "{} containers for {} days, {:.1} M samples: written in {:.0?}",
        mix.all(),
        arguments.days,
        series::samples(mix, arguments.days) as f64 / 1e6,
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

    // The first one writes down what it asks, and warms the server's files for all.
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
        None => upstream::measure(&server, arguments.days.min(7)).await,
    };
    drop(server);

    let mix = Mix::of_fives(arguments.canned);
    let canned = Canned::serve(mix, end).await;
    println!("{} containers for {} hours, made up", mix.all(), arguments.canned_hours);
    let task = Task { url: canned.url(), hours: arguments.canned_hours, mix, ..task };
    let large = Task { side: Side::Counted, ..task }.run().await;
    println!("{:>10}: {large}", "counted");
    let median = Figures::median;
    Some(Columns {
        idle: median(idle),
        unread: median(unread),
        curl: median(curl),
        ours: median(ours),
        plain,
        upstream,
        large,
    })
}

/// Has a process do it, and takes down what it cost the server too.
async fn run(server: &Prometheus, task: &Task) -> Figures {
    let busy = || match server.keeper().state("prometheus") {
        Some(State::Running(id)) => process::look(id).cpu,
        _ => 0.0,
    };
    let before = busy();
    let mut figures = task.run().await;
    // The server tidies up after itself a little.
    tokio::time::sleep(Duration::from_millis(300)).await;
    figures.server = busy() - before;
    println!("{:>10}: {figures}", format!("{:?}", task.side).to_lowercase());
    figures
}
