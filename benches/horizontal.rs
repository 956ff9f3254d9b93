//! The horizontal controller beside kube-controller-manager on a large cluster: `cargo xtask bench
//! horizontal`.
//!
//! A real control plane has thousands of HorizontalPodAutoscalers, each with a Deployment, its pods and one metric: usage,
//! or a metric of pods, of an object or of an external system, from aggregated APIs. Both controllers run as processes
//! and decide about the same objects at the same time, ours in shadow mode. Upstream reads the metric of an object in each reconcile, which
//! the APIs count; ours exports when it last decided about each object.
//!
//! In the last case both change replicas: 2,000 objects are scaled by upstream, 2,000 by ours, and the values of one half
//! and then of the other double at once.
//!
//! ```text
//! cargo xtask bench horizontal                               1,000 and 5,000 objects, two cases in which something hangs, and 2,000 scale-ups
//! cargo xtask bench horizontal --only scales                 the scale-ups alone
//! cargo xtask bench horizontal --only usage                  the usage of one of ten namespaces hangs
//! cargo xtask bench horizontal --only turns --count 100 --periods 2
//! ```
#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "horizontal/cluster.rs"]
mod cluster;
#[path = "horizontal/controllers.rs"]
mod controllers;
#[path = "horizontal/metrics_api.rs"]
mod metrics_api;
#[path = "watermark/poll_periods.rs"]
mod poll_periods;
#[allow(dead_code, reason = "only the peak of the memory is compared")]
#[path = "scale/process.rs"]
mod process;
#[path = "horizontal/results.rs"]
mod results;
#[path = "horizontal/scale_ups.rs"]
mod scale_ups;
#[allow(dead_code, unused_imports, reason = "the testbed offers what other tests need too")]
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "watermark/workload.rs"]
mod workload;

use std::{
    collections::{BTreeMap, HashSet},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};

use self::{
    cluster::Object,
    controllers::{Controllers, Scrape, UpstreamLimits},
    metrics_api::{Hanging, MetricsApi},
    poll_periods::PeriodStats,
    results::{Case, Figures, MAX_PERIOD_DELAY},
    support::{Testbed, plimsoll_process::PlimsollProcesses, skipped::report_skipped},
};

/// The default period of both controllers.
const PERIOD: Duration = Duration::from_secs(15);
/// Timeout until every object has a decision.
const PATIENCE: Duration = Duration::from_mins(10);
/// Interval between two polls of all objects, multiplied by their number: polling uses CPU of the measured processes.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Objects of each controller that need more replicas at once.
const SCALE_UPS: usize = 2000;
/// Periods in which metrics hang before the periods that are measured.
const HANGING_PERIODS: u32 = 2;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Everything responds.
    Turns,
    /// The adapter of custom and external metrics hangs.
    Adapter,
    /// The usage of one namespace hangs.
    Usage,
    /// All objects need more replicas at once.
    Scales,
}

