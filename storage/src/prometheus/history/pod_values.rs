//! The largest values of single series of pods, each with its workload: peaks of memory by day over a longer time than the
//! history, and the length and usage of runs.
//!
//! Only the largest value of each series and of each day is held in memory, so the length of the time range hardly matters.
//! Batches of several namespaces are queried together.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    batch_group::BatchGroup,
    jvm_series::JvmFigure,
    load::MAX_CONSECUTIVE_FAILURES,
    pod_value_collector::{CollectedValue, LargestValues},
    query_plan::max_by,
};
use crate::prometheus::{
    client::{PrometheusClient, QueryRange},
    promql::{Aggregation, Query, RangeFunction},
    query_error::QueryError,
    schema::{ACTIVE_FILE_METRIC, MAPPED_FILE_METRIC, RSS_METRIC, Schema},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::{ObjectKey, Time};

/// The number of samples that a query may load, if the number of series is as expected.
const MAX_LOADED_SAMPLES: u64 = 5_000_000;
/// Assumed number of containers of a workload until pods are known, and of a pod.
const ASSUMED_CONTAINERS: u64 = 4;
const CONTAINERS_OF_POD: u64 = 2;

/// How often the time range of a workload is halved that has too many pods.
pub(super) const MAX_HALVINGS: u32 = 6;

/// A query for one value of each series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodQuery {
    /// The peak of memory of all pods on each day, with its time to this step.
    MemoryPeak {
        step: Duration,
    },
    /// The same of memory without page cache that could be dropped: anonymous memory and mapped files.
    NeededMemory {
        step: Duration,
    },
    /// The largest sample of page cache in use of all pods on each day, with one sample for each step.
    ActiveFile {
        step: Duration,
    },
    /// The largest value of a figure of Java virtual machines of all pods on each day. The container is empty if the series
    /// do not have it.
    Jvm {
        figure: JvmFigure,
        step: Duration,
    },
    /// The increase of a counter of cAdvisor in the time range.
    Increase {
        metric: &'static str,
    },
    /// 1 for each container that has a series of this metric at the end of the time range.
    HasSeries {
        metric: &'static str,
    },
    /// The same for memory.
    HasMemory,
    /// The largest value of the CPU counter: the CPU time of a container that ran once.
    CpuSeconds,
    LargestMemory,
    /// The largest value of a family of kube-state-metrics for pods.
    PodState {
        family: &'static str,
    },
    /// The largest value of a family of kube-state-metrics for containers.
    ContainerState {
        family: &'static str,
        /// A label and its value.
        matching: (&'static str, &'static str),
    },
    /// A label of a family of kube-state-metrics for pods, from the index of the server.
    PodLabel {
        family: &'static str,
        label: &'static str,
    },
}

impl PodQuery {
    /// Whether the result is a value for each day, of all pods of a workload together.
    pub(super) fn is_by_day(self) -> bool {
        matches!(
            self,
            Self::MemoryPeak { .. }
                | Self::NeededMemory { .. }
                | Self::ActiveFile { .. }
                | Self::Jvm { .. }
        )
    }
}

/// The result of a query for one series, and for one day if it is by day.
#[derive(Clone, Copy, Debug)]
pub struct PodValue<'a> {
    /// The index of the query.
    pub query: usize,
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

pub(super) struct PodQueries<'a> {
    pub(super) client: &'a PrometheusClient,
    pub(super) schema: &'a Schema,
    pub(super) queries: &'a [PodQuery],
    pub(super) span: (Time, Time),
    /// Maximum number of points that a batch may hold in memory: owners of pods, and values.
    pub(super) budget: u64,
    /// How often the time range of a workload is halved that has too many pods.
    pub(super) max_halvings: u32,
}

