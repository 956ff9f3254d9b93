//! The largest value of single series of pods, each with its workload: peaks of memory over a longer time than the
//! history, and the length and usage of runs.
//!
//! Only the largest value of each series is held in memory, so the length of the time range does not matter.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{load::MAX_CONSECUTIVE_FAILURES, query_plan::max_by, workload_batch::WorkloadBatch};
use crate::prometheus::{
    client::{PrometheusClient, QueryRange},
    decode::{Interest, Labels, SeriesVisitor},
    promql::{Query, RangeFunction},
    query_error::QueryError,
    schema::{KubeStateMetrics, Schema, container_name},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::{ObjectKey, Time};

/// The number of samples that a query may load, if the number of series is as expected.
const MAX_LOADED_SAMPLES: u64 = 5_000_000;
/// Assumed number of pods of a workload, those that are gone included.
const ASSUMED_PODS: u64 = 4;

/// The memory of a value with its names, in points of sixteen bytes.
const POINTS_PER_VALUE: u64 = 10;

/// How often the time range of a workload is halved that has too many pods.
const MAX_HALVINGS: u32 = 6;

/// A query for one value of each series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodQuery {
    /// The peak of memory of all pods, with its time to this step.
    MemoryPeak {
        /// The step.
        step: Duration,
    },
    /// The largest value of the CPU counter: the CPU time of a container that ran once.
    CpuSeconds,
    /// The largest value of memory.
    LargestMemory,
    /// The largest value of a family of kube-state-metrics for pods.
    PodState {
        /// The family.
        family: &'static str,
    },
    /// The largest value of a family of kube-state-metrics for containers.
    ContainerState {
        /// The family.
        family: &'static str,
        /// A label and its value.
        matching: (&'static str, &'static str),
    },
    /// A label of a family of kube-state-metrics for pods, from the index of the server.
    PodLabel {
        /// The family.
        family: &'static str,
        /// The label.
        label: &'static str,
    },
}

/// The result of a query for one series.
#[derive(Clone, Copy, Debug)]
pub struct PodValue<'a> {
    /// The index of the query.
    pub query: usize,
    /// The VPA of the pod.
    pub vpa: &'a ObjectKey,
    /// The pod; empty for a query about all pods.
    pub pod: &'a str,
    /// The container; empty for a query about pods.
    pub container: &'a str,
    /// The value; 0 for [`PodQuery::PodLabel`].
    pub value: f64,
    /// The time of the value: the end of the step or of the time range. Not set for [`PodQuery::PodLabel`].
    pub at: Time,
    /// The value of the label of [`PodQuery::PodLabel`].
    pub label: &'a str,
}

/// What could not be queried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodValueReport {
    /// The VPAs whose pods could not be queried.
    pub failed_vpas: HashSet<ObjectKey>,
    /// The namespace and the cause of the first failure.
    pub failure: Option<(Arc<str>, QueryError)>,
    /// VPAs with so many pods that only the last part of the time range was queried.
    pub shortened_vpas: HashSet<ObjectKey>,
}

/// What all batches have in common.
pub(super) struct PodQueries<'a> {
    pub(super) client: &'a PrometheusClient,
    pub(super) schema: &'a Schema,
    pub(super) queries: &'a [PodQuery],
    pub(super) span: (Time, Time),
    /// Maximum number of points that a batch may hold in memory: owners of pods, and values.
    pub(super) budget: u64,
}

