//! Reads workloads and history of all clusters.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use kube::config::Kubeconfig;
use plimsoll_core::{
    recommender::HistoryWeighting,
    rightsizing::{
        evidence::EvidenceGap,
        owner_groups::{KnownJobs, group_jobs},
        report::SourceReport,
        survey::{Survey, Unread, Workload},
    },
    types::{ObjectKey, Time},
};
use plimsoll_storage::prometheus::{detect::DetectError, history::PrometheusHistory};

use super::{Contexts, RecommendConfig, RecommendError, RecommendProgress, WorkloadSource};
use crate::{
    cluster::{
        clock::Clock,
        survey::{SeriesSurveyError, read_known_jobs, survey_cluster, survey_series},
    },
    controllers::runtime::{
        command_client::{ClusterConnection, ClusterOptions, NoCluster, load_connection},
        prometheus::PrometheusConfig,
    },
    report::recommend::{
        cluster_evidence::{ClusterEvidence, EvidenceOptions, read_cluster_evidence},
        estimate::{Step, series},
        evidence::{WorkloadEvidence, with_gap},
        history::{HistoryModel, workload_key},
        query_tally::QueryTally,
        server::{ConnectedServer, ServerChoice},
    },
};

/// The user agent of requests to the API server.
const USER_AGENT: &str = concat!("plimsoll-recommend/", env!("CARGO_PKG_VERSION"));

/// The default step of CPU samples in the recommender.
const DEFAULT_STEP: Duration = Duration::from_mins(1);

/// The key of a workload: its cluster if the report covers several, and its namespace with `Kind/name`.
pub type EvidenceKey = (Option<Box<str>>, ObjectKey);

/// Everything that was read.
#[derive(Debug, Default)]
pub struct Collected {
    /// The workloads of all clusters, and what could not be read.
    pub survey: Survey,
    pub evidence: HashMap<EvidenceKey, WorkloadEvidence>,
    /// The servers.
    pub sources: Vec<SourceReport>,
    /// Remarks about the whole report.
    pub remarks: Vec<String>,
    /// The time since the first run of a job.
    pub runs_window: Option<Duration>,
}

impl Collected {
    /// Adds what was read of another cluster; `cluster` is its name if there are several.
    fn merge(&mut self, other: Self, cluster: Option<&str>) {
        let Self { survey, evidence, sources, remarks, runs_window } = other;
        self.runs_window = self.runs_window.max(runs_window);
        self.survey.merge(match cluster {
            Some(cluster) => survey.in_cluster(cluster),
            None => survey,
        });
        let named = |own: Option<Box<str>>| cluster.map(Into::into).or(own);
        self.evidence.extend(evidence.into_iter().map(|((own, key), of)| ((named(own), key), of)));
        self.sources.extend(sources.into_iter().map(|source| {
            let own = source.cluster.clone();
            SourceReport { cluster: cluster.map(ToOwned::to_owned).or(own), ..source }
        }));
        self.remarks.extend(remarks.into_iter().map(|remark| match cluster {
            Some(cluster) => format!("{cluster}: {remark}"),
            None => remark,
        }));
    }

    pub fn evidence_of(&self, workload: &Workload) -> Option<&WorkloadEvidence> {
        self.evidence.get(&(workload.cluster.clone(), workload_key(workload)))
    }
}

/// Something to report on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The cluster of a context; the current one if it has no name.
    Cluster {
        context: Option<String>,
        /// Whether there are others, so that its name is part of the report.
        is_one_of_several: bool,
    },
    /// A server alone.
    Server,
}

impl Target {
    /// The name of the cluster, if there are several.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Cluster { context, is_one_of_several: true } => context.as_deref(),
            _ => None,
        }
    }
}

pub fn targets(config: &RecommendConfig) -> Result<Vec<Target>, RecommendError> {
    if config.source == WorkloadSource::Series && config.server == ServerChoice::Address {
        return Ok(vec![Target::Server]);
    }
    let clusters = |names: Vec<String>| {
        let mut seen = HashSet::new();
        let names: Vec<String> =
            names.into_iter().filter(|name| seen.insert(name.clone())).collect();
        let is_one_of_several = names.len() > 1;
        let names = names.into_iter();
        names.map(|name| Target::Cluster { context: Some(name), is_one_of_several }).collect()
    };
    Ok(match &config.contexts {
        Contexts::Current => vec![Target::Cluster { context: None, is_one_of_several: false }],
        Contexts::Named(names) => clusters(names.clone()),
        Contexts::All => {
            let kubeconfig = match &config.kubeconfig {
                Some(path) => Kubeconfig::read_from(path),
                None => Kubeconfig::read(),
            };
            let no_cluster = |why: String| RecommendError::NoCluster(NoCluster(why));
            let file = kubeconfig.map_err(|error| no_cluster(error.to_string()))?;
            let names = contexts_of_clusters(&file);
            if names.is_empty() {
                return Err(no_cluster("the kubeconfig file has no contexts".to_owned()));
            }
            clusters(names)
        }
    })
}

