//! Loads one batch slice by slice: each slice starts where the last one ended.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    batch_group::BatchGroup,
    load::LoadStats,
    oom_kills::{OomKill, OomKillQuery, SeenKills},
    pod_info::PodInfo,
    query_plan::QueryPlan,
    time_slice::{SeriesPoints, SkippedCounts, SliceCollector},
    workload_batch::{LONGEST_PATTERN, WorkloadBatch},
};
use crate::prometheus::{
    client::PrometheusClient, promql::Query, query_error::QueryError, schema::Schema,
    selector::Pattern,
};
use plimsoll_core::{
    history::{Measurement, Resource, Sample, SampleBatch, Sink},
    types::{ContainerKey, Time},
};

/// Assumed number of containers of a workload until pods are known, and of a pod until they are read.
const ASSUMED_CONTAINERS: u64 = 4;
const CONTAINERS_OF_POD: u64 = 2;
/// How much longer a slice may be than the one before, because its density is only an estimate.
pub(super) const GROWTH: u64 = 4;

/// A batch and its progress. Queries work on a copy, so that nothing is lost if they are cancelled.
#[derive(Clone, Debug)]
pub(super) struct BatchLoad {
    pub(super) batch: Arc<WorkloadBatch>,
    /// Everything up to here has been emitted.
    pub(super) loaded_until: Time,
    to: Time,
    pub(super) pod_info: Option<Arc<PodInfo>>,
    /// Maximum number of steps for which to query pod information.
    pod_info_steps: u32,
    seen_kills: SeenKills,
    steps: u64,
    /// Whether the sink was notified that the history is complete.
    completion_sent: bool,
}

#[derive(Debug)]
pub(super) struct TimeSlice {
    cpu: SeriesPoints,
    memory: SeriesPoints,
    kills: Vec<OomKill>,
    to: Time,
    seen_kills: SeenKills,
    pub(super) report: LoadStats,
}

#[derive(Clone, Debug)]
pub(super) struct LoadContext {
    pub(super) client: PrometheusClient,
    pub(super) schema: Arc<Schema>,
    pub(super) plan: QueryPlan,
    pub(super) budget: u64,
    /// The largest density of the first slices of batches so far, as bits of an `f64`. Zero is unknown.
    density: Arc<AtomicU64>,
}

impl LoadContext {
    pub(super) fn new(
        client: PrometheusClient,
        schema: Arc<Schema>,
        plan: QueryPlan,
        budget: u64,
    ) -> Self {
        Self { client, schema, plan, budget, density: Arc::default() }
    }

    /// The largest number of points for each pod and each step, in the first slices of batches so far.
    fn density(&self) -> Option<f64> {
        Some(f64::from_bits(self.density.load(Ordering::Relaxed))).filter(|density| *density > 0.0)
    }

    pub(super) fn record_density(&self, density: f64) {
        // Positive numbers are ordered as their bits are.
        self.density.fetch_max(density.max(0.0).to_bits(), Ordering::Relaxed);
    }
}

impl TimeSlice {
    pub(super) fn size_in_points(&self) -> u64 {
        self.cpu.size_in_points() + self.memory.size_in_points()
    }
}

