//! Groups of workloads that are recorded together, within a limit of memory, and the estimate of all of them.

use std::time::Duration;

use plimsoll_core::{
    backtest::recording::{CPU_STEP_SECONDS, Evaluation, MEMORY_STEP_SECONDS},
    rightsizing::survey::Workload,
};

use super::{steps_between, workload_name};

/// Bytes of a value in a recording.
const VALUE_BYTES: u64 = 4;
/// Bytes of a point in a response, as measured for `plimsoll recommend`.
const BYTES_PER_POINT: u64 = 35;
/// More points than this are refused: at the speed of the benchmarks they take more than ten minutes.
const MAX_POINTS: u64 = 600_000_000;
/// A workload may need this many times the memory of a part, since it cannot be divided.
pub const MAX_PARTS: u64 = 4;

/// The bytes of the values of one container of a pod that exists all the time.
pub fn series_bytes(evaluation: Evaluation) -> u64 {
    points(evaluation) * VALUE_BYTES
}

fn points(evaluation: Evaluation) -> u64 {
    let Evaluation { warm_up_from, until, .. } = evaluation;
    steps_between(warm_up_from, until, CPU_STEP_SECONDS)
        + steps_between(warm_up_from, until, MEMORY_STEP_SECONDS)
}

/// The number of series of a workload: containers of existing pods.
fn series(workload: &Workload) -> u64 {
    let replicas = u64::from(workload.replicas.unwrap_or_default());
    (workload.pods.len() as u64).max(replicas).max(1) * workload.containers.len().max(1) as u64
}

/// Divides workloads of one cluster, which are sorted by namespace, into groups of about this many bytes.
pub fn groups<'a>(
    workloads: &[&'a Workload],
    evaluation: Evaluation,
    part_bytes: u64,
) -> Vec<Vec<&'a Workload>> {
    let (mut groups, mut bytes): (Vec<Vec<&Workload>>, u64) = (Vec::new(), 0);
    for &workload in workloads {
        let needed = series(workload).saturating_mul(series_bytes(evaluation));
        match groups.last_mut() {
            Some(group) if bytes.saturating_add(needed) <= part_bytes => {
                group.push(workload);
                bytes += needed;
            }
            _ => {
                groups.push(vec![workload]);
                bytes = needed;
            }
        }
    }
    groups
}

/// What a backtest would read, before anything is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingEstimate {
    /// Workloads.
    pub workloads: usize,
    /// Containers of pods that exist now.
    pub series: u64,
    /// Points of their history.
    pub points: u64,
    /// Bytes of the responses.
    pub bytes: u64,
    /// The workload with most series, and the bytes of its recording.
    pub largest: Option<(String, u64)>,
    /// The time that is recorded.
    pub length: Duration,
}

impl RecordingEstimate {
    /// Estimates the recordings of workloads.
    pub fn new(workloads: &[&Workload], evaluation: Evaluation) -> Self {
        let total = workloads.iter().map(|of| series(of)).fold(0, u64::saturating_add);
        let points = total.saturating_mul(points(evaluation));
        let largest = workloads.iter().max_by_key(|of| series(of));
        let bytes_of = |of: &Workload| series(of).saturating_mul(series_bytes(evaluation));
        let nanos = evaluation.until.nanos_since(evaluation.warm_up_from);
        Self {
            workloads: workloads.len(),
            series: total,
            points,
            bytes: points.saturating_mul(BYTES_PER_POINT),
            largest: largest.map(|of| (workload_name(of), bytes_of(of))),
            length: Duration::from_nanos(nanos.max(0).unsigned_abs()),
        }
    }

    /// Why it is too much for one process with parts of this many bytes, and what to do; `None` if it is not.
    pub fn excess(&self, part_bytes: u64) -> Option<String> {
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        let days = self.length.as_secs_f64() / 86_400.0;
        if self.points > MAX_POINTS {
            let top = self.workloads as u64 * MAX_POINTS / self.points.max(1);
            return Some(format!(
                "{} workloads with {} series of containers over {days:.0} days are {} million points, about {} MiB of \
                 responses; at most {} million are read: use --top {} for the workloads that request most, --shard i/n, \
                 -n, or fewer --days",
                self.workloads,
                self.series,
                self.points / 1_000_000,
                mebibytes(self.bytes),
                MAX_POINTS / 1_000_000,
                top.max(1),
            ));
        }
        let (name, bytes) = self.largest.as_ref()?;
        (*bytes > part_bytes.saturating_mul(MAX_PARTS)).then(|| {
            format!(
                "the recording of {name} needs about {} MiB, more than {} times --history-memory: set \
                 --history-memory={}Mi, or fewer --days",
                mebibytes(*bytes),
                MAX_PARTS,
                mebibytes(bytes.div_ceil(MAX_PARTS)) + 1,
            )
        })
    }

    /// The estimate as text.
    pub fn text(&self, server: &str) -> String {
        let days = self.length.as_secs_f64() / 86_400.0;
        format!(
            "{server}\n  {} workloads, about {} series of containers, {days:.0} days\n  about {} points, {} MiB of responses\n\
             Nothing else has been queried.\n",
            self.workloads,
            self.series,
            self.points,
            self.bytes.div_ceil(1 << 20),
        )
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{rightsizing::survey::Container, types::Time};

    use super::*;

    fn evaluation(days: i64) -> Evaluation {
        let from = Time::from_secs(0);
        let until = Time::from_secs(days * 86_400);
        Evaluation { warm_up_from: from, from, until }
    }

    fn workload(name: &str, replicas: u32) -> Workload {
        Workload {
            namespace: "shop".into(),
            kind: "Deployment".into(),
            name: name.into(),
            replicas: Some(replicas),
            containers: [Container::default()].into(),
            ..Workload::default()
        }
    }

    #[test]
    fn groups_stay_within_a_part_and_keep_their_order() {
        let workloads: Vec<Workload> =
            (0..10).map(|index| workload(&format!("web-{index}"), 1 + index % 3)).collect();
        let workloads: Vec<&Workload> = workloads.iter().collect();
        let part = 4 * series_bytes(evaluation(22));
        let groups = groups(&workloads, evaluation(22), part);
        assert_eq!(groups.concat(), workloads);
        for group in &groups {
            assert!(group.iter().map(|of| series(of)).sum::<u64>() <= 4, "{}", group.len());
        }
        assert_eq!(groups.len(), 6);
    }

    #[test]
    fn a_workload_larger_than_a_part_is_alone() {
        let workloads = [workload("a", 1), workload("b", 100), workload("c", 1)];
        let workloads: Vec<&Workload> = workloads.iter().collect();
        let sizes: Vec<usize> =
            groups(&workloads, evaluation(22), 1 << 20).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 1, 1]);
    }

    #[test]
    fn too_much_is_refused_with_a_number_of_workloads_that_fits() {
        let workloads: Vec<Workload> = (0..1_000).map(|_| workload("web", 100)).collect();
        let all: Vec<&Workload> = workloads.iter().collect();
        let estimate = RecordingEstimate::new(&all, evaluation(22));
        let why = estimate.excess(24 << 20).expect("too many points");
        assert!(why.contains("--top 157 "), "{why}");
        assert_eq!(RecordingEstimate::new(&all[..157], evaluation(22)).excess(24 << 20), None);
        let huge = workload("logs", 1_000);
        let why = RecordingEstimate::new(&[&huge], evaluation(22)).excess(24 << 20);
        let why = why.expect("too large for a part");
        assert!(
            why.contains("shop/Deployment/logs") && why.contains("--history-memory=38Mi"),
            "{why}"
        );
    }
}
