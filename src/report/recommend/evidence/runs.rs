//! Runs of CronJobs and Jobs: the memory, CPU time and length of each pod that ran in the window, from a few values that
//! are seen even if a run is scraped only once.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use plimsoll_core::{
    recommender::Settings,
    rightsizing::{
        evidence::{EvidenceGap, RunCounts},
        runs::{Run, RunGoal, RunOutcome, RunRules, targets},
        survey::Unread,
        thresholds::UnsaidThresholds,
    },
    types::{ObjectKey, Time, units::Bytes},
};
use plimsoll_storage::prometheus::{
    detect::DetectError,
    history::{KnownPods, PodQuery, PodValue, PrometheusHistory},
};

use super::{WorkloadEvidence, failure, owners};
use crate::report::recommend::history::{HistoryWorkload, live_pods};

/// Maximum number of runs of a workload that are kept, the latest ones.
const MAX_RUNS: usize = 2_000;

const QUERIES: [PodQuery; 8] = [
    PodQuery::PodState { family: "kube_pod_start_time" },
    PodQuery::PodState { family: "kube_pod_completion_time" },
    PodQuery::LargestMemory,
    PodQuery::CpuSeconds,
    PodQuery::ContainerState {
        family: "kube_pod_container_status_terminated_reason",
        matching: ("reason", "OOMKilled"),
    },
    PodQuery::ContainerState {
        family: "kube_pod_container_status_terminated_reason",
        matching: ("reason", "Completed"),
    },
    PodQuery::ContainerState {
        family: "kube_pod_container_resource_limits",
        matching: ("resource", "memory"),
    },
    PodQuery::PodLabel { family: "kube_pod_owner", label: "owner_name" },
];
pub(super) const START: usize = 0;
pub(super) const END: usize = 1;
pub(super) const MEMORY: usize = 2;
pub(super) const CPU: usize = 3;
const KILLED: usize = 4;
const COMPLETED: usize = 5;
const LIMIT: usize = 6;
const OWNER: usize = 7;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodRun {
    /// The name of its Job, if known.
    pub job: Option<Box<str>>,
    /// When it started, if known.
    pub start: Option<Time>,
    /// When it ended, if it ended and that is known.
    pub end: Option<Time>,
    pub containers: HashMap<Box<str>, ContainerRun>,
}

/// What is known of a container of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ContainerRun {
    /// The largest sample of memory.
    pub memory: Option<Bytes>,
    /// The CPU time in seconds.
    pub cpu_seconds: Option<f64>,
    /// Whether it was OOM-killed.
    pub killed: bool,
    /// Whether it completed.
    pub completed: bool,
    /// Its memory limit, if it had one.
    pub memory_limit: Option<Bytes>,
}

impl PodRun {
    /// Its length in seconds; `None` if the start or the end is unknown.
    pub fn seconds(&self) -> Option<f64> {
        let (start, end) = self.start.zip(self.end)?;
        Some(end.nanos_since(start) as f64 / 1e9).filter(|seconds| *seconds >= 0.0)
    }
}

/// The runs of the workloads of a cluster.
#[derive(Clone, Debug, Default)]
pub struct JobRuns {
    workloads: HashMap<ObjectKey, WorkloadRuns>,
    /// The time range.
    span: Option<(Time, Time)>,
    /// Workloads whose runs could not be read.
    failed: HashSet<ObjectKey>,
}

#[derive(Clone, Debug, Default)]
pub struct WorkloadRuns {
    pods: HashMap<Box<str>, PodRun>,
    /// Whether there are too many, so that only the latest ones are known.
    is_truncated: bool,
    /// The time range.
    span: Option<(Time, Time)>,
}

/// Reads the runs of the workloads whose pods end.
pub async fn read_runs(
    history: &PrometheusHistory,
    workloads: &[HistoryWorkload],
    span: (Time, Time),
    unread: &mut Vec<Unread>,
) -> Result<JobRuns, DetectError> {
    let mut runs = JobRuns::default();
    let wanted = owners(workloads.iter().filter(|workload| workload.is_job));
    if wanted.is_empty() {
        return Ok(runs);
    }
    let live = live_pods(workloads);
    let pods = KnownPods { by_label: None, live: Some(&live) };
    let report = history
        .pod_values(&wanted, &QUERIES, span, pods, &mut |found| {
            runs.add(&found);
        })
        .await?;
    unread.extend(failure(&report, "runs of jobs"));
    runs.failed.clone_from(&report.failed_vpas);
    for (key, of) in &mut runs.workloads {
        of.is_truncated = report.shortened_vpas.contains(key);
    }
    runs.retain_started_within(span);
    Ok(runs)
}

