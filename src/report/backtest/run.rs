//! Records workloads group by group, and replays each under all policies.
//!
//! ```text
//!   targets ─▶ workloads, server ─▶ retention ─▶ one time for all
//!      └▶ groups ─▶ recording ──▶ replay on other threads ─▶ accounts
//!                      ▲ the next group is read meanwhile ┘
//! ```
//!
//! So two groups are in memory, however many workloads there are.

use std::{sync::Arc, time::Duration};

use plimsoll_core::{
    backtest::{
        WorkloadRecording, WorkloadScaling, account::WorkloadAccount, recording::Evaluation,
    },
    recommender::HistoryWeighting,
    rightsizing::{
        prices::Prices,
        survey::{Survey, Unread, Workload},
    },
    types::{Time, units::MilliCpu},
};
use plimsoll_storage::prometheus::history::PrometheusHistory;

pub use super::replays::{Replay, ScaledReplay};
use super::{
    recording::{RecordingError, RecordingEstimate, groups, record},
    replays::Replays,
    retention::{PlannedTime, TooShort, available, plan},
    shard::Shard,
};
use crate::{
    cluster::clock::Clock,
    report::recommend::{
        query_tally::QueryTally,
        run::{Collector, RecommendConfig, RecommendError, RecommendProgress, Target, targets},
        server::ConnectedServer,
    },
};

