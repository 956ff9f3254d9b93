//! The queries of a history load: their windows and steps.
//!
//! With weighting by duration, the values are those that a recommender would have seen during that time. CPU is what a
//! metrics server would have returned at each step: the increase between the last two samples. An average over a longer
//! time would lose bursts. The window only has to contain two samples, so it depends on the scrape interval and not on
//! the step. Values are rounded to nanocores, the unit of a metrics server. Memory is the peak within a step. Recorded
//! series are used if they exist for both. Series of one container that differ in other labels (another node, a restart, a
//! second Prometheus) are merged.

use std::time::Duration;

use crate::prometheus::{
    client::QueryRange,
    promql::{Aggregation, Query, RangeFunction},
    query_error::QueryError,
    schema::{RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC, RecordingRules, Schema, ScrapeInterval},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

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

#[derive(Clone, Debug)]
pub(super) struct QueryPlan {
    pub(super) cpu: Duration,
    /// The step of memory samples. Slices of a history are whole multiples of it.
    pub(super) memory: Duration,
    pub(super) is_upstream: bool,
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
                let ScrapeInterval { interval, longest_gap } = schema.scrape_interval.value;
                // With an interval that is only slightly longer, steps without their own sample are rare, and the window
                // covers the previous sample.
                let cpu = if interval <= cpu.mul_f64(1.25) { cpu } else { interval };
                let cpu = Duration::from_secs(cpu.as_nanos().div_ceil(1_000_000_000).max(1) as u64);
                let steps = memory.as_secs().div_ceil(cpu.as_secs()).max(1);
                let memory = cpu.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX));
                // It always contains two samples and rarely three: a failed scrape appears as a step without a value, as
                // on a metrics server, and a series that ended does not continue.
                let window = longest_gap.saturating_mul(21) / 10;
                Self { cpu, memory, is_upstream: false, window }
            }
        }
    }

    /// The time that a sample of this step covers. Upstream's samples all weigh the same.
    pub(super) fn covers(&self, step: Duration) -> Option<Duration> {
        (!self.is_upstream).then_some(step)
    }

    pub(super) fn cpu_steps(&self) -> u64 {
        self.memory.as_nanos().div_ceil(self.cpu.as_nanos().max(1)) as u64
    }

    /// The memory steps between two times, including an incomplete one.
    pub(super) fn steps_between(&self, after: Time, to: Time) -> u64 {
        let length = u128::from(to.nanos_since(after).max(0).unsigned_abs());
        u64::try_from(length.div_ceil(self.memory.as_nanos().max(1))).unwrap_or(u64::MAX)
    }

    /// Whether recorded series may be used. They exist only for the default steps.
    pub(super) fn may_be_recorded(&self) -> bool {
        !self.is_upstream && self.memory == RECORDED_PEAK
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
    ) -> Result<QueryRange, QueryError> {
        QueryRange::new(after.later(step), to, step)
    }

    pub(super) fn cpu(&self, schema: &Schema, namespace: &str, pods: Pattern) -> Query {
        if self.reads_recorded(schema) {
            return recorded(schema, RECORDED_CPU_METRIC, namespace, pods).round_to_nanocores();
        }
        let series = schema.usage_series(&schema.usage.cpu.value);
        let selector = schema.of_pods_in(series, &[namespace], pods);
        if self.is_upstream {
            return Query::range_function(RangeFunction::Rate, &selector, self.window);
        }
        max_by(
            &Query::range_function(RangeFunction::InstantRate, &selector, self.window),
            &schema.usage.container_labels(),
        )
        .round_to_nanocores()
    }

    pub(super) fn memory(&self, schema: &Schema, namespace: &str, pods: Pattern) -> Query {
        if self.reads_recorded(schema) {
            return recorded(schema, RECORDED_MEMORY_METRIC, namespace, pods);
        }
        let series = schema.usage_series(&schema.usage.memory.value);
        let selector = schema.of_pods_in(series, &[namespace], pods);
        if self.is_upstream {
            return selector.into();
        }
        // A millisecond shorter than a step, because release 2 includes both ends.
        let window = self.memory.saturating_sub(Duration::from_millis(1));
        let peak = Query::range_function(RangeFunction::Max, &selector, window);
        max_by(&peak, &schema.usage.container_labels())
    }

    fn reads_recorded(&self, schema: &Schema) -> bool {
        self.may_be_recorded() && schema.recording_rules == RecordingRules::Complete
    }
}

/// The last recorded value within a minute: rules are evaluated every minute, and a series that ended must not continue
/// where staleness markers are missing.
fn recorded(schema: &Schema, metric: &str, namespace: &str, pods: Pattern) -> Query {
    const FRESH: Duration = Duration::from_millis(59_999);
    let series = schema.of_pods_in(Selector::metric(metric), &[namespace], pods);
    max_by(
        &Query::range_function(RangeFunction::Last, &series, FRESH),
        &schema.usage.container_labels(),
    )
}

