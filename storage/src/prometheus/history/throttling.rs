//! How much containers were held back by their CPU limits: read along, and shown beside recommendations.
//!
//! One number for each container of a VPA, and no series: of all scheduling periods in which its pods wanted to run,
//! those in which they were stopped. Series are added up: those of a container that was restarted are parts of it, and
//! copies have the same share each, so that it stays what it is. Besides it is asked which containers run now, and
//! which of them have periods: one that runs without has no limit, whatever was measured of it before.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    load::MAX_CONSECUTIVE_FAILURES,
    owner_series::OwnerSeries,
    time_slice::{SeriesPoints, SliceCollector},
    workload_batch::WorkloadBatch,
};
use crate::prometheus::{
    client::PrometheusClient,
    promql::{Aggregation, Grouping, Query, RangeFunction},
    query_error::QueryError,
    schema::{Schema, THROTTLED_PERIODS_METRIC, WithOrigin},
    selector::{Pattern, Selector},
};
use plimsoll_core::{
    history::Throttling,
    types::{ContainerKey, ObjectKey, Time},
};

const PERIODS: &str = "container_cpu_cfs_periods_total";

/// What was learned of throttling. What is in neither is not known: it did not run, or wanted nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThrottlingReport {
    /// How much containers were held back.
    pub measured: HashMap<ContainerKey, Throttling>,
    /// Containers that run, none of them with a CPU limit: nothing holds them back any more.
    pub unlimited: HashSet<ContainerKey>,
    /// The VPAs whose containers could not be asked about.
    pub failed_vpas: HashSet<ObjectKey>,
    /// Why, of the first: its namespace, and what happened.
    pub failure: Option<(Arc<str>, QueryError)>,
}

impl ThrottlingReport {
    /// Asks about one batch after the other. One that fails does not take the others along.
    pub(super) async fn query(
        client: &PrometheusClient,
        schema: &Schema,
        batches: Vec<WorkloadBatch>,
        (over, budget): (Duration, u64),
        now: impl Fn() -> Time,
    ) -> Self {
        let mut all = Self::default();
        let mut in_a_row = 0;
        let mut left = VecDeque::from(batches);
        while let Some(batch) = left.pop_front() {
            if in_a_row >= MAX_CONSECUTIVE_FAILURES {
                all.failed_vpas.extend(batch.vpas().cloned());
                continue;
            }
            let question = ThrottlingQuery { client, schema, lookback: over, budget, now: now() };
            let asked = question.query_batch(batch.clone()).await;
            // More pods than may be held are asked about in smaller parts.
            if let (Err(QueryError::CollectorFull), Some([first, second])) = (&asked, batch.split())
            {
                left.push_front(second);
                left.push_front(first);
                continue;
            }
            match asked {
                Ok((measured, unlimited)) => {
                    in_a_row = 0;
                    all.measured.extend(measured);
                    all.unlimited.extend(unlimited);
                }
                Err(failure) => {
                    // Too much for the server in one place is none of the other places' concern.
                    in_a_row += u32::from(!failure.is_query_specific());
                    all.failed_vpas.extend(batch.vpas().cloned());
                    all.failure.get_or_insert((Arc::clone(&batch.namespace), failure));
                }
            }
        }
        all
    }
}

/// What is asked about each batch.
struct ThrottlingQuery<'a> {
    client: &'a PrometheusClient,
    schema: &'a Schema,
    lookback: Duration,
    /// Points that may be held of a batch.
    budget: u64,
    now: Time,
}

