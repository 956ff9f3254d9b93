//! `plimsoll recommend`: its flags, and the run.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueEnum, builder::BoolishValueParser};
use plimsoll_core::types::Time;

use super::{
    Exit, go_values,
    output::CliError,
    parsed_flags::ParsedFlags,
    recommend_options::RecommendCommand,
    recommend_run,
    recommender_model::ModelArgs,
    report_run::print_secret_warnings,
    terminal::Terminal,
    watch::parse_interval,
    workload_source::{PriceArgs, WorkloadSourceArgs, time},
};
use crate::report::recommend::{estimate::Step, strategy::Strategy};

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll recommend                        the cluster of the current context
  plimsoll recommend -n shop -n 'team-*' -l tier=web --kind Deployment
  plimsoll recommend --prometheus-address https://thanos \\
    --cluster-label cluster                 without a cluster
  plimsoll recommend --context eu --context us --prices prices.yaml \\
    -o html > report.html
  plimsoll recommend --diff deploy/ --fail-on=change
  plimsoll recommend -o kustomize=patches/ -o json=report.json
  plimsoll recommend --baseline last.json --fail-on=risk:high
  plimsoll recommend --why shop/web         why these numbers
  plimsoll recommend --estimate             what would be queried
  plimsoll recommend -n shop --watch=5m     again every 5 minutes

Computes what workloads should request, with the model of the recommender and
the history of a Prometheus. Nothing is written to the cluster.
Exit codes: 0 done, 1 what --fail-on names was found, or nothing could be read,
2 usage, 3 a bug, 4 incomplete: something could not be read, and the output
names it. 4 goes before 1.
The JSON follows docs/schema/recommend.v1.json.";

