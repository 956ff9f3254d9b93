//! `plimsoll backtest`: its flags, and the run.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Subcommand, builder::BoolishValueParser};
use plimsoll_core::types::Time;

use super::{
    Exit,
    backtest_options::{BacktestCommand, OutputPlan},
    backtest_run, go_values,
    output::CliError,
    parsed_flags::ParsedFlags,
    report_run::print_secret_warnings,
    terminal::Terminal,
    workload_source::{PriceArgs, WorkloadSourceArgs, time},
};
use crate::report::backtest::shard::Shard;

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll backtest                         14 days after 8 days of warm-up
  plimsoll backtest -n shop --days 21 --prices prices.yaml \\
    -o html=backtest.html
  plimsoll backtest -n shop --policies current,plimsoll,cost,vpa,krr-simple
  plimsoll backtest --policy slow='profile=default,half-life=96h,margin=0.1'
  plimsoll backtest shop/web -o wide        one workload, a line a day
  plimsoll backtest --trace traces/crane    CSV files instead of a server
  plimsoll backtest --fail-on='cost: oom-days > current' \\
    --policies current,cost
  plimsoll backtest --shard 0/4 --until 2026-11-26 -o json=0.json
  plimsoll backtest merge 0.json 1.json 2.json 3.json

Replays policies on the history of a Prometheus, or on trace files: what each
would have requested, saved and broken. Nothing is written to the cluster.
Exit codes: 0 done, 1 what --fail-on names was found, or there is too little
history, 2 usage, 3 a bug, 4 incomplete: a query failed, or workloads could not
be read. 4 goes before 1.
The JSON follows docs/schema/backtest.v1.json.";

/// Replays policies on the usage of the last weeks
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct BacktestArgs {
    #[command(subcommand)]
    pub command: Option<BacktestSubcommand>,
    /// Only this workload, such as shop/web or shop/Deployment/web
    #[arg(value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// Policies to compare: current, plimsoll, latency, batch, cost, steady, balanced, tide, vpa, krr-simple,
    /// krr-simple-limit, kubecost, kruize-cost, kruize-performance, autopilot-serving, autopilot-batch, oracle
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Policies")]
    #[arg(default_value = "current,plimsoll,latency,cost,vpa,krr-simple,oracle")]
    pub policies: Vec<String>,
    /// A policy of your own, such as slow='profile=default,half-life=96h,margin=0.1,apply=weekly' (repeatable)
    #[arg(long, value_name = "NAME=SETTINGS", action = ArgAction::Append, help_heading = "Policies")]
    pub policy: Vec<String>,
    /// How recommendations reach pods: updater, daily, weekly or instant [if not set: as each policy is used]
    #[arg(long, value_name = "HOW", help_heading = "Policies")]
    pub apply: Option<String>,
    /// Resizes pods in place instead of evicting them
    #[arg(long, value_parser = BoolishValueParser::new(), help_heading = "Policies")]
    pub in_place: bool,
    /// Where replicas come from: recorded, or model (experimental) for those that the HorizontalPodAutoscaler of a workload
    /// would have set under the requests of each policy
    #[arg(long, value_name = "HOW", default_value = "recorded", help_heading = "Policies")]
    pub hpa: String,
    /// Days to evaluate
    #[arg(long, value_name = "DAYS", default_value = "14", help_heading = "Time")]
    #[arg(value_parser = go_values::integer_between(3_u32, 365))]
    pub days: u32,
    /// Time before them that only feeds the policies
    #[arg(long, value_name = "TIME", default_value = "8d", help_heading = "Time")]
    #[arg(value_parser = go_values::prometheus_duration)]
    pub warm_up: Duration,
    /// CSV files of time and cores, or folders of them, instead of a server (repeatable)
    #[arg(long, value_name = "FILE", num_args = 1.., action = ArgAction::Append, help_heading = "Traces")]
    pub trace: Vec<PathBuf>,
    /// Factor of the values in trace files, such as 0.01 for percent of a core
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor)]
    #[arg(help_heading = "Traces")]
    pub trace_scale: f64,
    #[command(flatten)]
    pub workloads: WorkloadSourceArgs,
    /// Only the workloads that request most
    #[arg(long, value_name = "COUNT", value_parser = go_values::integer_between(1_u32, 1_000_000))]
    #[arg(help_heading = "Workloads")]
    pub top: Option<u32>,
    /// The end of the backtest, such as 2026-11-24T12:00:00Z or 2026-11-24 [if not set: now; with --shard: midnight]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "History")]
    pub until: Option<Time>,
    #[command(flatten, next_help_heading = "Money")]
    pub prices: PriceArgs,
    #[command(flatten)]
    pub output: BacktestOutputArgs,
    /// Only replays a part of the workloads, such as 0/4 for the first of four, and prints its accounts for `merge`
    #[arg(long, value_name = "INDEX/COUNT", help_heading = "Output", conflicts_with = "trace")]
    pub shard: Option<Shard>,
    /// Only shows what would be queried
    #[arg(long, value_parser = BoolishValueParser::new(), help_heading = "Output")]
    #[arg(conflicts_with = "trace")]
    pub estimate: bool,
}

/// Other things to do than a backtest.
#[derive(Debug, Subcommand)]
pub enum BacktestSubcommand {
    Merge(MergeArgs),
}

/// Merges the accounts of all shards into one report
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Files of `plimsoll backtest --shard`
    #[arg(value_name = "FILE", required = true, num_args = 1..)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub output: BacktestOutputArgs,
}

/// What is printed.
#[derive(Debug, Args)]
pub struct BacktestOutputArgs {
    /// Form of the report, to a file if one follows: table, wide, json, ndjson, csv, markdown, html (repeatable)
    #[arg(long, short, value_name = "FORM[=FILE]", action = ArgAction::Append)]
    #[arg(help_heading = "Output")]
    pub output: Vec<String>,
    /// When the exit code is 1, such as 'cost: oom-days > current' or 'plimsoll: cost > 0.9*current' (repeatable)
    #[arg(long, value_name = "CONDITION", action = ArgAction::Append, help_heading = "Output")]
    pub fail_on: Vec<String>,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| factor.is_finite() && *factor > 0.0);
    factor.ok_or_else(|| "give a number above 0, such as 0.01".to_owned())
}

impl BacktestArgs {
    /// Validates all flags without reading any file.
    pub(super) fn check(self, typed: &ParsedFlags) -> Result<(), CliError> {
        match &self.command {
            Some(BacktestSubcommand::Merge(merge)) => OutputPlan::new(&merge.output).map(drop),
            None => BacktestCommand::new(self, typed).map(drop),
        }
    }
}

/// Replays, or merges. The exit code depends on what could not be read, and on `--fail-on`.
pub fn run(
    arguments: BacktestArgs,
    typed: &ParsedFlags,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    if let Some(BacktestSubcommand::Merge(merge)) = &arguments.command {
        return backtest_run::merge(&merge.files, &OutputPlan::new(&merge.output)?, terminal);
    }
    print_secret_warnings(typed);
    let command = BacktestCommand::new(arguments, typed)?;
    backtest_run::run(command, terminal)
}
