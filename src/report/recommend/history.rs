//! Reads the history of workloads and computes their recommendations, with the code of the recommender.
//!
//! ```text
//!   workload ─▶ one VPA for each: namespace, `Kind/name`, owner `Kind/name`
//!      └▶ PrometheusHistory::start_load ─▶ HistoryBootstrap ─▶ VpaRegistry ─▶ recommend
//!                                                     complete: the recommendation stays, the history is dropped
//! ```
//!
//! So memory depends on the number of workloads that are read at the same time, and not on the number of workloads.

mod sink;
mod usage;

use std::{collections::HashMap, sync::Arc, time::Duration};

use plimsoll_core::{
    recommender::{ContainerRecommendation, Settings},
    rightsizing::{
        need::running_request_of,
        survey::{ContainerRole, GroupMember, Resource, RuntimeHint, Unread, Workload},
    },
    types::{
        ObjectKey, Time,
        compat::Compat,
        units::{Bytes, MilliCpu},
    },
};
use plimsoll_storage::prometheus::{
    detect::DetectError,
    history::{HistoryLoad, KnownPods, LivePods, PrometheusHistory, ThrottlingReport},
    query_error::QueryError,
};

use self::sink::RecommendationSink;
pub use self::usage::ContainerUsage;
use super::{
    memory_signals::{MemorySignals, read_memory_signals},
    node_groups::NodeGroups,
    strategy::Strategy,
};

/// Pauses before a failed load is resumed. Each of its queries has been retried already.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];
/// How far back throttling is queried, as in the recommender.
const THROTTLING_WINDOW: Duration = Duration::from_hours(24);
/// Maximum number of namespaces named in a message.
const MAX_NAMED: usize = 5;

/// A workload whose history is read.
#[derive(Clone, Debug)]
pub struct HistoryWorkload {
    /// The key of its VPA: its namespace and `Kind/name`.
    pub key: ObjectKey,
    /// The names of its existing pods.
    pub pods: Vec<Box<str>>,
    /// Whether it should have pods now.
    pub is_running: bool,
    /// Whether its pods end, so that they are runs.
    pub is_job: bool,
    /// Its containers, with their CPU requests.
    pub containers: Vec<HistoryContainer>,
}

#[derive(Clone, Debug)]
pub struct HistoryContainer {
    pub name: Arc<str>,
    /// When it runs.
    pub role: ContainerRole,
    /// Its CPU request, if it has one and it is known.
    pub cpu_request: Option<MilliCpu>,
    /// Whether it runs a Java virtual machine, as far as it is known.
    pub is_java: bool,
}

impl HistoryWorkload {
    /// The workloads whose history is that of one of a survey: itself, or each member of a group.
    pub fn of(workload: &Workload) -> Vec<Self> {
        let Some(group) = &workload.group else { return vec![Self::new(workload)] };
        let member = |member: &GroupMember| Self {
            key: member_key(workload, member),
            pods: member.pods.clone(),
            is_running: !member.pods.is_empty(),
            is_job: true,
            ..Self::new(workload)
        };
        group.members.iter().map(member).collect()
    }

    /// The workload of a survey.
    pub fn new(workload: &Workload) -> Self {
        let containers = workload.all_containers().map(|container| HistoryContainer {
            name: container.name.clone(),
            role: container.role,
            cpu_request: running_request_of(container, Resource::Cpu).map(MilliCpu),
            is_java: matches!(container.runtime.as_deref(), Some(RuntimeHint::Jvm { .. })),
        });
        Self {
            is_job: matches!(&*workload.kind, "CronJob" | "Job"),
            key: workload_key(workload),
            pods: workload.pods.clone(),
            is_running: !workload.pods.is_empty()
                || workload.replicas.is_some_and(|count| count > 0),
            containers: containers.collect(),
        }
    }

    /// Whether it has a container with a Java virtual machine.
    pub fn has_java(&self) -> bool {
        self.containers.iter().any(|container| container.is_java)
    }

    /// Its owner, as snapshots name it.
    fn owner(&self) -> Box<str> {
        (*self.key.name).into()
    }
}

