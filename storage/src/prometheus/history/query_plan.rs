//! Which queries history is read by: over which windows, in which steps.
//!
//! With the weighting by duration the numbers are those that a recommender would have seen that lived through the time.
//! CPU is what a metrics server would have said at each step: the increase between the last two samples. Means over
//! longer times would lose the bursts. The window only has to hold two samples, so it hangs on how often is scraped and
//! never on the step: where a server is slow, steps are longer, and each stands for more time. Memory is the largest
//! value within a step. Where rules have recorded both, what they recorded is read. Series of one container that differ in anything else (another node, a restart, a second
//! Prometheus) are one.

use std::time::Duration;

use super::workload_batch::WorkloadBatch;
use crate::prometheus::{
    client::{InvalidQueryRange, QueryRange},
    promql::{Aggregation, Grouping, Query, RangeFunction},
    query_error::QueryError,
    schema::{RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC, RecordingRules, Schema},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// The time whose largest memory rules record.
const RECORDED_PEAK: Duration = Duration::from_mins(5);

/// What samples of a history weigh (`--history-weighting`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// The time that they stand for.
    Duration {
        /// The time that a sample of CPU stands for. Never less than the time between two scrapes.
        cpu: Duration,
        /// The time of whose memory the largest is taken.
        memory: Duration,
    },
    /// The same each, from the queries that upstream asks.
    Upstream {
        /// The step, and the window of the rate (`--history-resolution`).
        resolution: Duration,
    },
}

impl Default for Weighting {
    fn default() -> Self {
        Self::Duration { cpu: Duration::from_mins(1), memory: Duration::from_mins(5) }
    }
}

/// How a server is asked.
#[derive(Clone, Debug)]
pub(super) struct QueryPlan {
    /// The time between two samples of CPU.
    pub(super) cpu: Duration,
    /// Between two of memory, and what parts of a history are whole multiples of.
    pub(super) memory: Duration,
    is_upstream: bool,
    /// The window of the query for CPU.
    window: Duration,
}

