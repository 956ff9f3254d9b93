//! `plimsoll doctor`: its flags, the run, and the exit code.

use std::time::Duration;

use clap::{Args, Subcommand};
use plimsoll_core::diagnosis;
use plimsoll_storage::prometheus::detect::SchemaOverrides;

use super::{
    Exit, go_values,
    one_shot::{ReportArgs, Spinner, block_on},
    output::{self, CliError},
    parsed_flags::ParsedFlags,
    prometheus_auth::{self, PrometheusConnectionArgs},
    terminal::Terminal,
};
use crate::{
    cluster::clock::Clock,
    report::{
        collect::{
            doctor::{self, DoctorConfig, DoctorError},
            doctor_cluster::{ClusterCheckConfig, examine_cluster},
            hpa_lint,
        },
        doctor::{
            cluster_report::{self, ClusterReport},
            hpa_lint::render,
            report::Level,
            text,
        },
    },
};

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll doctor --prometheus-address http://localhost:9090
  plimsoll doctor --prometheus-address https://mimir/prometheus \\
    --prometheus-tenant team --prometheus-bearer-token-file token
  plimsoll doctor --prometheus-address URL -o json | jq .findings
  plimsoll doctor --cluster              what is wrong with autoscaling here
  plimsoll doctor --cluster --live --fail-on=problem
  plimsoll doctor hpa                    mistakes in HorizontalPodAutoscalers

Checks the server's flavour, its metric and label names, how far back history
goes and what reading it costs; compares the series with the pods of VPAs in the
cluster of the kubeconfig; and suggests flags. --help lists all flags.
--cluster checks the cluster instead: docs/doctor.md lists all checks.
Exit code 1: there are findings, or the server does not respond.
Exit code 4: nothing was found, but --cluster could not read everything.
The JSON follows docs/schema/doctor-prometheus.v1.json, with --cluster
docs/schema/doctor-cluster.v1.json.";

/// Checks whether a Prometheus can provide history, the cluster, or HorizontalPodAutoscalers
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
#[command(subcommand_negates_reqs = true)]
pub struct DoctorArgs {
    #[command(subcommand)]
    command: Option<DoctorCommand>,
    /// Checks the cluster: API server, metrics, autoscalers, webhook, roles; finds its Prometheus
    #[arg(long)]
    cluster: bool,
    /// Sends a copy of a pod through the admission webhook, as a dry run
    #[arg(long, requires = "cluster")]
    live: bool,
    /// Only VPAs and series of this namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    report: ReportArgs,
    /// Lowest level of a finding for which the exit code is 1
    #[arg(long, value_name = "LEVEL", default_value = "warning")]
    fail_on: Level,
    /// Shows each query and its cost in the text output; the JSON always contains them
    #[arg(long)]
    queries: bool,
    /// How far back history should go, such as 8d
    #[arg(long, value_name = "TIME", default_value = "8d", value_parser = go_values::prometheus_duration)]
    history_length: Duration,
    /// Timeout of one query
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = go_values::positive_duration)]
    prometheus_query_timeout: Duration,
    /// Time limit of all checks; checks that did not complete are reported
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = go_values::positive_duration)]
    deadline: Duration,
    /// Scrape job of the container series [if not set: detected]; empty for any
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    prometheus_cadvisor_job_name: Option<String>,
    /// Counter of CPU seconds, if not cAdvisor's
    #[arg(long, value_name = "METRIC", hide_short_help = true)]
    history_cpu_metric: Option<String>,
    /// Gauge of memory, if not cAdvisor's
    #[arg(long, value_name = "METRIC", hide_short_help = true)]
    history_memory_metric: Option<String>,
    /// Label with the namespace on container series [if not set: detected]
    #[arg(long, value_name = "LABEL", hide_short_help = true)]
    container_namespace_label: Option<String>,
    /// Label with the pod name on container series [if not set: detected]
    #[arg(long, value_name = "LABEL", hide_short_help = true)]
    container_pod_name_label: Option<String>,
    /// Label with the container name on container series [if not set: detected]
    #[arg(long, value_name = "LABEL", hide_short_help = true)]
    container_name_label: Option<String>,
    #[command(flatten)]
    connection: PrometheusConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum DoctorCommand {
    Hpa(Box<DoctorHpaArgs>),
}

pub(super) const HPA_EXAMPLES: &str = "\
Examples:
  plimsoll doctor hpa
  plimsoll doctor hpa -n shop -o json | jq .findings

Reads HorizontalPodAutoscalers, the scales of their targets, their pods and
VerticalPodAutoscalers, and reports likely mistakes: overlapping selectors,
missing requests, a VPA of the same resource, settings of spec.behavior that
cannot do what they seem to, and annotations of plimsoll hpa that do not fit.
Exit code 1: there are findings.
The JSON follows docs/schema/doctor-hpa.v1.json.";

/// Checks HorizontalPodAutoscalers for likely mistakes
#[derive(Debug, Args)]
#[command(after_help = HPA_EXAMPLES)]
struct DoctorHpaArgs {
    /// Only objects of this namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    report: ReportArgs,
}

impl DoctorHpaArgs {
    fn run(&self, terminal: &Terminal) -> Result<Exit, CliError> {
        let namespace = self.namespace.as_deref();
        let message = "reading HorizontalPodAutoscalers";
        let report = self.report.read("plimsoll-doctor", terminal, message, async |cluster| {
            hpa_lint::lint(&cluster, namespace, Clock::wall().now()).await
        })?;
        self.report.print(terminal, &report, render, report.findings.is_empty())
    }
}

