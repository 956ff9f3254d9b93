//! One batch on its way through time: a slice is asked, handed on, and the next one begins where it ended.

use std::{mem, sync::Arc, time::Duration};

use super::{
    batch::{Batch, LONGEST_PATTERN},
    kills::{Counted, Kill, Question},
    names::Names,
    plan::{Plan, impossible},
    report::Report,
    slice::{Passed, Points, Taker},
};
use crate::prometheus::{
    client::Client, failure::Failure, query::Query, schema::Schema, selector::Pattern,
};
use plimsoll_core::{
    history::{Gauge, Measurement, Run, Sample, Sink},
    types::{Key, Time, VpaKey},
};

/// Containers that a workload is taken to have at a time until it is known better.
const LIKELY: usize = 4;
/// How much longer a slice may be than the one before: what is known of its density is from there.
pub(super) const GROWTH: u64 = 4;

/// A batch and how far it is. Whoever asks has a copy, so that nothing is lost when the asking is given up.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) batch: Arc<Batch>,
    /// Everything up to here has been handed on.
    after: Time,
    to: Time,
    names: Option<Arc<Names>>,
    /// For how many steps they are asked for at most.
    named: u32,
    counted: Counted,
    /// Steps of the next slice.
    steps: u64,
    /// Whether the sink knows that it has all of it.
    is_closed: bool,
}

/// A slice of a history, whole.
#[derive(Debug)]
pub(super) struct Slice {
    cpu: Points,
    memory: Points,
    kills: Vec<Kill>,
    /// Where it ends.
    to: Time,
    counted: Counted,
    pub(super) report: Report,
}

/// How a part is asked.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) client: Client,
    pub(super) schema: Arc<Schema>,
    pub(super) plan: Plan,
    /// Points that a slice may have.
    pub(super) budget: u64,
}

impl Slice {
    /// What its points take.
    pub(super) fn held(&self) -> u64 {
        self.cpu.held() + self.memory.held()
    }
}

impl Part {
    pub(super) fn new(batch: Batch, (after, to): (Time, Time)) -> Self {
        let batch = Arc::new(batch);
        let counted = Counted::new();
        let named = u32::MAX;
        Self { batch, after, to, names: None, named, counted, steps: 0, is_closed: false }
    }

    /// Whether all of it has been handed on.
    pub(super) fn is_done(&self) -> bool {
        self.after >= self.to
    }

    /// Up to when it has been handed on.
    pub(super) fn after(&self) -> Time {
        self.after
    }

    /// Tells the sink, once, that it has all of it, if it has.
    pub(super) fn close(&mut self, sink: &mut dyn Sink) {
        if self.is_done() && !mem::replace(&mut self.is_closed, true) {
            self.batch.vpas().for_each(|vpa| sink.whole(vpa));
        }
    }

    /// How much of it has been handed on, of how much.
    pub(super) fn progress(&self, from: Time) -> (Duration, Duration) {
        let length = |to: Time| Duration::from_nanos(to.nanos_since(from).max(0).unsigned_abs());
        (length(self.after), length(self.to))
    }

    /// The next slice is half as long as this one should have been, which was too slow to come.
    pub(super) fn ask_for_less(&mut self, plan: &Plan) {
        self.steps = self.next_steps(plan).div_ceil(2);
    }

    /// Steps of the next slice, or what is left of them.
    fn next_steps(&self, plan: &Plan) -> u64 {
        let left = self.to.nanos_since(self.after).max(0).unsigned_abs();
        let left = u128::from(left).div_ceil(plan.memory.as_nanos().max(1));
        self.steps.min(u64::try_from(left).unwrap_or(u64::MAX))
    }

    /// Asks for the next slice. Nothing of it counts before it is handed on.
    pub(super) async fn next(&mut self, way: &Way) -> Result<Slice, Failure> {
        let report = Report::default();
        if let Some(names) = self.names.as_ref().filter(|names| self.after < names.until) {
            let names = Arc::clone(names);
            return self.read(way, &names, report).await;
        }
        let mut names = self.ask_names(way).await?;
        if self.steps == 0 {
            self.steps = self.first_steps(way);
        }
        let mut slice = self.read(way, &names, report).await?;
        if names.untold.is_some() {
            // Either the server has usage and does not answer this, or something stood before it for a moment: then all
            // of it counts, and not what names alone let through.
            names = self.ask_names(way).await?;
            if names.untold.is_none() {
                let Slice { mut report, .. } = slice;
                report.passed = Passed::default();
                slice = self.read(way, &names, report).await?;
            }
        }
        if let Some((what, failure)) = &names.untold {
            let namespace = &*self.batch.namespace;
            tracing::warn!(namespace, %failure, "{what}");
            slice.report.unproven += 1;
        }
        self.names = Some(Arc::new(names));
        Ok(slice)
    }

