//! What runs of a CronJob or Job need: each run counts once, however long it is and however many samples it
//! has.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{
    evidence::{EvidenceGap, RunCounts},
    need::check_runs,
    survey::Amounts,
    thresholds::UnsaidThresholds,
};
use crate::{
    recommender::Settings,
    types::{
        Time,
        units::{Bytes, MilliCpu},
    },
};

/// The most runs that count; older ones are ignored.
pub const MAX_RUNS: usize = 200;
/// After this many further runs, a run counts half.
const HALF_LIFE_RUNS: f64 = 14.0;
/// Memory covers the largest of this many last runs.
const LAST_RUNS: usize = 14;
/// After this many later runs that needed less, an OOM kill is over.
const RUNS_AFTER_KILL: usize = 3;
const MEMORY_PERCENTILE: f64 = 0.98;
/// The percentile of the mean CPU of runs, for work that may take longer.
const WORK_PERCENTILE: f64 = 0.75;
/// The percentile of the CPU at the peak of runs, for work with users who wait for its result.
const LATENCY_PERCENTILE: f64 = 0.9;

/// One container in one run: all pods of one Job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// When it started.
    pub at: Time,
    /// The peak of memory of one pod.
    pub memory_peak: Option<Bytes>,
    /// CPU time of one pod in seconds, the last value of its counter.
    pub cpu_seconds: Option<f64>,
    /// The 95th percentile of the CPU usage of one pod, in cores; only runs of many scrapes have it.
    pub cpu_p95: Option<f64>,
    /// How long it took; `None` if it has not ended or that is unknown.
    pub length: Option<Duration>,
    /// How it ended.
    pub outcome: RunOutcome,
    /// The memory limit at that time.
    pub memory_limit: Option<Bytes>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// It completed.
    Succeeded,
    /// It failed for another reason than memory, is still running, or its end is unknown.
    Other,
    /// It was OOM killed.
    OomKilled,
}

/// What matters more for CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunGoal {
    /// That all the work gets done: CPU is shared.
    #[default]
    Work,
    /// That each run is fast.
    Latency,
}

/// How targets follow from runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunRules {
    /// What matters more for CPU.
    pub goal: RunGoal,
    /// The fraction that is added to memory.
    pub margin: f64,
    /// The factor that an OOM kill raises memory by.
    pub oom_ratio: f64,
    /// The bytes that an OOM kill raises memory by at least.
    pub oom_min_bump: f64,
}

impl RunRules {
    /// The rules with the settings of the model, which jobs share with everything else.
    pub fn new(goal: RunGoal, settings: &Settings) -> Self {
        let Settings { margin, oom_ratio, oom_min_bump, .. } = *settings;
        Self { goal, margin, oom_ratio, oom_min_bump }
    }
}

/// What runs need.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunTargets {
    /// The target of CPU; `None` if no run has both CPU time and a length.
    pub cpu: Option<MilliCpu>,
    /// The target of memory; `None` if no run has a peak.
    pub memory: Option<Bytes>,
    /// How long a run takes with the target of CPU as its limit, in seconds.
    pub predicted_seconds: Option<f64>,
}

impl RunTargets {
    /// Both targets.
    pub const fn amounts(&self) -> Amounts {
        Amounts { cpu: self.cpu, memory: self.memory }
    }
}

/// Counts runs, and computes what they need. The order of the runs does not matter.
pub fn targets(
    runs: &[Run],
    rules: &RunRules,
    thresholds: &UnsaidThresholds,
) -> (RunCounts, Result<RunTargets, EvidenceGap>) {
    let mut newest_first = runs.to_vec();
    // Runs of one time are ordered by their values, so that the result does not depend on the order of the
    // input.
    newest_first.sort_by(|left, right| {
        let values = |run: &Run| (run.memory_peak, run.length, run.memory_limit);
        let cpu = |run: &Run| run.cpu_seconds.unwrap_or(-1.0);
        let by_values = values(left).cmp(&values(right)).then(cpu(left).total_cmp(&cpu(right)));
        right.at.cmp(&left.at).then(by_values)
    });
    newest_first.truncate(MAX_RUNS);
    let counts = count(&newest_first);
    if let Err(gap) = check_runs(counts, thresholds) {
        return (counts, Err(gap));
    }
    let cpu = cpu_target(&newest_first, rules);
    let targets = RunTargets {
        cpu,
        memory: memory_target(&newest_first, rules),
        predicted_seconds: cpu.and_then(|cpu| predicted_seconds(&newest_first, cpu)),
    };
    (counts, Ok(targets))
}

