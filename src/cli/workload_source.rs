//! The flags of `plimsoll recommend` and `plimsoll backtest` for clusters, workloads, the server with the history, and prices.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::{ArgAction, Args, ValueEnum, builder::BoolishValueParser};
use plimsoll_core::{
    recommender::Settings,
    rightsizing::{options::ReportOptions, prices::Prices},
    types::{Time, compat::Compat, quantity::Quantity},
};

use super::{
    container_series::ContainerSeriesArgs,
    go_values,
    output::CliError,
    parsed_flags::ParsedFlags,
    prometheus::buffer_bytes,
    prometheus_auth::PrometheusConnectionArgs,
    report_run::{MAX_SETTINGS_BYTES, parse, read_text},
};
use crate::{
    cluster::{
        prometheus_discovery::Via,
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

/// Clusters, workloads and the server.
#[derive(Clone, Debug, Args)]
pub struct WorkloadSourceArgs {
    /// Path of the kubeconfig file
    #[arg(long, value_name = "FILE", help_heading = "Workloads")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig file (repeatable)
    #[arg(long, value_name = "NAME", action = ArgAction::Append, help_heading = "Workloads")]
    pub context: Vec<String>,
    /// All contexts in the kubeconfig file
    #[arg(long, conflicts_with = "context", value_parser = BoolishValueParser::new())]
    #[arg(help_heading = "Workloads")]
    all_contexts: bool,
    #[command(flatten, next_help_heading = "Workloads")]
    impersonation: Impersonation,
    /// Only workloads of this namespace, with * and ? as wildcards (repeatable)
    #[arg(long, short, value_name = "NAMESPACE", action = ArgAction::Append)]
    #[arg(help_heading = "Workloads")]
    pub namespace: Vec<String>,
    /// No workloads of this namespace, with * and ? as wildcards (repeatable)
    #[arg(long, value_name = "NAMESPACE", action = ArgAction::Append)]
    #[arg(help_heading = "Workloads")]
    pub exclude_namespace: Vec<String>,
    /// Only workloads with these labels, as in kubectl
    #[arg(long, short = 'l', value_name = "SELECTOR", help_heading = "Workloads")]
    selector: Option<String>,
    /// Only workloads of these kinds, such as Deployment,CronJob
    #[arg(long, value_name = "KINDS", value_delimiter = ',', help_heading = "Workloads")]
    kind: Vec<String>,
    /// Where workloads are read from: the API server, the series of kube-state-metrics, or whichever there is
    #[arg(long, value_name = "SOURCE", default_value = "auto", help_heading = "Workloads")]
    source: SourceArg,
    /// Service of the Prometheus, such as monitoring/prometheus:9090 [if not set: found]
    #[arg(long, value_name = "NS/NAME:PORT", help_heading = "History")]
    pub prometheus_service: Option<String>,
    /// How to reach a Service: `direct`, `proxy` for the API server's proxy, or `auto`
    #[arg(long, value_name = "WAY", default_value = "auto", help_heading = "History")]
    pub via: ViaArg,
    /// Label with the name of the cluster, to read all clusters of a Prometheus
    #[arg(long, value_name = "LABEL", help_heading = "History")]
    cluster_label: Option<String>,
    /// Maximum number of concurrent queries
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = go_values::integer_between(1_u32, 100))]
    #[arg(help_heading = "History")]
    prometheus_queries: u32,
    /// Timeout of a query
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = go_values::positive_duration)]
    #[arg(help_heading = "History")]
    prometheus_query_timeout: Duration,
    /// Memory limit for buffered history
    #[arg(long, value_name = "SIZE", default_value = "24Mi", help_heading = "History")]
    history_memory: Quantity,
    #[command(flatten)]
    pub connection: PrometheusConnectionArgs,
    #[command(flatten)]
    pub series: ContainerSeriesArgs,
}

/// The value of `--source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SourceArg {
    Auto,
    Cluster,
    Prometheus,
}

/// The value of `--via`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ViaArg {
    Auto,
    Direct,
    Proxy,
}

impl WorkloadSourceArgs {
    /// Validates the flags. `variable` reads the environment; files are not read. How numbers are computed is up to the
    /// command.
    pub fn config(&self, typed: &ParsedFlags) -> Result<RecommendConfig, CliError> {
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
        Ok(RecommendConfig {
            kubeconfig: self.kubeconfig.clone(),
            impersonation: self.impersonation.clone(),
            contexts,
            scope,
            source,
            server: self.server(typed)?,
            cluster_label: self.cluster_label.clone(),
            prometheus: PrometheusConfig {
                transport: self.connection.transport_config(typed)?,
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
            until: None,
            peak_length: Duration::ZERO,
            settings: Settings::default(),
            compat: Compat::Plimsoll,
            strategy: Strategy::Plimsoll,
            node_group_label: None,
            replaced: Arc::default(),
            earlier: None,
            report: ReportOptions::default(),
        })
    }

    fn server(&self, typed: &ParsedFlags) -> Result<ServerChoice, CliError> {
        if typed.is_set("prometheus_address") {
            return Ok(ServerChoice::Address);
        }
        let service = self.prometheus_service.as_ref();
        let service = service.map(|text| parse(text, "prometheus-service")).transpose()?;
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
        let Some(label) = &self.cluster_label else { return Ok(()) };
        if self.source == SourceArg::Cluster {
            return refuse("--cluster-label reads workloads from series: use --source=prometheus");
        }
        if self.all_contexts || !self.context.is_empty() {
            return refuse(
                "--cluster-label and several contexts are mutually exclusive: set one of them; --cluster-label alone \
                 reads each cluster of the server",
            );
        }
        go_values::label_name(label)
            .map(drop)
            .map_err(|why| CliError::usage(format!("--cluster-label: {why}")))
    }
}

/// Parses a time: RFC 3339, or a date for the start of that day in UTC.
pub fn time(text: &str) -> Result<Time, String> {
    let date = || text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    let found = text.parse::<jiff::Timestamp>().ok().or_else(|| Some(date()?.timestamp()));
    let wanted = || "give a time such as 2026-11-24T12:00:00Z, or a date".to_owned();
    found.map(Time::from).ok_or_else(wanted)
}

/// What CPU and memory cost.
#[derive(Clone, Debug, Default, Args)]
pub struct PriceArgs {
    /// File with prices of CPU and memory, also that of OpenCost
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Currency of the prices, such as EUR
    #[arg(long, value_name = "CODE")]
    currency: Option<String>,
}

impl PriceArgs {
    pub fn check(&self) -> Result<(), CliError> {
        if self.currency.is_some() && self.prices.is_none() {
            return Err(CliError::usage("--currency has no effect without --prices"));
        }
        Ok(())
    }

    /// Reads the file, if one is set.
    pub fn read(&self) -> Result<Option<Prices>, CliError> {
        let Some(path) = &self.prices else { return Ok(None) };
        let mut prices = Prices::parse(&read_text(path, MAX_SETTINGS_BYTES)?)
            .map_err(|error| CliError::failed(format!("{}: {error}", path.display())))?;
        if let Some(currency) = &self.currency {
            prices.currency.clone_from(currency);
        }
        Ok(Some(prices))
    }
}