/// What to replay.
#[derive(Clone, Debug)]
pub struct BacktestConfig {
    /// Clusters, workloads and server, as for recommendations.
    pub source: RecommendConfig,
    /// The length of the warm-up.
    pub warm_up: Duration,
    /// The length of the evaluation.
    pub days: Duration,
    /// Only this workload: `shop/web` or `shop/Deployment/web`.
    pub workload: Option<String>,
    /// Only this many workloads: those that request most.
    pub top: Option<usize>,
    /// Only a part of the workloads.
    pub shard: Option<Shard>,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BacktestError {
    /// No server, or no workloads.
    #[error("{0}")]
    Source(#[from] RecommendError),
    /// The server keeps too little.
    #[error("{0}")]
    TooShort(#[from] TooShort),
    /// It does not fit into memory, or takes too long.
    #[error("{0}")]
    TooLarge(String),
    /// The given workload does not exist.
    #[error("there is no workload {0}: give NAMESPACE/NAME or NAMESPACE/KIND/NAME")]
    NoWorkload(String),
    /// Something could not be read. Figures of the rest would be misleading.
    #[error("{0}; there are no figures")]
    Incomplete(String),
}

/// What was replayed.
#[derive(Debug)]
pub struct Replayed {
    /// The time of the backtest.
    pub evaluation: Evaluation,
    /// The accounts of workloads that have pods, sorted.
    pub accounts: Vec<WorkloadAccount>,
    /// The number of workloads without any sample in this time.
    pub without_samples: u64,
    /// What could not be read of the clusters.
    pub unread: Vec<Unread>,
    /// Remarks about the whole report.
    pub remarks: Vec<String>,
}

/// Workloads, and the name of their cluster in the series of the server.
type WorkloadsOfCluster = (Option<Box<str>>, Vec<Arc<Workload>>);

/// A server with its workloads.
struct Source {
    server: ConnectedServer,
    survey: Survey,
    clusters: Vec<WorkloadsOfCluster>,
}

/// Reads and replays workloads whose replicas do not depend on requests.
pub async fn run_backtest(
    config: &BacktestConfig,
    clock: &Clock,
    replay: Replay,
    progress: &mut dyn RecommendProgress,
) -> Result<Replayed, BacktestError> {
    let replay: ScaledReplay =
        Arc::new(move |recording, _, evaluation| replay(recording, evaluation));
    run_scaled_backtest(config, clock, replay, progress).await
}

/// Reads and replays.
pub async fn run_scaled_backtest(
    config: &BacktestConfig,
    clock: &Clock,
    replay: ScaledReplay,
    progress: &mut dyn RecommendProgress,
) -> Result<Replayed, BacktestError> {
    let plan = BacktestPlan::new(config, clock, progress).await?;
    plan.check_size(config)?;
    plan.run(config, replay, progress).await
}

/// Estimates what would be read, by server.
pub async fn estimate(
    config: &BacktestConfig,
    clock: &Clock,
    progress: &mut dyn RecommendProgress,
) -> Result<Vec<(String, RecordingEstimate)>, BacktestError> {
    let plan = BacktestPlan::new(config, clock, progress).await?;
    let evaluation = plan.planned.evaluation;
    let estimates = plan.sources.iter().map(|source| {
        let workloads: Vec<&Workload> = source.workloads().collect();
        (source.server.name.clone(), RecordingEstimate::new(&workloads, evaluation))
    });
    Ok(estimates.collect())
}

impl Source {
    fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.clusters.iter().flat_map(|(_, workloads)| workloads).map(Arc::as_ref)
    }
}

/// The workloads of all clusters and the time that they have in common.
struct BacktestPlan {
    now: Time,
    sources: Vec<Source>,
    planned: PlannedTime,
    unread: Vec<Unread>,
    /// Remarks about where workloads were read from.
    remarks: Vec<String>,
}

impl BacktestPlan {
    async fn new(
        config: &BacktestConfig,
        clock: &Clock,
        progress: &mut dyn RecommendProgress,
    ) -> Result<Self, BacktestError> {
        let now = config.source.until.unwrap_or_else(|| clock.now());
        let collector = Collector { config: &config.source, clock, now };
        let (mut sources, mut unread, mut remarks) = (Vec::new(), Vec::new(), Vec::new());
        for target in targets(&config.source)? {
            let read = collector.workloads(&target, progress).await;
            let (server, survey, mut read_remarks) = match (read, target.name()) {
                (Ok(read), _) => read,
                (Err(error), None) => return Err(error.into()),
                (Err(error), Some(name)) => {
                    unread.push(Unread { what: format!("context {name}"), why: error.to_string() });
                    continue;
                }
            };
            remarks.append(&mut read_remarks);
            unread.extend(survey.unread.iter().cloned());
            sources.push(Source::new(&target, server, survey));
        }
        if sources.is_empty()
            && let Some(Unread { what, why }) = unread.first()
        {
            return Err(BacktestError::Incomplete(format!("could not read {what}: {why}")));
        }
        progress.stage("looking for the oldest samples");
        // Before workloads are selected: all shards need the same time.
        let planned = plan_time(config, &sources, now).await?;
        select(&mut sources, config)?;
        Ok(Self { now, sources, planned, unread, remarks })
    }

    fn check_size(&self, config: &BacktestConfig) -> Result<(), BacktestError> {
        let workloads: Vec<&Workload> = self.sources.iter().flat_map(Source::workloads).collect();
        let estimate = RecordingEstimate::new(&workloads, self.planned.evaluation);
        match estimate.excess(config.source.prometheus.buffer_bytes) {
            Some(why) => Err(BacktestError::TooLarge(why)),
            None => Ok(()),
        }
    }

    async fn run(
        self,
        config: &BacktestConfig,
        replay: ScaledReplay,
        progress: &mut dyn RecommendProgress,
    ) -> Result<Replayed, BacktestError> {
        let Self { now, sources, planned, unread, mut remarks } = self;
        let PlannedTime { evaluation, remark } = planned;
        let total: usize = sources.iter().map(|source| source.workloads().count()).sum();
        let mut replays = Replays::new(replay, evaluation);
        let part_bytes = config.source.prometheus.buffer_bytes;
        let mut done = 0;
        for source in &sources {
            for (cluster, workloads) in &source.clusters {
                let history = source.history(config, cluster.as_deref(), now);
                let workloads: Vec<&Workload> = workloads.iter().map(Arc::as_ref).collect();
                // Those that turn out to be too large together are divided.
                let mut pending = groups(&workloads, evaluation, part_bytes);
                pending.reverse();
                while let Some(mut group) = pending.pop() {
                    let max_bytes = part_bytes.saturating_mul(super::recording::MAX_PARTS);
                    match record(&history, &group, evaluation, max_bytes).await {
                        Ok(recordings) => {
                            done += group.len();
                            replays.start(with_scaling(recordings, &group)).await?;
                            progress.histories(done, total);
                        }
                        Err(RecordingError::TooLarge(_)) if group.len() > 1 => {
                            let second = group.split_off(group.len() / 2);
                            pending.push(second);
                            pending.push(group);
                        }
                        Err(error @ RecordingError::TooLarge(_)) => {
                            let why =
                                format!("{error}: raise --history-memory, or set fewer --days");
                            return Err(BacktestError::TooLarge(why));
                        }
                        Err(error) => return Err(BacktestError::Incomplete(error.to_string())),
                    }
                }
            }
        }
        progress.stage("replaying");
        let mut accounts = replays.finish().await?;
        let without_samples = accounts.iter().filter(|of| of.sampled_minutes == 0).count();
        accounts.retain(|account| account.sampled_minutes > 0);
        remarks.extend(remark);
        let without_samples = without_samples as u64;
        Ok(Replayed { evaluation, accounts, without_samples, unread, remarks })
    }
}

impl Source {
    fn new(target: &Target, server: ConnectedServer, mut survey: Survey) -> Self {
        let mut clusters: Vec<WorkloadsOfCluster> = Vec::new();
        for mut workload in std::mem::take(&mut survey.workloads) {
            // The value of the label of clusters selects series; the name of a context does not.
            let of_series = workload.cluster.clone();
            if let Some(cluster) = target.name() {
                Arc::make_mut(&mut workload).cluster = Some(cluster.into());
            }
            match clusters.iter_mut().find(|(cluster, _)| *cluster == of_series) {
                Some((_, workloads)) => workloads.push(workload),
                None => clusters.push((of_series, vec![workload])),
            }
        }
        Self { server, survey, clusters }
    }

    /// The history of the workloads of a cluster.
    fn history(
        &self,
        config: &BacktestConfig,
        cluster: Option<&str>,
        now: Time,
    ) -> PrometheusHistory {
        let source = &config.source;
        let mut prometheus = source.prometheus_of(cluster, None);
        // A day more than needed: how much is read is given to each load.
        let day = Duration::from_hours(24);
        prometheus.history_length = config.warm_up.saturating_add(config.days).saturating_add(day);
        self.server.history(
            &prometheus,
            HistoryWeighting::Duration,
            now,
            Arc::<QueryTally>::default(),
        )
    }
}

/// How the autoscaler of each workload answers to its requests.
fn with_scaling(
    recordings: Vec<WorkloadRecording>,
    group: &[&Workload],
) -> Vec<(WorkloadRecording, WorkloadScaling)> {
    let of = |recording: WorkloadRecording| {
        let is_recorded = |workload: &&&Workload| {
            recording.cluster == workload.cluster
                && *recording.key.namespace == *workload.namespace
                && *recording.kind == *workload.kind
                && *recording.key.name == *workload.name
        };
        let workload = group.iter().find(is_recorded);
        let scaling = workload.map_or(WorkloadScaling::Unknown, |of| WorkloadScaling::of(of));
        (recording, scaling)
    };
    recordings.into_iter().map(of).collect()
}

/// Restricts the workloads to the one that was named, to those that request most, and to a shard of these.
fn select(sources: &mut [Source], config: &BacktestConfig) -> Result<(), BacktestError> {
    if let Some(wanted) = &config.workload {
        let matches = |workload: &Workload| {
            let Workload { namespace, kind, name, .. } = workload;
            *wanted == format!("{namespace}/{name}")
                || *wanted == format!("{namespace}/{kind}/{name}")
        };
        for (_, workloads) in sources.iter_mut().flat_map(|source| &mut source.clusters) {
            workloads.retain(|workload| matches(workload));
        }
        if sources.iter().all(|source| source.workloads().next().is_none()) {
            return Err(BacktestError::NoWorkload(wanted.clone()));
        }
    }
    if let Some(top) = config.top {
        keep_largest(sources, config, top);
    }
    if let Some(shard) = config.shard {
        for (_, workloads) in sources.iter_mut().flat_map(|source| &mut source.clusters) {
            workloads.retain(|workload| shard.contains(workload));
        }
    }
    Ok(())
}

/// Keeps the workloads that request most.
fn keep_largest(sources: &mut [Source], config: &BacktestConfig, top: usize) {
    let prices = config.source.report.prices.as_ref();
    let mut costs: Vec<f64> = sources
        .iter()
        .flat_map(|source| {
            source.workloads().map(|workload| requested(workload, &source.survey, prices))
        })
        .collect();
    costs.sort_by(|one, other| other.total_cmp(one));
    let Some(least) = top.checked_sub(1).and_then(|index| costs.get(index)).copied() else {
        return;
    };
    // Of equal ones the first count.
    let mut left = top;
    for source in sources {
        let survey = &source.survey;
        for (_, workloads) in &mut source.clusters {
            workloads.retain(|workload| {
                let is_wanted = left > 0 && requested(workload, survey, prices) >= least;
                left -= usize::from(is_wanted);
                is_wanted
            });
        }
    }
}

/// What the pods of a workload request: money if there are prices, else cores, where 8 GiB count as one.
fn requested(workload: &Workload, survey: &Survey, prices: Option<&Prices>) -> f64 {
    const GIB: f64 = 1_073_741_824.0;
    const GIB_PER_CORE: f64 = 8.0;
    let price = prices.map(|prices| prices.of_pods(&workload.nodes, &survey.nodes));
    let of_core = price.and_then(|price| price.cpu_core_hour).unwrap_or(1.0);
    let of_gib = price.and_then(|price| price.memory_gib_hour).unwrap_or(of_core / GIB_PER_CORE);
    let pods = workload.pods.len().max(workload.replicas.unwrap_or_default() as usize).max(1);
    let containers = workload.containers.iter().map(|container| {
        let cpu = container.requests.cpu.map_or(0.0, MilliCpu::as_cores);
        let memory = container.requests.memory.map_or(0.0, |memory| memory.as_f64() / GIB);
        cpu * of_core + memory * of_gib
    });
    containers.sum::<f64>() * pods as f64
}

/// The time that all servers have samples of.
async fn plan_time(
    config: &BacktestConfig,
    sources: &[Source],
    now: Time,
) -> Result<PlannedTime, BacktestError> {
    let wanted = (config.warm_up, config.days);
    let length = config.warm_up.saturating_add(config.days);
    let mut shortest: Option<PlannedTime> = None;
    for source in sources {
        for (cluster, workloads) in &source.clusters {
            let history = source.history(config, cluster.as_deref(), now);
            let mut namespaces: Vec<&str> = workloads.iter().map(|of| &*of.namespace).collect();
            namespaces.sort_unstable();
            namespaces.dedup();
            let failed =
                |why: String| BacktestError::Incomplete(format!("{}: {why}", source.server.name));
            let schema = history.schema(&namespaces).await;
            let schema = schema.map_err(|error| RecommendError::Series {
                server: source.server.name.clone(),
                error,
            })?;
            let oldest = available(&history.client, &schema, (now, length)).await;
            let oldest = oldest.map_err(|failure| failed(failure.to_string()))?;
            let planned = plan(&source.server.name, now, wanted, oldest)?;
            let is_shorter = |known: &PlannedTime| {
                planned.evaluation.warm_up_from > known.evaluation.warm_up_from
            };
            if shortest.as_ref().is_none_or(is_shorter) {
                shortest = Some(planned);
            }
        }
    }
    match shortest {
        Some(planned) => Ok(planned),
        // There are no workloads in this shard, or at all.
        None => Ok(plan("", now, wanted, length)?),
    }
}
