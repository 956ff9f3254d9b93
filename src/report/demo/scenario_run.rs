//! Simulates one scenario of the demo's cluster, hour by hour: without a recommender, or with the real one, which saves its
//! history to a real storage and loads it again.

use std::{collections::BTreeMap, path::PathBuf};

use async_trait::async_trait;
use plimsoll_core::{
    api::{ResourceList, vpa::ContainerPolicy},
    recommender::{Settings, VpaSettings},
    sim::{
        Cluster, ContainerMinute, MinuteSink as _, Recommender, UpdatePolicy,
        WorkloadRecommendation,
    },
    types::{ObjectKey, Time, quantity::Quantity},
};
use plimsoll_storage::{LoadRequest, NotLeader, Storage, WritePermit};

use super::{
    report::{HistoryReport, Restart},
    totals::{Charts, TotalsByContainer},
    workloads::DemoWorkload,
};

/// Both scenarios start on Monday, 5 January 2026, at midnight UTC.
pub const START: Time = Time::from_secs(1_767_571_200);

/// Hours between saves. Each waits for the disk, so more of them would make the demo slow on a slow disk.
const HOURS_BETWEEN_SAVES: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    Without,
    /// With recommendations, which are applied.
    With,
}

pub trait ProgressObserver: Send {
    /// Called after each simulated minute of a container.
    fn step(&mut self, scenario: Scenario, step: &ContainerMinute) {
        let _ = (scenario, step);
    }

    /// Called after each simulated hour; `of` is the total number of hours.
    fn hour(&mut self, scenario: Scenario, hour: u32, of: u32) {
        let _ = (scenario, hour, of);
    }

    /// Whether to cancel the simulation.
    fn is_cancelled(&self) -> bool {
        false
    }
}

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error(transparent)]
    Storage(#[from] plimsoll_storage::Error),
    #[error(
        "{}: {error}: set TMPDIR to a writable directory, or pass --keep-store DIR",
        place.display()
    )]
    StoreUnavailable { place: std::path::PathBuf, error: std::io::Error },
    /// The store already holds a history, which the demo's would mix with.
    #[error(
        "{}: already contains a history ({records} records): pass an empty directory to --keep-store",
        place.display()
    )]
    NotEmpty { place: std::path::PathBuf, records: usize },
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Workloads(#[from] plimsoll_core::sim::InvalidWorkload),
}

pub struct ScenarioResult {
    pub totals: TotalsByContainer,
    pub charts: Charts,
}

impl ScenarioResult {
    fn new(config: &Config) -> Self {
        Self { totals: TotalsByContainer::default(), charts: Charts::new(START, config.days) }
    }

    fn record(&mut self, step: &ContainerMinute) {
        self.totals.record(step);
        self.charts.record(step);
    }
}

pub fn run_without(
    config: &Config,
    workloads: &[DemoWorkload],
    observer: &mut dyn ProgressObserver,
) -> Result<ScenarioResult, DemoError> {
    let mut cluster = cluster(config, workloads, UpdatePolicy::Off)?;
    let mut result = ScenarioResult::new(config);
    let hours = config.days * 24;
    for hour in 1..=hours {
        for _ in 0..60 {
            cluster.step(&mut |step: &ContainerMinute| {
                result.record(step);
                observer.step(Scenario::Without, step);
            });
        }
        observer.hour(Scenario::Without, hour, hours);
        if observer.is_cancelled() {
            return Err(DemoError::Interrupted);
        }
    }
    result.totals.set_replaced_pods(cluster.replaced_pods());
    Ok(result)
}

/// Opens the storage: once at the start, and again for every restarted recommender.
pub type OpenStorage<'a> =
    dyn Fn() -> Result<Box<dyn Storage>, plimsoll_storage::Error> + Send + Sync + 'a;

