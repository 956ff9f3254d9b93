//! The flags of `plimsoll backtest` for clusters, workloads, the server with the history, and prices. They have the names
//! and the meaning of those of `plimsoll recommend`.

use std::{path::PathBuf, time::Duration};

use clap::{ArgAction, Args, builder::BoolishValueParser};
use plimsoll_core::{
    recommender::Settings,
    rightsizing::options::ReportOptions,
    types::{Time, compat::Compat, quantity::Quantity},
};

use super::{
    container_series::ContainerSeriesArgs,
    go_values,
    output::CliError,
    parsed_flags::ParsedFlags,
    prometheus::buffer_bytes,
    prometheus_auth::PrometheusConnectionArgs,
    recommend::{SourceArg, ViaArg},
};
use crate::{
    cluster::{
        prometheus_discovery::Via,
        service_proxy::address::ServiceAddress,
        survey::{OwnerGroups, SurveyScope},
    },
    controllers::runtime::{command_client::Impersonation, prometheus::PrometheusConfig},
    report::recommend::{
        estimate::Step,
        run::{Contexts, RecommendConfig, WorkloadSource},
        server::ServerChoice,
        strategy::Strategy,
    },
};

/// Clusters, workloads, server and prices.
#[derive(Debug, Args)]
pub struct BacktestSourceArgs {
    /// Path of the kubeconfig file
    #[arg(long, value_name = "FILE", help_heading = "Workloads")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig file (repeatable)
    #[arg(long, value_name = "NAME", action = ArgAction::Append, help_heading = "Workloads")]
    context: Vec<String>,
    /// All contexts in the kubeconfig file
    #[arg(long, conflicts_with = "context", value_parser = BoolishValueParser::new())]
    #[arg(help_heading = "Workloads")]
    all_contexts: bool,
    #[command(flatten, next_help_heading = "Workloads")]
    impersonation: Impersonation,
    /// Only workloads of this namespace, with * and ? as wildcards (repeatable)
    #[arg(long, short, value_name = "NAMESPACE", action = ArgAction::Append)]
    #[arg(help_heading = "Workloads")]
    namespace: Vec<String>,
    /// No workloads of this namespace, with * and ? as wildcards (repeatable)
    #[arg(long, value_name = "NAMESPACE", action = ArgAction::Append)]
    #[arg(help_heading = "Workloads")]
    exclude_namespace: Vec<String>,
    /// Only workloads with these labels, as in kubectl
    #[arg(long, short = 'l', value_name = "SELECTOR", help_heading = "Workloads")]
    selector: Option<String>,
    /// Only workloads of these kinds, such as Deployment,CronJob
    #[arg(long, value_name = "KINDS", value_delimiter = ',', help_heading = "Workloads")]
    kind: Vec<String>,
    /// Only the workloads that request most
    #[arg(long, value_name = "COUNT", value_parser = go_values::integer_between(1_u32, 1_000_000))]
    #[arg(help_heading = "Workloads")]
    top: Option<u32>,
    /// Where workloads are read from: the API server, the series of kube-state-metrics, or whichever there is
    #[arg(long, value_name = "SOURCE", default_value = "auto", help_heading = "Workloads")]
    source: SourceArg,
    /// Service of the Prometheus, such as monitoring/prometheus:9090 [if not set: found]
    #[arg(long, value_name = "NS/NAME:PORT", help_heading = "History")]
    prometheus_service: Option<String>,
    /// How to reach a Service: `direct`, `proxy` for the API server's proxy, or `auto`
    #[arg(long, value_name = "WAY", default_value = "auto", help_heading = "History")]
    via: ViaArg,
    /// Label with the name of the cluster, to replay all clusters of a Prometheus
    #[arg(long, value_name = "LABEL", help_heading = "History")]
    cluster_label: Option<String>,
    /// The end of the backtest, such as 2026-11-24T12:00:00Z or 2026-11-24 [if not set: now; with --shard: midnight]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "History")]
    until: Option<Time>,
    /// Maximum number of concurrent queries
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = go_values::integer_between(1_u32, 100))]
    #[arg(help_heading = "History")]
    prometheus_queries: u32,
    /// Timeout of a query
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = go_values::positive_duration)]
    #[arg(help_heading = "History")]
    prometheus_query_timeout: Duration,
    /// Memory limit of a part of the recording, and for buffered history
    #[arg(long, value_name = "SIZE", default_value = "24Mi", help_heading = "History")]
    history_memory: Quantity,
    #[command(flatten)]
    connection: PrometheusConnectionArgs,
    #[command(flatten)]
    series: ContainerSeriesArgs,
    /// File with prices of CPU and memory, also that of OpenCost
    #[arg(long, value_name = "FILE", help_heading = "Money")]
    pub prices: Option<PathBuf>,
    /// Currency of the prices, such as EUR
    #[arg(long, value_name = "CODE", help_heading = "Money")]
    pub currency: Option<String>,
}

