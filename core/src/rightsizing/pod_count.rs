//! How many pods of a workload run at a time. Those of a job run for a part of the time only.

use std::time::Duration;

use super::{evidence::RunCounts, survey::Workload};

/// Kinds whose pods run for a part of the time.
const JOB_KINDS: [&str; 2] = ["CronJob", "Job"];

/// The mean number of pods that run at a time; `None` if unknown. `runs` are the runs within the window. With
/// parallel pods, the replicas of a job are the pods of one run.
pub fn mean_pods(
    workload: &Workload,
    runs: Option<RunCounts>,
    window: Option<Duration>,
) -> Option<f64> {
    let Some(runs) = runs else {
        let is_job = JOB_KINDS.contains(&&*workload.kind);
        return workload.replicas.map(f64::from).filter(|_| !is_job);
    };
    let window = window.map(|window| window.as_secs_f64()).filter(|seconds| *seconds > 0.0)?;
    let parallel = f64::from(workload.replicas.unwrap_or(1).max(1));
    Some(f64::from(runs.total) * runs.mean_seconds as f64 * parallel / window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_run_at_a_time() {
        let day = Some(Duration::from_hours(24));
        // 24 runs of half an hour are half a day.
        let runs = Some(RunCounts { total: 24, seen: 20, mean_seconds: 1800 });
        for (kind, replicas, runs, window, expected) in [
            ("Deployment", Some(6), None, day, Some(6.0)),
            ("Deployment", Some(0), None, day, Some(0.0)),
            ("Deployment", None, None, day, None),
            ("CronJob", Some(0), runs, day, Some(0.5)),
            ("CronJob", None, runs, day, Some(0.5)),
            ("Job", Some(4), runs, day, Some(2.0)),
            ("CronJob", Some(1), None, day, None),
            ("CronJob", Some(1), runs, None, None),
            ("CronJob", Some(1), runs, Some(Duration::ZERO), None),
            ("Workflow", Some(1), runs, day, Some(0.5)),
        ] {
            let workload = Workload { kind: kind.into(), replicas, ..Workload::default() };
            assert_eq!(mean_pods(&workload, runs, window), expected, "{kind} {replicas:?}");
        }
    }
}