impl PodQueries<'_> {
    /// Queries one batch after the other. A failed batch does not stop the others. Values of a batch are passed on only if
    /// all of its queries succeeded.
    pub(super) async fn query(
        &self,
        batches: Vec<WorkloadBatch>,
        accept: &mut (dyn FnMut(PodValue<'_>) + Send),
    ) -> PodValueReport {
        let mut report = PodValueReport::default();
        let mut consecutive_failures = 0;
        let mut pending = VecDeque::from(batches);
        while let Some(batch) = pending.pop_front() {
            if consecutive_failures >= MAX_CONSECUTIVE_FAILURES {
                report.failed_vpas.extend(batch.vpas().cloned());
                continue;
            }
            let result = self.query_batch(batch.clone(), self.span).await;
            let is_too_large =
                matches!(result, Err(QueryError::CollectorFull | QueryError::TooLarge(_)));
            if let (true, Some([first, second])) = (is_too_large, batch.split()) {
                pending.push_front(second);
                pending.push_front(first);
                continue;
            }
            let result = if is_too_large {
                report.shortened_vpas.extend(batch.vpas().cloned());
                self.query_shorter(&batch, result).await
            } else {
                result
            };
            match result {
                Ok((batch, values)) => {
                    consecutive_failures = 0;
                    for value in &values {
                        value.pass_on(&batch, accept);
                    }
                }
                Err(failure) => {
                    consecutive_failures += u32::from(!failure.is_query_specific());
                    report.failed_vpas.extend(batch.vpas().cloned());
                    report.failure.get_or_insert((Arc::clone(&batch.namespace), failure));
                }
            }
        }
        report
    }

    /// Queries the last half of the time range, or of that.
    async fn query_shorter(
        &self,
        batch: &WorkloadBatch,
        mut result: Result<BatchValues, QueryError>,
    ) -> Result<BatchValues, QueryError> {
        let (mut from, to) = self.span;
        for _ in 0..MAX_HALVINGS {
            if !matches!(result, Err(QueryError::CollectorFull | QueryError::TooLarge(_))) {
                break;
            }
            from = from.later(Duration::from_nanos(to.nanos_since(from).unsigned_abs() / 2));
            result = self.query_batch(batch.clone(), (from, to)).await;
        }
        result
    }

    async fn query_batch(
        &self,
        mut batch: WorkloadBatch,
        span: (Time, Time),
    ) -> Result<BatchValues, QueryError> {
        let Self { client, schema, budget, .. } = *self;
        match batch.query_owners(client, schema, span, budget / 2).await {
            Ok(()) => {}
            Err(failure) if failure.is_transient() => return Err(failure),
            Err(QueryError::CollectorFull) if batch.claims.len() > 1 => {
                return Err(QueryError::CollectorFull);
            }
            // Match pods by name only, as for their usage.
            Err(failure) => tracing::debug!(%failure, "failed to query owners of pods"),
        }
        let patterns = batch.patterns();
        let mut values = Vec::new();
        for (index, query) in self.queries.iter().enumerate() {
            for pods in &patterns {
                let mut collector = LargestValues::new(&batch, index, query, schema);
                collector.max_values = budget / 2 / POINTS_PER_VALUE;
                if collector.is_without_series {
                    continue;
                }
                self.run(&batch, *query, (pods.clone(), span), &mut collector).await?;
                values.append(&mut collector.into_committed());
            }
        }
        Ok((batch, values))
    }

    async fn run(
        &self,
        batch: &WorkloadBatch,
        query: PodQuery,
        (pods, (from, to)): (Pattern, (Time, Time)),
        collector: &mut LargestValues<'_>,
    ) -> Result<(), QueryError> {
        let Self { client, schema, .. } = *self;
        let length = Duration::from_nanos(to.nanos_since(from).max(1_000_000).unsigned_abs());
        let identity = schema.usage.container_labels();
        let usage = |metric: &str| {
            schema.in_namespace(schema.usage_series(metric), &batch.namespace, pods.clone())
        };
        let largest = |selector: &Selector, identity: &[&str]| {
            max_by(&Query::range_function(RangeFunction::Max, selector, length), identity)
        };
        let state = |family: &str| {
            let states = schema.kube_state_metrics.as_ref()?;
            let series = states.selector(family, &batch.namespace, &schema.matchers);
            Some((states, series.matches(&states.pod, pods.clone())))
        };
        let query = match query {
            PodQuery::MemoryPeak { step } => {
                let window = step.saturating_sub(Duration::from_millis(1));
                let selector = usage(&schema.usage.memory.value);
                let peak = Query::range_function(RangeFunction::Max, &selector, window);
                let peak = max_by(&peak, &identity);
                for grid in self.parts(batch, step, (from, to))? {
                    let read = client.range(&peak, grid, collector).await;
                    read.map_err(|interrupted| interrupted.failure)?;
                }
                return Ok(());
            }
            PodQuery::CpuSeconds => largest(&usage(&schema.usage.cpu.value), &identity),
            PodQuery::LargestMemory => largest(&usage(&schema.usage.memory.value), &identity),
            PodQuery::PodState { family } => {
                let Some((states, series)) = state(family) else { return Ok(()) };
                largest(&series, &[&states.namespace, &states.pod])
            }
            PodQuery::ContainerState { family, matching: (label, value) } => {
                let Some((states, series)) = state(family) else { return Ok(()) };
                largest(&series.equals(label, value), &states.container_labels())
            }
            PodQuery::PodLabel { family, .. } => {
                let Some((_, series)) = state(family) else { return Ok(()) };
                client.series(&series, (from, to), collector).await?;
                return Ok(());
            }
        };
        client.instant(&query, to, collector).await.map(drop)
    }

    /// Parts of the time range that load a limited number of samples each.
    fn parts(
        &self,
        batch: &WorkloadBatch,
        step: Duration,
        (from, to): (Time, Time),
    ) -> Result<Vec<QueryRange>, QueryError> {
        let pods = (batch.claims.len() as u64 * ASSUMED_PODS).max(batch.pods() as u64).max(1);
        let scrape = self.schema.scrape_interval.value.interval.as_nanos().max(1);
        let samples = pods * (step.as_nanos() / scrape).max(1) as u64;
        let steps = (MAX_LOADED_SAMPLES / samples.max(1)).clamp(1, 1 << 20) as u32;
        let (mut parts, mut start) = (Vec::new(), from);
        while start < to {
            let end = start.later(step.saturating_mul(steps)).min(to);
            // The end of each step is its time: nothing of the first one is before the range.
            let first = start.later(step).min(end);
            parts.push(QueryRange::new(first, end, step)?);
            start = end;
        }
        Ok(parts)
    }
}

/// The values of a batch, with the owners of its pods.
type BatchValues = (WorkloadBatch, Vec<CollectedValue>);

/// The largest value of one series, or of one container of all pods.
#[derive(Clone, Debug)]
struct CollectedValue {
    query: usize,
    workload: usize,
    pod: Box<str>,
    container: Box<str>,
    largest: Option<(Time, f64)>,
    label: Box<str>,
}

impl CollectedValue {
    fn pass_on(&self, batch: &WorkloadBatch, accept: &mut (dyn FnMut(PodValue<'_>) + Send)) {
        let Some((at, value)) = self.largest else { return };
        let Some(claim) = batch.claims.get(self.workload) else { return };
        for vpa in &claim.vpas {
            let Self { query, pod, container, label, .. } = self;
            accept(PodValue { query: *query, vpa, pod, container, value, at, label });
        }
    }
}

/// Collects the largest value of each series.
struct LargestValues<'a> {
    batch: &'a WorkloadBatch,
    query: usize,
    pod: &'a str,
    /// The label of containers; `None` for queries about pods.
    container: Option<&'a str>,
    /// The label whose value is wanted.
    label: Option<&'static str>,
    /// Whether the values of all pods are one.
    merges_pods: bool,
    collected: Vec<CollectedValue>,
    committed: usize,
    /// With merged pods, the index of each container in `merged`.
    indices: HashMap<(usize, Box<str>), usize>,
    merged: Vec<CollectedValue>,
    /// Maximum number of values.
    max_values: u64,
    /// Whether the series cannot exist, because there is no kube-state-metrics.
    is_without_series: bool,
}

impl<'a> LargestValues<'a> {
    fn new(batch: &'a WorkloadBatch, index: usize, query: &PodQuery, schema: &'a Schema) -> Self {
        let [_, pod, container] = schema.usage.container_labels();
        let mut this = Self {
            batch,
            query: index,
            pod,
            container: Some(container),
            label: None,
            max_values: 0,
            merges_pods: matches!(query, PodQuery::MemoryPeak { .. }),
            collected: Vec::new(),
            committed: 0,
            indices: HashMap::new(),
            merged: Vec::new(),
            is_without_series: false,
        };
        let states: Option<&KubeStateMetrics> = schema.kube_state_metrics.as_ref();
        match query {
            PodQuery::MemoryPeak { .. } | PodQuery::CpuSeconds | PodQuery::LargestMemory => {}
            PodQuery::ContainerState { .. }
            | PodQuery::PodState { .. }
            | PodQuery::PodLabel { .. } => {
                let Some(states) = states else { return Self { is_without_series: true, ..this } };
                this.pod = &states.pod;
                let of_containers = matches!(query, PodQuery::ContainerState { .. });
                this.container = of_containers.then_some(&*states.container);
                if let PodQuery::PodLabel { label, .. } = query {
                    this.label = Some(label);
                }
            }
        }
        this
    }

    fn into_committed(mut self) -> Vec<CollectedValue> {
        self.discard();
        self.merged.append(&mut self.collected);
        self.merged
    }

    /// Moves the values of a complete response to those of their containers.
    fn merge_pods(&mut self) {
        for value in self.collected.drain(..) {
            let key = (value.workload, value.container.clone());
            let Some(known) = self.indices.get(&key).map(|index| &mut self.merged[*index]) else {
                self.indices.insert(key, self.merged.len());
                self.merged.push(CollectedValue { pod: Box::default(), ..value });
                continue;
            };
            let is_larger = |(_, new): (Time, f64)| known.largest.is_none_or(|(_, old)| new > old);
            if value.largest.is_some_and(is_larger) {
                known.largest = value.largest;
            }
        }
    }
}

impl SeriesVisitor for LargestValues<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let value_of = |label: &str| labels.get(label).filter(|value| !value.is_empty());
        let Some(pod) = value_of(self.pod) else { return Interest::LabelsOnly };
        let container = match self.container {
            Some(label) => value_of(label).map(container_name).filter(|name| *name != "POD"),
            None => Some(""),
        };
        let Some(container) = container else { return Interest::LabelsOnly };
        let Some(workload) = self.batch.workload_of(pod) else { return Interest::LabelsOnly };
        let label = self.label.map(|label| {
            let exported = format!("exported_{label}");
            value_of(&exported).or_else(|| value_of(label)).unwrap_or_default()
        });
        // A list of series has no points.
        let largest = label.is_some().then_some((Time::EPOCH, 0.0));
        self.collected.push(CollectedValue {
            query: self.query,
            workload,
            pod: pod.into(),
            container: container.into(),
            largest,
            label: label.unwrap_or_default().into(),
        });
        if label.is_some() { Interest::LabelsOnly } else { Interest::Points }
    }

    fn point(&mut self, at: Time, value: f64) {
        let Some(collected) = self.collected.last_mut().filter(|_| value.is_finite()) else {
            return;
        };
        if collected.largest.is_none_or(|(_, largest)| value > largest) {
            collected.largest = Some((at, value));
        }
    }

    fn finish(&mut self) {
        if self.merges_pods {
            self.merge_pods();
        }
        self.committed = self.collected.len();
    }

    fn is_full(&self) -> bool {
        self.collected.len() as u64 > self.max_values
    }

    fn discard(&mut self) {
        self.collected.truncate(self.committed);
    }
}
