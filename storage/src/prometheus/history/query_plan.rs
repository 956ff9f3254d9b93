//! The queries of a history load: their windows and steps.
//!
//! With weighting by duration, the values are those that a recommender would have seen during that time. CPU is what a
//! metrics server would have returned at each step: the increase between the last two samples. An average over a longer
//! time would lose bursts. The window only has to contain two samples, so it depends on the scrape interval and not on
//! the step. Memory is the peak within a step. Recorded series are used if they exist for both. Series of one container
//! that differ in other labels (another node, a restart, a second Prometheus) are merged.

use std::time::Duration;

use super::workload_batch::WorkloadBatch;
use crate::prometheus::{
    client::{InvalidQueryRange, QueryRange},
    promql::{Aggregation, Query, RangeFunction},
    query_error::QueryError,
    schema::{RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC, RecordingRules, Schema},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// The window of the recorded memory peak.
const RECORDED_PEAK: Duration = Duration::from_mins(5);

/// The weighting of history samples (`--history-weighting`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighting {
    /// Samples weigh the time that they cover.
    Duration {
        /// The time that a CPU sample covers. Never less than the scrape interval.
        cpu: Duration,
        /// The window of the memory peak.
        memory: Duration,
    },
    /// All samples weigh the same, from the queries of upstream.
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

/// The steps and windows of the queries.
#[derive(Clone, Debug)]
pub(super) struct QueryPlan {
    /// The step of CPU samples.
    pub(super) cpu: Duration,
    /// The step of memory samples. Slices of a history are whole multiples of it.
    pub(super) memory: Duration,
    is_upstream: bool,
    /// The window of the CPU query.
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
                let scrape = schema.scrape_interval.value;
                let cpu = whole_seconds(cpu.max(snap_to_step(scrape.interval, cpu)));
                let steps = memory.as_secs().div_ceil(cpu.as_secs()).max(1);
                let memory = cpu.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX));
                Self {
                    cpu,
                    memory,
                    is_upstream: false,
                    window: two_sample_window(scrape.longest_gap),
                }
            }
        }
    }

    /// The time that a CPU sample covers.
    pub(super) fn cpu_covers(&self) -> Option<Duration> {
        (!self.is_upstream).then_some(self.cpu)
    }

    /// The time that a memory sample covers.
    pub(super) fn memory_covers(&self) -> Option<Duration> {
        (!self.is_upstream).then_some(self.memory)
    }

    /// Whether recorded series may be used. They exist only for the default steps.
    pub(super) fn may_be_recorded(&self) -> bool {
        !self.is_upstream && self.memory == RECORDED_PEAK
    }

    /// Whether OOM kills are read.
    pub(super) fn has_kills(&self) -> bool {
        !self.is_upstream
    }

    /// The time range of a history that ends now: after the first time, up to and including the second. Upstream's includes
    /// a sample at the start. Ours is aligned to whole steps, so that a later load can continue where this one ended.
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

    /// The end of the last whole step before this time.
    pub(super) fn floor_to_step(&self, time: Time) -> Time {
        let step = i64::try_from(self.memory.as_nanos()).unwrap_or(i64::MAX).max(1);
        Time::from_nanos(time.as_nanos().div_euclid(step) * step)
    }

    /// The last step boundary at or before `time`, counted backwards from `to`.
    pub(super) fn moment_before(&self, to: Time, time: Time) -> Time {
        let step = i64::try_from(self.memory.as_nanos()).unwrap_or(i64::MAX).max(1);
        let back = to.nanos_since(time).max(0);
        let steps = back / step + i64::from(back % step > 0);
        Time::from_nanos(to.as_nanos().saturating_sub(steps.saturating_mul(step)))
    }

    /// The evaluation times after one time up to another.
    pub(super) fn grid(
        step: Duration,
        (after, to): (Time, Time),
    ) -> Result<QueryRange, InvalidQueryRange> {
        QueryRange::new(after.later(step), to, step)
    }

    /// The query for CPU usage.
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

    /// The query for memory usage.
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

    /// The peak within a step. The window is a millisecond shorter, because release 2 includes both ends.
    fn peak_query(&self, selector: &Selector) -> Query {
        Query::range_function(
            RangeFunction::Max,
            selector,
            self.memory.saturating_sub(Duration::from_millis(1)),
        )
    }
}

/// The last recorded value within a minute: rules are evaluated every minute, and a series that ended must not continue
/// where staleness markers are missing.
fn recorded(schema: &Schema, metric: &str, batch: &WorkloadBatch, pods: Pattern) -> Query {
    const FRESH: Duration = Duration::from_millis(59_999);
    let series = schema.recorded_selector(metric, &batch.namespace, pods);
    max_by(
        &Query::range_function(RangeFunction::Last, &series, FRESH),
        &schema.usage.container_labels(),
    )
}

/// Converts an invalid range, which cannot occur for whole steps.
pub(super) fn invalid_range(error: InvalidQueryRange) -> QueryError {
    QueryError::BadQuery(error.to_string())
}

/// Merges series that differ in other labels by their maximum: of replicas, the most complete counts, and of a restarted
/// container, the running one.
pub(super) fn max_by(query: &Query, identity: &[&str]) -> Query {
    query.aggregate(Aggregation::Max, identity)
}

/// The interval, or the step if the interval is only slightly longer: steps without their own sample are rare then, and
/// the window covers the previous sample.
fn snap_to_step(interval: Duration, step: Duration) -> Duration {
    if interval <= step.mul_f64(1.25) { step } else { interval }
}

/// A window that always contains two samples and rarely three: a failed scrape appears as a step without a value, as on
/// a metrics server, and a series that ended does not continue.
fn two_sample_window(longest: Duration) -> Duration {
    longest.saturating_mul(21) / 10
}

fn whole_seconds(duration: Duration) -> Duration {
    let round_up = u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs((duration.as_secs() + round_up).max(1))
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
    fn each_query_has_its_selector_window_and_step() {
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
    fn complete_recording_rules_are_used_unless_upstreams_queries_are_requested() {
        let batch = batch();
        let recorded = Schema { recording_rules: RecordingRules::Complete, ..schema(60, 60) };
        let plan = QueryPlan::new(Weighting::default(), &recorded);
        let queries = |schema: &Schema, plan: &QueryPlan| {
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
            queries(&recorded, &plan),
            [query(RECORDED_CPU_METRIC), query(RECORDED_MEMORY_METRIC)]
        );
        let short =
            RecordingRules::Incomplete { at: Time::EPOCH, containers: 1, total_containers: 2 };
        let short = Schema { recording_rules: short, ..schema(60, 60) };
        assert_eq!(queries(&short, &plan), queries(&schema(60, 60), &plan));
        let upstream = Weighting::Upstream { resolution: Duration::from_hours(1) };
        let plan = QueryPlan::new(upstream, &recorded);
        assert_eq!(queries(&recorded, &plan), queries(&schema(60, 60), &plan));
        // Peaks of five minutes do not cover a step of six.
        let slow = Schema { recording_rules: RecordingRules::Complete, ..schema(120, 120) };
        let plan = QueryPlan::new(Weighting::default(), &slow);
        assert_eq!(queries(&slow, &plan), queries(&schema(120, 120), &plan));
    }

    #[test]
    fn steps_are_at_least_the_scrape_interval_and_windows_contain_two_scrapes() {
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
    fn a_history_consists_of_whole_steps() {
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
