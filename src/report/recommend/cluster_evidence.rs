//! Reads everything that history shows about the workloads of one cluster.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
    time::Duration,
};

use plimsoll_core::{
    rightsizing::{
        survey::{Node, Unread, Workload},
        thresholds::UnsaidThresholds,
    },
    types::{ObjectKey, Time},
};
use plimsoll_storage::prometheus::{detect::DetectError, history::PrometheusHistory};

use super::{
    evidence::{
        ReadEvidence, ReadPeaks, WorkloadEvidence, read_earlier_peaks, read_nodes_of_pods,
        read_runs,
    },
    history::{HistoryModel, HistoryWorkload, describe, read_histories, workload_key},
    node_groups::NodeGroups,
};
use crate::report::style::format_span;

/// Newer samples than this are normal.
const FRESH: Duration = Duration::from_mins(10);
/// Without samples for this long, a server has no history.
const MAX_AGE: Duration = Duration::from_hours(24);

/// The most workloads that are read together, unless a namespace has more.
const PART: usize = 2_000;

/// What is read.
#[derive(Clone, Copy, Debug)]
pub struct EvidenceOptions<'a> {
    /// How numbers are computed.
    pub model: HistoryModel<'a>,
    /// How far back peaks of memory and runs are read.
    pub peak_length: Duration,
    /// The label that nodes are grouped by for DaemonSets (`--node-groups`).
    pub node_group_label: Option<&'a str>,
    /// When something is said.
    pub thresholds: &'a UnsaidThresholds,
}

/// Receives the evidence of workloads, because not all of it need be in memory twice.
pub trait EvidenceProgress: Send {
    /// The number of workloads whose history is complete.
    fn histories(&mut self, done: usize);
    /// The evidence of some of the workloads, in their order.
    fn evidence(&mut self, workloads: &[&Workload], evidence: Vec<WorkloadEvidence>);
}

/// What is known of the history of a cluster, besides the evidence of its workloads.
#[derive(Clone, Debug, Default)]
pub struct ClusterEvidence {
    /// What could not be read.
    pub unread: Vec<Unread>,
    /// The start and the end of the history.
    pub span: Option<(Time, Time)>,
    /// The step of CPU samples.
    pub step: Option<Duration>,
    /// The time since the first run of a job, at most that of the peaks.
    pub runs_window: Option<Duration>,
    /// Remarks about the history.
    pub remarks: Vec<String>,
}

/// Reads the evidence of the workloads of a cluster, with its nodes.
///
/// Fails only if the server has no series of containers or denies access. Everything else that fails gives no number and is
/// part of the result.
pub async fn read_cluster_evidence(
    history: &PrometheusHistory,
    (surveyed, nodes): (&[&Workload], &BTreeMap<Box<str>, Node>),
    options: EvidenceOptions<'_>,
    progress: &mut dyn EvidenceProgress,
) -> Result<ClusterEvidence, DetectError> {
    let mut all = ClusterEvidence::default();
    let (mut last_sample, mut done) = (None, 0);
    for part in parts(surveyed, PART) {
        let workloads: Vec<&Workload> = part.iter().map(|index| surveyed[*index]).collect();
        let mut histories = |count: usize| progress.histories(done + count);
        let read = read_part(history, (&workloads, nodes), options, &mut histories).await?;
        done += part.len();
        progress.evidence(&workloads, read.workloads);
        last_sample = last_sample.max(read.last_sample);
        all.unread.extend(read.evidence.unread);
        all.remarks.extend(read.evidence.remarks);
        all.runs_window = all.runs_window.max(read.evidence.runs_window);
        let spans = [all.span, read.evidence.span].into_iter().flatten();
        all.span = spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        all.step = all.step.or(read.evidence.step);
    }
    let (now, server) = (options.model.now, &history.server);
    match age(last_sample, now) {
        Some(age) if age > MAX_AGE => all.unread.push(Unread {
            what: format!("history of the last {}", format_span(MAX_AGE)),
            why: format!("the latest sample of {server} is {} old", format_span(age)),
        }),
        Some(age) if age > FRESH => {
            if let Some((_, end)) = &mut all.span {
                *end = last_sample.unwrap_or(*end);
            }
            let age = format_span(age);
            all.remarks.push(format!("the history ends {age} ago: {server} has no later sample"));
        }
        _ => {}
    }
    Ok(all)
}