impl QueryPlan {
    pub(super) fn new(weighting: Weighting, schema: &Schema) -> Self {
        match weighting {
            Weighting::Upstream { resolution } => {
                let resolution = resolution.max(Duration::from_millis(1));
                Self { cpu: resolution, memory: resolution, is_upstream: true, window: resolution }
            }
            Weighting::Duration { cpu, memory } => {
                let pace = schema.scrape_interval.value;
                let cpu = whole_seconds(cpu.max(snap_to_step(pace.interval, cpu)));
                let steps = memory.as_secs().div_ceil(cpu.as_secs()).max(1);
                let memory = cpu.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX));
                Self {
                    cpu,
                    memory,
                    is_upstream: false,
                    window: two_sample_window(pace.longest_gap),
                }
            }
        }
    }

    /// What samples of CPU stand for.
    pub(super) fn cpu_covers(&self) -> Option<Duration> {
        (!self.is_upstream).then_some(self.cpu)
    }

    /// What samples of memory stand for.
    pub(super) fn memory_covers(&self) -> Option<Duration> {
        (!self.is_upstream).then_some(self.memory)
    }

    /// Whether it may be read from recorded series, which are made for the usual steps.
    pub(super) fn may_be_recorded(&self) -> bool {
        !self.is_upstream && self.memory == RECORDED_PEAK
    }

    /// Whether kills are read.
    pub(super) fn has_kills(&self) -> bool {
        !self.is_upstream
    }

    /// The span of a history that ends now: after its first moment, up to its last one. Upstream's begins with a sample
    /// at the beginning; ours has moments that are the same whenever it is asked, so that one can go on where another
    /// one ended.
    pub(super) fn span(&self, length: Duration, now: Time) -> (Time, Time) {
        if self.is_upstream {
            let start = now.earlier(length);
            let steps = length.as_nanos() / self.memory.as_nanos().max(1);
            let steps = u32::try_from(steps).unwrap_or(u32::MAX);
            let last = start.later(self.memory.saturating_mul(steps));
            return (start.earlier(self.memory), last);
        }
        let to = self.floor_to_step(now);
        (self.floor_to_step(to.earlier(length)), to)
    }

    /// The end of the last whole step before.
    pub(super) fn floor_to_step(&self, time: Time) -> Time {
        let step = i64::try_from(self.memory.as_nanos()).unwrap_or(i64::MAX).max(1);
        Time::from_nanos(time.as_nanos().div_euclid(step) * step)
    }

    /// The last moment before or at a time, of those that parts may begin or end with and that `to` is one of.
    pub(super) fn moment_before(&self, to: Time, time: Time) -> Time {
        let step = i64::try_from(self.memory.as_nanos()).unwrap_or(i64::MAX).max(1);
        let back = to.nanos_since(time).max(0);
        let steps = back / step + i64::from(back % step > 0);
        Time::from_nanos(to.as_nanos().saturating_sub(steps.saturating_mul(step)))
    }

    /// The moments after a time up to another one.
    pub(super) fn grid(
        step: Duration,
        (after, to): (Time, Time),
    ) -> Result<QueryRange, InvalidQueryRange> {
        QueryRange::new(after.later(step), to, step)
    }

    /// CPU in use.
    pub(super) fn cpu(&self, schema: &Schema, batch: &WorkloadBatch, pods: Pattern) -> Query {
        if self.is_upstream {
            let selector = schema.usage_selector(&schema.usage.cpu, &batch.namespace, pods);
            return Query::range_function(RangeFunction::Rate, &selector, self.window);
        }
        if self.may_be_recorded() && schema.recording_rules == RecordingRules::Complete {
            return recorded(schema, RECORDED_CPU_METRIC, batch, pods);
        }
        let selector = schema.usage_selector(&schema.usage.cpu, &batch.namespace, pods);
        max_by(
            &Query::range_function(RangeFunction::InstantRate, &selector, self.window),
            &schema.usage.container_labels(),
        )
    }

    /// Memory in use.
    pub(super) fn memory(&self, schema: &Schema, batch: &WorkloadBatch, pods: Pattern) -> Query {
        if self.may_be_recorded() && schema.recording_rules == RecordingRules::Complete {
            return recorded(schema, RECORDED_MEMORY_METRIC, batch, pods);
        }
        let selector = schema.usage_selector(&schema.usage.memory, &batch.namespace, pods);
        if self.is_upstream {
            return selector.into();
        }
        max_by(&self.peak_query(&selector), &schema.usage.container_labels())
    }

    /// The largest value within a step. A millisecond short, because release 2 counts both edges of a window.
    fn peak_query(&self, selector: &Selector) -> Query {
        Query::range_function(
            RangeFunction::Max,
            selector,
            self.memory.saturating_sub(Duration::from_millis(1)),
        )
    }
}

/// What a rule recorded last, if it is of this very minute: rules are evaluated each minute, and what ended is not
/// said to go on where blocks were written without marks of its end.
fn recorded(schema: &Schema, metric: &str, batch: &WorkloadBatch, pods: Pattern) -> Query {
    const FRESH: Duration = Duration::from_millis(59_999);
    let series = schema.recorded_selector(metric, &batch.namespace, pods);
    max_by(
        &Query::range_function(RangeFunction::Last, &series, FRESH),
        &schema.usage.container_labels(),
    )
}

/// A span of whole steps always has a grid.
pub(super) fn invalid_range(no_grid: InvalidQueryRange) -> QueryError {
    QueryError::BadQuery(no_grid.to_string())
}

/// Series that differ in anything but these labels become one: the largest of them, because of copies the fullest
/// counts, and of a container that was restarted the one that runs.
pub(super) fn max_by(query: &Query, identity: &[&str]) -> Query {
    query.aggregate(Aggregation::Max, Grouping::By(identity))
}

/// The interval, unless it is the step but for a little: then steps without a sample of their own are rare, and the
/// window has those before.
fn snap_to_step(interval: Duration, step: Duration) -> Duration {
    if interval <= step.mul_f64(1.25) { step } else { interval }
}