    /// Reads the next slice. Of more than may be held nothing is kept, and less is asked for: how many containers there
    /// are is known only when they come.
    async fn read(
        &mut self,
        way: &Way,
        names: &Names,
        mut report: Report,
    ) -> Result<Slice, Failure> {
        loop {
            let steps = self.next_steps(&way.plan);
            // There is nothing shorter to ask for than a step.
            let most = if steps > 1 { room(way, names) } else { u64::MAX };
            match self.read_once(way, names, most, report.clone()).await {
                Err(Failure::Full) => {}
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
        way: &Way,
        names: &Names,
        most: u64,
        mut report: Report,
    ) -> Result<Slice, Failure> {
        let Names { patterns, killed, .. } = names;
        let Way { client, schema, plan, .. } = way;
        let length = plan.memory.saturating_mul(u32::try_from(self.steps).unwrap_or(u32::MAX));
        let span = (self.after, self.after.later(length).min(names.until));
        let batch = &*self.batch;
        let cpu = patterns.iter().map(|pods| plan.cpu(schema, batch, pods.clone()));
        let cpu = self.points(way, cpu.collect(), (plan.cpu, span), most, &mut report).await?;
        let left = most.saturating_sub(cpu.held());
        let memory = patterns.iter().map(|pods| plan.memory(schema, batch, pods.clone()));
        let memory = memory.collect();
        let memory = self.points(way, memory, (plan.memory, span), left, &mut report).await?;
        let mut counted = Counted::new();
        let mut kills = Vec::new();
        if let Some(states) = schema.states.as_ref().filter(|_| !killed.is_empty()) {
            counted.clone_from(&self.counted);
            let pods = Pattern::one_of(killed.iter().map(|pod| &**pod));
            // Old releases of kube-state-metrics have a series for every container.
            let is_short = pods.as_str().len() <= LONGEST_PATTERN;
            let pods = if is_short { pods } else { names.pattern() };
            let question = Question { client, schema, states, plan, batch, pods, most, span };
            kills = question.ask(&mut counted, &mut report).await?;
        }
        Ok(Slice { cpu, memory, kills, to: span.1, counted, report })
    }

    /// Hands a slice on: it counts now.
    pub(super) fn hand_on(
        &mut self,
        mut slice: Slice,
        way: &Way,
        sink: &mut dyn Sink,
        report: &mut Report,
    ) {
        let held = slice.held();
        slice.cpu.sort();
        slice.memory.sort();
        self.hand_on_cpu(&slice.cpu, &way.plan, sink, &mut slice.report);
        self.hand_on_memory(&slice.memory, &slice.kills, &way.plan, sink, &mut slice.report);
        report.merge(&slice.report);
        self.after = slice.to;
        if !slice.counted.is_empty() {
            self.counted = slice.counted;
        }
        let room = self.names.as_ref().map_or(way.budget, |names| room(way, names));
        let fitting = aim(room).saturating_mul(self.steps) / held.max(1);
        self.steps = fitting.clamp(1, self.steps.saturating_mul(GROWTH)).min(longest(way));
    }

    fn hand_on_cpu(&self, cpu: &Points, plan: &Plan, sink: &mut dyn Sink, report: &mut Report) {
        let mut merged = Vec::new();
        let covers = plan.cpu_covers();
        for rows in cpu.groups() {
            let (claim, container, pod) = rows[0].key();
            let replica: Arc<str> = pod.into();
            for key in self.keys(claim, container) {
                let points = cpu.of(rows, &mut merged);
                let run = Run { replica: &replica, gauge: Gauge::Cpu, covers, points };
                hand_on_run(run, &key, sink, report);
            }
        }
    }

    /// Memory and kills of each container of a pod together, in order of time: a kill is told from what was in use
    /// before, and the largest of a step counts at its end.
    fn hand_on_memory(
        &self,
        memory: &Points,
        kills: &[Kill],
        plan: &Plan,
        sink: &mut dyn Sink,
        report: &mut Report,
    ) {
        let mut merged = Vec::new();
        let covers = plan.memory_covers();
        for rows in memory.groups() {
            let own = kills_of(kills, rows[0].key());
            let (claim, container, pod) = rows[0].key();
            let replica: Arc<str> = pod.into();
            for key in self.keys(claim, container) {
                let points = memory.of(rows, &mut merged);
                let mut left = Run { replica: &replica, gauge: Gauge::Memory, covers, points };
                for kill in own {
                    let (before, after) =
                        left.points.split_at(left.points.partition_point(|(at, _)| *at < kill.at));
                    hand_on_run(Run { points: before, ..left }, &key, sink, report);
                    hand_on_kill(kill, &key, sink, report);
                    left.points = after;
                }
                hand_on_run(left, &key, sink, report);
            }
        }
        // Those of containers whose memory nobody has measured: killed before the first scrape.
        for kill in kills {
            let key = (kill.claim, &*kill.container, &*kill.pod);
            if memory.find(key).is_empty() {
                for key in self.keys(kill.claim, &kill.container) {
                    hand_on_kill(kill, &key, sink, report);
                }
            }
        }
    }

    fn keys(&self, claim: usize, container: &str) -> impl Iterator<Item = Key> + use<> {
        let container: Arc<str> = container.into();
        let vpas: Vec<VpaKey> =
            self.batch.claims.get(claim).map(|claim| claim.vpas.clone()).unwrap_or_default();
        vpas.into_iter().map(move |vpa| Key { vpa, container: Arc::clone(&container) })
    }

    async fn points(
        &self,
        way: &Way,
        queries: Vec<Query>,
        (step, span): (Duration, (Time, Time)),
        most: u64,
        report: &mut Report,
    ) -> Result<Points, Failure> {
        let grid = Plan::grid(step, span).map_err(impossible)?;
        let mut taker = Taker::new(&self.batch, way.schema.usage.identity(), most);
        for query in queries {
            let tally = way.client.range(&query, grid, &mut taker).await;
            let tally = tally.map_err(|interrupted| interrupted.failure)?;
            tracing::debug!(
                %query,
                from = %grid.moment(0),
                moments = grid.moments(),
                queries = tally.queries,
                series = tally.series,
                points = tally.points,
                bytes = tally.bytes,
                time = ?tally.time,
                "history was read"
            );
            report.add(&tally);
        }
        let (points, passed) = taker.done();
        report.passed.add(passed);
        Ok(points)
    }

    async fn ask_names(&mut self, way: &Way) -> Result<Names, Failure> {
        let mut batch = Batch::clone(&self.batch);
        let span = (self.after, self.to);
        let names = Names::ask(&mut batch, way, span, &mut self.named).await?;
        self.batch = Arc::new(batch);
        Ok(names)
    }

    /// Steps of the first slice, when nothing is known of the density but how many pods there may be. It is half of what
    /// may be held, and so whole where there are up to twice as many.
    fn first_steps(&self, way: &Way) -> u64 {
        let plan = &way.plan;
        let containers = (self.batch.claims.len() * LIKELY).max(self.batch.pods()) as u64;
        let each = 1 + plan.memory.as_nanos().div_ceil(plan.cpu.as_nanos().max(1)) as u64;
        (way.budget / 2 / (containers * each).max(1)).clamp(1, longest(way))
    }
}

/// What a slice may have of the budget besides the names, which have no more than half of it.
fn room(way: &Way, names: &Names) -> u64 {
    way.budget.saturating_sub(names.held)
}

/// What a slice should have of what it may have: a few pods more are not yet too many.
fn aim(budget: u64) -> u64 {
    budget - budget / 8
}

/// Steps of memory in which there are no more steps of CPU than one query may have.
fn longest(way: &Way) -> u64 {
    let each = way.plan.memory.as_nanos().div_ceil(way.plan.cpu.as_nanos().max(1)) as u64;
    (u64::from(way.client.limits().steps) / each.max(1)).max(1)
}

fn kills_of<'a>(kills: &'a [Kill], key: (usize, &str, &str)) -> &'a [Kill] {
    let of = |kill: &Kill| (kill.claim, &*kill.container, &*kill.pod).cmp(&key);
    let start = kills.partition_point(|kill| of(kill).is_lt());
    let end = kills.partition_point(|kill| of(kill).is_le());
    &kills[start..end]
}

fn hand_on_run(run: Run<'_>, key: &Key, sink: &mut dyn Sink, report: &mut Report) {
    report.samples += run.points.len() as u64;
    if !run.points.is_empty() {
        sink.run(key, run);
    }
}

fn hand_on_kill(kill: &Kill, key: &Key, sink: &mut dyn Sink, report: &mut Report) {
    let Kill { pod, at, request_bytes, limit_bytes, .. } = kill;
    let measurement =
        Measurement::OutOfMemory { request_bytes: *request_bytes, limit_bytes: *limit_bytes };
    let replica = (&**pod).into();
    sink.sample(key, Sample { replica, at: *at, covers: None, measurement });
    report.samples += 1;
    report.kills += 1;
}
