//! Turns the flags of `plimsoll recommend` into settings: the only place that parses values of other parts.

use std::{path::Path, sync::Arc, time::Duration};

use plimsoll_core::{
    rightsizing::{
        baseline::Baseline,
        fail_on::FailOn,
        limits::{LimitRule, LimitRules},
        options::{ReportHead, ReportOptions},
        page_cache::MemorySignal,
        survey::Amounts,
        thresholds::Thresholds,
    },
    types::units::{Bytes, MilliCpu},
};

use super::{
    output::CliError,
    parsed_flags::ParsedFlags,
    recommend::{KeepPeaks, MemorySignalArg, RecommendArgs},
    report_run::{MAX_SETTINGS_BYTES, ensure_one_on_stdout, parse, parse_all, read_text},
};
use crate::{
    cluster::survey::OwnerGroups,
    report::recommend::{Form, FormOptions, OutputTarget, run::RecommendConfig},
};

/// The value of `--thresholds` that prints them.
const PRINT_DEFAULT: &str = "default";
/// The largest earlier report.
const MAX_BASELINE_BYTES: u64 = 256 << 20;

/// A validated command line. Files have not been read.
#[derive(Debug)]
pub struct RecommendCommand {
    pub arguments: RecommendArgs,
    pub config: RecommendConfig,
    pub outputs: Vec<OutputTarget>,
    pub forms: FormOptions,
    pub fail_on: FailOn,
}

impl RecommendCommand {
    /// Validates the flags.
    pub fn new(arguments: RecommendArgs, typed: &ParsedFlags) -> Result<Self, CliError> {
        check_conflicts(&arguments)?;
        let outputs = parse_all(&arguments.output, "output")?;
        check_outputs(&outputs, &arguments)?;
        check_watch(&outputs, &arguments)?;
        let sort = arguments.sort.as_ref().map(|sort| parse(sort, "sort")).transpose()?;
        let columns = parse_all(&arguments.columns, "columns")?;
        let top = arguments.top.map(|top| top as usize);
        Ok(Self {
            config: config(&arguments, typed)?,
            outputs,
            forms: FormOptions { top, sort, columns, placements: Vec::new() },
            fail_on: fail_on(&arguments)?,
            arguments,
        })
    }

    /// Whether only the default thresholds are printed.
    pub fn prints_thresholds(&self) -> bool {
        self.arguments.thresholds.as_deref() == Some(Path::new(PRINT_DEFAULT))
    }

    /// Reads the files of thresholds and prices, and the earlier report.
    pub fn read_files(&mut self) -> Result<Option<Baseline>, CliError> {
        let invalid = |path: &Path, error: &dyn std::fmt::Display| {
            CliError::failed(format!("{}: {error}", path.display()))
        };
        if let Some(path) = &self.arguments.thresholds {
            let text = read_text(path, MAX_SETTINGS_BYTES)?;
            let thresholds = Thresholds::from_yaml(&text).map_err(|error| invalid(path, &error))?;
            self.config.report.thresholds = thresholds;
        }
        self.config.report.prices = self.arguments.prices.read()?;
        let Some(path) = &self.arguments.baseline else { return Ok(None) };
        let text = read_text(path, MAX_BASELINE_BYTES)?;
        Baseline::from_json(&text).map(Some).map_err(|error| invalid(path, &error))
    }
}

fn check_conflicts(arguments: &RecommendArgs) -> Result<(), CliError> {
    let refuse = |message: &str| Err(CliError::usage(message));
    if arguments.baseline.is_some() && arguments.fail_on == "never" {
        return refuse("--baseline has no effect without --fail-on");
    }
    if arguments.allow_dirty && arguments.write.is_none() {
        return refuse("--allow-dirty has no effect without --write");
    }
    arguments.prices.check()
}

/// Checks that at most one form goes to standard output.
fn check_outputs(outputs: &[OutputTarget], arguments: &RecommendArgs) -> Result<(), CliError> {
    let mut on_stdout: Vec<String> = outputs
        .iter()
        .filter(|output| output.path.is_none())
        .map(|output| format!("-o {}", output.form))
        .collect();
    on_stdout.extend(arguments.why.is_some().then(|| "--why".to_owned()));
    on_stdout.extend(arguments.diff.is_some().then(|| "--diff".to_owned()));
    on_stdout.extend(arguments.estimate.then(|| "--estimate".to_owned()));
    ensure_one_on_stdout(&on_stdout)
}

/// Checks that a report that is made again and again is only shown.
fn check_watch(outputs: &[OutputTarget], arguments: &RecommendArgs) -> Result<(), CliError> {
    if arguments.watch.is_none() {
        return Ok(());
    }
    let unwatched = |output: &&OutputTarget| {
        let is_shown = matches!(output.form, Form::Table | Form::Wide | Form::Json);
        !is_shown || output.path.is_some()
    };
    let named = |output: &OutputTarget| {
        let file = if output.path.is_some() { "=FILE" } else { "" };
        format!("-o {}{file}", output.form)
    };
    let flags = [
        ("--why", arguments.why.is_some()),
        ("--estimate", arguments.estimate),
        ("--diff", arguments.diff.is_some()),
        ("--write", arguments.write.is_some()),
        ("--fail-on", arguments.fail_on != "never"),
        ("--until", arguments.until.is_some()),
    ];
    let flag = flags.iter().find(|(_, is_set)| *is_set).map(|(flag, _)| (*flag).to_owned());
    match outputs.iter().find(unwatched).map(named).or(flag) {
        Some(flag) => Err(CliError::usage(format!(
            "--watch shows table, wide or json on standard output: remove {flag}"
        ))),
        None => Ok(()),
    }
}