impl JobRuns {
    pub(super) fn add(&mut self, found: &PodValue<'_>) {
        let PodValue { query, vpa: key, pod, container, value, label, .. } = *found;
        if !self.workloads.contains_key(key) {
            self.workloads.insert(key.clone(), WorkloadRuns::default());
        }
        let Some(WorkloadRuns { pods, .. }) = self.workloads.get_mut(key) else { return };
        if !pods.contains_key(pod) {
            pods.insert(pod.into(), PodRun::default());
        }
        let Some(run) = pods.get_mut(pod) else { return };
        let time = || Some(Time::from_secs(value as i64)).filter(|_| value > 0.0);
        match query {
            START => run.start = time(),
            END => run.end = time(),
            OWNER => run.job = Some(label).filter(|name| !name.is_empty()).map(Into::into),
            _ => {
                if !run.containers.contains_key(container) {
                    run.containers.insert(container.into(), ContainerRun::default());
                }
                let Some(of) = run.containers.get_mut(container) else { return };
                match query {
                    MEMORY => of.memory = Some(Bytes::from_f64(value)),
                    CPU => of.cpu_seconds = Some(value),
                    KILLED => of.killed = value > 0.0,
                    COMPLETED => of.completed = value > 0.0,
                    LIMIT => of.memory_limit = Some(Bytes::from_f64(value)),
                    _ => {}
                }
            }
        }
    }

    /// Drops runs that started before the time range: only a part of them is known. Keeps the latest ones if there are
    /// too many.
    fn retain_started_within(&mut self, span: (Time, Time)) {
        self.span = Some(span);
        for WorkloadRuns { pods, is_truncated, span: of } in self.workloads.values_mut() {
            *of = Some(span);
            pods.retain(|_, run| run.start.is_none_or(|start| start >= span.0));
            if pods.len() > MAX_RUNS {
                let mut starts: Vec<_> = pods.values().map(|run| run.start).collect();
                starts.sort_unstable_by(|a, b| b.cmp(a));
                let earliest = starts.get(MAX_RUNS - 1).copied().flatten();
                pods.retain(|_, run| run.start >= earliest);
                *is_truncated = true;
            }
        }
    }

    pub fn first_start(&self) -> Option<Time> {
        // With too many runs it ran before, too.
        let first = |of: &WorkloadRuns| {
            if of.is_truncated { of.span.map(|(from, _)| from) } else { of.first_start() }
        };
        self.workloads.values().filter_map(first).min()
    }

    /// Whether the runs of a workload could not be read.
    pub fn has_failed(&self, key: &ObjectKey) -> bool {
        self.failed.contains(key)
    }

    /// The runs of a workload, if any are known.
    pub fn of(&self, key: &ObjectKey) -> Option<&WorkloadRuns> {
        self.workloads.get(key).filter(|of| !of.pods.is_empty())
    }
}

impl WorkloadRuns {
    /// Adds the runs of another member of a group.
    pub fn add(&mut self, other: &Self) {
        self.pods.extend(other.pods.iter().map(|(pod, run)| (pod.clone(), run.clone())));
        self.is_truncated |= other.is_truncated;
        self.span = self.span.or(other.span);
    }

    /// Says that there were more runs than are known.
    pub fn set_truncated(&mut self) {
        self.is_truncated = true;
    }

