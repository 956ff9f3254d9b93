//! What history shows beside the recommendations: peaks of a longer time, runs of jobs, nodes of pods. A query that fails
//! gives no number, and is reported as unread.

mod runs;
mod workload_evidence;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use plimsoll_core::{
    recommender::{ContainerRecommendation, Settings},
    rightsizing::{
        daily_peaks::DailyPeaks,
        evidence::{ContainerEvidence, EvidenceGap, MemoryPeak, NodeGroupTarget},
        node_groups::{self, GroupHistory},
        survey::{Amounts, OwnerGroup, RuntimeHint, Unread, Workload},
        thresholds::UnsaidThresholds,
    },
    types::{
        ObjectKey, Time,
        units::{Bytes, MilliCpu},
    },
};
use plimsoll_storage::prometheus::{
    detect::DetectError,
    history::{KnownPods, PodQuery, PodValueReport, PrometheusHistory},
};

pub use self::{
    runs::{JobRuns, WorkloadRuns, read_runs},
    workload_evidence::WorkloadEvidence,
};
use super::{
    history::{
        ContainerResult, Histories, HistoryWorkload, NodeGroupHistory, WorkloadHistory, describe,
        live_pods, member_key,
    },
    node_groups::NodeGroups,
};

/// Less covered time gives no number.
const MIN_COVERED: Duration = Duration::from_hours(24);
/// Fewer samples give no number.
const MIN_SAMPLES: u64 = 100;
/// The step of peaks before the history.
const PEAK_STEP: Duration = Duration::from_hours(1);

/// Peaks of memory before the history, by workload and container.
pub type EarlierPeaks = HashMap<(ObjectKey, Box<str>), EarlierPeak>;

/// Peaks of memory of a container before the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierPeak {
    pub largest: Option<MemoryPeak>,
    /// Those of days above the target. The others are not kept, because they are many and decide nothing.
    pub above_target: DailyPeaks,
}

/// The earlier peaks of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ReadPeaks {
    pub peaks: EarlierPeaks,
    /// Workloads with so many pods that only the last part of the time was queried.
    pub shortened: HashSet<ObjectKey>,
}

/// Reads the peaks of memory in the time before the history.
pub async fn read_earlier_peaks(
    history: &PrometheusHistory,
    workloads: &[HistoryWorkload],
    histories: &Histories,
    span: (Time, Time),
    unread: &mut Vec<Unread>,
) -> Result<ReadPeaks, DetectError> {
    let mut peaks = EarlierPeaks::new();
    if span.0 >= span.1 || workloads.is_empty() {
        return Ok(ReadPeaks::default());
    }
    let wanted = owners(workloads.iter());
    let live = live_pods(workloads);
    let pods = KnownPods { by_label: None, live: Some(&live) };
    let queries = [PodQuery::MemoryPeak { step: PEAK_STEP }];
    let report = history
        .pod_values(&wanted, &queries, span, pods, &mut |value| {
            let peak = MemoryPeak { bytes: Bytes::from_f64(value.value), at: value.at };
            let known = peaks.entry((value.vpa.clone(), value.container.into())).or_default();
            if known.largest.is_none_or(|largest| peak.bytes > largest.bytes) {
                known.largest = Some(peak);
            }
            let target = histories.memory_target(value.vpa, value.container);
            if target.is_some_and(|target| peak.bytes > target) {
                known.above_target.add(peak);
            }
        })
        .await?;
    unread.extend(failure(&report, "earlier peaks of memory"));
    Ok(ReadPeaks { peaks, shortened: report.shortened_vpas })
}

/// Records the nodes of the pods of DaemonSets, those that are gone included.
pub async fn read_nodes_of_pods(
    history: &PrometheusHistory,
    workloads: &[HistoryWorkload],
    span: (Time, Time),
    groups: &mut NodeGroups<'_>,
    unread: &mut Vec<Unread>,
) -> Result<(), DetectError> {
    let wanted: HashMap<ObjectKey, Option<Box<str>>> =
        groups.keys().map(|key| (key.clone(), Some((*key.name).into()))).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let live = live_pods(workloads);
    let pods = KnownPods { by_label: None, live: Some(&live) };
    let queries = [PodQuery::PodLabel { family: "kube_pod_info", label: "node" }];
    let report = history
        .pod_values(&wanted, &queries, span, pods, &mut |value| {
            groups.add_pod(value.vpa, value.pod, value.label);
        })
        .await?;
    unread.extend(failure(&report, "nodes of pods"));
    Ok(())
}

fn owners<'a>(
    workloads: impl Iterator<Item = &'a HistoryWorkload>,
) -> HashMap<ObjectKey, Option<Box<str>>> {
    let owner = |workload: &HistoryWorkload| Some((*workload.key.name).into());
    workloads.map(|workload| (workload.key.clone(), owner(workload))).collect()
}