/// The horizontal controller beside kube-controller-manager.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only one kind of case
    #[arg(long)]
    only: Option<Kind>,
    /// Only this number of objects
    #[arg(long)]
    count: Option<usize>,
    /// Number of measured periods
    #[arg(long, default_value_t = 8)]
    periods: u32,
    /// Concurrent reconciles of kube-controller-manager; its default is 5
    #[arg(long, default_value_t = 50)]
    upstream_syncs: u32,
    /// Requests per second of kube-controller-manager; its default is 20
    #[arg(long, default_value_t = 1000)]
    upstream_qps: u32,
    /// A flag for our controller, such as --flag=--v=5
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    fn limits(&self) -> UpstreamLimits {
        UpstreamLimits { syncs: self.upstream_syncs, qps: self.upstream_qps }
    }

    /// The cases in which replicas stay as they are.
    fn cases(&self) -> Vec<Case> {
        let all = [
            (Kind::Turns, Case { objects: 1000, hanging: None }),
            (Kind::Turns, Case { objects: 5000, hanging: None }),
            (Kind::Adapter, Case { objects: 1000, hanging: Some(Hanging::Adapter) }),
            (Kind::Usage, Case { objects: 1000, hanging: Some(Hanging::Usage) }),
        ];
        let wanted = all.into_iter().filter(|(kind, _)| self.only.is_none_or(|only| only == *kind));
        let mut cases: Vec<_> = wanted
            .map(|(_, case)| Case { objects: self.count.unwrap_or(case.objects), ..case })
            .collect();
        cases.dedup();
        cases
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(reason) = PlimsollProcesses::missing_role("horizontal") {
        report_skipped(reason);
        return ExitCode::SUCCESS;
    }
    let mut measured = Vec::new();
    for case in arguments.cases() {
        let Some(figures) = measure(case, &arguments).await else { return ExitCode::SUCCESS };
        println!("{case}: {figures}");
        measured.push((case, figures));
    }
    let mut scale_ups = None;
    if arguments.only.is_none_or(|only| only == Kind::Scales) {
        let count = arguments.count.unwrap_or(SCALE_UPS);
        scale_ups = scale_ups::measure(count, arguments.limits(), &arguments.flags).await;
        if scale_ups.is_none() {
            return ExitCode::SUCCESS;
        }
    }
    let words: Vec<_> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    println!("\n`cargo xtask bench horizontal {}`, {}\n", words.join(" "), process::machine());
    let (text, is_held) = results::table(&measured, arguments.limits());
    print!("{text}");
    if let Some(figures) = scale_ups {
        print!("{figures}");
    }
    if is_held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs both controllers on a private testbed. Returns `None` after reporting what is missing.
async fn measure(case: Case, arguments: &Arguments) -> Option<Figures> {
    let bed = Testbed::private().await.filter(Testbed::has_controllers)?;
    let begun = Instant::now();
    let objects = cluster::create(&bed, case.objects).await;
    let api = MetricsApi::serve(&bed, &objects).await;
    println!("{case}: made in {:.0?}", begun.elapsed());
    let mut controllers = Controllers::new(&bed);
    let begun = Instant::now();
    controllers.start_upstream(PERIOD, arguments.limits());
    wait_for_all(&objects, || cluster::decided(&bed)).await;
    let upstream_warm = begun.elapsed();
    let begun = Instant::now();
    // Afterwards, because it takes values from the statuses that upstream writes.
    controllers.start_ours(PERIOD, &arguments.flags);
    wait_for_all(&objects, || async {
        controllers.scrape().await.map_or(0, |scrape| scrape.ages.len())
    })
    .await;
    let warm = [upstream_warm, begun.elapsed()];
    if let Some(hanging) = case.hanging {
        api.hang(Some(hanging));
        tokio::time::sleep(PERIOD * HANGING_PERIODS).await;
    }
    let counted: HashSet<&str> = objects
        .iter()
        .filter(|object| {
            !case.hanging.is_some_and(|hanging| hanging.affects(object, api.hanging_namespace()))
        })
        .map(|object| &*object.name)
        .collect();

    let (start, from) = (support::clock::wall_now(), Instant::now());
    let (before, first) = (controllers.stats(), controllers.scrape().await?);
    let mut ours = PeriodStats::default();
    let mut last = first.clone();
    for number in 1..=arguments.periods {
        api.tick();
        tokio::time::sleep_until((from + PERIOD * number).into()).await;
        // As often as a Prometheus scrapes, so that its cost counts.
        last = controllers.scrape().await?;
        add_period(&mut ours, &last, &counted);
    }
    let after = controllers.stats();
    let start = start.as_millisecond() as f64 / 1e3;
    let reads = api.upstream_reads(&counted);
    let upstream = reads.periods(counted.len(), start, PERIOD, arguments.periods);
    controllers.stop();
    let comparisons = last.comparisons.iter().map(|(result, count)| {
        let before = first.comparisons.get(result).copied().unwrap_or_default();
        (result.clone(), (count - before) as u64)
    });
    Some(Figures {
        ours,
        upstream,
        before,
        after,
        periods: arguments.periods,
        period: PERIOD,
        warm,
        comparisons: comparisons.collect::<BTreeMap<_, _>>(),
    })
}

/// Counts the objects that were reconciled within the last period.
fn add_period(stats: &mut PeriodStats, scrape: &Scrape, counted: &HashSet<&str>) {
    let latest = PERIOD.as_secs_f64() * (1.0 + MAX_PERIOD_DELAY);
    stats.due += counted.len();
    for (_, age) in scrape.ages.iter().filter(|(name, _)| counted.contains(&***name)) {
        stats.reads += 1;
        stats.made += usize::from(*age <= latest);
        stats.longest = stats.longest.max(*age);
    }
}

/// Waits until the number of decided objects is that of all objects.
async fn wait_for_all<F: Future<Output = usize>>(objects: &[Object], decided: impl Fn() -> F) {
    let begun = Instant::now();
    loop {
        let decided = decided().await;
        if decided == objects.len() {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{decided} of {} objects are decided", objects.len());
        tokio::time::sleep(POLL_INTERVAL * objects.len() as u32).await;
    }
}