    /// Whether no run is known.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    fn first_start(&self) -> Option<Time> {
        self.pods.values().filter_map(|run| run.start).min()
    }

    /// The pods by run, in order of their names: those of one Job are one run.
    fn by_run(&self) -> BTreeMap<&str, Vec<&PodRun>> {
        let mut runs: BTreeMap<&str, Vec<&PodRun>> = BTreeMap::new();
        for (pod, run) in &self.pods {
            let generated = || pod.rsplit_once('-').map_or(&**pod, |(job, _)| job);
            let job = run.job.as_deref().unwrap_or_else(generated);
            runs.entry(job).or_default().push(run);
        }
        runs
    }

    /// How many runs of a container there were, also before those that are known if there are too many.
    fn counts(&self, runs: &[Run]) -> RunCounts {
        let mean = |values: Vec<f64>| {
            let sum = values.iter().sum::<f64>();
            Some(sum / values.len() as f64).filter(|_| !values.is_empty())
        };
        let lengths = runs.iter().filter_map(|run| Some(run.length?.as_secs_f64())).collect();
        let by_run = self.by_run();
        let of_all_pods =
            by_run.values().filter_map(|pods| pods.iter().map(|pod| pod.seconds()).sum());
        let pod_seconds = mean(of_all_pods.collect());
        let is_seen = |run: &&Run| run.memory_peak.is_some() || run.cpu_seconds.is_some();
        let scale = match (self.is_truncated, self.span, self.first_start()) {
            (true, Some((from, to)), Some(first)) => {
                to.nanos_since(from) as f64 / to.nanos_since(first).max(1) as f64
            }
            _ => 1.0,
        };
        let count = |runs: usize| (runs as f64 * scale).round() as u32;
        let total = count(runs.len());
        RunCounts {
            total,
            seen: count(runs.iter().filter(is_seen).count()),
            mean_seconds: mean(lengths).map(|mean| mean.round() as u64),
            // Runs of unknown length count as the mean of the others.
            pod_seconds: pod_seconds.map(|mean| (mean * f64::from(total)).ceil() as u64),
        }
    }

    /// The runs of a container, as the rule for jobs takes them.
    fn of_container(&self, name: &str) -> Vec<Run> {
        self.by_run().into_values().filter_map(|pods| run_of(&pods, name)).collect()
    }

    /// Sets what the runs of a workload show for its containers.
    pub fn apply_to(
        &self,
        containers: &mut WorkloadEvidence,
        settings: &Settings,
        thresholds: &UnsaidThresholds,
    ) {
        let rules = RunRules::new(RunGoal::Work, settings);
        for (name, evidence) in containers.iter_mut() {
            let runs = self.of_container(name);
            let (_, targets) = targets(&runs, &rules, thresholds);
            evidence.runs = Some(self.counts(&runs));
            match targets {
                Ok(targets) => {
                    evidence.run_targets = Some(targets);
                    evidence.gap = None;
                }
                Err(gap) if evidence.gap != Some(EvidenceGap::Unread) => evidence.gap = Some(gap),
                Err(_) => {}
            }
        }
    }
}

