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
    load::MAX_CONSECUTIVE_FAILURES, time_slice::SliceCollector, workload_batch::WorkloadBatch,
};
use crate::prometheus::{
    client::PrometheusClient,
    promql::{Aggregation, Query, RangeFunction},
    query_error::QueryError,
    schema::{Schema, THROTTLED_PERIODS_METRIC},
    selector::Pattern,
};
use plimsoll_core::{
    history::Throttling,
    types::{ContainerKey, ObjectKey, Time},
};

const PERIODS: &str = "container_cpu_cfs_periods_total";

/// Throttling of containers. A container in neither set is unknown: it did not run, or used no CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThrottlingReport {
    /// Measured throttling.
    pub measured: HashMap<ContainerKey, Throttling>,
    /// Running containers without a CPU limit, which are not throttled.
    pub unlimited: HashSet<ContainerKey>,
    /// The VPAs whose containers could not be queried.
    pub failed_vpas: HashSet<ObjectKey>,
    /// The namespace and the cause of the first failure.
    pub failure: Option<(Arc<str>, QueryError)>,
}

impl ThrottlingReport {
    /// Queries one batch after the other. A failed batch does not stop the others.
    pub(super) async fn query(
        client: &PrometheusClient,
        schema: &Schema,
        batches: Vec<WorkloadBatch>,
        (lookback, budget): (Duration, u64),
        now: impl Fn() -> Time,
    ) -> Self {
        let mut report = Self::default();
        let mut consecutive_failures = 0;
        let mut pending = VecDeque::from(batches);
        while let Some(batch) = pending.pop_front() {
            if consecutive_failures >= MAX_CONSECUTIVE_FAILURES {
                report.failed_vpas.extend(batch.vpas().cloned());
                continue;
            }
            let throttling_query = ThrottlingQuery { client, schema, lookback, budget, now: now() };
            let result = throttling_query.query_batch(batch.clone()).await;
            // Split batches that exceed the memory budget.
            if let (Err(QueryError::CollectorFull), Some([first, second])) =
                (&result, batch.split())
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
                    report.failed_vpas.extend(batch.vpas().cloned());
                    report.failure.get_or_insert((Arc::clone(&batch.namespace), failure));
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
    /// Returns the throttling of the containers of a batch, and the running containers without a limit.
    async fn query_batch(
        &self,
        mut batch: WorkloadBatch,
    ) -> Result<(HashMap<ContainerKey, Throttling>, HashSet<ContainerKey>), QueryError> {
        let Self { client, schema, lookback, budget, now } = *self;
        let span = (now.earlier(lookback), now);
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
        let sums = |metric, within| self.sum_by_container(&batch, &patterns, metric, within);
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
        batch: &WorkloadBatch,
        patterns: &[Pattern],
        metric: &str,
        within: Option<Duration>,
    ) -> Result<HashMap<ContainerKey, f64>, QueryError> {
        let identity = self.schema.usage.container_labels();
        let max_points = self.budget.saturating_sub(batch.proof.size_in_points());
        let mut collector = SliceCollector::new(batch, identity, max_points);
        for pods in patterns {
            let series = self.schema.usage_series(metric);
            let series = self.schema.in_namespace(series, &batch.namespace, pods.clone());
            let query = match within {
                Some(within) => Query::range_function(RangeFunction::Increase, &series, within)
                    .aggregate(Aggregation::Sum, &identity),
                None => Query::from(series).aggregate(Aggregation::Group, &identity),
            };
            self.client.instant(&query, self.now, &mut collector).await?;
        }
        let (mut points, _) = collector.into_committed();
        points.sort();
        let (mut sums, mut merged) = (HashMap::new(), Vec::new());
        for rows in points.groups() {
            let (workload, container, _) = rows[0].key();
            let sum: f64 = points.points_of(rows, &mut merged).iter().map(|(_, value)| value).sum();
            for key in batch.keys(workload, container) {
                *sums.entry(key).or_insert(0.0) += sum;
            }
        }
        Ok(sums)
    }
}
