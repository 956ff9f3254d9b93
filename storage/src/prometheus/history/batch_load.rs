//! One batch on its way through time: a slice is asked, handed on, and the next one begins where it ended.

use std::{mem, sync::Arc, time::Duration};

use super::{
    load_stats::LoadStats,
    oom_kills::{OomKill, OomKillQuery, SeenKills},
    pod_info::PodInfo,
    query_plan::{QueryPlan, invalid_range},
    time_slice::{SeriesPoints, SkippedCounts, SliceCollector},
    workload_batch::{LONGEST_PATTERN, WorkloadBatch},
};
use crate::prometheus::{
    client::PrometheusClient, promql::Query, query_error::QueryError, schema::Schema,
    selector::Pattern,
};
use plimsoll_core::{
    history::{Measurement, Sample, SampleBatch, Sink, UsageMetric},
    types::{ContainerKey, ObjectKey, Time},
};

/// Containers that a workload is taken to have at a time until it is known better.
const ASSUMED_CONTAINERS: usize = 4;
/// How much longer a slice may be than the one before: what is known of its density is from there.
pub(super) const GROWTH: u64 = 4;

/// A batch and how far it is. Whoever asks has a copy, so that nothing is lost when the asking is given up.
#[derive(Clone, Debug)]
pub(super) struct BatchLoad {
    pub(super) batch: Arc<WorkloadBatch>,
    /// Everything up to here has been handed on.
    loaded_until: Time,
    to: Time,
    names: Option<Arc<PodInfo>>,
    /// For how many steps they are asked for at most.
    pod_info_steps: u32,
    seen_kills: SeenKills,
    /// Steps of the next slice.
    steps: u64,
    /// Whether the sink knows that it has all of it.
    completion_sent: bool,
}

/// A slice of a history, whole.
#[derive(Debug)]
pub(super) struct TimeSlice {
    cpu: SeriesPoints,
    memory: SeriesPoints,
    kills: Vec<OomKill>,
    /// Where it ends.
    to: Time,
    seen_kills: SeenKills,
    pub(super) report: LoadStats,
}

/// How a part is asked.
#[derive(Clone, Debug)]
pub(super) struct LoadContext {
    pub(super) client: PrometheusClient,
    pub(super) schema: Arc<Schema>,
    pub(super) plan: QueryPlan,
    /// Points that a slice may have.
    pub(super) budget: u64,
}

impl TimeSlice {
    /// What its points take.
    pub(super) fn size_in_points(&self) -> u64 {
        self.cpu.size_in_points() + self.memory.size_in_points()
    }
}

impl BatchLoad {
    pub(super) fn new(batch: WorkloadBatch, (after, to): (Time, Time)) -> Self {
        let batch = Arc::new(batch);
        let counted = SeenKills::new();
        let named = u32::MAX;
        Self {
            batch,
            loaded_until: after,
            to,
            names: None,
            pod_info_steps: named,
            seen_kills: counted,
            steps: 0,
            completion_sent: false,
        }
    }

    /// Whether all of it has been handed on.
    pub(super) fn is_done(&self) -> bool {
        self.loaded_until >= self.to
    }

    /// Up to when it has been handed on.
    pub(super) fn loaded_until(&self) -> Time {
        self.loaded_until
    }

    /// Tells the sink, once, that it has all of it, if it has.
    pub(super) fn send_completion(&mut self, sink: &mut dyn Sink) {
        if self.is_done() && !mem::replace(&mut self.completion_sent, true) {
            self.batch.vpas().for_each(|vpa| sink.complete(vpa));
        }
    }

    /// How much of it has been handed on, of how much.
    pub(super) fn progress(&self, from: Time) -> (Duration, Duration) {
        let length = |to: Time| Duration::from_nanos(to.nanos_since(from).max(0).unsigned_abs());
        (length(self.loaded_until), length(self.to))
    }

    /// The next slice is half as long as this one should have been, which was too slow to come.
    pub(super) fn halve_next_slice(&mut self, plan: &QueryPlan) {
        self.steps = self.next_steps(plan).div_ceil(2);
    }

    /// Steps of the next slice, or what is left of them.
    fn next_steps(&self, plan: &QueryPlan) -> u64 {
        let left = self.to.nanos_since(self.loaded_until).max(0).unsigned_abs();
        let left = u128::from(left).div_ceil(plan.memory.as_nanos().max(1));
        self.steps.min(u64::try_from(left).unwrap_or(u64::MAX))
    }

