//! CPU throttling of containers, which is shown next to recommendations.
//!
//! One ratio for each container of a VPA: throttled periods of all scheduling periods in which its pods wanted to run.
//! Series are summed: those of a restarted container add up, and replicas do not change the ratio. In addition, it
//! queries which containers run now and which of them have periods: a running container without periods has no CPU
//! limit, whatever was measured before.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    batch_group::{BatchGroup, GroupedWorkload},
    load::MAX_CONSECUTIVE_FAILURES,
};
use crate::prometheus::{
    client::PrometheusClient,
    decode::{Interest, Labels, SeriesVisitor},
    promql::{Aggregation, Query, RangeFunction},
    query_error::QueryError,
    schema::{Schema, THROTTLED_PERIODS_METRIC, container_name},
    selector::Pattern,
};
use plimsoll_core::{
    history::Throttling,
    types::{ContainerKey, ObjectKey, Time},
};

const PERIODS: &str = "container_cpu_cfs_periods_total";
/// The memory of a value with its names, in points of sixteen bytes.
const POINTS_PER_VALUE: u64 = 8;

/// Throttling of containers. A container in neither set is unknown: it did not run, or used no CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThrottlingReport {
    pub measured: HashMap<ContainerKey, Throttling>,
    /// Running containers without a CPU limit, which are not throttled.
    pub unlimited: HashSet<ContainerKey>,
    /// The VPAs whose containers could not be queried.
    pub failed_vpas: HashSet<ObjectKey>,
    /// The namespace and the cause of the first failure.
    pub failure: Option<(Arc<str>, QueryError)>,
}

impl ThrottlingReport {
    /// Queries one group of batches after the other. A failed group does not stop the others.
    pub(super) async fn query(
        client: &PrometheusClient,
        schema: &Schema,
        groups: Vec<BatchGroup>,
        (lookback, budget): (Duration, u64),
        now: impl Fn() -> Time,
    ) -> Self {
        let mut report = Self::default();
        let mut consecutive_failures = 0;
        let mut pending = VecDeque::from(groups);
        while let Some(group) = pending.pop_front() {
            if consecutive_failures >= MAX_CONSECUTIVE_FAILURES {
                report.failed_vpas.extend(group.vpas().cloned());
                continue;
            }
            let throttling_query = ThrottlingQuery { client, schema, lookback, budget, now: now() };
            let result = throttling_query.query_group(group.clone()).await;
            // Split groups that exceed the memory budget, and those with a namespace that cannot be queried.
            if let Err(failure) = &result
                && (group.batches.len() > 1 && failure.is_query_specific()
                    || matches!(failure, QueryError::CollectorFull))
                && let Some([first, second]) = group.split()
            {
                pending.push_front(second);
                pending.push_front(first);
                continue;
            }
            match result {
                Ok((measured, unlimited)) => {
                    consecutive_failures = 0;
                    report.measured.extend(measured);
                    report.unlimited.extend(unlimited);
                }
                Err(failure) => {
                    // A query that is too large for the server does not affect other batches.
                    consecutive_failures += u32::from(!failure.is_query_specific());
                    report.failed_vpas.extend(group.vpas().cloned());
                    report.failure.get_or_insert((group.first_namespace(), failure));
                }
            }
        }
        report
    }
}

struct ThrottlingQuery<'a> {
    client: &'a PrometheusClient,
    schema: &'a Schema,
    lookback: Duration,
    budget: u64,
    now: Time,
}

