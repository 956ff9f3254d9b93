//! How many pods of a workload run at a time. Those of a job run for a part of the time only.

use std::time::Duration;

use super::{evidence::RunCounts, survey::Workload};
use crate::types::Time;

/// Kinds whose pods run for a part of the time.
const JOB_KINDS: [&str; 2] = ["CronJob", "Job"];

/// The mean number of pods that run at a time; `None` if unknown. `runs` are the runs within the window, or since the
/// workload was created.
pub fn mean_pods(
    workload: &Workload,
    runs: Option<RunCounts>,
    window: Option<Duration>,
    now: Time,
) -> Option<f64> {
    let Some(runs) = runs else {
        let is_job = JOB_KINDS.contains(&&*workload.kind);
        return workload.replicas.map(f64::from).filter(|_| !is_job);
    };
    let age = workload.created.map(|created| now.nanos_since(created) as f64 / 1e9);
    let seconds = window?.as_secs_f64().min(age.unwrap_or(f64::INFINITY));
    Some(runs.pod_seconds? as f64 / seconds).filter(|_| seconds > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_run_at_a_time() {
        let day = Some(Duration::from_hours(24));
        let now = Time::from_secs(864_000);
        // 24 runs of half an hour are half a day.
        let counts = RunCounts {
            total: 24,
            seen: 20,
            mean_seconds: Some(1800),
            pod_seconds: Some(24 * 1800),
        };
        let runs = Some(counts);
        let parallel = Some(RunCounts { pod_seconds: Some(4 * 24 * 1800), ..counts });
        let unknown = Some(RunCounts { pod_seconds: None, mean_seconds: None, ..counts });
        for (kind, replicas, runs, window, expected) in [
            ("Deployment", Some(6), None, day, Some(6.0)),
            ("Deployment", Some(0), None, day, Some(0.0)),
            ("Deployment", None, None, day, None),
            ("CronJob", Some(0), runs, day, Some(0.5)),
            ("CronJob", None, runs, day, Some(0.5)),
            ("Job", None, parallel, day, Some(2.0)),
            ("Job", None, unknown, day, None),
            ("CronJob", Some(1), None, day, None),
            ("CronJob", Some(1), runs, None, None),
            ("CronJob", Some(1), runs, Some(Duration::ZERO), None),
            ("Workflow", Some(1), runs, day, Some(0.5)),
        ] {
            let workload = Workload { kind: kind.into(), replicas, ..Workload::default() };
            assert_eq!(mean_pods(&workload, runs, window, now), expected, "{kind} {replicas:?}");
        }
        // Created twelve hours ago: all runs are of these.
        let young = Workload { created: Some(Time::from_secs(820_800)), ..Workload::default() };
        assert_eq!(mean_pods(&young, runs, day, now), Some(1.0));
        let month = Some(Duration::from_hours(720));
        assert_eq!(mean_pods(&young, runs, month, now), Some(1.0));
    }
}