fn count(runs: &[Run]) -> RunCounts {
    let seen = runs.iter().filter(|run| run.memory_peak.is_some() || cpu_of(run).is_some());
    let lengths: Vec<f64> = runs.iter().filter_map(length_of).collect();
    let sum = lengths.iter().sum::<f64>();
    let mean = Some(sum / lengths.len() as f64).filter(|_| !lengths.is_empty());
    RunCounts {
        total: u32::try_from(runs.len()).unwrap_or(u32::MAX),
        seen: u32::try_from(seen.count()).unwrap_or(u32::MAX),
        mean_seconds: mean.map(|mean| mean.round() as u64),
        pod_seconds: mean.map(|mean| (mean * runs.len() as f64).ceil() as u64),
    }
}

fn memory_target(newest_first: &[Run], rules: &RunRules) -> Option<Bytes> {
    let needs: Vec<Option<f64>> = (0..newest_first.len())
        .map(|index| memory_need(&newest_first[index], &newest_first[..index], rules))
        .collect();
    let weighted = weighted(needs.iter().copied());
    let percentile = percentile(weighted, MEMORY_PERCENTILE)?;
    let last = needs.iter().take(LAST_RUNS).flatten().copied().fold(0.0, f64::max);
    Some(Bytes::from_f64((percentile.max(last) * (1.0 + rules.margin)).round()))
}

/// What a run needed, in bytes. A run that was killed at its limit needed more than that, until later runs
/// needed less.
fn memory_need(run: &Run, later: &[Run], rules: &RunRules) -> Option<f64> {
    let peak = run.memory_peak.map(Bytes::as_f64);
    if run.outcome != RunOutcome::OomKilled {
        return peak;
    }
    // Without a limit the node ran out of memory, and the peak is all that is known.
    let killed_at = run.memory_limit.map(Bytes::as_f64).or(peak)?;
    let bumped = (killed_at * rules.oom_ratio).max(killed_at + rules.oom_min_bump);
    // The peak can be above the limit that is known, if the limit was lowered in between.
    let bumped = bumped.max(peak.unwrap_or(0.0));
    let needed_less = later.iter().filter(|later| {
        let is_below = later.memory_peak.is_some_and(|peak| peak.as_f64() < bumped);
        later.outcome == RunOutcome::Succeeded && is_below
    });
    if needed_less.count() >= RUNS_AFTER_KILL { peak } else { Some(bumped) }
}

fn cpu_target(newest_first: &[Run], rules: &RunRules) -> Option<MilliCpu> {
    let cores = match rules.goal {
        RunGoal::Work => percentile(weighted(newest_first.iter().map(mean_cores)), WORK_PERCENTILE),
        RunGoal::Latency => {
            // A run that is too short for a percentile has only its mean.
            let peak = |run: &Run| {
                run.cpu_p95.filter(|cores| is_amount(*cores)).or_else(|| mean_cores(run))
            };
            percentile(weighted(newest_first.iter().map(peak)), LATENCY_PERCENTILE)
        }
    }?;
    Some(MilliCpu::from_measured(cores))
}

/// How long a run takes that uses at most this much CPU.
fn predicted_seconds(newest_first: &[Run], target: MilliCpu) -> Option<f64> {
    let work = percentile(weighted(newest_first.iter().map(cpu_of)), WORK_PERCENTILE)?;
    let peaks = newest_first.iter().flat_map(|run| [mean_cores(run), run.cpu_p95]).flatten();
    let parallelism = peaks.filter(|cores| is_amount(*cores)).fold(0.0, f64::max);
    let cores = target.as_cores().min(parallelism);
    (cores > 0.0).then(|| work / cores)
}

fn mean_cores(run: &Run) -> Option<f64> {
    Some(cpu_of(run)? / length_of(run)?)
}

fn cpu_of(run: &Run) -> Option<f64> {
    run.cpu_seconds.filter(|seconds| is_amount(*seconds))
}

/// The length of a run in seconds; a run of no length says nothing.
fn length_of(run: &Run) -> Option<f64> {
    run.length.map(|length| length.as_secs_f64()).filter(|seconds| *seconds > 0.0)
}

fn is_amount(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

/// Values with their weights, the newest first. Runs without a value make the older ones older nevertheless.
fn weighted(values: impl Iterator<Item = Option<f64>>) -> Vec<(f64, f64)> {
    let weight = |age: usize| (-(age as f64) / HALF_LIFE_RUNS).exp2();
    values.enumerate().filter_map(|(age, value)| Some((value?, weight(age)))).collect()
}

/// The smallest value that is at least as large as this share of all weight.
fn percentile(mut values: Vec<(f64, f64)>, share: f64) -> Option<f64> {
    values.sort_by(|left, right| left.0.total_cmp(&right.0));
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut below = 0.0;
    for (value, weight) in &values {
        below += weight;
        if below >= share * total {
            return Some(*value);
        }
    }
    // Rounding can leave the sum just below the whole.
    values.last().map(|(value, _)| *value)
}

#[cfg(test)]
mod tests;
