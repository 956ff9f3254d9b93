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
        options::ReportOptions,
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
        cluster_evidence::{
            ClusterEvidence, EvidenceOptions, EvidenceProgress, read_cluster_evidence,
        },
        estimate::{Step, series},
        evidence::{WorkloadEvidence, with_gap},
        history::{HistoryModel, workload_key},
        query_tally::QueryTally,
        server::{ConnectedServer, ServerChoice},
    },
};

/// The user agent of requests to the API server.
const USER_AGENT: &str = "plimsoll-recommend";

/// The default step of CPU samples in the recommender.
const DEFAULT_STEP: Duration = Duration::from_mins(1);

/// The key of a workload: its cluster if the report covers several, and its namespace with `Kind/name`.
pub type EvidenceKey = (Option<Box<str>>, ObjectKey);

pub type EvidenceByWorkload = HashMap<EvidenceKey, Arc<WorkloadEvidence>>;

/// Everything that was read.
#[derive(Debug, Default)]
pub struct Collected {
    /// The workloads of all clusters.
    pub survey: Arc<Survey>,
    pub evidence: EvidenceByWorkload,
    /// What could not be read, besides what the survey says.
    pub unread: Vec<Unread>,
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
        let Self { survey, evidence, unread, sources, remarks, runs_window } = other;
        self.runs_window = self.runs_window.max(runs_window);
        match cluster {
            Some(cluster) => {
                let survey = Arc::unwrap_or_clone(survey).in_cluster(cluster);
                Arc::make_mut(&mut self.survey).merge(survey);
            }
            // It is the only one.
            None => self.survey = survey,
        }
        self.unread.extend(unread.into_iter().map(|unread| match cluster {
            Some(cluster) => unread.in_cluster(cluster),
            None => unread,
        }));
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
        self.evidence.get(&evidence_key(workload)).map(|evidence| &**evidence)
    }

    /// The same with the workloads of a newer survey, and with newer evidence of some of them.
    #[must_use]
    pub fn with_part(&self, survey: &Arc<Survey>, part: &EvidenceByWorkload) -> Self {
        let Self { sources, remarks, unread, runs_window, .. } = self;
        let mut evidence = self.evidence.clone();
        evidence.extend(part.iter().map(|(key, of)| (key.clone(), Arc::clone(of))));
        Self {
            survey: Arc::clone(survey),
            evidence,
            unread: unread.clone(),
            sources: sources.clone(),
            remarks: remarks.clone(),
            runs_window: *runs_window,
        }
    }

    /// The options of a report on what was read.
    pub fn report_options(&self, config: &RecommendConfig) -> ReportOptions {
        let mut options = config.report.clone();
        options.window = self.runs_window;
        options.head.sources.clone_from(&self.sources);
        options.head.unread.splice(..0, self.unread.iter().cloned());
        options.head.remarks.extend(self.remarks.iter().cloned());
        options
    }
}