impl BatchLoad {
    pub(super) fn new(batch: WorkloadBatch, (after, to): (Time, Time)) -> Self {
        Self {
            batch: Arc::new(batch),
            loaded_until: after,
            to,
            pod_info: None,
            pod_info_steps: u32::MAX,
            seen_kills: SeenKills::new(),
            steps: 0,
            completion_sent: false,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.loaded_until >= self.to
    }

    /// Notifies the sink, once, when the history is complete.
    pub(super) fn send_completion(&mut self, sink: &mut dyn Sink) {
        if self.is_done() && !mem::replace(&mut self.completion_sent, true) {
            self.batch.vpas().for_each(|vpa| sink.complete(vpa));
        }
    }

    /// The emitted and the total length of the history.
    pub(super) fn progress(&self, from: Time) -> (Duration, Duration) {
        let length = |to: Time| Duration::from_nanos(to.nanos_since(from).max(0).unsigned_abs());
        (length(self.loaded_until), length(self.to))
    }

    /// Halves the length of the next slice, because this one was too slow.
    pub(super) fn halve_next_slice(&mut self, plan: &QueryPlan) {
        self.steps = self.next_steps(plan).div_ceil(2);
    }

    /// Steps of the next slice, limited to the rest of the history.
    fn next_steps(&self, plan: &QueryPlan) -> u64 {
        self.steps.min(plan.steps_between(self.loaded_until, self.to))
    }

    /// Queries the next slice. It does not count until it is emitted.
    pub(super) async fn next(&mut self, context: &LoadContext) -> Result<TimeSlice, QueryError> {
        let report = LoadStats::default();
        if self.pod_info.is_some() && self.steps == 0 {
            self.steps = self.first_steps(context);
        }
        if let Some(pod_info) = self.pod_info.clone()
            && self.loaded_until < pod_info.until
        {
            return self.read(context, &pod_info, report).await;
        }
        let mut pod_info = self.fetch_pod_info(context).await?;
        if self.steps == 0 {
            self.steps = self.first_steps(context);
        }
        let mut slice = self.read(context, &pod_info, report).await?;
        if pod_info.unavailable.is_some() {
            // Retry, in case a proxy failed for a moment: then owners decide and not names alone.
            pod_info = self.fetch_pod_info(context).await?;
            if pod_info.unavailable.is_none() {
                let TimeSlice { mut report, .. } = slice;
                report.skipped = SkippedCounts::default();
                slice = self.read(context, &pod_info, report).await?;
            }
        }
        if let Some((what, failure)) = &pod_info.unavailable {
            let namespace = &*self.batch.namespace;
            tracing::warn!(namespace, %failure, "{what}");
            slice.report.without_owner_info += 1;
        }
        self.pod_info = Some(Arc::new(pod_info));
        Ok(slice)
    }

    /// Reads the next slice. If it exceeds the budget, it is dropped and a shorter one is queried: the number of
    /// containers is known only when they arrive.
    async fn read(
        &mut self,
        context: &LoadContext,
        pod_info: &PodInfo,
        mut report: LoadStats,
    ) -> Result<TimeSlice, QueryError> {
        loop {
            let steps = self.next_steps(&context.plan);
            // A single step cannot be split.
            let max_points = if steps > 1 { slice_budget(context, pod_info) } else { u64::MAX };
            match self.read_once(context, pod_info, max_points, report.clone()).await {
                Err(QueryError::CollectorFull) => {}
                result => return result,
            }
            self.steps = (steps / GROWTH).max(1);
            report.reads.halvings += 1;
            tracing::debug!(
                namespace = &*self.batch.namespace,
                self.steps,
                "slice exceeds the memory budget; querying a shorter one"
            );
        }
    }

    async fn read_once(
        &self,
        context: &LoadContext,
        pod_info: &PodInfo,
        max_points: u64,
        mut report: LoadStats,
    ) -> Result<TimeSlice, QueryError> {
        let PodInfo { patterns, oom_killed, .. } = pod_info;
        let LoadContext { schema, plan, .. } = context;
        let length = plan.memory.saturating_mul(u32::try_from(self.steps).unwrap_or(u32::MAX));
        let span = (self.loaded_until, self.loaded_until.later(length).min(pod_info.until));
        let batch = &*self.batch;
        let cpu = patterns.iter().map(|pods| plan.cpu(schema, &batch.namespace, pods.clone()));
        let cpu =
            self.points(context, cpu.collect(), (plan.cpu, span), max_points, &mut report).await?;
        let left = max_points.saturating_sub(cpu.size_in_points());
        let memory =
            patterns.iter().map(|pods| plan.memory(schema, &batch.namespace, pods.clone()));
        let memory = memory.collect();
        let memory = self.points(context, memory, (plan.memory, span), left, &mut report).await?;
        let mut seen_kills = SeenKills::new();
        let mut kills = Vec::new();
        if let Some(states) = schema.kube_state_metrics.as_ref().filter(|_| !oom_killed.is_empty())
        {
            seen_kills.clone_from(&self.seen_kills);
            let pods = Pattern::any_literal(oom_killed.iter().map(|pod| &**pod));
            // Old releases of kube-state-metrics have this series for every container.
            let is_short = pods.as_str().len() <= LONGEST_PATTERN;
            let pods = if is_short { pods } else { pod_info.pattern() };
            let query = OomKillQuery { context, states, batch, pods, max_points, span };
            kills = query.query(&mut seen_kills, &mut report).await?;
        }
        Ok(TimeSlice { cpu, memory, kills, to: span.1, seen_kills, report })
    }

    /// Emits a slice to the sink: it counts now.
    pub(super) fn emit(
        &mut self,
        mut slice: TimeSlice,
        context: &LoadContext,
        sink: &mut dyn Sink,
        report: &mut LoadStats,
    ) {
        let size = slice.size_in_points();
        slice.cpu.sort();
        slice.memory.sort();
        let QueryPlan { cpu, memory, .. } = context.plan;
        let [cpu, memory] = [cpu, memory].map(|step| context.plan.covers(step));
        let stats = &mut slice.report;
        self.emit_usage(Resource::Cpu, cpu, &slice.cpu, &[], sink, stats);
        self.emit_usage(Resource::Memory, memory, &slice.memory, &slice.kills, sink, stats);
        report.merge(slice.report);
        self.loaded_until = slice.to;
        if !slice.seen_kills.is_empty() {
            self.seen_kills = slice.seen_kills;
        }
        let budget = self
            .pod_info
            .as_ref()
            .map_or(context.budget, |pod_info| slice_budget(context, pod_info));
        let steps = with_room(budget).saturating_mul(self.steps) / size.max(1);
        self.steps =
            steps.clamp(1, self.steps.saturating_mul(GROWTH)).min(max_slice_steps(context));
    }

    /// Emits the samples and OOM kills of each container of a pod together, in order of time: a kill is evaluated with the
    /// usage before it, and the peak of a step counts at its end.
    fn emit_usage(
        &self,
        gauge: Resource,
        covers: Option<Duration>,
        series: &SeriesPoints,
        kills: &[OomKill],
        sink: &mut dyn Sink,
        report: &mut LoadStats,
    ) {
        let mut merged = Vec::new();
        for rows in series.groups() {
            let (workload, container, pod) = rows[0].key();
            let pod_kills = kills_of(kills, rows[0].key());
            let replica: Arc<str> = pod.into();
            for key in self.batch.keys(workload, container) {
                let points = series.points_of(rows, &mut merged);
                let mut left = SampleBatch { replica: &replica, gauge, covers, points };
                for kill in pod_kills {
                    let (before, after) =
                        left.points.split_at(left.points.partition_point(|(at, _)| *at < kill.at));
                    emit_run(SampleBatch { points: before, ..left }, &key, sink, report);
                    emit_kill(kill, &key, sink, report);
                    left.points = after;
                }
                emit_run(left, &key, sink, report);
            }
        }
        // Kills of containers without samples: killed before the first scrape.
        for kill in kills {
            if series.find((kill.workload, &*kill.container, &*kill.pod)).is_empty() {
                for key in self.batch.keys(kill.workload, &kill.container) {
                    emit_kill(kill, &key, sink, report);
                }
            }
        }
    }

    async fn points(
        &self,
        context: &LoadContext,
        queries: Vec<Query>,
        (step, span): (Duration, (Time, Time)),
        max_points: u64,
        report: &mut LoadStats,
    ) -> Result<SeriesPoints, QueryError> {
        let grid = QueryPlan::grid(step, span)?;
        let identity = context.schema.usage.container_labels();
        let collector = SliceCollector::new(&self.batch, identity, max_points);
        let (points, skipped) =
            collector.read(&context.client, &queries, grid, &mut report.reads).await?;
        report.skipped.add(skipped);
        Ok(points)
    }

    async fn fetch_pod_info(&mut self, context: &LoadContext) -> Result<PodInfo, QueryError> {
        let mut group = BatchGroup::single(WorkloadBatch::clone(&self.batch));
        let span = (self.loaded_until, self.to);
        let pod_info = PodInfo::query(&mut group, context, span, &mut self.pod_info_steps).await?;
        self.batch = Arc::new(group.batches.remove(0));
        Ok(pod_info)
    }

    /// Whether nothing has been read or queried.
    pub(super) fn is_new(&self) -> bool {
        self.pod_info.is_none() && self.steps == 0 && !self.is_done()
    }

    /// Stores the owners of pods and what else is known of them, so that [`Self::next`] does not query it.
    pub(super) fn set_pod_info(&mut self, batch: WorkloadBatch, pod_info: PodInfo) {
        self.batch = Arc::new(batch);
        self.pod_info = Some(Arc::new(pod_info));
    }

    /// The points of a slice for each pod and each of its steps; `None` if the pods are unknown.
    pub(super) fn density(&self, slice: &TimeSlice, context: &LoadContext) -> Option<f64> {
        let steps = self.next_steps(&context.plan).max(1) * (1 + context.plan.cpu_steps());
        let pods = Some(self.batch.pods()).filter(|pods| *pods > 0)?;
        Some(slice.size_in_points() as f64 / (pods as u64 * steps) as f64)
    }

    /// Steps of the first slice, when only the number of pods can be estimated. Targets half of the budget, so up to twice
    /// as many pods fit; or nearly all of it, if the density of other batches is known.
    fn first_steps(&self, context: &LoadContext) -> u64 {
        let plan = &context.plan;
        let points_per_step = 1 + plan.cpu_steps();
        let pods = self.batch.pods() as u64;
        let steps = match context.density() {
            Some(density) if pods > 0 => {
                let points = pods as f64 * density * points_per_step as f64;
                (with_room(context.budget) as f64 / points.max(1.0)) as u64
            }
            _ => {
                let assumed = self.batch.claims.len() as u64 * ASSUMED_CONTAINERS;
                let containers = if pods > 0 { pods * CONTAINERS_OF_POD } else { assumed };
                context.budget / 2 / (containers * points_per_step).max(1)
            }
        };
        steps.clamp(1, max_slice_steps(context))
    }
}

/// A budget with room for a few more pods.
fn with_room(budget: u64) -> u64 {
    budget - budget / 16
}

/// The budget of a slice without the pod information, which uses at most half of it.
fn slice_budget(context: &LoadContext, pod_info: &PodInfo) -> u64 {
    context.budget.saturating_sub(pod_info.size_in_points)
}

/// Maximum number of memory steps so that the CPU steps fit into one query.
fn max_slice_steps(context: &LoadContext) -> u64 {
    (u64::from(context.client.limits().max_steps) / context.plan.cpu_steps().max(1)).max(1)
}

fn kills_of<'a>(kills: &'a [OomKill], key: (usize, &str, &str)) -> &'a [OomKill] {
    let of = |kill: &OomKill| (kill.workload, &*kill.container, &*kill.pod).cmp(&key);
    let start = kills.partition_point(|kill| of(kill).is_lt());
    let end = kills.partition_point(|kill| of(kill).is_le());
    &kills[start..end]
}

fn emit_run(run: SampleBatch<'_>, key: &ContainerKey, sink: &mut dyn Sink, report: &mut LoadStats) {
    report.samples += run.points.len() as u64;
    if !run.points.is_empty() {
        sink.batch(key, run);
    }
}

fn emit_kill(kill: &OomKill, key: &ContainerKey, sink: &mut dyn Sink, report: &mut LoadStats) {
    let OomKill { pod, at, request_bytes, limit_bytes, .. } = kill;
    let measurement =
        Measurement::OutOfMemory { request_bytes: *request_bytes, limit_bytes: *limit_bytes };
    let replica = (&**pod).into();
    sink.sample(key, Sample { replica, at: *at, covers: None, measurement });
    report.samples += 1;
    report.oom_kills += 1;
}