/// One context of each cluster: its pods would count once for every context. The current one is preferred.
fn contexts_of_clusters(file: &Kubeconfig) -> Vec<String> {
    let is_current = |name: &str| file.current_context.as_deref() == Some(name);
    let mut known: Vec<(&str, String)> = Vec::new();
    for named in &file.contexts {
        let cluster = named.context.as_ref().map_or("", |context| &*context.cluster);
        match known.iter_mut().find(|(of, _)| *of == cluster) {
            Some((_, name)) if is_current(&named.name) => name.clone_from(&named.name),
            Some(_) => {}
            None => known.push((cluster, named.name.clone())),
        }
    }
    known.into_iter().map(|(_, name)| name).collect()
}

/// Reads workloads and history of all targets.
pub(super) async fn collect_all(
    config: &RecommendConfig,
    clock: &Clock,
    now: Time,
    progress: &mut dyn RecommendProgress,
) -> Result<Collected, RecommendError> {
    let collector = Collector { config, clock, now };
    let mut all = Collected::default();
    let mut first_error = None;
    for target in targets(config)? {
        match (collector.collect(&target, progress).await, target.name()) {
            (Ok(collected), name) => all.merge(collected, name),
            (Err(error), None) => return Err(error),
            (Err(error), Some(name)) => {
                let what = format!("context {name}");
                all.survey.unread.push(Unread { what, why: error.to_string() });
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) if all.sources.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// Reads one target after the other.
pub struct Collector<'a> {
    /// What is read.
    pub config: &'a RecommendConfig,
    pub clock: &'a Clock,
    pub now: Time,
}

impl Collector<'_> {
    async fn collect(
        &self,
        target: &Target,
        progress: &mut dyn RecommendProgress,
    ) -> Result<Collected, RecommendError> {
        let (server, survey, remarks) = self.workloads(target, progress).await?;
        self.read_history(&server, survey, remarks, progress).await
    }

    /// Finds the server and reads the workloads, with remarks about them.
    pub async fn workloads(
        &self,
        target: &Target,
        progress: &mut dyn RecommendProgress,
    ) -> Result<(ConnectedServer, Survey, Vec<String>), RecommendError> {
        let connection = match self.connect(target).await {
            Ok(connection) => connection,
            // Without a cluster the series are enough.
            Err(_) if self.may_read_series_alone() => None,
            Err(error) => return Err(RecommendError::NoCluster(error)),
        };
        let of = target.name().map_or_else(String::new, |name| format!(" of {name}"));
        progress.stage(&format!("looking for the Prometheus{of}"));
        let server = self.connect_server(connection.as_ref()).await?;
        progress.stage(&format!("reading workloads{of}"));
        let reads_series = self.config.source == WorkloadSource::Series;
        let Some(connection) = connection.filter(|_| !reads_series) else {
            return self.series_workloads(server, Vec::new()).await;
        };
        let cluster = connection.cluster().map_err(RecommendError::NoCluster)?;
        let mut survey = survey_cluster(&cluster.client, &self.config.scope).await;
        if let Some(unread) = survey.unread.first().filter(|_| survey.workloads.is_empty()) {
            let why = format!("{}: {}: {}", cluster.address, unread.what, unread.why);
            if self.config.source == WorkloadSource::Cluster {
                return Err(RecommendError::Workloads(why));
            }
            let remark = format!("workloads are read from kube-state-metrics: {why}");
            return match self.series_workloads(server, vec![remark]).await {
                Ok(found) if !found.1.workloads.is_empty() => Ok(found),
                _ => Err(RecommendError::Workloads(why)),
            };
        }
        self.group_jobs(&server, &mut survey).await;
        Ok((server, survey, Vec::new()))
    }

    /// Groups Jobs by their labels, together with those that only series show.
    async fn group_jobs(&self, server: &ConnectedServer, survey: &mut Survey) {
        let scope = &self.config.scope;
        if scope.groups.job_labels.is_empty() || !scope.includes_kind("Job") {
            if scope.groups.job_names {
                group_jobs(&mut survey.workloads, &[], &KnownJobs::default());
            }
            return;
        }
        let history = self.history(server, &self.config.prometheus, Arc::default());
        let known = match history.schema(&[]).await {
            Ok(schema) => read_known_jobs(&history.client, &schema, scope, self.now).await,
            Err(error) => {
                Err(format!("--group-jobs-by: only Jobs that still exist are grouped: {error}"))
            }
        };
        let known = known.unwrap_or_else(|remark| {
            survey.remarks.push(remark);
            KnownJobs::default()
        });
        group_jobs(&mut survey.workloads, &scope.groups.job_labels, &known);
    }

    fn may_read_series_alone(&self) -> bool {
        self.config.source == WorkloadSource::Auto && self.config.server == ServerChoice::Address
    }

    /// How to connect to the cluster of a target, if it has one. Sends no requests.
    async fn connect(&self, target: &Target) -> Result<Option<ClusterConnection>, NoCluster> {
        let Target::Cluster { context, .. } = target else { return Ok(None) };
        let options = ClusterOptions {
            kubeconfig: self.config.kubeconfig.clone(),
            context: context.clone(),
            impersonation: self.config.impersonation.clone(),
        };
        load_connection(&options, USER_AGENT).await.map(Some)
    }

    async fn connect_server(
        &self,
        connection: Option<&ClusterConnection>,
    ) -> Result<ConnectedServer, RecommendError> {
        let prometheus = &self.config.prometheus;
        match (&self.config.server, connection) {
            (ServerChoice::InCluster { service, via }, Some(connection)) => {
                let choice = (service.as_ref(), *via);
                ConnectedServer::of_cluster(connection, choice, prometheus, self.clock).await
            }
            _ => ConnectedServer::at_address(prometheus, self.clock).await,
        }
    }

    /// The workloads by the series of the server.
    async fn series_workloads(
        &self,
        server: ConnectedServer,
        remarks: Vec<String>,
    ) -> Result<(ConnectedServer, Survey, Vec<String>), RecommendError> {
        let history = self.history(&server, &self.config.prometheus, Arc::default());
        let schema = history.schema(&[]).await.map_err(|error| series_error(&server, error))?;
        let (client, scope) = (&history.client, &self.config.scope);
        let label = self.config.cluster_label.as_deref();
        let survey = survey_series(client, &schema, scope, label, self.now).await;
        let survey = survey.map_err(|error| RecommendError::Workloads(error.to_string()))?;
        Ok((server, survey, remarks))
    }

    fn history(
        &self,
        server: &ConnectedServer,
        prometheus: &PrometheusConfig,
        tally: Arc<QueryTally>,
    ) -> PrometheusHistory {
        server.history(prometheus, self.config.settings.history_weighting, self.now, tally)
    }

    /// Reads the history of workloads, those of each cluster in a server by themselves.
    async fn read_history(
        &self,
        server: &ConnectedServer,
        survey: Survey,
        remarks: Vec<String>,
        progress: &mut dyn RecommendProgress,
    ) -> Result<Collected, RecommendError> {
        let mut all = Collected { remarks, ..Collected::default() };
        all.remarks.extend(survey.remarks.iter().cloned());
        let mut clusters: Vec<(Option<Box<str>>, Vec<&Workload>)> = Vec::new();
        for workload in &survey.workloads {
            match clusters.iter_mut().find(|(cluster, _)| *cluster == workload.cluster) {
                Some((_, workloads)) => workloads.push(workload),
                None => clusters.push((workload.cluster.clone(), vec![workload])),
            }
        }
        if let Some(nodes) = &survey.nodes_unread {
            let prices = self.config.report.prices.as_ref();
            let is_needed = self.config.report.cap_to_largest_node
                || prices.is_some_and(|prices| !prices.nodes.is_empty());
            if is_needed {
                all.survey.unread.push(nodes.clone());
            } else {
                all.remarks.push(format!("could not read {}: {}", nodes.what, nodes.why));
            }
        }
        let step = self.step(&survey, server.is_proxied);
        let (mut unread, mut done) = (Vec::new(), 0);
        for (cluster, workloads) in clusters {
            let prometheus = self.config.prometheus_of(cluster.as_deref(), step);
            let (tally, started) = (Arc::<QueryTally>::default(), Instant::now());
            let history = self.history(server, &prometheus, Arc::clone(&tally));
            let all_workloads = survey.workloads.len();
            // A group has a history for each of its members.
            let mut tick = |count: usize| {
                progress.histories((done + count).min(all_workloads), all_workloads);
            };
            let of = (&workloads[..], &survey);
            let read = self.read_cluster(server, &history, of, &mut tick).await?;
            done += workloads.len();
            let totals = tally.totals();
            all.sources.push(SourceReport {
                cluster: cluster.as_deref().map(ToOwned::to_owned),
                server: server.name.clone(),
                product: server.product.clone(),
                proxied: server.is_proxied,
                from: read.span.map(|(from, _)| from),
                until: read.span.map(|(_, until)| until),
                step_seconds: read.step.map(|step| step.as_secs()),
                queries: totals.queries,
                bytes: totals.bytes,
                transferred_bytes: totals.transferred_bytes,
                seconds: started.elapsed().as_secs_f64(),
            });
            all.remarks.extend(read.remarks);
            all.runs_window = all.runs_window.max(read.runs_window);
            unread.extend(read.unread);
            let keys = workloads.iter().map(|of| (of.cluster.clone(), workload_key(of)));
            all.evidence.extend(keys.zip(read.workloads));
        }
        if all.sources.is_empty() {
            // There are no workloads.
            let (name, product) = (server.name.clone(), server.product.clone());
            let proxied = server.is_proxied;
            all.sources.push(SourceReport {
                server: name,
                product,
                proxied,
                ..SourceReport::default()
            });
        }
        unread.append(&mut all.survey.unread);
        all.survey = survey;
        all.survey.unread.extend(unread);
        Ok(all)
    }

    /// The evidence of the workloads of one cluster.
    async fn read_cluster(
        &self,
        server: &ConnectedServer,
        history: &PrometheusHistory,
        (workloads, survey): (&[&Workload], &Survey),
        progress: &mut (dyn FnMut(usize) + Send),
    ) -> Result<ClusterEvidence, RecommendError> {
        let config = self.config;
        let namespaces: BTreeSet<&str> = workloads.iter().map(|of| &*of.namespace).collect();
        let schema = match history.schema(&Vec::from_iter(namespaces)).await {
            Ok(schema) => schema,
            Err(error @ DetectError::NoUsageSeries { .. }) => {
                return Ok(Self::without_series(server, workloads, &error));
            }
            Err(error) => return Err(series_error(server, error)),
        };
        let several = schema.cluster_labels.iter().find(|label| label.values.len() > 1);
        if let Some(label) = several.filter(|_| config.cluster_label.is_none()) {
            let values = label.values.iter().cloned().collect();
            let error = SeriesSurveyError::SeveralClusters { label: label.label.clone(), values };
            return Err(RecommendError::Workloads(format!("{}: {error}", server.name)));
        }
        let model = HistoryModel {
            settings: &config.settings,
            compat: config.compat,
            strategy: config.strategy,
            replaced: &config.replaced,
            now: self.now,
        };
        let options = EvidenceOptions {
            model,
            peak_length: config.peak_length,
            node_group_label: config.node_group_label.as_deref(),
            thresholds: &config.report.thresholds.unsaid,
        };
        read_cluster_evidence(history, (workloads, &survey.nodes), options, progress)
            .await
            .map_err(|error| series_error(server, error))
    }

    /// The evidence of workloads whose server has no series of containers.
    fn without_series(
        server: &ConnectedServer,
        workloads: &[&Workload],
        why: &DetectError,
    ) -> ClusterEvidence {
        let gap = EvidenceGap::Unread;
        let unread = Unread {
            what: format!("history of {}", server.name),
            why: format!("{why}; `plimsoll doctor --prometheus-address=URL` shows the details"),
        };
        ClusterEvidence {
            workloads: workloads.iter().map(|workload| with_gap(workload, gap)).collect(),
            unread: vec![unread],
            ..ClusterEvidence::default()
        }
    }

    /// The step of CPU samples; `None` is the default of the recommender.
    fn step(&self, survey: &Survey, is_proxied: bool) -> Option<Duration> {
        let is_upstream = self.config.settings.history_weighting == HistoryWeighting::Upstream;
        match self.config.step {
            Step::Auto if is_upstream => None,
            step => {
                let length = self.config.prometheus.history_length;
                let step = step.choose(series(survey), length, is_proxied);
                Some(step).filter(|step| is_upstream || *step != DEFAULT_STEP)
            }
        }
    }
}

fn series_error(server: &ConnectedServer, error: DetectError) -> RecommendError {
    RecommendError::Series { server: server.name.clone(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_with_several_contexts_is_read_once() {
        let file: Kubeconfig = serde_json::from_value(serde_json::json!({
            "current-context": "eu-admin",
            "contexts": [
                {"name": "eu", "context": {"cluster": "eu", "user": "a"}},
                {"name": "us", "context": {"cluster": "us", "user": "a"}},
                {"name": "eu-admin", "context": {"cluster": "eu", "user": "b"}},
                {"name": "us-admin", "context": {"cluster": "us", "user": "b"}},
            ],
        }))
        .expect("a kubeconfig");
        assert_eq!(contexts_of_clusters(&file), ["eu-admin", "us"]);
    }
}
