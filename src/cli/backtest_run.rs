//! Runs `plimsoll backtest`: replays, merges, prints the forms, and chooses the exit code.

use std::{io, path::PathBuf, sync::Arc};

use plimsoll_core::{
    backtest::{
        Policy, ReportInputs, WorkloadAccount, WorkloadRecording, WorkloadScaling,
        fail_on::Outcome, recording::Evaluation, replay, report, report::BacktestReport,
    },
    types::Time,
};

use super::{
    Exit,
    backtest_options::{BacktestCommand, OutputPlan},
    backtest_traces,
    output::{self, CliError, escape_to_one_line},
    report_run::{
        TerminalProgress, exit_code, interruptible, open, print_unread, style_for, write_file,
    },
    terminal::Terminal,
};
use crate::{
    cluster::clock::Clock,
    report::{
        backtest::{
            BacktestForm, BacktestOutput, render,
            run::{self, BacktestError, Replayed, ScaledReplay, run_scaled_backtest},
            shard::{AccountsFile, FILE_VERSION, MAX_FILE_BYTES},
            write_ndjson,
        },
        recommend::run::RecommendError,
    },
};

/// Replays and prints the report, or the accounts of a shard.
pub fn run(mut command: BacktestCommand, terminal: &Terminal) -> Result<Exit, CliError> {
    if let Some(rules) = &command.trace_rules {
        output::print_note("plimsoll: replaying rules on trace files");
        return backtest_traces::run(&command.arguments, rules, &command.output, terminal);
    }
    command.config.source.report.prices = command.arguments.prices.read()?;
    let clock = Clock::wall();
    fix_end(&mut command, clock.now());
    // Before the network, which may take long or fail.
    output::print_note(&format!("plimsoll: {}", opening(&command)));
    let mut progress = TerminalProgress::new(terminal, "reading and replaying");
    let config = &command.config;
    if command.arguments.estimate {
        let work = async { run::estimate(config, &clock, &mut progress).await };
        let estimates = interruptible(work, failed)?;
        drop(progress);
        let texts = estimates.iter().map(|(server, estimate)| {
            let excess = estimate.excess(config.source.prometheus.buffer_bytes);
            estimate.text(server) + &excess.map_or_else(String::new, |why| why + "\n")
        });
        output::print_result(&texts.collect::<String>())?;
        return Ok(Exit::Fine);
    }
    let (policies, settings) = (command.policies.clone(), command.settings.clone());
    let replay: ScaledReplay = Arc::new(
        move |recording: &WorkloadRecording, scaling: &WorkloadScaling, evaluation: Evaluation| {
            replay::replay_scaled(recording, scaling, &evaluation, &policies, &settings)
        },
    );
    let work = async { run_scaled_backtest(config, &clock, replay, &mut progress).await };
    let replayed = interruptible(work, failed)?;
    drop(progress);
    let file = accounts_file(&command, replayed);
    if config.shard.is_some() {
        return print_shard(&command, &file);
    }
    finish(&command.output, file, terminal)
}

/// With `--shard`, the last midnight, so that processes that start at different times have the same end.
fn fix_end(command: &mut BacktestCommand, now: Time) {
    const DAY_NANOS: i64 = 86_400_000_000_000;
    let config = &mut command.config;
    if config.shard.is_some() && config.source.until.is_none() {
        let midnight = now.as_nanos().div_euclid(DAY_NANOS) * DAY_NANOS;
        config.source.until = Some(Time::from_nanos(midnight));
    }
}

/// Merges the accounts of all shards and prints the report.
pub fn merge(files: &[PathBuf], plan: &OutputPlan, terminal: &Terminal) -> Result<Exit, CliError> {
    let files = files.iter().map(|path| {
        let file = open(path, MAX_FILE_BYTES)?;
        let file = AccountsFile::read(path, file).map_err(CliError::failed)?;
        Ok((path.display().to_string(), file))
    });
    let files: Vec<(String, AccountsFile)> = files.collect::<Result<_, CliError>>()?;
    let merged = AccountsFile::merge(files).map_err(CliError::failed)?;
    let names: Vec<&str> =
        merged.inputs.policies.iter().map(|policy| policy.name.as_str()).collect();
    plan.ensure_policies(&names)?;
    finish(plan, merged, terminal)
}

/// What is read, in one line.
fn opening(command: &BacktestCommand) -> String {
    let config = &command.config;
    let days = |length: std::time::Duration| length.as_secs_f64() / 86_400.0;
    let until = config.source.until.map_or_else(String::new, |time| format!(" until {time}"));
    let shard = config.shard.map_or_else(String::new, |shard| format!(", shard {shard}"));
    format!(
        "replaying {} policies on {:.0} days{until} after {:.1} days of warm-up{shard}",
        command.policies.len(),
        days(config.days),
        days(config.warm_up)
    )
}

