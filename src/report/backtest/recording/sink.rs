//! Collects the samples of workloads on the grid of a backtest.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use plimsoll_core::{
    backtest::recording::{
        CPU_STEP_SECONDS, ContainerRecording, Evaluation, MEMORY_STEP_SECONDS, PodContainer,
        PodRecording, RecordedStep, WorkloadRecording,
    },
    history::{Measurement, Resource, Sample, SampleBatch, Sink, Snapshot},
    rightsizing::survey::Workload,
    types::{ContainerKey, ObjectKey, Time},
};
use tokio::sync::Notify;

use super::{is_init, is_memory_elastic, pod_states::PodStates, steps_between};

/// Bytes of a pod without its values, on the large side.
const POD_BYTES: u64 = 512;

/// The pods of a workload that were seen, by name.
#[derive(Debug, Default)]
pub(super) struct PartialWorkload {
    pub pods: BTreeMap<Arc<str>, PartialPod>,
}

/// The samples of a pod.
#[derive(Debug, Default)]
pub(super) struct PartialPod {
    /// The end of the first step with a value, and of the last one.
    span: Option<(Time, Time)>,
    containers: BTreeMap<Arc<str>, PodContainer>,
}

/// Receives samples.
pub(super) struct RecordingSink {
    evaluation: Evaluation,
    workloads: HashMap<ObjectKey, PartialWorkload>,
    bytes: u64,
    max_bytes: u64,
    /// Notified once more than that is held.
    full: Arc<Notify>,
}

impl RecordingSink {
    pub(super) fn new(
        workloads: impl Iterator<Item = ObjectKey>,
        evaluation: Evaluation,
        max_bytes: u64,
        full: Arc<Notify>,
    ) -> Self {
        let workloads = workloads.map(|key| (key, PartialWorkload::default())).collect();
        Self { evaluation, workloads, bytes: 0, max_bytes, full }
    }

    /// Whether more was received than it may hold.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > self.max_bytes
    }

    pub(super) fn into_partial(self) -> HashMap<ObjectKey, PartialWorkload> {
        self.workloads
    }

    /// The container of a pod; `None` if the workload is not wanted or there is no more memory.
    fn container(
        &mut self,
        key: &ContainerKey,
        pod: &Arc<str>,
        (first, last): (Time, Time),
    ) -> Option<&mut PodContainer> {
        if self.bytes > self.max_bytes {
            self.full.notify_one();
            return None;
        }
        let workload = self.workloads.get_mut(&key.vpa)?;
        if !workload.pods.contains_key(pod) {
            self.bytes += POD_BYTES;
        }
        let pod = workload.pods.entry(Arc::clone(pod)).or_default();
        pod.span =
            Some(pod.span.map_or((first, last), |(from, to)| (from.min(first), to.max(last))));
        Some(pod.containers.entry(Arc::clone(&key.container)).or_default())
    }
}

/// Values of a series on a grid; the first column is that of its first value.
struct Columns<'a> {
    first: &'a mut u32,
    values: &'a mut Vec<f32>,
}

impl Columns<'_> {
    /// Sets a value; the larger one counts. Returns the bytes that it takes.
    fn set(&mut self, column: u32, value: f32) -> u64 {
        let before = self.values.len();
        if self.values.is_empty() {
            *self.first = column;
        }
        if column < *self.first {
            let missing = (*self.first - column) as usize;
            self.values.splice(0..0, std::iter::repeat_n(f32::NAN, missing));
            *self.first = column;
        }
        let index = (column - *self.first) as usize;
        if index >= self.values.len() {
            self.values.resize(index + 1, f32::NAN);
        }
        // `max` of NaN and a number is the number.
        self.values[index] = self.values[index].max(value);
        4 * (self.values.len() - before) as u64
    }
}