/// Simulates the scenario with recommendations. Returns its result, the recommendations at the end, and the report about the
/// history.
pub async fn run_with(
    config: &Config,
    workloads: &[DemoWorkload],
    open: &OpenStorage<'_>,
    observer: &mut dyn ProgressObserver,
) -> Result<(ScenarioResult, Vec<WorkloadRecommendation>, HistoryReport), DemoError> {
    let mut cluster = cluster(config, workloads, UpdatePolicy::Recreate)?;
    let mut result = ScenarioResult::new(config);
    let mut storage = open()?;
    let mut recommender = recommender(config, workloads);
    let mut history =
        HistoryReport { backend: storage.name().to_owned(), ..HistoryReport::default() };
    let hours = config.days * 24;
    for hour in 1..=hours {
        for _ in 0..60 {
            cluster.step(&mut |step: &ContainerMinute| {
                result.record(step);
                observer.step(Scenario::With, step);
                recommender.observe(step);
            });
            recommender.decide_plans(cluster.now());
            let recommendations = recommender.recommend(cluster.now());
            apply_recommendations(&mut cluster, &recommendations);
        }
        forget_gone_pods(&cluster, &mut recommender);
        if hour % HOURS_BETWEEN_SAVES == 0 {
            history.saves += u64::from(save(storage.as_ref(), &recommender, cluster.now()).await?);
        }
        // The recommender is restarted halfway; the new one has nothing but the store. Half of the run is a multiple of
        // the hours between saves, so nothing is lost.
        if hour == hours / 2 {
            let before = recommender.recommend(cluster.now());
            drop((storage, recommender));
            storage = open()?;
            recommender = self::recommender(config, workloads);
            let loaded = load(storage.as_ref(), &mut recommender, cluster.now()).await?;
            let after = recommender.recommend(cluster.now());
            history.restarts.push(compare(cluster.now(), loaded, &before, &after));
        }
        observer.hour(Scenario::With, hour, hours);
        if observer.is_cancelled() {
            return Err(DemoError::Interrupted);
        }
    }
    result.totals.set_replaced_pods(cluster.replaced_pods());
    let recommendations = recommender.recommend(cluster.now());
    Ok((result, recommendations, history))
}

fn cluster(
    config: &Config,
    demo_workloads: &[DemoWorkload],
    updates: UpdatePolicy,
) -> Result<Cluster, DemoError> {
    let workloads =
        demo_workloads.iter().map(|demo_workload| demo_workload.workload.clone()).collect();
    Ok(Cluster::new(workloads, config.seed, START, updates)?)
}

fn recommender(config: &Config, workloads: &[DemoWorkload]) -> Recommender {
    let vpas = workloads.iter().map(|DemoWorkload { workload, max_memory, .. }| {
        let policies = max_memory.iter().map(|max| ContainerPolicy {
            container_name: "*".into(),
            max_allowed: ResourceList::cpu_and_memory(None, Some(Quantity::from(*max))),
            ..ContainerPolicy::default()
        });
        let key = ObjectKey::new(workload.namespace.clone(), workload.name.clone());
        (key, VpaSettings::new(policies.collect(), &BTreeMap::new()))
    });
    Recommender::new(config.settings.clone(), vpas)
}

fn apply_recommendations(cluster: &mut Cluster, recommendations: &[WorkloadRecommendation]) {
    for recommended in recommendations {
        let ObjectKey { namespace, name } = &recommended.workload;
        cluster.set_recommendation(
            namespace,
            name,
            &recommended.recommendation.container,
            recommended.recommendation(),
        );
    }
}

fn forget_gone_pods(cluster: &Cluster, recommender: &mut Recommender) {
    let existing: std::collections::HashSet<&str> = cluster.pod_names().collect();
    recommender.retain_pods(|pod| existing.contains(pod));
}

/// Saves all histories. Returns whether the storage supports it.
async fn save(
    storage: &dyn Storage,
    recommender: &Recommender,
    now: Time,
) -> Result<bool, plimsoll_storage::Error> {
    let Some(writer) = storage.writer() else { return Ok(false) };
    writer.save(&recommender.records(now), &UnfencedPermit).await?;
    Ok(true)
}

/// Loads all histories. Returns their number.
async fn load(
    storage: &dyn Storage,
    recommender: &mut Recommender,
    now: Time,
) -> Result<usize, plimsoll_storage::Error> {
    let mut sink = recommender.restore_sink(now);
    let report = storage.load(&LoadRequest::All, &mut sink).await?;
    Ok(report.snapshots - sink.skipped.len())
}

fn compare(
    at: Time,
    loaded: usize,
    before: &[WorkloadRecommendation],
    after: &[WorkloadRecommendation],
) -> Restart {
    let same = |previous: &&WorkloadRecommendation| {
        after.iter().any(|other| {
            previous.workload == other.workload && previous.recommendation == other.recommendation
        })
    };
    let unchanged = before.iter().filter(same).count();
    Restart { at, loaded, compared: before.len(), unchanged }
}

/// The demo is the only user of its store, so it needs no fencing.
struct UnfencedPermit;

#[async_trait]
impl WritePermit for UnfencedPermit {
    async fn acquire(&self) -> Result<(), NotLeader> {
        Ok(())
    }
}

/// The maximum number of simulated days. Up to this, sums fit into integers that every JSON parser represents exactly.
pub const MOST_DAYS: u32 = 90;

#[derive(Clone, Debug)]
pub struct Config {
    pub seed: u64,
    /// Simulated days, 1 to `MOST_DAYS`.
    pub days: u32,
    /// Directory of the recommender's history, which is kept; `None` for a temporary directory.
    pub store: Option<PathBuf>,
    pub settings: Settings,
}