/// Merges series that differ in other labels by their maximum: of replicas, the most complete counts, and of a restarted
/// container, the running one.
pub(super) fn max_by(query: &Query, identity: &[&str]) -> Query {
    query.aggregate(Aggregation::Max, identity)
}

/// A query of a history load.
#[derive(Clone, Debug)]
pub struct QueryPreview {
    pub resource: &'static str,
    pub query: Query,
    pub step: Duration,
}

/// The usage queries for all pods of a namespace. A history load restricts them to the pods of VPAs.
pub fn preview_queries(
    weighting: Weighting,
    schema: &Schema,
    namespace: &str,
) -> [QueryPreview; 2] {
    let plan = QueryPlan::new(weighting, schema);
    let pods = || Pattern::regex(".+");
    [
        QueryPreview {
            resource: "CPU",
            query: plan.cpu(schema, namespace, pods()),
            step: plan.cpu,
        },
        QueryPreview {
            resource: "memory",
            query: plan.memory(schema, namespace, pods()),
            step: plan.memory,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::{history::OwnerRef, schema::tests::schema};

    /// The pods of a StatefulSet `db`.
    fn pods() -> Pattern {
        OwnerRef::parse("apps/StatefulSet/db").expect("an owner").pattern()
    }

    #[test]
    fn each_query_has_its_selector_window_and_step() {
        let schema = schema(60, 60);
        let plan = QueryPlan::new(Weighting::default(), &schema);
        assert_eq!(
            plan.cpu(&schema, "shop", pods()).as_str(),
            "round((max by (namespace,pod,container) (irate(container_cpu_usage_seconds_total{job=\"kubelet\",\
             namespace=\"shop\",pod=~\"db-[0-9]{1,10}\",container!=\"\",container!=\"POD\",cluster=\"qa\"}[126s]))) \
             * 1e9) / 1e9"
        );
        assert_eq!(
            plan.memory(&schema, "shop", pods()).as_str(),
            "max by (namespace,pod,container) (max_over_time(container_memory_working_set_bytes{job=\"kubelet\",\
             namespace=\"shop\",pod=~\"db-[0-9]{1,10}\",container!=\"\",container!=\"POD\",cluster=\"qa\"}[299999ms]))"
        );
        let upstream = Weighting::Upstream { resolution: Duration::from_hours(1) };
        let plan = QueryPlan::new(upstream, &schema);
        assert_eq!(
            plan.cpu(&schema, "shop", pods()).as_str(),
            "rate(container_cpu_usage_seconds_total{job=\"kubelet\",namespace=\"shop\",pod=~\"db-[0-9]{1,10}\",\
             container!=\"\",container!=\"POD\",cluster=\"qa\"}[1h])"
        );
    }

    #[test]
    fn complete_recording_rules_are_used_unless_upstreams_queries_are_requested() {
        let recorded = Schema { recording_rules: RecordingRules::Complete, ..schema(60, 60) };
        let plan = QueryPlan::new(Weighting::default(), &recorded);
        let queries = |schema: &Schema, plan: &QueryPlan| {
            [plan.cpu(schema, "shop", pods()), plan.memory(schema, "shop", pods())]
                .map(|query| query.to_string())
        };
        let selector = "{namespace=\"shop\",pod=~\"db-[0-9]{1,10}\",container!=\"\",container!=\"POD\",cluster=\"qa\"}";
        let query = |metric: &str| {
            format!(
                "max by (namespace,pod,container) (last_over_time({metric}{selector}[59999ms]))"
            )
        };
        assert_eq!(
            queries(&recorded, &plan),
            [
                format!("round(({}) * 1e9) / 1e9", query(RECORDED_CPU_METRIC)),
                query(RECORDED_MEMORY_METRIC)
            ]
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
        assert_eq!((grid.step_count, grid.step_time(0)), (60, Time::from_secs(3_960)));
        let upstream = Weighting::Upstream { resolution: Duration::from_mins(10) };
        let plan = QueryPlan::new(upstream, &schema(60, 60));
        let span = plan.span(Duration::from_hours(1), Time::from_secs(7_701));
        let grid = QueryPlan::grid(plan.cpu, span).expect("a grid");
        assert_eq!((grid.step_count, grid.step_time(0)), (7, Time::from_secs(4_101)));
        assert_eq!(grid.step_time(6), Time::from_secs(7_701));
        let (_, to) = plan.span(Duration::from_mins(65), Time::from_secs(7_701));
        assert_eq!(to, Time::from_secs(7_401), "the last step that is whole");
        for (time, before) in [(7_400, 6_801), (7_401, 7_401), (9_999, 7_401), (5_602, 5_601)] {
            assert_eq!(plan.moment_before(to, Time::from_secs(time)), Time::from_secs(before));
        }
    }
}
