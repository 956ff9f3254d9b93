//! Turns the flags of `plimsoll backtest` into settings.

use plimsoll_core::backtest::{
    ApplyMode, FailOn, Policy, ReplaySettings, ReplicaRule, trace::TraceRule,
};

use super::{
    backtest::{BacktestArgs, BacktestOutputArgs},
    output::CliError,
    parsed_flags::ParsedFlags,
    report_run::{ensure_one_on_stdout, parse_all},
};
use crate::report::{
    backtest::{BacktestForm, BacktestOutput, run::BacktestConfig},
    recommend::run::RecommendConfig,
};

/// What is printed if no form is given.
static TABLE: BacktestOutput = BacktestOutput { form: BacktestForm::Table, path: None };
/// The maximum of policies: each is a replay of its own.
const MAX_POLICIES: usize = 64;

/// What to print, and when to fail.
#[derive(Clone, Debug)]
pub struct OutputPlan {
    pub outputs: Vec<BacktestOutput>,
    pub fail_on: Vec<FailOn>,
}

/// A validated command line. Files have not been read.
#[derive(Debug)]
pub struct BacktestCommand {
    pub arguments: BacktestArgs,
    pub config: BacktestConfig,
    pub policies: Vec<Policy>,
    pub settings: ReplaySettings,
    pub output: OutputPlan,
    /// The rules to compare on trace files, if there are any.
    pub trace_rules: Option<Vec<TraceRule>>,
}

impl OutputPlan {
    /// Validates the flags.
    pub fn new(arguments: &BacktestOutputArgs) -> Result<Self, CliError> {
        let outputs: Vec<BacktestOutput> = parse_all(&arguments.output, "output")?;
        let on_stdout: Vec<String> = outputs
            .iter()
            .filter(|output| output.path.is_none())
            .map(|output| format!("-o {}", output.form))
            .collect();
        ensure_one_on_stdout(&on_stdout)?;
        let conditions = arguments.fail_on.iter().map(|text| text.parse::<FailOn>());
        let fail_on: Result<Vec<FailOn>, _> = conditions.collect();
        Ok(Self { outputs, fail_on: fail_on.map_err(|error| CliError::usage(error.to_string()))? })
    }

    /// The forms to print or write.
    pub fn targets(&self) -> &[BacktestOutput] {
        if self.outputs.is_empty() { std::slice::from_ref(&TABLE) } else { &self.outputs }
    }

    /// Checks that the conditions name policies of the backtest.
    pub fn ensure_policies(&self, names: &[&str]) -> Result<(), CliError> {
        for condition in &self.fail_on {
            let checked = condition.ensure_policies(names.iter().copied());
            checked.map_err(|error| CliError::usage(error.to_string()))?;
        }
        Ok(())
    }
}

impl BacktestCommand {
    /// Validates the flags.
    pub fn new(arguments: BacktestArgs, typed: &ParsedFlags) -> Result<Self, CliError> {
        check_conflicts(&arguments, typed)?;
        arguments.prices.check()?;
        let output = OutputPlan::new(&arguments.output)?;
        let trace_rules = trace_rules(&arguments, typed, &output)?;
        let policies = if trace_rules.is_some() { Vec::new() } else { policies(&arguments)? };
        if trace_rules.is_none() {
            let names: Vec<&str> = policies.iter().map(|policy| &*policy.name).collect();
            output.ensure_policies(&names)?;
        }
        let replicas = arguments.hpa.parse::<ReplicaRule>();
        let replicas = replicas.map_err(|_| {
            CliError::usage(format!("--hpa={}: use recorded or model", arguments.hpa))
        })?;
        let settings =
            ReplaySettings { in_place: arguments.in_place, replicas, ..ReplaySettings::default() };
        let day = std::time::Duration::from_hours(24);
        let config = BacktestConfig {
            source: RecommendConfig {
                until: arguments.until,
                ..arguments.workloads.config(typed)?
            },
            warm_up: arguments.warm_up,
            days: day * arguments.days,
            workload: arguments.workload.clone(),
            top: arguments.top.map(|top| top as usize),
            shard: arguments.shard,
        };
        Ok(Self { arguments, config, policies, settings, output, trace_rules })
    }
}