/// Parses a time: RFC 3339, or a date for the start of that day in UTC.
fn time(text: &str) -> Result<Time, String> {
    let date = || text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    let found = text.parse::<jiff::Timestamp>().ok().or_else(|| Some(date()?.timestamp()));
    let wanted = || "give a time such as 2026-11-24T12:00:00Z, or a date".to_owned();
    found.map(Time::from).ok_or_else(wanted)
}

impl BacktestSourceArgs {
    /// The number of workloads, if it is limited.
    pub fn top(&self) -> Option<usize> {
        self.top.map(|top| top as usize)
    }

    /// Validates the flags. `variable` reads the environment; files are not read.
    pub fn config(
        &self,
        typed: &ParsedFlags,
        variable: impl Fn(&str) -> String,
    ) -> Result<RecommendConfig, CliError> {
        self.check_conflicts(typed)?;
        let scope = SurveyScope {
            namespaces: self.namespace.clone(),
            exclude_namespaces: self.exclude_namespace.clone(),
            label_selector: self.selector.clone(),
            kinds: self.kind.clone(),
            groups: OwnerGroups::default(),
        };
        scope.selector().map_err(|error| CliError::usage(format!("--selector: {error}")))?;
        let contexts = match (self.all_contexts, &*self.context) {
            (true, _) => Contexts::All,
            (false, []) => Contexts::Current,
            (false, names) => Contexts::Named(names.to_vec()),
        };
        let source = match (self.source, &self.cluster_label) {
            (_, Some(_)) | (SourceArg::Prometheus, _) => WorkloadSource::Series,
            (SourceArg::Cluster, _) => WorkloadSource::Cluster,
            (SourceArg::Auto, _) => WorkloadSource::Auto,
        };
        // How numbers are computed is a matter of the policies.
        Ok(RecommendConfig {
            kubeconfig: self.kubeconfig.clone(),
            impersonation: self.impersonation.clone(),
            contexts,
            scope,
            source,
            server: self.server(typed)?,
            cluster_label: self.cluster_label.clone(),
            prometheus: PrometheusConfig {
                transport: self.connection.transport_config(variable)?,
                series_options: self.series.overrides(typed, self.connection.matchers()),
                pod_labels: None,
                history_length: Duration::ZERO,
                resolution: None,
                query_timeout: self.prometheus_query_timeout,
                max_concurrent_queries: self.prometheus_queries as usize,
                buffer_bytes: buffer_bytes(&self.history_memory)?,
                has_fallback: false,
            },
            step: Step::Fixed(Duration::from_mins(1)),
            until: self.until,
            peak_length: Duration::ZERO,
            settings: Settings::default(),
            compat: Compat::Plimsoll,
            strategy: Strategy::Plimsoll,
            node_group_label: None,
            report: ReportOptions::default(),
        })
    }

    fn server(&self, typed: &ParsedFlags) -> Result<ServerChoice, CliError> {
        if typed.is_set("prometheus_address") {
            return Ok(ServerChoice::Address);
        }
        let parse = |service: &String| -> Result<ServiceAddress, CliError> {
            let usage = |error| CliError::usage(format!("--prometheus-service={service}: {error}"));
            service.parse::<ServiceAddress>().map_err(usage)
        };
        let service = self.prometheus_service.as_ref().map(parse).transpose()?;
        let via = match self.via {
            ViaArg::Auto => Via::Auto,
            ViaArg::Direct => Via::Direct,
            ViaArg::Proxy => Via::Proxy,
        };
        Ok(ServerChoice::InCluster { service, via })
    }

    fn check_conflicts(&self, typed: &ParsedFlags) -> Result<(), CliError> {
        let refuse = |message: &str| Err(CliError::usage(message));
        if typed.is_set("prometheus_address") && self.prometheus_service.is_some() {
            return refuse(
                "--prometheus-address and --prometheus-service are mutually exclusive: set only one of them",
            );
        }
        if let Some(label) = &self.cluster_label {
            let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let is_valid = label
                .starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && label.bytes().all(is_inside)
                && label != "__name__";
            if !is_valid {
                return refuse("--cluster-label: give a valid label name");
            }
            if self.source == SourceArg::Cluster {
                return refuse(
                    "--cluster-label reads workloads from series: use --source=prometheus",
                );
            }
            if self.all_contexts || !self.context.is_empty() {
                return refuse(
                    "--cluster-label and several contexts are mutually exclusive: set one of them",
                );
            }
        }
        if self.currency.is_some() && self.prices.is_none() {
            return refuse("--currency has no effect without --prices");
        }
        Ok(())
    }
}
