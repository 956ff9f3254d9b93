//! One life of the demo's cluster, hour by virtual hour: with nobody watching, or with the real recommender,
//! whose history goes to a real storage and comes back from it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_storage::{LoadRequest, NotLeader, Storage, WritePermit};

use super::{
    chart::Charts,
    config::Config,
    report::{HistoryReport, Restart},
    totals::TotalsByContainer,
    workloads::DemoWorkload,
};
use plimsoll_core::{
    recommender::{ContainerPolicy, ResourceAmounts, VpaSettings},
    sim::{
        Cluster, ContainerMinute, MinuteSink as _, Recommender, UpdatePolicy,
        WorkloadRecommendation,
    },
    types::quantity::Quantity,
};

/// Both lives begin on Monday, 5 January 2026, at midnight UTC.
pub const START: Time = Time::from_secs(1_767_571_200);

/// Hours between saves: each waits for the disk, and a slow one must not turn seconds into minutes.
const HOURS_BETWEEN_SAVES: u32 = 3;

/// Which of the two lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// Nothing is recommended.
    Without,
    /// Recommendations are made and applied.
    With,
}

/// Sees the lives go by.
pub trait ProgressObserver: Send {
    /// A step was lived.
    fn step(&mut self, life: Scenario, step: &ContainerMinute) {
        let _ = (life, step);
    }

    /// An hour of so many is over.
    fn hour(&mut self, life: Scenario, hour: u32, of: u32) {
        let _ = (life, hour, of);
    }

    /// Whether to give up.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Why a demo has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The history cannot be kept.
    #[error(transparent)]
    Storage(#[from] plimsoll_storage::Error),
    /// There is no place for the history.
    #[error(
        "{}: {error}: set TMPDIR to a directory that can be written, or give --keep-store DIR",
        place.display()
    )]
    StoreUnavailable {
        /// Where it was tried.
        place: std::path::PathBuf,
        /// Cause.
        error: std::io::Error,
    },
    /// The store already holds a history, which the demo's would mix with.
    #[error(
        "{}: there is a history in it already ({records} records): give --keep-store an empty \
         directory",
        place.display()
    )]
    NotEmpty {
        /// Where.
        place: std::path::PathBuf,
        /// How much.
        records: usize,
    },
    /// The user did not want to wait.
    #[error("interrupted")]
    Interrupted,
    /// The demo's own workloads are wrong.
    #[error(transparent)]
    Workloads(#[from] plimsoll_core::sim::InvalidWorkload),
}

/// What is kept of a life.
pub struct ScenarioResult {
    /// Sums.
    pub totals: TotalsByContainer,
    /// Curves.
    pub charts: Charts,
}

impl ScenarioResult {
    fn new(config: &Config) -> Self {
        Self { totals: TotalsByContainer::default(), charts: Charts::new(START, config.days) }
    }

    fn take(&mut self, step: &ContainerMinute) {
        self.totals.record(step);
        self.charts.record(step);
    }
}

/// The life without recommendations. No recommender is there to disturb it.
pub fn run_without(
    config: &Config,
    fleet: &[DemoWorkload],
    witness: &mut dyn ProgressObserver,
) -> Result<ScenarioResult, DemoError> {
    let mut cluster = cluster(config, fleet, UpdatePolicy::Off)?;
    let mut account = ScenarioResult::new(config);
    let hours = config.days * 24;
    for hour in 1..=hours {
        for _ in 0..60 {
            cluster.step(&mut |step: &ContainerMinute| {
                account.take(step);
                witness.step(Scenario::Without, step);
            });
        }
        witness.hour(Scenario::Without, hour, hours);
        if witness.is_cancelled() {
            return Err(DemoError::Interrupted);
        }
    }
    account.totals.set_replaced_pods(cluster.replaced_pods());
    Ok(account)
}

/// Opens the storage: once at the start, and again by every restarted recommender.
pub type OpenStorage<'a> =
    dyn Fn() -> Result<Box<dyn Storage>, plimsoll_storage::Error> + Send + Sync + 'a;