/// Reports what workloads should request, what that costs, and what is at risk
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is one flag of its own")]
pub struct RecommendArgs {
    #[command(flatten)]
    pub workloads: WorkloadSourceArgs,
    /// Workloads of all namespaces, which is the default: a --namespace is ignored, as in kubectl
    #[arg(long, short = 'A', value_parser = BoolishValueParser::new(), help_heading = "Workloads")]
    pub all_namespaces: bool,
    /// Jobs without a CronJob are one workload if they have the same values of these labels, such as app,team
    #[arg(long, value_name = "LABELS", value_delimiter = ',', help_heading = "Workloads")]
    pub group_jobs_by: Vec<String>,
    /// Everything below an owner of these kinds is one workload, such as CronWorkflow,SparkApplication
    #[arg(long, value_name = "KINDS", value_delimiter = ',', help_heading = "Workloads")]
    pub group_by_owner: Vec<String>,
    /// How far back to read history
    #[arg(long, value_name = "TIME", default_value = "8d", value_parser = go_values::prometheus_duration)]
    #[arg(help_heading = "History")]
    pub history_length: Duration,
    /// The time of the report, such as 2026-11-24T12:00:00Z or 2026-11-24 [if not set: now]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "History")]
    pub until: Option<Time>,
    /// Step of CPU samples: `1m`, `5m`, or `auto`, which is 5m if there are many
    #[arg(long, value_name = "TIME", default_value = "auto", value_parser = step)]
    #[arg(help_heading = "History")]
    pub step: Step,
    /// How far back to look for peaks of memory and runs of jobs
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = go_values::prometheus_duration)]
    #[arg(help_heading = "History")]
    pub peak_length: Duration,
    #[command(flatten)]
    pub model: ModelArgs,
    /// How memory is measured: by the working set, or by what is needed without page cache
    #[arg(long, value_name = "SIGNAL", default_value = "working-set", help_heading = "Model")]
    pub memory_signal: MemorySignalArg,
    /// Rule by which numbers are computed: `plimsoll`, or for comparison krr-simple, krr-simple-limit, max:0.65
    #[arg(long, value_name = "RULE", default_value = "plimsoll", help_heading = "Model")]
    pub strategy: Strategy,
    /// Label that groups nodes, for DaemonSets [if not set: that of the node pool]
    #[arg(long, value_name = "LABEL", help_heading = "Model")]
    pub node_groups: Option<String>,
    /// How limits follow requests, as in the other roles
    #[arg(long, value_name = "POLICY", default_value = "ratio")]
    #[arg(help_heading = "Requests and limits")]
    pub limit_policy: String,
    /// The same for CPU: also `equal` to the request, or `unset`
    #[arg(long, value_name = "POLICY", help_heading = "Requests and limits")]
    pub cpu_limit: Option<String>,
    /// The same for memory
    #[arg(long, value_name = "POLICY", help_heading = "Requests and limits")]
    pub memory_limit: Option<String>,
    /// Resources that an HPA scales by: change its target too (`joint`), `skip` them, or `ignore` the HPA
    #[arg(long, value_name = "HOW", default_value = "joint", help_heading = "Requests and limits")]
    pub hpa: String,
    /// Lets the memory request cover the peak of this time [if no time is given: --peak-length]
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = keep_peaks)]
    #[arg(default_value = "false", default_missing_value = "true", hide_default_value = true)]
    #[arg(help_heading = "Requests and limits")]
    pub keep_peaks: KeepPeaks,
    /// Caps requests to the largest node
    #[arg(long, value_parser = BoolishValueParser::new(), help_heading = "Requests and limits")]
    pub cap_to_largest_node: bool,
    /// File with thresholds of risk and waste; `default` prints them
    #[arg(long, value_name = "FILE", help_heading = "Findings and money")]
    pub thresholds: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Findings and money")]
    pub prices: PriceArgs,
    /// Form of the report, to a file if one follows: table, wide, json, yaml, csv, tsv, markdown, html, slack, sarif,
    /// kustomize=DIR, strategic, helm-values, vpa (repeatable)
    #[arg(long, short, value_name = "FORM[=FILE]", action = ArgAction::Append)]
    #[arg(help_heading = "Output")]
    pub output: Vec<String>,
    /// Number of containers in each section
    #[arg(long, value_name = "COUNT", value_parser = go_values::integer_between(1_u32, 1_000_000))]
    #[arg(help_heading = "Output")]
    pub top: Option<u32>,
    /// Order of the containers
    #[arg(long, value_name = "KEY", help_heading = "Output")]
    pub sort: Option<String>,
    /// Columns of wide, csv and tsv
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Output")]
    pub columns: Vec<String>,
    /// Shows how the numbers of this workload were computed, such as shop/web or shop/Deployment/web
    #[arg(long, value_name = "WORKLOAD", help_heading = "Output")]
    pub why: Option<String>,
    /// Makes the report again every INTERVAL [30s if not set], and shows what changed, until Ctrl-C
    #[arg(long, short, value_name = "INTERVAL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "30s", value_parser = parse_interval, help_heading = "Output")]
    pub watch: Option<Duration>,
    /// Only shows what would be queried
    #[arg(long, value_parser = BoolishValueParser::new(), help_heading = "Output")]
    pub estimate: bool,
    /// When the exit code is 1: never, change, risk:LEVEL, waste:LEVEL, score:N or cost:N
    #[arg(long, value_name = "WHEN", default_value = "never", help_heading = "Pipelines")]
    pub fail_on: String,
    /// JSON of an earlier report: --fail-on only counts what is new since then
    #[arg(long, value_name = "FILE", help_heading = "Pipelines")]
    pub baseline: Option<PathBuf>,
    /// Shows the change to the manifests in this file or directory
    #[arg(long, value_name = "PATH", conflicts_with = "write", help_heading = "Pipelines")]
    pub diff: Option<PathBuf>,
    /// Makes the change to the manifests in this file or directory
    #[arg(long, value_name = "PATH", help_heading = "Pipelines")]
    pub write: Option<PathBuf>,
    /// Also changes files with uncommitted changes in git
    #[arg(long, value_parser = BoolishValueParser::new(), help_heading = "Pipelines")]
    pub allow_dirty: bool,
}

/// The value of `--memory-signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MemorySignalArg {
    WorkingSet,
    Need,
}

/// The value of `--keep-peaks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepPeaks {
    No,
    /// Those of `--peak-length`.
    All,
    /// Those of this time.
    Within(Duration),
}

fn keep_peaks(text: &str) -> Result<KeepPeaks, String> {
    if let Ok(is_set) = go_values::boolean(text) {
        return Ok(if is_set { KeepPeaks::All } else { KeepPeaks::No });
    }
    go_values::prometheus_duration(text).map(KeepPeaks::Within)
}

fn step(text: &str) -> Result<Step, String> {
    if text == "auto" {
        return Ok(Step::Auto);
    }
    let allowed = Duration::from_mins(1)..=Duration::from_hours(1);
    let step = go_values::prometheus_duration(text).ok().filter(|step| allowed.contains(step));
    step.map(Step::Fixed).ok_or_else(|| "give auto, or a time from 1m to 1h".to_owned())
}

