//! `plimsoll doctor`: its flags, and the examination behind them.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use plimsoll_storage::prometheus::detect::SchemaOverrides;

use super::{
    Exit, go_values,
    output::{self, CliError, OutputFormat, escape_to_one_line},
    parsed_flags::ParsedFlags,
    prometheus_auth::{self, PrometheusConnectionArgs},
    spinner::Spinner,
    terminal::Terminal,
};
use crate::{
    cluster::clock::Clock,
    controllers::runtime::cluster::ClusterOptions,
    report::{
        collect::doctor::{self, DoctorConfig},
        doctor::{report::Level, text},
    },
};

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll doctor --prometheus-address http://localhost:9090
  plimsoll doctor --prometheus-address https://mimir/prometheus \\
    --prometheus-tenant team --prometheus-bearer-token-file token
  plimsoll doctor --prometheus-address URL -o json | jq .findings

It asks the server what it is, what its series are called, how far back they
go and what reading them costs; compares them with the pods of the VPAs of the
kubeconfig's cluster; and ends with the flags to use. --help lists all flags.
Exit code 1: something is to be looked at, or the server does not answer.
The JSON follows docs/schema/doctor-prometheus.v1.json.";

/// Says what a Prometheus is good for as the source of history
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Only VPAs and series of this namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    #[arg(env = "PLIMSOLL_FLAG_NAMESPACE", hide_env = true)]
    namespace: Option<String>,
    /// File that says how to reach the cluster
    #[arg(long, value_name = "FILE")]
    #[arg(env = "PLIMSOLL_FLAG_KUBECONFIG", hide_env = true)]
    kubeconfig: Option<PathBuf>,
    /// Context of that file
    #[arg(long, value_name = "NAME")]
    #[arg(env = "PLIMSOLL_FLAG_CONTEXT", hide_env = true)]
    context: Option<String>,
    /// What to print
    #[arg(long, short, value_name = "FORM", default_value = "text")]
    #[arg(env = "PLIMSOLL_FLAG_OUTPUT", hide_env = true)]
    output: OutputFormat,
    /// From which level on the exit code is 1
    #[arg(long, value_name = "LEVEL", default_value = "warning")]
    #[arg(env = "PLIMSOLL_FLAG_FAIL_ON", hide_env = true)]
    fail_on: FailOn,
    /// Shows each query with what it took, in text; the JSON always has them
    #[arg(long, env = "PLIMSOLL_FLAG_QUERIES", hide_env = true)]
    queries: bool,
    /// How far back history is wanted, as in 8d
    #[arg(long, value_name = "TIME", default_value = "8d", value_parser = go_values::prometheus_duration)]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_LENGTH", hide_env = true)]
    history_length: Duration,
    /// How long one query may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = go_values::positive_duration)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_QUERY_TIMEOUT", hide_env = true)]
    prometheus_query_timeout: Duration,
    /// How long all of it may take; what was not asked by then is said
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = go_values::positive_duration)]
    #[arg(env = "PLIMSOLL_FLAG_DEADLINE", hide_env = true)]
    deadline: Duration,
    /// Job that scrapes the containers, if it is not to be looked for; empty for any
    #[arg(long, value_name = "NAME")]
    #[arg(hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_PROMETHEUS_CADVISOR_JOB_NAME")]
    prometheus_cadvisor_job_name: Option<String>,
    /// Counter of CPU seconds, if it is not cAdvisor's
    #[arg(long, value_name = "METRIC")]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_CPU_METRIC", hide_short_help = true, hide_env = true)]
    history_cpu_metric: Option<String>,
    /// Gauge of memory, if it is not cAdvisor's
    #[arg(long, value_name = "METRIC")]
    #[arg(env = "PLIMSOLL_FLAG_HISTORY_MEMORY_METRIC", hide_short_help = true, hide_env = true)]
    history_memory_metric: Option<String>,
    /// Label with the namespace on series of containers, if it is not to be looked for
    #[arg(long, value_name = "LABEL", hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_CONTAINER_NAMESPACE_LABEL")]
    container_namespace_label: Option<String>,
    /// Label with the pod's name on series of containers, if it is not to be looked for
    #[arg(long, value_name = "LABEL", hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_CONTAINER_POD_NAME_LABEL")]
    container_pod_name_label: Option<String>,
    /// Label with the container's name on series of containers, if it is not to be looked for
    #[arg(long, value_name = "LABEL", hide_short_help = true, hide_env = true)]
    #[arg(env = "PLIMSOLL_FLAG_CONTAINER_NAME_LABEL")]
    container_name_label: Option<String>,
    #[command(flatten)]
    connection: PrometheusConnectionArgs,
}

/// What is bad enough for a pipeline to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Whatever could be better
    Warning,
    /// Only what makes history missing or wrong
    Problem,
}

impl FailOn {
    fn level(self) -> Level {
        match self {
            Self::Warning => Level::Warning,
            Self::Problem => Level::Problem,
        }
    }
}

impl DoctorArgs {
    /// What was asked for, checked as a whole. `variable` looks into the environment.
    pub(super) fn config(
        &self,
        variable: impl Fn(&str) -> String,
    ) -> Result<DoctorConfig, CliError> {
        let (given, secrets) = self.connection.given_flags();
        Ok(DoctorConfig {
            transport: self.connection.transport_config(variable)?,
            series_options: SchemaOverrides {
                job: self.prometheus_cadvisor_job_name.clone(),
                cpu: self.history_cpu_metric.clone(),
                memory: self.history_memory_metric.clone(),
                namespace: self.container_namespace_label.clone(),
                pod: self.container_pod_name_label.clone(),
                container: self.container_name_label.clone(),
                scrape_interval: None,
                matchers: self.connection.matchers(),
            },
            wanted_history: self.history_length,
            timeout: self.prometheus_query_timeout,
            deadline: self.deadline,
            cluster_options: ClusterOptions {
                kubeconfig: self.kubeconfig.clone(),
                context: self.context.clone(),
            },
            namespace: self.namespace.clone(),
            given_flags: given,
            secret_flags: secrets.into_iter().map(ToOwned::to_owned).collect(),
        })
    }
}

/// Examines, and exits by whether there is anything to look at.
pub fn run(
    arguments: &DoctorArgs,
    typed: &ParsedFlags,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    let config = arguments.config(|name| std::env::var(name).unwrap_or_default())?;
    for flag in prometheus_auth::exposed_secret_warnings(typed) {
        output::print_note(&format!("plimsoll: {flag}"));
    }
    let waiting = Spinner::start(terminal, "asking the Prometheus");
    // Somebody else may have installed one, and then it is the same: there is only ring in this program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |error: String| CliError::new(Exit::Findings, escape_to_one_line(&error));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(format!("cannot start: {error}")))?;
    let examined = runtime.block_on(doctor::examine(&config, &Clock::wall()));
    drop(waiting);
    let report = examined.map_err(|error| failed(error.to_string()))?;
    output::print_result(&match arguments.output {
        OutputFormat::Text => text::render(&report, &terminal.style, arguments.queries),
        OutputFormat::Json => output::json(&report)?,
    })?;
    Ok(if report.worst() >= arguments.fail_on.level() { Exit::Findings } else { Exit::Fine })
}