/// A window that always holds two samples, and hardly ever three: that a scrape failed shows as a step without a value,
/// as it would on a metrics server, and what ended is not said to go on.
fn two_sample_window(longest: Duration) -> Duration {
    longest.saturating_mul(21) / 10
}

fn whole_seconds(duration: Duration) -> Duration {
    let more = u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs((duration.as_secs() + more).max(1))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::prometheus::schema::{
        CPU_METRIC, Dialect, MEMORY_METRIC, ScrapeInterval, UsageSeries, WithOrigin,
    };

    pub(in crate::prometheus::history) fn schema(interval: u64, longest: u64) -> Schema {
        let name = |text: &str| WithOrigin::detected(text.to_owned());
        let seconds = Duration::from_secs;
        Schema {
            usage: UsageSeries {
                cpu: name(CPU_METRIC),
                memory: name(MEMORY_METRIC),
                job: WithOrigin::detected(Some("kubelet".to_owned())),
                metrics_path: None,
                namespace: name("namespace"),
                pod: name("pod"),
                container: name("container"),
                containers: 1,
                jobs: Vec::new(),
            },
            kube_state_metrics: None,
            recording_rules: RecordingRules::Absent,
            dialect: Dialect::PromQl,
            scrape_interval: WithOrigin::detected(ScrapeInterval {
                interval: seconds(interval),
                longest_gap: seconds(longest),
            }),
            replica_labels: Vec::new(),
            cluster_labels: Vec::new(),
            matchers: [r#"cluster="qa""#.parse().expect("one")].into_iter().collect(),
        }
    }

    fn batch() -> WorkloadBatch {
        let wanted = [(
            plimsoll_core::types::ObjectKey::new("shop", "db"),
            Some("apps/StatefulSet/db".into()),
        )];
        WorkloadBatch::all(&wanted.into_iter().collect()).0.remove(0)
    }

    #[test]
    fn each_query_says_where_what_and_over_which_time() {
        let (schema, batch) = (schema(60, 60), batch());
        let plan = QueryPlan::new(Weighting::default(), &schema);
        let pods = batch.patterns().remove(0);
        assert_eq!(
            plan.cpu(&schema, &batch, pods.clone()).as_str(),
            "max by (namespace,pod,container) (irate(container_cpu_usage_seconds_total{job=\"kubelet\",\
             namespace=\"shop\",pod=~\"db-[0-9]{1,10}\",container!=\"\",container!=\"POD\",cluster=\"qa\"}[126s]))"
        );
        assert_eq!(
            plan.memory(&schema, &batch, pods.clone()).as_str(),
            "max by (namespace,pod,container) (max_over_time(container_memory_working_set_bytes{job=\"kubelet\",\
             namespace=\"shop\",pod=~\"db-[0-9]{1,10}\",container!=\"\",container!=\"POD\",cluster=\"qa\"}[299999ms]))"
        );
        let upstream = Weighting::Upstream { resolution: Duration::from_hours(1) };
        let plan = QueryPlan::new(upstream, &schema);
        assert_eq!(
            plan.cpu(&schema, &batch, pods).as_str(),
            "rate(container_cpu_usage_seconds_total{job=\"kubelet\",namespace=\"shop\",pod=~\"db-[0-9]{1,10}\",\
             container!=\"\",container!=\"POD\",cluster=\"qa\"}[1h])"
        );
    }

    #[test]
    fn what_is_recorded_of_everything_is_read_unless_upstreams_queries_are_wanted() {
        let batch = batch();
        let recorded = Schema { recording_rules: RecordingRules::Complete, ..schema(60, 60) };
        let plan = QueryPlan::new(Weighting::default(), &recorded);
        let ask = |schema: &Schema, plan: &QueryPlan| {
            let pods = batch.patterns().remove(0);
            let cpu = plan.cpu(schema, &batch, pods.clone());
            [cpu, plan.memory(schema, &batch, pods)].map(|query| query.to_string())
        };
        let selector = "{namespace=\"shop\",pod=~\"db-[0-9]{1,10}\",container!=\"\",container!=\"POD\",cluster=\"qa\"}";
        let query = |metric: &str| {
            format!(
                "max by (namespace,pod,container) (last_over_time({metric}{selector}[59999ms]))"
            )
        };
        assert_eq!(
            ask(&recorded, &plan),
            [query(RECORDED_CPU_METRIC), query(RECORDED_MEMORY_METRIC)]
        );
        let short =
            RecordingRules::Incomplete { at: Time::EPOCH, containers: 1, total_containers: 2 };
        let short = Schema { recording_rules: short, ..schema(60, 60) };
        assert_eq!(ask(&short, &plan), ask(&schema(60, 60), &plan));
        let upstream = Weighting::Upstream { resolution: Duration::from_hours(1) };
        let plan = QueryPlan::new(upstream, &recorded);
        assert_eq!(ask(&recorded, &plan), ask(&schema(60, 60), &plan));
        // Peaks of five minutes are not all of six.
        let slow = Schema { recording_rules: RecordingRules::Complete, ..schema(120, 120) };
        let plan = QueryPlan::new(Weighting::default(), &slow);
        assert_eq!(ask(&slow, &plan), ask(&schema(120, 120), &plan));
    }

    #[test]
    fn steps_are_no_finer_than_scrapes_and_windows_hold_two_of_them_whatever_the_step() {
        for (interval, longest, cpu, memory, window) in [
            (15, 15, 60, 300, 31_500),
            (30, 45, 60, 300, 94_500),
            (60, 75, 60, 300, 157_500),
            (61, 61, 60, 300, 128_100),
            (120, 120, 120, 360, 252_000),
            (600, 600, 600, 600, 1_260_000),
        ] {
            let plan = QueryPlan::new(Weighting::default(), &schema(interval, longest));
            let seconds = |duration: Duration| duration.as_secs();
            assert_eq!((seconds(plan.cpu), seconds(plan.memory)), (cpu, memory), "{interval}");
            assert_eq!(plan.window.as_millis(), window, "{interval}");
        }
        let minutes = Duration::from_mins;
        let coarse = Weighting::Duration { cpu: minutes(5), memory: minutes(5) };
        let plan = QueryPlan::new(coarse, &schema(30, 30));
        assert_eq!((plan.cpu, plan.window.as_secs()), (minutes(5), 63), "a burst stays a burst");
    }

    #[test]
    fn a_history_begins_and_ends_with_whole_steps() {
        let plan = QueryPlan::new(Weighting::default(), &schema(60, 60));
        let (after, to) = plan.span(Duration::from_hours(1), Time::from_secs(7_700));
        assert_eq!((after, to), (Time::from_secs(3_900), Time::from_secs(7_500)));
        let grid = QueryPlan::grid(plan.cpu, (after, to)).expect("a grid");
        assert_eq!((grid.step_count(), grid.step_time(0)), (60, Time::from_secs(3_960)));
        let upstream = Weighting::Upstream { resolution: Duration::from_mins(10) };
        let plan = QueryPlan::new(upstream, &schema(60, 60));
        let span = plan.span(Duration::from_hours(1), Time::from_secs(7_701));
        let grid = QueryPlan::grid(plan.cpu, span).expect("a grid");
        assert_eq!((grid.step_count(), grid.step_time(0)), (7, Time::from_secs(4_101)));
        assert_eq!(grid.step_time(6), Time::from_secs(7_701));
        let (_, to) = plan.span(Duration::from_mins(65), Time::from_secs(7_701));
        assert_eq!(to, Time::from_secs(7_401), "the last step that is whole");
        for (time, before) in [(7_400, 6_801), (7_401, 7_401), (9_999, 7_401), (5_602, 5_601)] {
            assert_eq!(plan.moment_before(to, Time::from_secs(time)), Time::from_secs(before));
        }
    }
}