/// Makes the report. The exit code depends on what could not be read, and on `--fail-on`.
pub fn run(
    arguments: RecommendArgs,
    typed: &ParsedFlags,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    print_secret_warnings(typed);
    let command = RecommendCommand::new(arguments, typed)?;
    recommend_run::run(command, terminal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, parse};

    fn check(flags: &[&str]) -> Result<(), String> {
        let line = ["plimsoll", "recommend"].iter().chain(flags).map(std::ffi::OsString::from);
        let (cli, typed) = parse(line).map_err(|error| error.to_string())?;
        let Command::Recommend(arguments) = cli.command else { return Err("another".to_owned()) };
        let command = RecommendCommand::new(*arguments, &typed);
        command.map(drop).map_err(CliError::into_message)
    }

    #[test]
    fn a_time_is_rfc_3339_or_a_date() {
        let at = |text: &str| time(text).map(|time| time.to_string());
        assert_eq!(at("2026-11-24T12:00:00+01:00"), Ok("2026-11-24T11:00:00Z".to_owned()));
        assert_eq!(at("2026-11-24"), Ok("2026-11-24T00:00:00Z".to_owned()));
        for text in ["", "now", "yesterday", "2026-13-01", "12:00"] {
            assert!(at(text).is_err(), "{text}");
        }
    }

    #[test]
    fn valid_flags_are_accepted() {
        for flags in [
            &[][..],
            &["-n", "shop", "-n", "team-*", "-l", "tier=web", "--kind=Deployment,Rollout"],
            &["--context=a", "--context=b"],
            &["-A", "--as=amy", "--as-group=a", "--as-group=b"],
            &["-A", "-n", "shop", "--watch", "-o", "wide"],
            &["-w=5m", "-o", "json"],
            &["--prometheus-address=https://thanos/", "--cluster-label=cluster"],
            &["--step=5m", "--until=2026-11-24", "--strategy=max:0.65"],
            &["--compat=upstream", "--target-cpu-percentile=0.95"],
            &["--keep-peaks"],
            &["--keep-peaks=30d", "--memory-signal=need"],
            &["--keep-peaks=14d", "--peak-length=14d"],
            &["--group-jobs-by=app,app.kubernetes.io/name", "--group-by-owner=Workflow,Kafka"],
        ] {
            assert_eq!(check(flags), Ok(()), "{flags:?}");
        }
    }

    #[test]
    fn invalid_flags_are_rejected_with_a_remedy() {
        for (flags, remedy) in [
            (&["--until=soon"][..], "2026-11-24T12:00:00Z"),
            (&["--step=1s"], "from 1m to 1h"),
            (&["--strategy=krr"], "krr-simple-limit"),
            (&["--strategy=max:2"], "max:0.65"),
            (&["--context=a", "--all-contexts"], "cannot be used with"),
            (&["--diff=a", "--write=b"], "cannot be used with"),
            (&["--history-length=0d"], "8d"),
            (&["--history-memory=1Ki"], "at least 1Mi"),
            (&["--source=files"], "prometheus"),
            (&["--top=0"], "from 1"),
            (&["--keep-peaks=30d", "--peak-length=60d"], "set only one of them"),
            (&["--keep-peaks=soon"], "8d"),
            (&["--memory-signal=rss"], "working-set"),
            (&["--group-jobs-by=a b"], "names of labels"),
            (&["--group-by-owner=Work/flow"], "give kinds"),
            (&["--cluster-label=a b"], "valid label"),
            (
                &["--prometheus-address=http://a", "--prometheus-service=a/b:1"],
                "set only one of them",
            ),
            (&["--source=cluster", "--cluster-label=cluster"], "--source=prometheus"),
            (&["--all-contexts", "--cluster-label=cluster"], "--cluster-label"),
            (&["--as-group=a"], "--as"),
            (&["--watch=10ms"], "from 1s to 24h"),
            (&["--watch", "-o", "csv"], "remove -o csv"),
            (&["--watch", "-o", "json=a.json"], "remove -o json=FILE"),
            (&["--watch", "--diff=a"], "remove --diff"),
            (&["--watch", "--why=shop/web"], "remove --why"),
            (&["--watch", "--fail-on=change"], "remove --fail-on"),
            (&["--watch", "--until=2026-11-24"], "remove --until"),
        ] {
            let error = check(flags).expect_err("rejected");
            assert!(error.contains(remedy), "{flags:?}: {error}");
        }
    }
}