/// The key of the VPA that stands for a workload.
pub fn workload_key(workload: &Workload) -> ObjectKey {
    ObjectKey::new(Arc::clone(&workload.namespace), format!("{}/{}", workload.kind, workload.name))
}

/// The key of the VPA that stands for a member of a group.
pub fn member_key(workload: &Workload, member: &GroupMember) -> ObjectKey {
    ObjectKey::new(Arc::clone(&workload.namespace), format!("{}/{}", member.kind, member.name))
}

/// What the history of a workload shows.
#[derive(Clone, Debug, Default)]
pub struct WorkloadHistory {
    pub containers: Vec<ContainerResult>,
    /// Its containers by group of nodes, if it is a DaemonSet.
    pub node_groups: Vec<NodeGroupHistory>,
}

/// What the history of a container shows.
#[derive(Clone, Debug)]
pub struct ContainerResult {
    pub name: Arc<str>,
    /// The recommendation; `None` if the container has left the pods, or if it is replaced.
    pub recommendation: Option<Box<ContainerRecommendation>>,
    /// Memory of the recommendation.
    pub memory_target: Option<Bytes>,
    /// Whether the recommendation of a VPA is used instead.
    pub is_replaced: bool,
    pub usage: ContainerUsage,
}

/// The recommendations for the pods on one group of nodes.
#[derive(Clone, Debug)]
pub struct NodeGroupHistory {
    /// The index of the group in [`NodeGroups`].
    pub group: usize,
    pub recommendations: Vec<ContainerRecommendation>,
}

/// Names of containers for which the recommendation of a VPA is used instead of that of their history, by the key of their
/// workload.
pub type ReplacedContainers = HashMap<ObjectKey, Box<[Arc<str>]>>;

/// How the history is read.
#[derive(Clone, Copy, Debug)]
pub struct HistoryModel<'a> {
    pub settings: &'a Settings,
    /// The compatibility mode.
    pub compat: Compat,
    /// Computes numbers by another rule than the model.
    pub strategy: Strategy,
    /// Containers whose recommendations are not kept.
    pub replaced: &'a ReplacedContainers,
    /// The time of the recommendations.
    pub now: Time,
}

/// The histories of workloads, and what could not be read.
#[derive(Debug, Default)]
pub struct Histories {
    /// By the key of the workload. A workload whose history could not be read is missing; one without series has no
    /// containers with usage.
    pub workloads: HashMap<ObjectKey, WorkloadHistory>,
    /// Throttled share of the last day by workload and container.
    pub throttled: HashMap<(ObjectKey, Arc<str>), f64>,
    /// What else is known of memory.
    pub memory_signals: MemorySignals,
    /// What could not be read.
    pub unread: Vec<Unread>,
    /// The start and the end of the history.
    pub span: Option<(Time, Time)>,
    /// The step of CPU samples.
    pub step: Option<Duration>,
    /// The time of the latest sample.
    pub last_sample: Option<Time>,
}

impl Histories {
    /// The recommended memory of a container.
    pub fn memory_target(&self, key: &ObjectKey, container: &str) -> Option<Bytes> {
        let history = self.workloads.get(key)?;
        let found = history.containers.iter().find(|known| *known.name == *container)?;
        found.memory_target
    }
}