    /// Asks for the next slice. Nothing of it counts before it is handed on.
    pub(super) async fn next(&mut self, way: &LoadContext) -> Result<TimeSlice, QueryError> {
        let report = LoadStats::default();
        if let Some(names) = self.names.as_ref().filter(|names| self.loaded_until < names.until) {
            let names = Arc::clone(names);
            return self.read(way, &names, report).await;
        }
        let mut names = self.fetch_pod_info(way).await?;
        if self.steps == 0 {
            self.steps = self.first_steps(way);
        }
        let mut slice = self.read(way, &names, report).await?;
        if names.unavailable.is_some() {
            // Either the server has usage and does not answer this, or something stood before it for a moment: then all
            // of it counts, and not what names alone let through.
            names = self.fetch_pod_info(way).await?;
            if names.unavailable.is_none() {
                let TimeSlice { mut report, .. } = slice;
                report.skipped = SkippedCounts::default();
                slice = self.read(way, &names, report).await?;
            }
        }
        if let Some((what, failure)) = &names.unavailable {
            let namespace = &*self.batch.namespace;
            tracing::warn!(namespace, %failure, "{what}");
            slice.report.without_owner_info += 1;
        }
        self.names = Some(Arc::new(names));
        Ok(slice)
    }

    /// Reads the next slice. Of more than may be held nothing is kept, and less is asked for: how many containers there
    /// are is known only when they come.
    async fn read(
        &mut self,
        way: &LoadContext,
        names: &PodInfo,
        mut report: LoadStats,
    ) -> Result<TimeSlice, QueryError> {
        loop {
            let steps = self.next_steps(&way.plan);
            // There is nothing shorter to ask for than a step.
            let most = if steps > 1 { slice_budget(way, names) } else { u64::MAX };
            match self.read_once(way, names, most, report.clone()).await {
                Err(QueryError::CollectorFull) => {}
                read => return read,
            }
            self.steps = (steps / GROWTH).max(1);
            report.halvings += 1;
            tracing::debug!(
                namespace = &*self.batch.namespace,
                self.steps,
                "a slice was too large"
            );
        }
    }

    async fn read_once(
        &self,
        way: &LoadContext,
        names: &PodInfo,
        most: u64,
        mut report: LoadStats,
    ) -> Result<TimeSlice, QueryError> {
        let PodInfo { patterns, oom_killed: killed, .. } = names;
        let LoadContext { client, schema, plan, .. } = way;
        let length = plan.memory.saturating_mul(u32::try_from(self.steps).unwrap_or(u32::MAX));
        let span = (self.loaded_until, self.loaded_until.later(length).min(names.until));
        let batch = &*self.batch;
        let cpu = patterns.iter().map(|pods| plan.cpu(schema, batch, pods.clone()));
        let cpu = self.points(way, cpu.collect(), (plan.cpu, span), most, &mut report).await?;
        let left = most.saturating_sub(cpu.size_in_points());
        let memory = patterns.iter().map(|pods| plan.memory(schema, batch, pods.clone()));
        let memory = memory.collect();
        let memory = self.points(way, memory, (plan.memory, span), left, &mut report).await?;
        let mut counted = SeenKills::new();
        let mut kills = Vec::new();
        if let Some(states) = schema.kube_state_metrics.as_ref().filter(|_| !killed.is_empty()) {
            counted.clone_from(&self.seen_kills);
            let pods = Pattern::any_literal(killed.iter().map(|pod| &**pod));
            // Old releases of kube-state-metrics have a series for every container.
            let is_short = pods.as_str().len() <= LONGEST_PATTERN;
            let pods = if is_short { pods } else { names.pattern() };
            let question =
                OomKillQuery { client, schema, states, plan, batch, pods, max_points: most, span };
            kills = question.query(&mut counted, &mut report).await?;
        }
        Ok(TimeSlice { cpu, memory, kills, to: span.1, seen_kills: counted, report })
    }

    /// Hands a slice on: it counts now.
    pub(super) fn emit(
        &mut self,
        mut slice: TimeSlice,
        way: &LoadContext,
        sink: &mut dyn Sink,
        report: &mut LoadStats,
    ) {
        let held = slice.size_in_points();
        slice.cpu.sort();
        slice.memory.sort();
        self.emit_cpu(&slice.cpu, &way.plan, sink, &mut slice.report);
        self.emit_memory(&slice.memory, &slice.kills, &way.plan, sink, &mut slice.report);
        report.merge(&slice.report);
        self.loaded_until = slice.to;
        if !slice.seen_kills.is_empty() {
            self.seen_kills = slice.seen_kills;
        }
        let room = self.names.as_ref().map_or(way.budget, |names| slice_budget(way, names));
        let fitting = target_size(room).saturating_mul(self.steps) / held.max(1);
        self.steps = fitting.clamp(1, self.steps.saturating_mul(GROWTH)).min(max_slice_steps(way));
    }

    fn emit_cpu(
        &self,
        cpu: &SeriesPoints,
        plan: &QueryPlan,
        sink: &mut dyn Sink,
        report: &mut LoadStats,
    ) {
        let mut merged = Vec::new();
        let covers = plan.cpu_covers();
        for rows in cpu.groups() {
            let (claim, container, pod) = rows[0].key();
            let replica: Arc<str> = pod.into();
            for key in self.keys(claim, container) {
                let points = cpu.points_of(rows, &mut merged);
                let run =
                    SampleBatch { replica: &replica, gauge: UsageMetric::Cpu, covers, points };
                emit_run(run, &key, sink, report);
            }
        }
    }