fn check_conflicts(arguments: &BacktestArgs, typed: &ParsedFlags) -> Result<(), CliError> {
    let refuse = |message: &str| Err(CliError::usage(message));
    if arguments.trace.is_empty() {
        if typed.is_set("trace_scale") {
            return refuse("--trace-scale has no effect without --trace");
        }
    } else if arguments.workload.is_some() {
        return refuse("a workload cannot be selected with --trace: its files are the workloads");
    } else if typed.is_set("hpa") {
        return refuse("--hpa has no effect with --trace, which has no replicas");
    }
    if arguments.shard.is_some() {
        if !arguments.output.fail_on.is_empty() {
            return refuse(
                "--fail-on has no effect with --shard: give it to `plimsoll backtest merge`",
            );
        }
        let is_json = |output: &String| output == "json" || output.starts_with("json=");
        if !arguments.output.output.iter().all(is_json) {
            return refuse(
                "--shard prints accounts as JSON: use -o json or -o json=FILE, and other forms with merge",
            );
        }
    }
    Ok(())
}

/// The policies: those with names, and those of one's own.
fn policies(arguments: &BacktestArgs) -> Result<Vec<Policy>, CliError> {
    let apply = arguments.apply.as_ref().map(|text| {
        text.parse::<ApplyMode>().map_err(|_| {
            CliError::usage(format!("--apply={text}: use updater, daily, weekly or instant"))
        })
    });
    let apply = apply.transpose()?;
    let usage =
        |flag: &str, error: &dyn std::fmt::Display| CliError::usage(format!("--{flag}: {error}"));
    let mut policies: Vec<Policy> = Vec::new();
    for (flag, text) in arguments
        .policies
        .iter()
        .map(|text| ("policies", text))
        .chain(arguments.policy.iter().map(|text| ("policy", text)))
    {
        if flag == "policies" && text.contains('=') {
            return Err(usage(flag, &format!("{text}: a policy with settings is a --policy")));
        }
        let mut policy = text.parse::<Policy>().map_err(|error| usage(flag, &error))?;
        if policies.iter().any(|known| known.name == policy.name) {
            return Err(usage(flag, &format!("there are two policies {}", policy.name)));
        }
        // What a policy says about itself goes first.
        if let Some(apply) = apply.filter(|_| !text.contains("apply=")) {
            policy.apply = apply;
        }
        policies.push(policy);
    }
    if policies.len() > MAX_POLICIES {
        return Err(usage("policies", &format!("at most {MAX_POLICIES} can be compared")));
    }
    Ok(policies)
}