/// A container in the pods of one run: its largest memory, and CPU time and length of the pod that used the most. `None` if
/// it is unknown when the run started.
fn run_of(pods: &[&PodRun], name: &str) -> Option<Run> {
    let at = pods.iter().filter_map(|pod| pod.start).min()?;
    let of = |pod: &PodRun| pod.containers.get(name).copied().unwrap_or_default();
    let used = |pod: &PodRun| of(pod).cpu_seconds.unwrap_or(-1.0);
    let busiest = pods.iter().max_by(|a, b| used(a).total_cmp(&used(b)))?;
    let any = |is: fn(&ContainerRun) -> bool| pods.iter().any(|pod| is(&of(pod)));
    let outcome = if any(|run| run.killed) {
        RunOutcome::OomKilled
    } else if any(|run| run.completed) {
        RunOutcome::Succeeded
    } else {
        RunOutcome::Other
    };
    Some(Run {
        at,
        memory_peak: pods.iter().filter_map(|pod| of(pod).memory).max(),
        cpu_seconds: of(busiest).cpu_seconds,
        cpu_p95: None,
        length: busiest.seconds().map(Duration::from_secs_f64),
        outcome,
        memory_limit: pods.iter().filter_map(|pod| of(pod).memory_limit).max(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(runs: &mut JobRuns, pod: &str, container: &str, query: usize, value: f64) {
        let vpa = &ObjectKey::new("ops", "CronJob/reindex");
        let label = if query == OWNER { pod.split('.').next().unwrap_or_default() } else { "" };
        runs.add(&PodValue { query, vpa, pod, container, value, at: Time::EPOCH, label });
    }

    fn of(runs: &JobRuns) -> &WorkloadRuns {
        runs.of(&ObjectKey::new("ops", "CronJob/reindex")).expect("runs")
    }

    #[test]
    fn a_run_is_seen_by_one_sample_and_counts_without_one() {
        let mut runs = JobRuns::default();
        let from = Time::from_secs(1_000);
        for (pod, start) in [("before", 900.0), ("seen", 1_100.0), ("unseen", 1_200.0)] {
            add(&mut runs, pod, "", START, start);
            add(&mut runs, pod, "", END, start + 30.0);
        }
        add(&mut runs, "seen", "run", MEMORY, 5e8);
        add(&mut runs, "seen", "run", CPU, 12.5);
        add(&mut runs, "seen", "run", KILLED, 1.0);
        add(&mut runs, "seen", "run", LIMIT, 6e8);
        runs.retain_started_within((from, Time::from_secs(2_000)));
        assert_eq!(of(&runs).by_run().len(), 2);
        let expected = ContainerRun {
            memory: Some(Bytes(500_000_000)),
            cpu_seconds: Some(12.5),
            killed: true,
            completed: false,
            memory_limit: Some(Bytes(600_000_000)),
        };
        assert_eq!(of(&runs).by_run()["seen"][0].containers["run"], expected);
        assert!(runs.of(&ObjectKey::new("ops", "CronJob/other")).is_none());
        let expected = [
            (Some(Bytes(500_000_000)), Some(12.5), RunOutcome::OomKilled, Some(Bytes(600_000_000))),
            (None, None, RunOutcome::Other, None),
        ];
        let found = of(&runs).of_container("run");
        let found = found
            .iter()
            .map(|run| (run.memory_peak, run.cpu_seconds, run.outcome, run.memory_limit));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let counts = of(&runs).counts(&of(&runs).of_container("run"));
        assert_eq!(
            counts,
            RunCounts { total: 2, seen: 1, mean_seconds: Some(30), pod_seconds: Some(60) }
        );
    }

    #[test]
    fn the_pods_of_a_job_are_one_run() {
        let mut runs = JobRuns::default();
        for (pod, start) in [("one.a", 100.0), ("one.b", 150.0), ("two.a", 200.0)] {
            add(&mut runs, pod, "", OWNER, 0.0);
            add(&mut runs, pod, "", START, start);
            add(&mut runs, pod, "", END, start + 10.0 + start / 10.0);
        }
        // Owners are unknown: the names of pods end with a random part.
        for pod in ["three-b2x", "three-c5z"] {
            add(&mut runs, pod, "", START, 300.0);
        }
        add(&mut runs, "one.a", "run", CPU, 5.0);
        add(&mut runs, "one.b", "run", CPU, 7.0);
        let found = of(&runs).of_container("run");
        let found: Vec<_> =
            found.iter().map(|run| (run.at.as_secs(), run.cpu_seconds, run.length)).collect();
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let expected = [(100, Some(7.0), seconds(25)), (300, None, None), (200, None, seconds(30))];
        assert_eq!(found, expected);
        // One ran in two pods, for 20 and 25 seconds; the length of three is unknown and counts as the mean.
        let counts = of(&runs).counts(&of(&runs).of_container("run"));
        let seconds = (counts.mean_seconds, counts.pod_seconds);
        assert_eq!((counts.total, seconds), (3, (Some(28), Some(113))));
    }

    #[test]
    fn a_run_without_a_start_or_an_end_has_no_length() {
        let at = |seconds| Some(Time::from_secs(seconds));
        for (start, end, seconds) in [
            (at(5), at(8), Some(3.0)),
            (at(5), None, None),
            (None, at(5), None),
            (at(8), at(5), None),
        ] {
            assert_eq!(PodRun { start, end, ..PodRun::default() }.seconds(), seconds);
        }
    }

    #[test]
    fn of_too_many_runs_the_latest_count() {
        let mut runs = JobRuns::default();
        for run in 0..MAX_RUNS + 500 {
            add(&mut runs, &format!("{run}.a"), "", OWNER, 0.0);
            add(&mut runs, &format!("{run}.a"), "", START, 1_000.0 + run as f64);
        }
        runs.retain_started_within((Time::EPOCH, Time::from_secs(10_000)));
        let by_run = of(&runs).by_run();
        assert_eq!(by_run.len(), MAX_RUNS);
        let first = by_run.values().flatten().filter_map(|run| run.start).min();
        assert_eq!(first, Some(Time::from_secs(1_500)));
        // 2,000 runs in 8,500 seconds, and so before that.
        let counts = of(&runs).counts(&of(&runs).of_container("run"));
        assert_eq!(counts, RunCounts { total: 2_353, seen: 0, ..RunCounts::default() });
        assert_eq!(runs.first_start(), Some(Time::EPOCH));
    }
}