/// The life with recommendations: what it was, what is recommended at its end, and how history fared.
pub async fn run_with(
    config: &Config,
    fleet: &[DemoWorkload],
    open: &OpenStorage<'_>,
    witness: &mut dyn ProgressObserver,
) -> Result<(ScenarioResult, Vec<WorkloadRecommendation>, HistoryReport), DemoError> {
    let mut cluster = cluster(config, fleet, UpdatePolicy::Recreate)?;
    let mut account = ScenarioResult::new(config);
    let mut storage = open()?;
    let mut recommender = recommender(config, fleet);
    let mut history =
        HistoryReport { backend: storage.name().to_owned(), ..HistoryReport::default() };
    let hours = config.days * 24;
    for hour in 1..=hours {
        for _ in 0..60 {
            cluster.step(&mut |step: &ContainerMinute| {
                account.take(step);
                witness.step(Scenario::With, step);
                recommender.observe(step);
            });
            let said = recommender.recommend(cluster.now());
            apply_recommendations(&mut cluster, &said);
        }
        forget_gone_pods(&cluster, &mut recommender);
        if hour % HOURS_BETWEEN_SAVES == 0 {
            history.saves += u64::from(save(storage.as_ref(), &recommender, cluster.now()).await?);
        }
        // A recommender dies in the middle of the run; the next one has the store and nothing else. Half
        // of a number of days is a multiple of the hours between saves, so nothing is lost in between.
        if hour == hours / 2 {
            let before = recommender.recommend(cluster.now());
            drop((storage, recommender));
            storage = open()?;
            recommender = self::recommender(config, fleet);
            let loaded = load(storage.as_ref(), &mut recommender, cluster.now()).await?;
            let after = recommender.recommend(cluster.now());
            history.restarts.push(compare(cluster.now(), loaded, &before, &after));
        }
        witness.hour(Scenario::With, hour, hours);
        if witness.is_cancelled() {
            return Err(DemoError::Interrupted);
        }
    }
    account.totals.set_replaced_pods(cluster.replaced_pods());
    let said = recommender.recommend(cluster.now());
    Ok((account, said, history))
}

fn cluster(
    config: &Config,
    fleet: &[DemoWorkload],
    updates: UpdatePolicy,
) -> Result<Cluster, DemoError> {
    let workloads = fleet.iter().map(|member| member.workload.clone()).collect();
    Ok(Cluster::new(workloads, config.seed, START, updates)?)
}

/// A recommender with a VPA for each workload.
fn recommender(config: &Config, fleet: &[DemoWorkload]) -> Recommender {
    let vpas = fleet.iter().map(|DemoWorkload { workload, max_memory, .. }| {
        let policies = max_memory.iter().map(|most| ContainerPolicy {
            container: plimsoll_core::recommender::policy::EVERY_CONTAINER.into(),
            max_allowed: ResourceAmounts { cpu: None, memory: Some(Quantity::from(*most)) },
            ..ContainerPolicy::default()
        });
        let key = ObjectKey::new(workload.namespace.clone(), workload.name.clone());
        (key, VpaSettings::new(policies.collect(), &BTreeMap::new()))
    });
    Recommender::new(config.settings.clone(), vpas)
}

fn apply_recommendations(cluster: &mut Cluster, said: &[WorkloadRecommendation]) {
    for advised in said {
        let ObjectKey { namespace, name } = &advised.workload;
        cluster.set_recommendation(
            namespace,
            name,
            &advised.recommendation.container,
            advised.recommendation(),
        );
    }
}

fn forget_gone_pods(cluster: &Cluster, recommender: &mut Recommender) {
    let living: std::collections::HashSet<&str> = cluster.pod_names().collect();
    recommender.retain_pods(|pod| living.contains(pod));
}

/// Saves every history. Answers whether the storage can.
async fn save(
    storage: &dyn Storage,
    recommender: &Recommender,
    now: Time,
) -> Result<bool, plimsoll_storage::Error> {
    let Some(writer) = storage.writer() else { return Ok(false) };
    writer.save(&recommender.records(now), &UnfencedPermit).await?;
    Ok(true)
}

/// Loads every history. Answers how many there were.
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
    let same = |one: &&WorkloadRecommendation| {
        after.iter().any(|other| {
            one.workload == other.workload && one.recommendation == other.recommendation
        })
    };
    let unchanged = before.iter().filter(same).count();
    Restart { at, loaded, compared: before.len(), unchanged }
}

/// The demo is alone with its store: nobody to be fenced off, nobody to wait for.
struct UnfencedPermit;

#[async_trait]
impl WritePermit for UnfencedPermit {
    async fn acquire(&self) -> Result<(), NotLeader> {
        Ok(())
    }
}