/// The rules to compare on trace files, if there are any.
fn trace_rules(
    arguments: &BacktestArgs,
    typed: &ParsedFlags,
    output: &OutputPlan,
) -> Result<Option<Vec<TraceRule>>, CliError> {
    if arguments.trace.is_empty() {
        return Ok(None);
    }
    if !arguments.policy.is_empty() || !output.fail_on.is_empty() {
        return Err(CliError::usage(
            "--policy and --fail-on have no effect with --trace, which compares rules: use --policies",
        ));
    }
    let is_text = |form| {
        matches!(
            form,
            BacktestForm::Table | BacktestForm::Json | BacktestForm::Csv | BacktestForm::Markdown
        )
    };
    if let Some(other) = output.outputs.iter().find(|output| !is_text(output.form)) {
        return Err(CliError::usage(format!(
            "-o {} needs a server: with --trace use table, json, csv or markdown",
            other.form
        )));
    }
    let named = |text: &String| {
        let known: Vec<&str> = TraceRule::ALL.iter().map(|rule| rule.as_str()).collect();
        text.parse::<TraceRule>().map_err(|_| {
            CliError::usage(format!("--policies={text}: with --trace use {}", known.join(", ")))
        })
    };
    if typed.is_set("policies") {
        arguments.policies.iter().map(named).collect::<Result<_, _>>().map(Some)
    } else {
        Ok(Some(TraceRule::ALL.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, backtest::BacktestSubcommand, parse};

    fn check(flags: &[&str]) -> Result<BacktestCommand, String> {
        let line = ["plimsoll", "backtest"].iter().chain(flags).map(std::ffi::OsString::from);
        let (cli, typed) = parse(line).map_err(|error| error.to_string())?;
        let Command::Backtest(arguments) = cli.command else { return Err("another".to_owned()) };
        if let Some(BacktestSubcommand::Merge(merge)) = &arguments.command {
            OutputPlan::new(&merge.output).map_err(CliError::into_message)?;
            return Err("merges".to_owned());
        }
        BacktestCommand::new(*arguments, &typed).map_err(CliError::into_message)
    }

    #[test]
    fn valid_flags_are_accepted() {
        for flags in [
            &[][..],
            &["-n", "shop", "--days", "21", "--warm-up", "8d"],
            &["shop/web", "--days=30", "-o", "wide", "-o", "html=a.html"],
            &["--policies=current,cost", "--fail-on=cost: oom-days > current"],
            &["--policy", "slow=profile=plimsoll,half-life=96h,margin=0.1,apply=weekly"],
            &[
                "--trace",
                "a.csv",
                "traces",
                "--trace-scale=0.01",
                "--policies=vpa,krr",
                "-o",
                "json",
            ],
            &["--shard=1/4", "--until=2026-11-26", "-o", "json=1.json"],
            &["--hpa=model"],
            &["--top=20", "--in-place", "--apply=daily", "--estimate"],
        ] {
            check(flags).unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        }
        assert_eq!(
            check(&["merge", "0.json", "1.json", "-o", "html=a.html"]).expect_err("it"),
            "merges"
        );
    }

    #[test]
    fn policies_are_compared_in_the_order_of_the_flags() {
        let command = check(&[
            "--policies=oracle,current",
            "--policy=slow=margin=0.1,apply=weekly",
            "--apply=daily",
        ]);
        let command = command.expect("valid");
        let policies: Vec<(&str, ApplyMode)> =
            command.policies.iter().map(|policy| (&*policy.name, policy.apply)).collect();
        let expected = [
            ("oracle", ApplyMode::Daily),
            ("current", ApplyMode::Daily),
            ("slow", ApplyMode::Weekly),
        ];
        assert_eq!(policies, expected);
        assert_eq!(command.config.days.as_secs(), 14 * 86_400);
    }

    #[test]
    fn invalid_flags_are_rejected_with_a_remedy() {
        for (flags, remedy) in [
            (&["--days=2"][..], "from 3"),
            (&["--policies=plimsol"], "did you mean `plimsoll`"),
            (&["--policies=vpa,vpa"], "two policies vpa"),
            (&["--policies=a=b"], "a --policy"),
            (&["--policy=slow=half-live=96h"], "half-life"),
            (&["--hpa=joint"], "recorded or model"),
            (&["--trace=a.csv", "--hpa=model"], "no effect with --trace"),
            (&["--apply=monthly"], "updater, daily, weekly or instant"),
            (&["--fail-on=cost"], "--fail-on"),
            (&["--fail-on=cheap: oom-days > current"], "not among the policies"),
            (&["-o", "xml"], "ndjson"),
            (&["-o", "json", "-o", "table"], "=FILE"),
            (&["--shard=4/4"], "0/4"),
            (&["--shard=0/4", "-o", "table"], "merge"),
            (&["--shard=0/4", "--fail-on=cost: oom-days > current"], "merge"),
            (&["--trace-scale=0.01"], "without --trace"),
            (&["--trace=a.csv", "--trace-scale=0"], "above 0"),
            (&["--trace=a.csv", "--policies=cost"], "vpa-fine"),
            (&["--trace=a.csv", "-o", "html=a"], "table, json, csv or markdown"),
            (&["--currency=EUR"], "--prices"),
            (&["--cluster-label=a b"], "valid label"),
            (&["--all-contexts", "--cluster-label=cluster"], "set one of them"),
            (&["merge"], "FILE"),
        ] {
            let error = check(flags).expect_err("rejected");
            assert!(error.contains(remedy), "{flags:?}: {error}");
        }
    }
}