impl PodQueries<'_> {
    /// Queries one group of batches after the other. A failed group does not stop the others. Values of a group are passed on
    /// only if all of its queries succeeded.
    pub(super) async fn query(
        &self,
        groups: Vec<BatchGroup>,
        accept: &mut (dyn FnMut(PodValue<'_>) + Send),
    ) -> PodValueReport {
        let mut report = PodValueReport::default();
        let mut consecutive_failures = 0;
        let mut pending = VecDeque::from(groups);
        while let Some(group) = pending.pop_front() {
            if consecutive_failures >= MAX_CONSECUTIVE_FAILURES {
                report.failed_vpas.extend(group.vpas().cloned());
                continue;
            }
            let result = self.query_group(group.clone(), self.span).await;
            let is_too_large =
                matches!(result, Err(QueryError::CollectorFull | QueryError::TooLarge(_)));
            // Split groups with a namespace that cannot be queried, too.
            let is_specific = result.as_ref().is_err_and(QueryError::is_query_specific);
            if (is_too_large || is_specific && group.batches.len() > 1)
                && let Some([first, second]) = group.split()
            {
                pending.push_front(second);
                pending.push_front(first);
                continue;
            }
            let result = if is_too_large {
                report.shortened_vpas.extend(group.vpas().cloned());
                self.query_shorter(&group, result).await
            } else {
                result
            };
            match result {
                Ok((group, values)) => {
                    consecutive_failures = 0;
                    for value in &values {
                        value.pass_on(&group, accept);
                    }
                }
                Err(failure) => {
                    consecutive_failures += u32::from(!failure.is_query_specific());
                    report.failed_vpas.extend(group.vpas().cloned());
                    report.failure.get_or_insert((group.first_namespace(), failure));
                }
            }
        }
        report
    }

    /// Queries the last half of the time range, or of that.
    async fn query_shorter(
        &self,
        group: &BatchGroup,
        mut result: Result<GroupValues, QueryError>,
    ) -> Result<GroupValues, QueryError> {
        let (mut from, to) = self.span;
        for _ in 0..self.max_halvings {
            if !matches!(result, Err(QueryError::CollectorFull | QueryError::TooLarge(_))) {
                break;
            }
            from = from.later(Duration::from_nanos(to.nanos_since(from).unsigned_abs() / 2));
            result = self.query_group(group.clone(), (from, to)).await;
        }
        result
    }

    async fn query_group(
        &self,
        mut group: BatchGroup,
        span: (Time, Time),
    ) -> Result<GroupValues, QueryError> {
        let Self { client, schema, budget, .. } = *self;
        group.query_owners(client, schema, span, budget / 2).await?;
        let (patterns, short_patterns) = (group.patterns(), group.short_patterns());
        let mut values = Vec::new();
        for (index, query) in self.queries.iter().enumerate() {
            let has_several = matches!(query, PodQuery::NeededMemory { .. } | PodQuery::Jvm { .. });
            let patterns = if has_several { &short_patterns } else { &patterns };
            for pods in patterns {
                let mut collector = LargestValues::new(&group, index, query, schema);
                collector.max_points = budget / 2;
                self.run(&group, *query, (pods.clone(), span), &mut collector).await?;
                values.append(&mut collector.into_committed());
            }
        }
        // Sums of values do not depend on the order of the response.
        values.sort_by(|one, other| one.names().cmp(&other.names()));
        Ok((group, values))
    }

    async fn run(
        &self,
        group: &BatchGroup,
        query: PodQuery,
        (pods, (from, to)): (Pattern, (Time, Time)),
        collector: &mut LargestValues<'_>,
    ) -> Result<(), QueryError> {
        let Self { client, schema, .. } = *self;
        let length = Duration::from_nanos(to.nanos_since(from).max(1_000_000).unsigned_abs());
        let identity = schema.usage.container_labels();
        let usage = |metric: &str| group.usage(schema, schema.usage_series(metric), pods.clone());
        let largest = |selector: &Selector, identity: &[&str]| {
            max_by(&Query::range_function(RangeFunction::Max, selector, length), identity)
        };
        let present =
            |metric: &str| Query::from(usage(metric)).aggregate(Aggregation::Group, &identity);
        let peak = |metric: &str, step: Duration| {
            let window = step.saturating_sub(Duration::from_millis(1));
            let peak = Query::range_function(RangeFunction::Max, &usage(metric), window);
            max_by(&peak, &identity)
        };
        let state = |family: &str| {
            let states = schema.kube_state_metrics.as_ref()?;
            let series = group.states(states, schema, family);
            Some((states, series.matches(&states.pod, pods.clone())))
        };
        let span = (from, to);
        let query = match query {
            PodQuery::MemoryPeak { step } => {
                let peak = peak(&schema.usage.memory.value, step);
                return self.range(group, &peak, (step, step), span, collector).await;
            }
            PodQuery::NeededMemory { step } => {
                let needed = peak(RSS_METRIC, step).plus(&peak(MAPPED_FILE_METRIC, step));
                return self.range(group, &needed, (step, 2 * step), span, collector).await;
            }
            PodQuery::ActiveFile { step } => {
                let sample = max_by(&Query::from(usage(ACTIVE_FILE_METRIC)), &identity);
                return self.range(group, &sample, (step, Duration::ZERO), span, collector).await;
            }
            PodQuery::Jvm { figure, step } => {
                let namespaces = Vec::from_iter(group.namespaces());
                let query = figure.query(schema, &namespaces, &pods, step);
                let loaded = figure.window(step) * figure.series_per_container();
                return self.range(group, &query, (step, loaded), span, collector).await;
            }
            PodQuery::Increase { metric } => {
                Query::range_function(RangeFunction::Increase, &usage(metric), length)
                    .aggregate(Aggregation::Sum, &identity)
            }
            PodQuery::HasSeries { metric } => present(metric),
            PodQuery::HasMemory => present(&schema.usage.memory.value),
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
                client.series(&series, span, collector).await?;
                return Ok(());
            }
        };
        client.instant(&query, to, collector).await.map(drop)
    }

    async fn range(
        &self,
        group: &BatchGroup,
        query: &Query,
        (step, loaded): (Duration, Duration),
        span: (Time, Time),
        collector: &mut LargestValues<'_>,
    ) -> Result<(), QueryError> {
        for grid in self.parts(group, (step, loaded), span)? {
            self.client.range(query, grid, collector).await?;
        }
        Ok(())
    }

    /// Parts of the time range that load a limited number of samples each. Each step loads the samples of this time.
    fn parts(
        &self,
        group: &BatchGroup,
        (step, loaded): (Duration, Duration),
        (from, to): (Time, Time),
    ) -> Result<Vec<QueryRange>, QueryError> {
        let workloads = group.workloads() as u64;
        let containers = match group.pods() as u64 {
            0 => workloads * ASSUMED_CONTAINERS,
            pods => (pods * CONTAINERS_OF_POD).max(workloads),
        };
        // At any time there are about as many as now.
        let containers = match self.schema.usage.containers {
            0 => containers,
            all => containers.min(all.max(workloads)),
        };
        let scrape = self.schema.scrape_interval.value.interval.as_nanos().max(1);
        let samples = containers * (loaded.as_nanos() / scrape).max(1) as u64;
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

type GroupValues = (BatchGroup, Vec<CollectedValue>);