impl ThrottlingQuery<'_> {
    /// Returns the throttling of the containers of a group, and the running containers without a limit.
    async fn query_group(
        &self,
        mut group: BatchGroup,
    ) -> Result<(HashMap<ContainerKey, Throttling>, HashSet<ContainerKey>), QueryError> {
        let Self { client, schema, lookback, budget, now } = *self;
        let span = (now.earlier(lookback), now);
        group.query_owners(client, schema, span, budget / 2).await?;
        let patterns = group.patterns();
        let sums = |metric, within| self.sum_by_container(&group, &patterns, metric, within);
        let mut measured = HashMap::new();
        for (key, periods) in sums(PERIODS, Some(lookback)).await? {
            if periods > 0.0 {
                measured.insert(key, Throttling { throttled: 0.0, periods, at: now });
            }
        }
        for (key, throttled) in sums(THROTTLED_PERIODS_METRIC, Some(lookback)).await? {
            if let Some(known) = measured.get_mut(&key) {
                known.throttled = throttled;
            }
        }
        let running = sums(&schema.usage.memory.value, None).await?;
        let limited = sums(PERIODS, None).await?;
        let unlimited: HashSet<_> =
            running.into_keys().filter(|key| !limited.contains_key(key)).collect();
        measured.retain(|key, _| !unlimited.contains(key));
        Ok((measured, unlimited))
    }

    /// Sums the increase of a counter over all pods, for each container of each VPA. Without a time, each pod that has the
    /// series now counts as 1.
    async fn sum_by_container(
        &self,
        group: &BatchGroup,
        patterns: &[Pattern],
        metric: &str,
        within: Option<Duration>,
    ) -> Result<HashMap<ContainerKey, f64>, QueryError> {
        let identity = self.schema.usage.container_labels();
        let max_points = self.budget.saturating_sub(group.size_in_points());
        let mut collector = SumCollector::new(group, identity, max_points);
        for pods in patterns {
            let series = self.schema.usage_series(metric);
            let series = group.usage(self.schema, series, pods.clone());
            let query = match within {
                Some(within) => Query::range_function(RangeFunction::Increase, &series, within)
                    .aggregate(Aggregation::Sum, &identity),
                None => Query::from(series).aggregate(Aggregation::Group, &identity),
            };
            self.client.instant(&query, self.now, &mut collector).await?;
        }
        let mut sums = HashMap::new();
        for ((batch, workload), container, sum) in collector.into_sums() {
            for key in group.batches[batch].keys(workload, &container) {
                *sums.entry(key).or_insert(0.0) += sum;
            }
        }
        Ok(sums)
    }
}

/// Collects the value of each container of each pod, in the order of names so that sums do not depend on that of the
/// response.
struct SumCollector<'a> {
    group: &'a BatchGroup,
    identity: [&'a str; 3],
    values: Vec<PodSum>,
    /// The first value of the current series. A pod may belong to several workloads.
    current: usize,
    committed: usize,
    max_points: u64,
}

type PodSum = (GroupedWorkload, Box<str>, Box<str>, f64);

impl<'a> SumCollector<'a> {
    fn new(group: &'a BatchGroup, identity: [&'a str; 3], max_points: u64) -> Self {
        Self { group, identity, values: Vec::new(), current: 0, committed: 0, max_points }
    }

    /// The sum of all pods of each container.
    fn into_sums(mut self) -> Vec<(GroupedWorkload, Box<str>, f64)> {
        self.discard();
        self.values.sort_by(|(one, container, pod, _), (other, of, known, _)| {
            (one, container, pod).cmp(&(other, of, known))
        });
        let mut sums: Vec<(GroupedWorkload, Box<str>, f64)> = Vec::new();
        for (workload, container, _, value) in self.values {
            match sums.last_mut() {
                Some((last, of, sum)) if (*last, &**of) == (workload, &*container) => *sum += value,
                _ => sums.push((workload, container, value)),
            }
        }
        sums
    }
}

impl SeriesVisitor for SumCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let [namespace, pod, container] = self.identity.map(|label| labels.get(label));
        let is_set = |text: &&str| !text.is_empty();
        let (Some(pod), Some(container)) = (pod.filter(is_set), container.filter(is_set)) else {
            return Interest::LabelsOnly;
        };
        let container = container_name(container);
        // `POD` is the old name of the pod sandbox.
        if container == "POD" {
            return Interest::LabelsOnly;
        }
        self.current = self.values.len();
        for workload in self.group.workloads_of(namespace, pod) {
            self.values.push((workload, container.into(), pod.into(), 0.0));
        }
        if self.values.len() > self.current { Interest::Points } else { Interest::LabelsOnly }
    }

    fn point(&mut self, _: Time, value: f64) {
        if value.is_finite() && value >= 0.0 {
            self.values[self.current..].iter_mut().for_each(|(.., sum)| *sum = value);
        }
    }

    fn finish(&mut self) {
        self.committed = self.values.len();
    }

    fn is_full(&self) -> bool {
        self.values.len() as u64 * POINTS_PER_VALUE > self.max_points
    }

    fn discard(&mut self) {
        self.values.truncate(self.committed);
    }
}
