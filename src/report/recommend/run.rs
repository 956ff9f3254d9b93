//! Makes the report: finds the servers, reads workloads and history, and decides.
//!
//! ```text
//!   context ─▶ API server ─▶ Survey ─┐
//!      └─▶ Prometheus of the cluster ┴─▶ evidence ─┐
//!   Prometheus alone ─▶ Survey ─▶ evidence ────────┴─▶ Report
//! ```
//!
//! A context that does not answer is unread and does not stop the others. If nothing can be read there is no report.

mod collect;

use std::{path::PathBuf, sync::Arc, time::Duration};

use plimsoll_core::{
    recommender::Settings,
    rightsizing::{
        assembly::report,
        options::ReportOptions,
        report::Report,
        survey::{Container, Survey, Workload},
    },
    types::{Time, compat::Compat},
};
use plimsoll_storage::prometheus::{
    detect::DetectError,
    selector::{LabelMatcher, MatchOperator},
};

use self::collect::collect_all;
pub use self::collect::{
    Collected, Collector, EvidenceByWorkload, EvidenceKey, Target, evidence_key, targets,
};
use super::{
    estimate::{Estimate, Step},
    history::ReplacedContainers,
    server::ServerChoice,
    strategy::Strategy,
};
use crate::{
    cluster::{clock::Clock, survey::SurveyScope},
    controllers::runtime::{
        command_client::{Impersonation, NoCluster},
        prometheus::PrometheusConfig,
    },
};

/// What to report on, and how numbers are computed.
#[derive(Clone, Debug)]
pub struct RecommendConfig {
    /// Path of the kubeconfig file.
    pub kubeconfig: Option<PathBuf>,
    /// The user that clusters are read as.
    pub impersonation: Impersonation,
    pub contexts: Contexts,
    /// Which workloads.
    pub scope: SurveyScope,
    /// Where workloads are read from.
    pub source: WorkloadSource,
    /// The server with the history.
    pub server: ServerChoice,
    /// The label with the name of the cluster, to report on all clusters of a server.
    pub cluster_label: Option<String>,
    /// The connection to the server, and limits of queries.
    pub prometheus: PrometheusConfig,
    /// The step of CPU samples.
    pub step: Step,
    /// The time of the report; `None` is now.
    pub until: Option<Time>,
    /// How far back peaks of memory and runs of jobs are read.
    pub peak_length: Duration,
    /// The settings of the model.
    pub settings: Settings,
    /// The compatibility mode.
    pub compat: Compat,
    /// The rule by which numbers are computed.
    pub strategy: Strategy,
    pub node_group_label: Option<String>,
    /// Containers for which the recommendation of a VPA is used instead.
    pub replaced: Arc<ReplacedContainers>,
    /// The survey of the last time, with which unchanged workloads are shared.
    pub earlier: Option<Arc<Survey>>,
    /// What is decided about the numbers.
    pub report: ReportOptions,
}

impl RecommendConfig {
    /// The settings for the series of one cluster.
    pub fn prometheus_of(&self, cluster: Option<&str>, step: Option<Duration>) -> PrometheusConfig {
        let mut prometheus = PrometheusConfig { resolution: step, ..self.prometheus.clone() };
        if let Some((label, cluster)) = self.cluster_label.as_deref().zip(cluster) {
            let matcher = LabelMatcher::new(label, MatchOperator::Equals, cluster);
            let matchers = prometheus.series_options.matchers.with(matcher);
            prometheus.series_options.matchers = matchers;
        }
        prometheus
    }
}

/// Contexts of a kubeconfig file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contexts {
    Current,
    /// These.
    Named(Vec<String>),
    /// All of them.
    All,
}

/// Where workloads are read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkloadSource {
    /// The API server, or the series of kube-state-metrics if it does not answer.
    #[default]
    Auto,
    /// The API server.
    Cluster,
    /// The series of kube-state-metrics.
    Series,
}

/// Receives what is being read.
pub trait RecommendProgress: Send {
    /// A stage starts.
    fn stage(&mut self, text: &str);
    /// The number of workloads whose history is complete, and of all workloads.
    fn histories(&mut self, done: usize, total: usize);
    /// The workloads of a cluster are known; and after that, each time, the evidence of some more of them.
    fn evidence(&mut self, _survey: &Arc<Survey>, _part: &EvidenceByWorkload) {}
}

/// Ignores all progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl RecommendProgress for NoProgress {
    fn stage(&mut self, _: &str) {}

    fn histories(&mut self, _: usize, _: usize) {}
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum RecommendError {
    /// No cluster and no server are configured.
    #[error("{0}; or read workloads from a Prometheus alone: --prometheus-address=URL")]
    NoCluster(NoCluster),
    /// The server could not be found or used.
    #[error("{0}")]
    Server(String),
    /// The series of the server cannot be used.
    #[error("{}", series_message(server, error))]
    Series {
        server: String,
        /// What failed.
        error: DetectError,
    },
    /// The workloads could not be read.
    #[error("{0}")]
    Workloads(String),
}

/// The message about a server. Some errors name it themselves.
fn series_message(server: &str, error: &DetectError) -> String {
    let why = error.to_string();
    let place = if why.contains(server) { String::new() } else { format!("{server}: ") };
    format!("{place}{why}; `plimsoll doctor --prometheus-address=URL` shows the details")
}

/// Makes the report.
///
/// Fails if there is no server or nothing can be read. Everything else that cannot be read is part of the report.
pub async fn run_recommend(
    config: &RecommendConfig,
    clock: &Clock,
    progress: &mut dyn RecommendProgress,
) -> Result<Report, RecommendError> {
    let now = config.until.unwrap_or_else(|| clock.now());
    let collected = collect_all(config, clock, now, progress).await?;
    progress.stage("computing the report");
    Ok(decide(config, &collected, now))
}

/// Reads workloads and history without deciding anything.
pub async fn collect_evidence(
    config: &RecommendConfig,
    clock: &Clock,
    progress: &mut dyn RecommendProgress,
) -> Result<Collected, RecommendError> {
    let now = config.until.unwrap_or_else(|| clock.now());
    collect_all(config, clock, now, progress).await
}

/// Estimates what a report would query, by server.
pub async fn estimate(
    config: &RecommendConfig,
    clock: &Clock,
    progress: &mut dyn RecommendProgress,
) -> Result<Vec<(String, Estimate)>, RecommendError> {
    let now = config.until.unwrap_or_else(|| clock.now());
    let mut estimates = Vec::new();
    for target in targets(config)? {
        let collector = Collector { config, clock, now };
        let (server, survey, _) = collector.workloads(&target, progress).await?;
        let budget = config.prometheus.point_budget();
        let span = (config.step, config.prometheus.history_length);
        let estimate = Estimate::new(&survey, span, budget, server.is_proxied);
        estimates.push((server.name, estimate));
    }
    Ok(estimates)
}

/// Decides what to say about what was read.
pub fn decide(config: &RecommendConfig, collected: &Collected, now: Time) -> Report {
    let options = collected.report_options(config);
    let evidence_of = |workload: &Workload, container: &Container| {
        collected.evidence_of(workload)?.get(&container.name)
    };
    report(&collected.survey, &evidence_of, &options, now)
}