/// The columns that a value at the end of a step covers, within those of the backtest. A column of CPU is of the minute
/// that ends at its time, as a Prometheus answers it; a window of memory begins at its time.
fn columns_of(
    at: Time,
    covers: Duration,
    (evaluation, metric): (Evaluation, Resource),
) -> std::ops::Range<u32> {
    let Evaluation { warm_up_from, until, .. } = evaluation;
    let (seconds, shift) = match metric {
        Resource::Cpu => (CPU_STEP_SECONDS, 1),
        Resource::Memory => (MEMORY_STEP_SECONDS, 0),
    };
    let count = steps_between(warm_up_from, until, seconds);
    let start = steps_between(warm_up_from, at.earlier(covers), seconds) + shift;
    let nanos = at.nanos_since(warm_up_from).max(0).unsigned_abs();
    let end = nanos.div_ceil(1_000_000_000 * seconds.unsigned_abs()) + shift;
    let column = |index: u64| u32::try_from(index.min(count)).unwrap_or(u32::MAX);
    column(start)..column(end)
}

impl Sink for RecordingSink {
    fn snapshot(&mut self, key: ContainerKey, _: Snapshot) {
        tracing::debug!(%key, "unexpected snapshot from Prometheus");
    }

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        if let Measurement::OutOfMemory { .. } = sample.measurement
            && let Some(container) = self.container(key, &sample.replica, (sample.at, sample.at))
        {
            container.oom_kills.push(sample.at);
            self.bytes += 8;
        }
    }

    fn batch(&mut self, key: &ContainerKey, batch: SampleBatch<'_>) {
        let (Some((first, _)), Some((last, _))) = (batch.points.first(), batch.points.last())
        else {
            return;
        };
        let evaluation = self.evaluation;
        let seconds = match batch.gauge {
            Resource::Cpu => CPU_STEP_SECONDS,
            Resource::Memory => MEMORY_STEP_SECONDS,
        };
        let covers = batch.covers.unwrap_or(Duration::from_secs(seconds.unsigned_abs()));
        let Some(container) = self.container(key, batch.replica, (first.earlier(covers), *last))
        else {
            return;
        };
        let mut columns = match batch.gauge {
            Resource::Cpu => {
                Columns { first: &mut container.first_minute, values: &mut container.cpu }
            }
            Resource::Memory => {
                Columns { first: &mut container.first_window, values: &mut container.memory }
            }
        };
        let mut bytes = 0;
        for &(at, value) in batch.points.iter().filter(|(_, value)| value.is_finite()) {
            for column in columns_of(at, covers, (evaluation, batch.gauge)) {
                bytes += columns.set(column, value as f32);
            }
        }
        self.bytes += bytes;
    }
}