fn fail_on(arguments: &RecommendArgs) -> Result<FailOn, CliError> {
    let fail_on: FailOn = arguments.fail_on.parse().map_err(
        |error: plimsoll_core::rightsizing::fail_on::InvalidFailOn| {
            CliError::usage(error.to_string())
        },
    )?;
    if fail_on.needs_prices() && arguments.prices.prices.is_none() {
        return Err(CliError::usage("--fail-on=cost:N requires --prices"));
    }
    Ok(fail_on)
}

fn config(arguments: &RecommendArgs, typed: &ParsedFlags) -> Result<RecommendConfig, CliError> {
    let settings = arguments.model.settings();
    let mut config = arguments.workloads.config(typed)?;
    if arguments.all_namespaces {
        config.scope.namespaces.clear();
    }
    config.scope.groups = owner_groups(arguments)?;
    // Histories are large, and their numbers compress well.
    config.prometheus.transport.compresses_plain_http = true;
    config.prometheus.history_length = arguments.history_length;
    let strategy = arguments.strategy;
    let mut report = report_options(arguments)?;
    report.margin = settings.margin;
    report.max_allowed = Amounts {
        cpu: settings.max_cpu.map(|cpu| MilliCpu(cpu.milli_value())),
        memory: settings.max_memory.map(|memory| Bytes(memory.value())),
    };
    report.head = ReportHead {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: typed.number_settings(),
        strategy: strategy.is_foreign().then(|| strategy.to_string()),
        ..ReportHead::default()
    };
    Ok(RecommendConfig {
        step: arguments.step,
        until: arguments.until,
        peak_length: peak_length(arguments, typed)?.max(arguments.history_length),
        compat: arguments.model.compat,
        settings,
        strategy,
        node_group_label: arguments.node_groups.clone(),
        replaced: Arc::default(),
        earlier: None,
        report,
        ..config
    })
}

fn owner_groups(arguments: &RecommendArgs) -> Result<OwnerGroups, CliError> {
    for label in &arguments.group_jobs_by {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if label.is_empty() || !label.chars().all(is_allowed) {
            let message = format!("--group-jobs-by={label}: give names of labels, such as app");
            return Err(CliError::usage(message));
        }
    }
    for kind in &arguments.group_by_owner {
        if kind.is_empty() || !kind.chars().all(|c| c.is_ascii_alphanumeric()) {
            let message = format!("--group-by-owner={kind}: give kinds, such as CronWorkflow");
            return Err(CliError::usage(message));
        }
    }
    Ok(OwnerGroups {
        job_names: true,
        job_labels: arguments.group_jobs_by.clone(),
        job_window: arguments.peak_length.max(arguments.history_length),
        owner_kinds: arguments.group_by_owner.clone(),
    })
}

fn peak_length(arguments: &RecommendArgs, typed: &ParsedFlags) -> Result<Duration, CliError> {
    match arguments.keep_peaks {
        KeepPeaks::Within(length)
            if typed.is_set("peak_length") && length != arguments.peak_length =>
        {
            Err(CliError::usage(
                "--keep-peaks and --peak-length are different times: set only one of them",
            ))
        }
        KeepPeaks::Within(length) => Ok(length),
        KeepPeaks::No | KeepPeaks::All => Ok(arguments.peak_length),
    }
}

fn report_options(arguments: &RecommendArgs) -> Result<ReportOptions, CliError> {
    let policy = parse(&arguments.limit_policy, "limit-policy")?;
    let rule = |text: &Option<String>, flag: &str| -> Result<Option<LimitRule>, CliError> {
        text.as_ref().map(|text| parse(text, flag)).transpose()
    };
    // Foreign strategies have limits of their own.
    let foreign = |rule: LimitRule| arguments.strategy.has_limits().then_some(rule);
    let cpu = rule(&arguments.cpu_limit, "cpu-limit")?.or(foreign(LimitRule::Unset));
    let memory = rule(&arguments.memory_limit, "memory-limit")?.or(foreign(LimitRule::Equal));
    Ok(ReportOptions {
        limits: LimitRules::new(policy, cpu, memory),
        autoscalers: parse(&arguments.hpa, "hpa")?,
        cap_to_largest_node: arguments.cap_to_largest_node,
        keep_peaks: arguments.keep_peaks != KeepPeaks::No,
        memory_signal: match arguments.memory_signal {
            MemorySignalArg::WorkingSet => MemorySignal::WorkingSet,
            MemorySignalArg::Need => MemorySignal::Need,
        },
        ..ReportOptions::default()
    })
}