pub fn evidence_key(workload: &Workload) -> EvidenceKey {
    (workload.cluster.clone(), workload_key(workload))
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
                all.unread.push(Unread { what, why: error.to_string() });
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
        self.read_history(&server, Arc::new(survey), remarks, progress).await
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
        let earlier = self.config.earlier.as_deref();
        let mut survey = survey_cluster(&cluster.client, &self.config.scope, earlier).await;
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
        survey: Arc<Survey>,
        remarks: Vec<String>,
        progress: &mut dyn RecommendProgress,
    ) -> Result<Collected, RecommendError> {
        progress.evidence(&survey, &EvidenceByWorkload::new());
        let mut all = Collected { survey: Arc::clone(&survey), remarks, ..Collected::default() };
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
                all.unread.push(nodes.clone());
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
            let evidence = &mut all.evidence;
            let mut sink = EvidenceSink { progress, survey: &survey, done, evidence };
            let read = self.read_cluster(server, &history, &workloads, &mut sink).await?;
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
        unread.append(&mut all.unread);
        all.unread = unread;
        Ok(all)
    }

    /// The evidence of the workloads of one cluster.
    async fn read_cluster(
        &self,
        server: &ConnectedServer,
        history: &PrometheusHistory,
        workloads: &[&Workload],
        sink: &mut EvidenceSink<'_>,
    ) -> Result<ClusterEvidence, RecommendError> {
        let config = self.config;
        let namespaces: BTreeSet<&str> = workloads.iter().map(|of| &*of.namespace).collect();
        let schema = match history.schema(&Vec::from_iter(namespaces)).await {
            Ok(schema) => schema,
            Err(error @ DetectError::NoUsageSeries { .. }) => {
                let evidence = workloads.iter().map(|of| with_gap(of, EvidenceGap::Unread));
                sink.evidence(workloads, evidence.collect());
                return Ok(Self::without_series(server, &error));
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
        read_cluster_evidence(history, (workloads, &sink.survey.nodes), options, sink)
            .await
            .map_err(|error| series_error(server, error))
    }

    /// What is said of a server without series of containers.
    fn without_series(server: &ConnectedServer, why: &DetectError) -> ClusterEvidence {
        let unread = Unread {
            what: format!("history of {}", server.name),
            why: format!("{why}; `plimsoll doctor --prometheus-address=URL` shows the details"),
        };
        ClusterEvidence { unread: vec![unread], ..ClusterEvidence::default() }
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

/// Keeps the evidence of a cluster, and passes it on as soon as it is complete.
struct EvidenceSink<'a> {
    progress: &'a mut dyn RecommendProgress,
    survey: &'a Arc<Survey>,
    /// The number of workloads of other clusters before it.
    done: usize,
    evidence: &'a mut EvidenceByWorkload,
}

impl EvidenceProgress for EvidenceSink<'_> {
    fn histories(&mut self, done: usize) {
        let all = self.survey.workloads.len();
        // A group has a history for each of its members.
        self.progress.histories((self.done + done).min(all), all);
    }

    fn evidence(&mut self, workloads: &[&Workload], evidence: Vec<WorkloadEvidence>) {
        let keys = workloads.iter().map(|workload| evidence_key(workload));
        let part: EvidenceByWorkload = keys.zip(evidence.into_iter().map(Arc::new)).collect();
        self.progress.evidence(self.survey, &part);
        self.evidence.extend(part);
    }
}

fn series_error(server: &ConnectedServer, error: DetectError) -> RecommendError {
    RecommendError::Series { server: server.name.clone(), error }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::rightsizing::{evidence::ContainerEvidence, survey::Container};

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

    fn workload(name: &str) -> Arc<Workload> {
        let containers = [Container { name: "main".into(), ..Container::default() }].into();
        let namespace = "shop".into();
        let kind = "Deployment".into();
        Workload { namespace, kind, name: name.into(), containers, ..Workload::default() }.into()
    }

    #[test]
    fn a_part_replaces_the_evidence_of_its_workloads_and_new_workloads_are_unread() {
        let evidence = |kills: u32| {
            let main = ContainerEvidence { oom_kills: kills, ..ContainerEvidence::default() };
            Arc::new([(Arc::from("main"), main)].into_iter().collect::<WorkloadEvidence>())
        };
        let [api, cart, web] = ["api", "cart", "web"].map(workload);
        let before = Collected {
            survey: Survey { workloads: vec![api.clone(), web.clone()], ..Survey::default() }
                .into(),
            evidence: [(evidence_key(&api), evidence(1)), (evidence_key(&web), evidence(2))].into(),
            remarks: vec!["a remark".to_owned()],
            ..Collected::default()
        };
        let workloads = vec![api.clone(), cart.clone(), web.clone()];
        let survey = Arc::new(Survey { workloads, ..Survey::default() });
        let kills = |of: &Collected, workload| {
            of.evidence_of(workload).and_then(|evidence| Some(evidence.get("main")?.oom_kills))
        };
        let surveyed = before.with_part(&survey, &EvidenceByWorkload::new());
        let all = |of: &Collected| [&api, &cart, &web].map(|workload| kills(of, workload));
        assert_eq!(all(&surveyed), [Some(1), None, Some(2)]);
        let part = [(evidence_key(&api), evidence(3))].into();
        let read = surveyed.with_part(&survey, &part);
        assert_eq!(all(&read), [Some(3), None, Some(2)]);
        assert_eq!((read.survey.workloads.len(), &read.remarks), (3, &before.remarks));
    }
}