impl ThrottlingQuery<'_> {
    /// What the containers of a batch met, and those that run without a limit. A container without a limit has no periods,
    /// and one that did not run has had none: nothing is known of either.
    async fn query_batch(
        &self,
        mut batch: WorkloadBatch,
    ) -> Result<(HashMap<ContainerKey, Throttling>, HashSet<ContainerKey>), QueryError> {
        let Self { client, schema, lookback: over, budget, now } = *self;
        let owners: Vec<_> = batch.claims.iter().map(|claim| &claim.owner).collect();
        let span = (now.earlier(over), now);
        if batch.labelled.is_none() {
            let asked = OwnerSeries::query(
                client,
                schema,
                &batch.namespace,
                &owners,
                &batch.live_pods,
                span,
                budget / 2,
            );
            match asked.await {
                Ok(proof) => batch.proof = proof,
                Err(failure) if failure.is_transient() => return Err(failure),
                Err(QueryError::CollectorFull) if batch.claims.len() > 1 => {
                    return Err(QueryError::CollectorFull);
                }
                // Names of pods decide alone, as they do for their usage.
                Err(failure) => tracing::debug!(%failure, "owners of pods cannot be asked about"),
            }
        }
        let patterns = batch.patterns();
        let of = |metric: &WithOrigin<String>| -> Vec<Selector> {
            let of = |pods: &Pattern| schema.usage_selector(metric, &batch.namespace, pods.clone());
            patterns.iter().map(of).collect()
        };
        let [periods, throttled] = [PERIODS, THROTTLED_PERIODS_METRIC]
            .map(|metric| of(&WithOrigin::assumed(metric.to_owned())));
        let increase = |selectors: &[Selector]| -> Vec<Query> {
            selectors
                .iter()
                .map(|one| Query::range_function(RangeFunction::Increase, one, over))
                .collect()
        };
        let there =
            |selectors: Vec<Selector>| selectors.into_iter().map(Query::from).collect::<Vec<_>>();
        let mut measured = HashMap::new();
        for (key, periods) in
            self.sum_by_container(&batch, increase(&periods), Aggregation::Sum).await?
        {
            if periods > 0.0 {
                measured.insert(key, Throttling { throttled: 0.0, periods, at: now });
            }
        }
        for (key, throttled) in
            self.sum_by_container(&batch, increase(&throttled), Aggregation::Sum).await?
        {
            if let Some(known) = measured.get_mut(&key) {
                known.throttled = throttled;
            }
        }
        let running = self
            .sum_by_container(&batch, there(of(&schema.usage.memory)), Aggregation::Group)
            .await?;
        let limited = self.sum_by_container(&batch, there(periods), Aggregation::Group).await?;
        let unlimited: HashSet<_> =
            running.into_keys().filter(|key| !limited.contains_key(key)).collect();
        measured.retain(|key, _| !unlimited.contains(key));
        Ok((measured, unlimited))
    }

    /// What queries about now come to for each container of each VPA, over all pods.
    async fn sum_by_container(
        &self,
        batch: &WorkloadBatch,
        queries: Vec<Query>,
        fold: Aggregation,
    ) -> Result<HashMap<ContainerKey, f64>, QueryError> {
        let identity = self.schema.usage.container_labels();
        let most = self.budget.saturating_sub(batch.proof.size_in_points());
        let mut taker = SliceCollector::new(batch, identity, most);
        for query in queries {
            let query = query.aggregate(fold, Grouping::By(&identity));
            self.client.instant(&query, self.now, &mut taker).await?;
        }
        let (mut points, _) = taker.into_committed();
        points.sort();
        Ok(by_container(batch, &points))
    }
}

fn by_container(batch: &WorkloadBatch, points: &SeriesPoints) -> HashMap<ContainerKey, f64> {
    let mut sums = HashMap::new();
    let mut merged = Vec::new();
    for rows in points.groups() {
        let (claim, container, _) = rows[0].key();
        let sum: f64 = points.points_of(rows, &mut merged).iter().map(|(_, value)| value).sum();
        let container: Arc<str> = container.into();
        let vpas = batch.claims.get(claim).map(|claim| claim.vpas.as_slice());
        for vpa in vpas.unwrap_or_default() {
            let key = ContainerKey::new(vpa.clone(), Arc::clone(&container));
            *sums.entry(key).or_insert(0.0) += sum;
        }
    }
    sums
}