/// What was replayed: namespaces, or a workload.
fn scope(command: &BacktestCommand) -> String {
    let config = &command.config;
    if let Some(workload) = &config.workload {
        return workload.clone();
    }
    let namespaces = &config.source.scope.namespaces;
    if namespaces.is_empty() { "all namespaces".to_owned() } else { namespaces.join(", ") }
}

fn accounts_file(command: &BacktestCommand, replayed: Replayed) -> AccountsFile {
    let Replayed { evaluation, accounts, without_samples, unread, mut remarks } = replayed;
    let prices = command.config.source.report.prices.as_ref();
    if prices.is_some_and(|prices| !prices.nodes.is_empty()) {
        remarks.push("prices by node are not used: pods of the past have moved since".to_owned());
    }
    let mut file = AccountsFile {
        schema_version: FILE_VERSION,
        kind: AccountsFile::kind(),
        shard: command.config.shard.map(|shard| [shard.index, shard.count]),
        without_samples,
        unread,
        inputs: ReportInputs {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scope: scope(command),
            warm_up_from: evaluation.warm_up_from,
            from: evaluation.from,
            until: evaluation.until,
            policies: command.policies.iter().map(Policy::label).collect(),
            currency: prices.map(|prices| prices.currency.clone()),
            cpu_core_hour: prices.and_then(|prices| prices.default.cpu_core_hour),
            memory_gib_hour: prices.and_then(|prices| prices.default.memory_gib_hour),
            replicas: command.settings.replicas,
            remarks,
        },
        accounts,
    };
    file.sort();
    file
}

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn failed(error: BacktestError) -> CliError {
    let message = escape_to_one_line(&error.to_string());
    match error {
        BacktestError::Incomplete(_) | BacktestError::Source(RecommendError::Series { .. }) => {
            CliError::new(Exit::Incomplete, message)
        }
        BacktestError::NoWorkload(_) => CliError::new(Exit::Usage, message),
        _ => CliError::failed(message),
    }
}

/// Prints the accounts of a shard, to standard output or to the file of `-o json=FILE`.
fn print_shard(command: &BacktestCommand, file: &AccountsFile) -> Result<Exit, CliError> {
    if let Some(path) = command.output.outputs.iter().find_map(|output| output.path.as_ref()) {
        write_file(path, &mut |out| file.write_json(out))?;
    } else {
        let internal = |error: io::Error| CliError::new(Exit::Internal, error.to_string());
        let mut json = Vec::new();
        file.write_json(&mut json).map_err(internal)?;
        output::print_result(&String::from_utf8_lossy(&json))?;
    }
    print_unread(&file.unread);
    Ok(exit_code(!file.unread.is_empty(), false))
}

/// Prints and writes all forms.
fn finish(plan: &OutputPlan, file: AccountsFile, terminal: &Terminal) -> Result<Exit, CliError> {
    print_unread(&file.unread);
    let is_incomplete = !file.unread.is_empty();
    let inputs = file.report_inputs();
    let accounts = file.accounts;
    let report = report::build(&accounts, &inputs);
    for output in plan.targets() {
        print_form(output, (&report, &accounts), terminal)?;
    }
    let mut has_findings = false;
    for condition in &plan.fail_on {
        let line = match condition.check(&report) {
            Outcome::Passed => continue,
            Outcome::Failed(why) => format!("plimsoll: --fail-on: {why}"),
            // A pipeline must not take "unknown" for "fine".
            Outcome::Unknown(why) => {
                format!("plimsoll: --fail-on: unknown, which counts as found: {why}")
            }
        };
        has_findings = true;
        output::print_note(&escape_to_one_line(&line));
    }
    Ok(exit_code(is_incomplete, has_findings))
}

fn print_form(
    output: &BacktestOutput,
    (report, accounts): (&BacktestReport, &[WorkloadAccount]),
    terminal: &Terminal,
) -> Result<(), CliError> {
    if let (BacktestForm::Ndjson, Some(path)) = (output.form, &output.path) {
        return write_file(path, &mut |out| write_ndjson(accounts, out));
    }
    let style = style_for(terminal, output.path.as_ref());
    let text = render(output.form, report, accounts, &style)
        .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
    print_or_write(output, &text)
}

pub(super) fn print_or_write(output: &BacktestOutput, text: &str) -> Result<(), CliError> {
    match &output.path {
        Some(path) => write_file(path, &mut |out| out.write_all(text.as_bytes())),
        None => output::print_result(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_query_is_incomplete_and_a_typing_error_is_usage() {
        let code = |error: BacktestError| failed(error).report() as u8;
        assert_eq!(code(BacktestError::Incomplete("x".to_owned())), 4);
        assert_eq!(code(BacktestError::NoWorkload("a/b".to_owned())), 2);
        assert_eq!(code(BacktestError::TooLarge("x".to_owned())), 1);
    }
}