/// Reads the history of these workloads. `progress` is called with the number of workloads that are complete.
///
/// Fails if no series could be found at all. Everything else that fails is part of the result, and gives no number.
pub async fn read_histories(
    history: &PrometheusHistory,
    workloads: &[HistoryWorkload],
    model: HistoryModel<'_>,
    node_groups: &NodeGroups<'_>,
    progress: &mut (dyn FnMut(usize) + Send),
) -> Result<Histories, DetectError> {
    let mut histories = Histories::default();
    let wanted: HashMap<ObjectKey, Option<Box<str>>> =
        workloads.iter().map(|workload| (workload.key.clone(), Some(workload.owner()))).collect();
    let live = live_pods(workloads);
    let pods = KnownPods { by_label: None, live: Some(&live) };
    let (mut load, skipped) = history.start_load_with_pods(&wanted, None, None, pods).await?;
    // All that is read of this time shares the owners of pods.
    load.query_owners().await;
    let throttling = load.throttling(THROTTLING_WINDOW, model.now).await;
    histories.unread.extend(unread_throttling(&throttling));
    histories.throttled = throttled_shares(&throttling);
    let unread = &mut histories.unread;
    histories.memory_signals = read_memory_signals(history, &load, workloads, unread).await;
    histories.unread.extend(skipped.into_iter().map(|skipped| Unread {
        what: format!("history of {}", skipped.record),
        why: skipped.reason,
    }));
    let mut sink = RecommendationSink::new(workloads, model, node_groups, &throttling, progress);
    let failure = advance(&mut load, &mut sink).await;
    if let Some(failure) = failure {
        let pending: Vec<ObjectKey> = load.pending().cloned().collect();
        histories.unread.extend(unread_history(&pending, &failure));
    }
    let (finished, last_sample) = sink.into_finished();
    histories.span = Some((load.since(), load.until()));
    histories.step = Some(load.cpu_step());
    histories.workloads = finished;
    histories.last_sample = last_sample;
    Ok(histories)
}

/// Loads as much as possible. Returns the failure if something is left.
async fn advance(load: &mut HistoryLoad, sink: &mut RecommendationSink<'_>) -> Option<QueryError> {
    for pause in RETRY_PAUSES {
        match load.advance(sink).await {
            Ok(()) => return None,
            Err(incomplete) if !incomplete.failure.is_transient() => {
                return Some(incomplete.failure);
            }
            Err(incomplete) => {
                tracing::warn!(failure = %incomplete, "failed to read history; will retry");
                tokio::time::sleep(pause).await;
            }
        }
    }
    load.advance(sink).await.err().map(|incomplete| incomplete.failure)
}

/// The existing pods of workloads.
pub fn live_pods(workloads: &[HistoryWorkload]) -> LivePods {
    let mut live = LivePods::new();
    for workload in workloads {
        live.add(&workload.key, &workload.key.name, workload.pods.iter().map(|pod| &**pod));
    }
    live
}

fn throttled_shares(report: &ThrottlingReport) -> HashMap<(ObjectKey, Arc<str>), f64> {
    let measured = report.measured.iter().filter_map(|(key, throttling)| {
        let share = plimsoll_core::recommender::throttling::share(throttling)?;
        Some(((key.vpa.clone(), Arc::clone(&key.container)), share))
    });
    // A running container without a limit is not throttled.
    let unlimited =
        report.unlimited.iter().map(|key| ((key.vpa.clone(), Arc::clone(&key.container)), 0.0));
    measured.chain(unlimited).collect()
}

fn unread_throttling(report: &ThrottlingReport) -> Option<Unread> {
    let (_, failure) = report.failure.as_ref()?;
    let workloads = report.failed_vpas.iter();
    let what = format!("CPU throttling of {}", describe(workloads));
    Some(Unread { what, why: failure.to_string() })
}

fn unread_history(pending: &[ObjectKey], failure: &QueryError) -> Option<Unread> {
    let what = format!("history of {}", describe(pending.iter()));
    (!pending.is_empty()).then(|| Unread { what, why: failure.to_string() })
}

/// `3 workloads in namespaces shop, web`.
pub fn describe<'a>(workloads: impl ExactSizeIterator<Item = &'a ObjectKey>) -> String {
    let count = workloads.len();
    let mut namespaces: Vec<&str> = workloads.map(|key| &*key.namespace).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    let more = namespaces.len().saturating_sub(MAX_NAMED);
    namespaces.truncate(MAX_NAMED);
    let plural = if count == 1 { "" } else { "s" };
    let several = if namespaces.len() == 1 { "" } else { "s" };
    let more = if more > 0 { format!(" and {more} others") } else { String::new() };
    format!("{count} workload{plural} in namespace{several} {}{more}", namespaces.join(", "))
}

#[cfg(test)]
mod tests;