    /// Memory and kills of each container of a pod together, in order of time: a kill is told from what was in use
    /// before, and the largest of a step counts at its end.
    fn emit_memory(
        &self,
        memory: &SeriesPoints,
        kills: &[OomKill],
        plan: &QueryPlan,
        sink: &mut dyn Sink,
        report: &mut LoadStats,
    ) {
        let mut merged = Vec::new();
        let covers = plan.memory_covers();
        for rows in memory.groups() {
            let own = kills_of(kills, rows[0].key());
            let (claim, container, pod) = rows[0].key();
            let replica: Arc<str> = pod.into();
            for key in self.keys(claim, container) {
                let points = memory.points_of(rows, &mut merged);
                let mut left =
                    SampleBatch { replica: &replica, gauge: UsageMetric::Memory, covers, points };
                for kill in own {
                    let (before, after) =
                        left.points.split_at(left.points.partition_point(|(at, _)| *at < kill.at));
                    emit_run(SampleBatch { points: before, ..left }, &key, sink, report);
                    emit_kill(kill, &key, sink, report);
                    left.points = after;
                }
                emit_run(left, &key, sink, report);
            }
        }
        // Those of containers whose memory nobody has measured: killed before the first scrape.
        for kill in kills {
            let key = (kill.workload, &*kill.container, &*kill.pod);
            if memory.find(key).is_empty() {
                for key in self.keys(kill.workload, &kill.container) {
                    emit_kill(kill, &key, sink, report);
                }
            }
        }
    }

    fn keys(&self, claim: usize, container: &str) -> impl Iterator<Item = ContainerKey> + use<> {
        let container: Arc<str> = container.into();
        let vpas: Vec<ObjectKey> =
            self.batch.claims.get(claim).map(|claim| claim.vpas.clone()).unwrap_or_default();
        vpas.into_iter().map(move |vpa| ContainerKey { vpa, container: Arc::clone(&container) })
    }

    async fn points(
        &self,
        way: &LoadContext,
        queries: Vec<Query>,
        (step, span): (Duration, (Time, Time)),
        most: u64,
        report: &mut LoadStats,
    ) -> Result<SeriesPoints, QueryError> {
        let grid = QueryPlan::grid(step, span).map_err(invalid_range)?;
        let mut taker = SliceCollector::new(&self.batch, way.schema.usage.container_labels(), most);
        for query in queries {
            let tally = way.client.range(&query, grid, &mut taker).await;
            let tally = tally.map_err(|interrupted| interrupted.failure)?;
            tracing::debug!(
                %query,
                from = %grid.step_time(0),
                moments = grid.step_count(),
                queries = tally.queries,
                series = tally.series,
                points = tally.points,
                bytes = tally.bytes,
                time = ?tally.time,
                "history was read"
            );
            report.add(&tally);
        }
        let (points, passed) = taker.into_committed();
        report.skipped.add(passed);
        Ok(points)
    }

    async fn fetch_pod_info(&mut self, way: &LoadContext) -> Result<PodInfo, QueryError> {
        let mut batch = WorkloadBatch::clone(&self.batch);
        let span = (self.loaded_until, self.to);
        let names = PodInfo::query(&mut batch, way, span, &mut self.pod_info_steps).await?;
        self.batch = Arc::new(batch);
        Ok(names)
    }

    /// Steps of the first slice, when nothing is known of the density but how many pods there may be. It is half of what
    /// may be held, and so whole where there are up to twice as many.
    fn first_steps(&self, way: &LoadContext) -> u64 {
        let plan = &way.plan;
        let containers =
            (self.batch.claims.len() * ASSUMED_CONTAINERS).max(self.batch.pods()) as u64;
        let each = 1 + plan.memory.as_nanos().div_ceil(plan.cpu.as_nanos().max(1)) as u64;
        (way.budget / 2 / (containers * each).max(1)).clamp(1, max_slice_steps(way))
    }
}

/// What a slice may have of the budget besides the names, which have no more than half of it.
fn slice_budget(way: &LoadContext, names: &PodInfo) -> u64 {
    way.budget.saturating_sub(names.size_in_points)
}

/// What a slice should have of what it may have: a few pods more are not yet too many.
fn target_size(budget: u64) -> u64 {
    budget - budget / 8
}

/// Steps of memory in which there are no more steps of CPU than one query may have.
fn max_slice_steps(way: &LoadContext) -> u64 {
    let each = way.plan.memory.as_nanos().div_ceil(way.plan.cpu.as_nanos().max(1)) as u64;
    (u64::from(way.client.limits().max_steps) / each.max(1)).max(1)
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