impl PartialWorkload {
    /// The recording of a workload.
    pub(super) fn into_recording(
        self,
        workload: &Workload,
        key: &ObjectKey,
        states: &PodStates,
        evaluation: Evaluation,
    ) -> WorkloadRecording {
        let from = evaluation.warm_up_from;
        let seen = self.pods.values().flat_map(|pod| pod.containers.keys());
        let names: BTreeSet<Arc<str>> =
            seen.filter(|name| !is_init(workload, name)).map(Arc::clone).collect();
        let pod_names: Vec<&str> = self.pods.keys().map(|name| &**name).collect();
        let containers = names.iter().map(|name| {
            let [requests, limits] = states.steps(&key.namespace, &pod_names, name, from);
            let mut container = ContainerRecording {
                name: (&**name).into(),
                is_memory_elastic: is_memory_elastic(workload, name),
                requests,
                limits,
                assumes_current_requests: false,
            };
            let known = workload.containers.iter().find(|known| *known.name == **name);
            if let Some(known) = known.filter(|_| container.requests.is_empty())
                && !known.resources_unknown
            {
                container.assumes_current_requests = true;
                container.requests = vec![RecordedStep { at: from, amounts: known.requests }];
                container.limits = vec![RecordedStep { at: from, amounts: known.limits }];
            }
            container
        });
        let containers: Vec<ContainerRecording> = containers.collect();
        let pods = self.pods.into_iter().filter_map(|(name, mut pod)| {
            let (first, last) = pod.span?;
            // A StatefulSet reuses names, so the last start may be later than the first sample.
            let start = states.start(&key.namespace, &name).filter(|start| *start <= first);
            let born = start.unwrap_or(first);
            let mut known = containers.iter();
            let mut of = |container: &Arc<str>| {
                let mut of = pod.containers.remove(container).unwrap_or_default();
                of.oom_kills.sort_unstable();
                of.oom_kills.dedup();
                of.throttled_minutes = states.throttled_minutes(&key.namespace, &name, container);
                if let Some(known) = known.next() {
                    let steps = states.steps(&key.namespace, &[&name], container, from);
                    of.set_steps(steps, known, (born, last));
                }
                of.cpu.shrink_to_fit();
                of.memory.shrink_to_fit();
                of
            };
            let containers: Vec<PodContainer> = names.iter().map(&mut of).collect();
            Some(PodRecording { name: (&*name).into(), born, gone: last, containers })
        });
        let mut pods: Vec<PodRecording> = pods.collect();
        pods.sort_by(|one, other| (one.born, &one.name).cmp(&(other.born, &other.name)));
        WorkloadRecording {
            cluster: workload.cluster.clone(),
            kind: (*workload.kind).into(),
            key: ObjectKey::new(&*workload.namespace, &*workload.name),
            from,
            containers,
            pods,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVALUATION: Evaluation = Evaluation {
        warm_up_from: Time::from_secs(6_000),
        from: Time::from_secs(9_000),
        until: Time::from_secs(12_000),
    };

    #[test]
    fn a_value_counts_for_the_columns_that_it_covers() {
        let seconds = Duration::from_secs;
        let (cpu, memory) = (Resource::Cpu, Resource::Memory);
        for (at, covers, metric, expected) in [
            (6_060, 60, cpu, 1..2),
            (6_120, 60, cpu, 2..3),
            (6_240, 120, cpu, 3..5),
            (6_300, 300, memory, 0..1),
            (6_360, 360, memory, 0..2),
            (12_000, 300, memory, 19..20),
            (11_940, 60, cpu, 99..100),
            (12_000, 60, cpu, 100..100),
        ] {
            let found = columns_of(Time::from_secs(at), seconds(covers), (EVALUATION, metric));
            assert_eq!(found, expected, "{at} covers {covers}");
        }
    }

    #[test]
    fn a_missing_value_is_not_a_number_and_never_zero() {
        let (mut first, mut values) = (0, Vec::new());
        let mut columns = Columns { first: &mut first, values: &mut values };
        assert_eq!(columns.set(5, 1.0), 4);
        assert_eq!(columns.set(8, 2.0), 12);
        assert_eq!(columns.set(8, 1.5), 0, "the larger one counts");
        assert_eq!(columns.set(4, 3.0), 4, "earlier than the first one");
        let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
        assert_eq!((first, texts.join(" ")), (4, "3 1 NaN NaN 2".to_owned()));
    }

    #[test]
    fn more_than_the_limit_is_not_held() {
        let key = ContainerKey::new(ObjectKey::new("shop", "Deployment/web"), "main");
        let full = Arc::new(Notify::new());
        let keys = std::iter::once(key.vpa.clone());
        let mut sink = RecordingSink::new(keys, EVALUATION, 600, Arc::clone(&full));
        let points: Vec<(Time, f64)> =
            (1..=50).map(|minute| (Time::from_secs(6_000 + 60 * minute), 0.1)).collect();
        for pod in 0..10 {
            let replica: Arc<str> = format!("web-{pod}").into();
            let gauge = Resource::Cpu;
            let covers = Some(Duration::from_mins(1));
            sink.batch(&key, SampleBatch { replica: &replica, gauge, covers, points: &points });
        }
        assert_eq!(sink.workloads[&key.vpa].pods.len(), 1);
        assert!(futures::FutureExt::now_or_never(full.notified()).is_some());
    }
}