fn failure(report: &PodValueReport, what: &str) -> Option<Unread> {
    let (_, failure) = report.failure.as_ref()?;
    let what = format!("{what} of {}", describe(report.failed_vpas.iter()));
    Some(Unread { what, why: failure.to_string() })
}

/// Everything that was read about the workloads of a cluster.
#[derive(Debug)]
pub struct ReadEvidence<'a> {
    /// The histories, whose workloads are passed on one by one.
    pub histories: &'a Histories,
    /// Peaks before the history.
    pub earlier_peaks: &'a EarlierPeaks,
    pub runs: &'a JobRuns,
    pub node_groups: &'a NodeGroups<'a>,
    /// The settings of the model.
    pub settings: &'a Settings,
    /// When something is said.
    pub thresholds: &'a UnsaidThresholds,
}

impl ReadEvidence<'_> {
    /// The evidence of the containers of a workload: those of its pod template, and those with samples. `take` passes on
    /// the history with a key, and returns `None` if it could not be read.
    pub fn of(
        &self,
        key: &ObjectKey,
        workload: &Workload,
        take: &mut dyn FnMut(&ObjectKey) -> Option<WorkloadHistory>,
    ) -> WorkloadEvidence {
        if let Some(group) = &workload.group {
            return self.of_group(workload, group, take);
        }
        let Some(WorkloadHistory { containers, node_groups }) = take(key) else {
            return with_gap(workload, EvidenceGap::Unread);
        };
        // The recommendation for workloads that run all the time does not hold for jobs.
        if self.runs.has_failed(key) {
            return with_gap(workload, EvidenceGap::Unread);
        }
        let mut all = with_gap(workload, EvidenceGap::WithoutSeries);
        for container in containers {
            let java = workload
                .containers
                .iter()
                .filter(|known| matches!(known.runtime.as_deref(), Some(RuntimeHint::Jvm { .. })));
            let mut java = java.map(|known| &*known.name);
            let is_only_java = java.next() == Some(&*container.name) && java.next().is_none();
            let name = Arc::clone(&container.name);
            all.insert(&name, self.container(key, &node_groups, container, is_only_java));
        }
        if let Some(runs) = self.runs.of(key) {
            runs.apply_to(&mut all, self.settings, self.thresholds);
        }
        all
    }

    /// The evidence of the containers of a group: what their members show together, as runs.
    fn of_group(
        &self,
        workload: &Workload,
        group: &OwnerGroup,
        take: &mut dyn FnMut(&ObjectKey) -> Option<WorkloadHistory>,
    ) -> WorkloadEvidence {
        let mut all = with_gap(workload, EvidenceGap::WithoutSeries);
        let mut runs = WorkloadRuns::default();
        for member in &group.members {
            let key = member_key(workload, member);
            let history = take(&key).filter(|_| !self.runs.has_failed(&key));
            let Some(WorkloadHistory { containers, node_groups }) = history else {
                return with_gap(workload, EvidenceGap::Unread);
            };
            for container in containers {
                let name = Arc::clone(&container.name);
                let found = self.container(&key, &node_groups, container, false);
                add_member(all.get_or_insert_default(&name), &found);
            }
            if let Some(of_member) = self.runs.of(&key) {
                runs.add(of_member);
            }
        }
        if group.omitted > 0 {
            runs.set_truncated();
        }
        for (_, evidence) in all.iter_mut() {
            // The recommendations of single runs do not hold for all of them.
            (evidence.recommendation, evidence.gap) = (None, Some(EvidenceGap::WithoutSeries));
        }
        if !runs.is_empty() {
            runs.apply_to(&mut all, self.settings, self.thresholds);
        }
        all
    }

    fn container(
        &self,
        key: &ObjectKey,
        node_groups: &[NodeGroupHistory],
        container: ContainerResult,
        is_only_java: bool,
    ) -> ContainerEvidence {
        let gap = gap(&container);
        let ContainerResult { name, recommendation, usage, .. } = container;
        let earlier = self.earlier_peaks.get(&(key.clone(), (*name).into()));
        let earlier_peak = earlier.and_then(|earlier| earlier.largest);
        let peaks = [earlier_peak, usage.memory_peak].into_iter().flatten();
        // Of equal peaks the later one counts.
        let rare = peaks.max_by_key(|peak| (peak.bytes, peak.at));
        let throttled = self.histories.throttled.get(&(key.clone(), Arc::clone(&name)));
        let node_groups = match &recommendation {
            Some(pool) => self.node_group_targets(key, node_groups, &name, pool),
            None => Vec::new(),
        };
        let cpu_above_request = usage.share_above_request();
        let mut daily_memory_peaks = usage.daily_memory_peaks;
        for peak in earlier.iter().flat_map(|earlier| earlier.above_target.iter()) {
            daily_memory_peaks.add(*peak);
        }
        daily_memory_peaks.shrink_to_fit();
        let signals = &self.histories.memory_signals;
        let needed = signals.needed(key, &name);
        ContainerEvidence {
            recommendation,
            gap,
            oom_kills: usage.oom_kills,
            last_oom_kill: usage.last_oom_kill,
            oom_kill_limit: usage.oom_kill_limit,
            throttled_share: throttled.copied(),
            cpu_above_request,
            memory_peak: usage.memory_peak,
            rare_memory_peak: rare,
            daily_memory_peaks,
            needed_memory_peak: needed.and_then(|memory| memory.needed.largest()),
            needed_memory: needed.cloned(),
            jvm_memory: signals.jvm(key, &name, is_only_java).map(Box::new),
            node_groups,
            ..ContainerEvidence::default()
        }
    }

    fn node_group_targets(
        &self,
        key: &ObjectKey,
        node_groups: &[NodeGroupHistory],
        name: &str,
        pool: &ContainerRecommendation,
    ) -> Vec<NodeGroupTarget> {
        let groups = node_groups.iter().filter_map(|known| {
            let (group, pods) = self.node_groups.group(key, known.group)?;
            let of = known.recommendations.iter().find(|of| *of.container == *name)?;
            let explanation = of.explanation.cpu.as_ref().or(of.explanation.memory.as_ref());
            let covered = explanation.map(|known| known.evidence.covered().as_secs_f64() / 3600.0);
            Some(GroupHistory {
                group: group.clone(),
                pods: *pods,
                covered_hours: covered.unwrap_or_default(),
                target: amounts(of),
            })
        });
        node_groups::targets(groups.collect(), amounts(pool), self.thresholds.covered_hours)
    }
}

