//! Turns the flags of `plimsoll recommend` into settings: the only place that parses values of other parts.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use plimsoll_core::{
    rightsizing::{
        baseline::Baseline,
        fail_on::FailOn,
        limits::{LimitRule, LimitRules},
        options::{ReportHead, ReportOptions},
        page_cache::MemorySignal,
        prices::Prices,
        survey::Amounts,
        thresholds::Thresholds,
    },
    types::units::{Bytes, MilliCpu},
};

use plimsoll_storage::prometheus::transport::{TransportConfig, config::Compression};

use super::{
    output::CliError,
    parsed_flags::ParsedFlags,
    prometheus::buffer_bytes,
    recommend::{KeepPeaks, MemorySignalArg, RecommendArgs, SourceArg, ViaArg},
};
use crate::{
    cluster::{
        prometheus_discovery::Via,
        service_proxy::address::ServiceAddress,
        survey::{OwnerGroups, SurveyScope},
    },
    controllers::runtime::prometheus::PrometheusConfig,
    report::recommend::{
        Form, FormOptions, OutputTarget,
        run::{Contexts, RecommendConfig, WorkloadSource},
        server::ServerChoice,
    },
};

/// The value of `--thresholds` that prints them.
const PRINT_DEFAULT: &str = "default";
/// The largest file of thresholds or prices.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The largest earlier report.
const MAX_BASELINE_BYTES: u64 = 256 << 20;

/// What to do with manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestEdit {
    /// Show the changes.
    Diff(PathBuf),
    /// Make them.
    Write(PathBuf),
}

/// A validated command line. Files have not been read.
#[derive(Clone, Debug)]
pub struct RecommendCommand {
    pub config: RecommendConfig,
    pub outputs: Vec<OutputTarget>,
    pub forms: FormOptions,
    pub fail_on: FailOn,
    pub baseline: Option<PathBuf>,
    pub thresholds: Option<PathBuf>,
    pub prices: Option<PathBuf>,
    pub currency: Option<String>,
    pub why: Option<String>,
    pub is_estimate: bool,
    /// How often the report is made again.
    pub watch: Option<Duration>,
    pub edit: Option<ManifestEdit>,
    pub allows_dirty: bool,
}

impl RecommendCommand {
    /// Validates the flags. `variable` reads the environment.
    pub fn new(
        arguments: &RecommendArgs,
        typed: &ParsedFlags,
        variable: impl Fn(&str) -> String,
    ) -> Result<Self, CliError> {
        check_conflicts(arguments, typed)?;
        let outputs = parse_all(&arguments.output, "output")?;
        check_outputs(&outputs, arguments)?;
        check_watch(&outputs, arguments)?;
        let sort = arguments.sort.as_ref().map(|sort| parse(sort, "sort")).transpose()?;
        let columns = parse_all(&arguments.columns, "columns")?;
        let top = arguments.top.map(|top| top as usize);
        Ok(Self {
            config: config(arguments, typed, variable)?,
            outputs,
            forms: FormOptions { top, sort, columns, placements: Vec::new() },
            fail_on: fail_on(arguments)?,
            baseline: arguments.baseline.clone(),
            thresholds: arguments.thresholds.clone(),
            prices: arguments.prices.clone(),
            currency: arguments.currency.clone(),
            why: arguments.why.clone(),
            is_estimate: arguments.estimate,
            watch: arguments.watch,
            allows_dirty: arguments.allow_dirty,
            edit: match (&arguments.diff, &arguments.write) {
                (Some(path), _) => Some(ManifestEdit::Diff(path.clone())),
                (_, Some(path)) => Some(ManifestEdit::Write(path.clone())),
                _ => None,
            },
        })
    }

    /// Whether only the default thresholds are printed.
    pub fn prints_thresholds(&self) -> bool {
        self.thresholds.as_deref() == Some(Path::new(PRINT_DEFAULT))
    }

    /// Reads the files of thresholds and prices, and the earlier report.
    pub fn read_files(&mut self) -> Result<Option<Baseline>, CliError> {
        let invalid = |path: &Path, error: &dyn std::fmt::Display| {
            CliError::failed(format!("{}: {error}", path.display()))
        };
        if let Some(path) = &self.thresholds {
            let text = read(path, MAX_FILE_BYTES)?;
            let thresholds = Thresholds::from_yaml(&text).map_err(|error| invalid(path, &error))?;
            self.config.report.thresholds = thresholds;
        }
        if let Some(path) = &self.prices {
            let text = read(path, MAX_FILE_BYTES)?;
            let mut prices = Prices::parse(&text).map_err(|error| invalid(path, &error))?;
            if let Some(currency) = &self.currency {
                prices.currency.clone_from(currency);
            }
            self.config.report.prices = Some(prices);
        }
        let Some(path) = &self.baseline else { return Ok(None) };
        let text = read(path, MAX_BASELINE_BYTES)?;
        Baseline::from_json(&text).map(Some).map_err(|error| invalid(path, &error))
    }
}