impl DoctorArgs {
    pub(super) fn check(&self, typed: &ParsedFlags) -> Result<(), CliError> {
        match &self.command {
            Some(DoctorCommand::Hpa(_)) => Ok(()),
            None => self.config(typed).map(drop),
        }
    }

    fn check_cluster(&self, typed: &ParsedFlags, terminal: &Terminal) -> Result<Exit, CliError> {
        let config = ClusterCheckConfig {
            cluster_options: self.report.cluster.clone(),
            namespace: self.namespace.clone(),
            connection: self.connection.transport_config(typed)?,
            has_address: typed.is_set("prometheus_address"),
            matchers: self.connection.matchers(),
            is_live: self.live,
            deadline: self.deadline,
        };
        let spinner = Spinner::start(terminal, "checking the cluster");
        let report = block_on(async {
            examine_cluster(&config, &Clock::wall()).await.map_err(CliError::failed)
        })?;
        drop(spinner);
        let exit = cluster_exit_code(&report, self.fail_on);
        let render = |report: &_, style: &_| cluster_report::render(report, style, exit as u8);
        self.report.print(terminal, &report, render, true)?;
        Ok(exit)
    }

    pub(super) fn config(&self, typed: &ParsedFlags) -> Result<DoctorConfig, CliError> {
        let (given, secrets) = self.connection.given_flags(typed);
        Ok(DoctorConfig {
            transport: self.connection.transport_config(typed)?,
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
            cluster_options: self.report.cluster.clone(),
            namespace: self.namespace.clone(),
            given_flags: given,
            secret_flags: secrets.into_iter().map(ToOwned::to_owned).collect(),
        })
    }
}

/// Runs the checks. The exit code depends on the findings.
pub fn run(
    arguments: &DoctorArgs,
    typed: &ParsedFlags,
    terminal: &Terminal,
) -> Result<Exit, CliError> {
    if let Some(DoctorCommand::Hpa(arguments)) = &arguments.command {
        return arguments.run(terminal);
    }
    for flag in prometheus_auth::exposed_secret_warnings(typed) {
        output::print_warning(&flag);
    }
    if arguments.cluster {
        return arguments.check_cluster(typed, terminal);
    }
    let config = arguments.config(typed)?;
    let spinner = Spinner::start(terminal, "querying the Prometheus");
    let has_address = typed.is_set("prometheus_address");
    let report = block_on(async {
        let examined = doctor::examine(&config, &Clock::wall()).await;
        examined.map_err(|why| CliError::failed(error_message(&why, has_address)))
    })?;
    drop(spinner);
    let render = |report: &_, style: &_| text::render(report, style, arguments.queries);
    let is_fine = report.worst() < arguments.fail_on;
    arguments.report.print(terminal, &report, render, is_fine)
}

/// What was found goes before what is not known: it is certain.
fn cluster_exit_code(report: &ClusterReport, fail_on: Level) -> Exit {
    let fail_on = match fail_on {
        Level::Problem => diagnosis::Level::Problem,
        Level::Ok | Level::Warning => diagnosis::Level::Warning,
    };
    if report.has(fail_on) {
        Exit::Findings
    } else if report.count(diagnosis::Level::Unknown) > 0 {
        Exit::Incomplete
    } else {
        Exit::Fine
    }
}

/// The message of a failed run. Outside of the cluster the default address cannot be resolved.
fn error_message(why: &DoctorError, has_address: bool) -> String {
    match why {
        DoctorError::Unreachable(_) if !has_address => format!(
            "{why}; this is the default of --prometheus-address: pass another one, or run `plimsoll doctor \
             --cluster`, which finds the Prometheus of the cluster"
        ),
        _ => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{
        diagnosis::{CheckId, Finding},
        types::Time,
    };

    use super::*;

    #[test]
    fn an_unreachable_default_address_is_named_as_the_default() {
        let why =
            DoctorError::Unreachable("http://prometheus.monitoring.svc: timed out".to_owned());
        let message = error_message(&why, false);
        assert!(
            message.starts_with("http://prometheus.monitoring.svc: timed out; this is the default")
        );
        assert!(message.contains("`plimsoll doctor --cluster`"), "{message}");
        assert_eq!(error_message(&why, true), why.to_string());
    }

    #[test]
    fn the_exit_code_depends_on_the_level_and_on_what_is_unknown() {
        use diagnosis::Level::{Ok, Problem, Unknown, Warning};
        for (levels, fail_on, exit) in [
            (&[Ok][..], Level::Warning, Exit::Fine),
            (&[Ok, Warning], Level::Warning, Exit::Findings),
            (&[Ok, Warning], Level::Problem, Exit::Fine),
            (&[Warning, Unknown], Level::Problem, Exit::Incomplete),
            (&[Problem, Unknown], Level::Problem, Exit::Findings),
            (&[Ok, Unknown], Level::Warning, Exit::Incomplete),
        ] {
            let finding = |level: &diagnosis::Level| Finding::new(CheckId::ApiVersion, *level, "");
            let report = ClusterReport {
                schema_version: 1,
                kind: String::new(),
                version: String::new(),
                at: Time::EPOCH,
                cluster: String::new(),
                api_version: None,
                prometheus: None,
                findings: levels.iter().map(finding).collect(),
            };
            assert_eq!(cluster_exit_code(&report, fail_on), exit, "{levels:?} {fail_on:?}");
        }
    }
}