/// Adds the evidence of a member of a group.
fn add_member(known: &mut ContainerEvidence, of: &ContainerEvidence) {
    if of.last_oom_kill > known.last_oom_kill {
        (known.last_oom_kill, known.oom_kill_limit) = (of.last_oom_kill, of.oom_kill_limit);
    }
    known.oom_kills = known.oom_kills.saturating_add(of.oom_kills);
    let larger = |one: Option<f64>, other: Option<f64>| {
        if one.unwrap_or(-1.0) >= other.unwrap_or(-1.0) { one } else { other }
    };
    known.throttled_share = larger(known.throttled_share, of.throttled_share);
    known.cpu_above_request = larger(known.cpu_above_request, of.cpu_above_request);
    let later = |one: Option<MemoryPeak>, other: Option<MemoryPeak>| {
        [one, other].into_iter().flatten().max_by_key(|peak| (peak.bytes, peak.at))
    };
    known.memory_peak = later(known.memory_peak, of.memory_peak);
    known.rare_memory_peak = later(known.rare_memory_peak, of.rare_memory_peak);
    for peak in of.daily_memory_peaks.iter() {
        known.daily_memory_peaks.add(*peak);
    }
}

fn amounts(recommendation: &ContainerRecommendation) -> Amounts {
    Amounts {
        cpu: recommendation.target.cpu.map(|cpu| MilliCpu(cpu.milli_value())),
        memory: recommendation.target.memory.map(|memory| Bytes(memory.value())),
    }
}

/// The containers of the pods, all without a number for this reason.
pub fn with_gap(workload: &Workload, gap: EvidenceGap) -> WorkloadEvidence {
    let evidence = || ContainerEvidence { gap: Some(gap), ..ContainerEvidence::default() };
    workload.all_containers().map(|container| (container.name.clone(), evidence())).collect()
}

/// Why the recommendation of a container does not count. The report decides by the explanation whether there are enough
/// samples; numbers of other strategies have none.
fn gap(container: &ContainerResult) -> Option<EvidenceGap> {
    let ContainerResult { recommendation, is_replaced, usage, .. } = container;
    if *is_replaced {
        return Some(EvidenceGap::Unread);
    }
    let Some((first, last)) = usage.first_sample.zip(usage.last_sample) else {
        return Some(EvidenceGap::WithoutSeries);
    };
    let explanation = recommendation.as_ref().map(|known| &known.explanation);
    if explanation.is_some_and(|known| known.cpu.is_some() || known.memory.is_some()) {
        return None;
    }
    if last < first.later(MIN_COVERED) {
        return Some(EvidenceGap::TooYoung);
    }
    (usage.cpu_samples < MIN_SAMPLES).then_some(EvidenceGap::TooFewSamples)
}

#[cfg(test)]
mod tests;