fn read(path: &Path, max_bytes: u64) -> Result<String, CliError> {
    let failed = |why: String| CliError::failed(format!("{}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if size > max_bytes {
        return Err(failed(format!("it has {size} bytes, and at most {max_bytes} are read")));
    }
    std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
    text: &str,
    flag: &str,
) -> Result<T, CliError> {
    text.parse().map_err(|error| CliError::usage(format!("--{flag}={text}: {error}")))
}

fn parse_all<T: std::str::FromStr<Err: std::fmt::Display>>(
    texts: &[String],
    flag: &str,
) -> Result<Vec<T>, CliError> {
    texts.iter().map(|text| parse(text, flag)).collect()
}

fn check_conflicts(arguments: &RecommendArgs, typed: &ParsedFlags) -> Result<(), CliError> {
    let refuse = |message: &str| Err(CliError::usage(message));
    if typed.is_set("prometheus_address") && arguments.prometheus_service.is_some() {
        return refuse(
            "--prometheus-address and --prometheus-service are mutually exclusive: set only one of them",
        );
    }
    if arguments.cluster_label.is_some() {
        if arguments.source == SourceArg::Cluster {
            return refuse("--cluster-label reads workloads from series: use --source=prometheus");
        }
        if arguments.all_contexts || !arguments.context.is_empty() {
            return refuse(
                "--cluster-label and several contexts are mutually exclusive: each cluster of the server is reported \
                 with --cluster-label alone",
            );
        }
    }
    if arguments.baseline.is_some() && arguments.fail_on == "never" {
        return refuse("--baseline has no effect without --fail-on");
    }
    if arguments.allow_dirty && arguments.write.is_none() {
        return refuse("--allow-dirty has no effect without --write");
    }
    if arguments.currency.is_some() && arguments.prices.is_none() {
        return refuse("--currency has no effect without --prices");
    }
    Ok(())
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
    if on_stdout.len() > 1 {
        return Err(CliError::usage(format!(
            "{} all print to standard output: add =FILE to all but one of the forms",
            on_stdout.join(", ")
        )));
    }
    Ok(())
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
    if fail_on.needs_prices() && arguments.prices.is_none() {
        return Err(CliError::usage("--fail-on=cost:N requires --prices"));
    }
    Ok(fail_on)
}

fn config(
    arguments: &RecommendArgs,
    typed: &ParsedFlags,
    variable: impl Fn(&str) -> String,
) -> Result<RecommendConfig, CliError> {
    let settings = arguments.model.settings();
    let scope = SurveyScope {
        namespaces: if arguments.all_namespaces { Vec::new() } else { arguments.namespace.clone() },
        exclude_namespaces: arguments.exclude_namespace.clone(),
        label_selector: arguments.selector.clone(),
        kinds: arguments.kind.clone(),
        groups: owner_groups(arguments)?,
    };
    scope.selector().map_err(|error| CliError::usage(format!("--selector: {error}")))?;
    let contexts = match (arguments.all_contexts, &*arguments.context) {
        (true, _) => Contexts::All,
        (false, []) => Contexts::Current,
        (false, names) => Contexts::Named(names.to_vec()),
    };
    let source = match (arguments.source, &arguments.cluster_label) {
        (_, Some(_)) | (SourceArg::Prometheus, _) => WorkloadSource::Series,
        (SourceArg::Cluster, _) => WorkloadSource::Cluster,
        (SourceArg::Auto, _) => WorkloadSource::Auto,
    };
    if let Some(label) = &arguments.cluster_label {
        check_label(label).map_err(|why| CliError::usage(format!("--cluster-label: {why}")))?;
    }
    let strategy = arguments.strategy;
    let mut report = report_options(arguments)?;
    report.margin = settings.margin;
    report.max_allowed = Amounts {
        cpu: settings.max_cpu.map(|cpu| MilliCpu(cpu.milli_value())),
        memory: settings.max_memory.map(|memory| Bytes(memory.value())),
    };
    report.head = ReportHead {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: typed.number_settings().to_vec(),
        strategy: strategy.is_foreign().then(|| strategy.to_string()),
        ..ReportHead::default()
    };
    Ok(RecommendConfig {
        kubeconfig: arguments.kubeconfig.clone(),
        impersonation: arguments.impersonation.clone(),
        contexts,
        scope,
        source,
        server: server(arguments, typed)?,
        cluster_label: arguments.cluster_label.clone(),
        prometheus: prometheus(arguments, typed, variable)?,
        step: arguments.step,
        until: arguments.until,
        peak_length: peak_length(arguments, typed)?.max(arguments.history_length),
        compat: arguments.model.compat,
        settings,
        strategy,
        node_group_label: arguments.node_groups.clone(),
        report,
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

fn server(arguments: &RecommendArgs, typed: &ParsedFlags) -> Result<ServerChoice, CliError> {
    if typed.is_set("prometheus_address") {
        return Ok(ServerChoice::Address);
    }
    let service = arguments.prometheus_service.as_ref();
    let service: Option<ServiceAddress> =
        service.map(|service| parse(service, "prometheus-service")).transpose()?;
    let via = match arguments.via {
        ViaArg::Auto => Via::Auto,
        ViaArg::Direct => Via::Direct,
        ViaArg::Proxy => Via::Proxy,
    };
    Ok(ServerChoice::InCluster { service, via })
}

fn prometheus(
    arguments: &RecommendArgs,
    typed: &ParsedFlags,
    variable: impl Fn(&str) -> String,
) -> Result<PrometheusConfig, CliError> {
    let connection = &arguments.connection;
    Ok(PrometheusConfig {
        // Histories are large, and their numbers compress well.
        transport: TransportConfig {
            compression: Compression::Always,
            ..connection.transport_config(variable)?
        },
        series_options: arguments.series.overrides(typed, connection.matchers()),
        pod_labels: None,
        history_length: arguments.history_length,
        resolution: None,
        query_timeout: arguments.prometheus_query_timeout,
        max_concurrent_queries: arguments.prometheus_queries as usize,
        buffer_bytes: buffer_bytes(&arguments.history_memory)?,
        has_fallback: false,
    })
}

fn check_label(text: &str) -> Result<(), &'static str> {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(is_inside)
        && text != "__name__";
    if fits { Ok(()) } else { Err("give a valid label name") }
}