/// Indexes of workloads that are read together: whole namespaces, so that what is known of all of them while they are read
/// stays small.
fn parts(surveyed: &[&Workload], most: usize) -> Vec<Vec<usize>> {
    let mut by_namespace: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, workload) in surveyed.iter().enumerate() {
        by_namespace.entry(&*workload.namespace).or_default().push(index);
    }
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for indexes in by_namespace.into_values() {
        match parts.last_mut() {
            Some(last) if last.len() + indexes.len() <= most => last.extend(indexes),
            _ => parts.push(indexes),
        }
    }
    parts
}

/// The evidence of some workloads, without remarks about its age.
struct PartEvidence {
    /// In the order of the workloads.
    workloads: Vec<WorkloadEvidence>,
    evidence: ClusterEvidence,
    last_sample: Option<Time>,
}

async fn read_part(
    history: &PrometheusHistory,
    (surveyed, nodes): (&[&Workload], &BTreeMap<Box<str>, Node>),
    options: EvidenceOptions<'_>,
    progress: &mut (dyn FnMut(usize) + Send),
) -> Result<PartEvidence, DetectError> {
    let EvidenceOptions { model, peak_length, node_group_label, thresholds } = options;
    let mut evidence = ClusterEvidence::default();
    let workloads: Vec<HistoryWorkload> =
        surveyed.iter().flat_map(|workload| HistoryWorkload::of(workload)).collect();
    let (now, unread) = (model.now, &mut evidence.unread);
    let long_span = (now.earlier(peak_length), now);
    let mut node_groups = NodeGroups::new(surveyed, nodes, node_group_label);
    read_nodes_of_pods(history, &workloads, long_span, &mut node_groups, unread).await?;
    let mut histories = read_histories(history, &workloads, model, &node_groups, progress).await?;
    let start = histories.span.map_or(now, |(start, _)| start);
    let earlier_span = (long_span.0, start);
    let ReadPeaks { peaks: earlier_peaks, shortened } =
        read_earlier_peaks(history, &workloads, &histories, earlier_span, unread).await?;
    evidence.remarks.extend(shortened_peaks(&shortened));
    let runs = read_runs(history, &workloads, long_span, unread).await?;
    evidence.runs_window = age(runs.first_start(), now);
    let (earlier_peaks, runs) = (&earlier_peaks, &runs);
    // Each history becomes evidence, so that not all of both are in memory.
    let mut finished = mem::take(&mut histories.workloads);
    let mut uses: HashMap<&ObjectKey, usize> = HashMap::new();
    for workload in &workloads {
        *uses.entry(&workload.key).or_default() += 1;
    }
    let (histories, node_groups) = (&histories, &node_groups);
    let settings = model.settings;
    let read = ReadEvidence { histories, earlier_peaks, runs, node_groups, settings, thresholds };
    let mut take = |key: &ObjectKey| {
        let left = uses.get_mut(key).map_or(0, |count| {
            *count = count.saturating_sub(1);
            *count
        });
        // Objects of the same kind and name in several API groups share a history.
        if left > 0 { finished.get(key).cloned() } else { finished.remove(key) }
    };
    let of_workload = |workload: &&Workload| read.of(&workload_key(workload), workload, &mut take);
    let workloads = surveyed.iter().map(of_workload).collect();
    evidence.unread.extend(histories.unread.iter().cloned());
    (evidence.span, evidence.step) = (histories.span, histories.step);
    Ok(PartEvidence { workloads, evidence, last_sample: histories.last_sample })
}

/// That peaks of some workloads are only known of a part of the time.
fn shortened_peaks(workloads: &HashSet<ObjectKey>) -> Option<String> {
    (!workloads.is_empty()).then(|| {
        format!(
            "peaks of memory before the history are only those of a later part of the time for {}: they have too many pods",
            describe(workloads.iter())
        )
    })
}

fn age(last: Option<Time>, now: Time) -> Option<Duration> {
    Some(Duration::from_nanos(u64::try_from(now.nanos_since(last?)).unwrap_or_default()))
}

#[cfg(test)]
mod tests;
