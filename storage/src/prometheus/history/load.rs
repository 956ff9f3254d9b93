//! Loads histories, a few batches concurrently, and resumes where it stopped.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::{
    batch_group::BatchGroup,
    batch_load::{BatchLoad, LoadContext},
    pod_info::PodInfo,
    pod_values::{MAX_HALVINGS, PodQueries, PodQuery, PodValue, PodValueReport},
    throttling::{self, ThrottlingReport},
    time_slice::SkippedCounts,
    workload_batch::WorkloadBatch,
};
use crate::prometheus::{client::QueryStats, query_error::QueryError, schema::Schema};
use plimsoll_core::{
    history::Sink,
    types::{ObjectKey, Time},
};

/// Consecutive failures after which no other batch is tried: the server is down or denies access.
pub(super) const MAX_CONSECUTIVE_FAILURES: u32 = 3;

/// A load in progress. What was emitted counts; after a failure [`HistoryLoad::advance`] resumes there, with the same
/// sink. The sink is notified once for each VPA whose history is complete ([`Sink::complete`]).
#[derive(Debug)]
pub struct HistoryLoad {
    context: Arc<LoadContext>,
    span: (Time, Time),
    pending: Vec<BatchLoad>,
    pub report: LoadStats,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadStats {
    /// Emitted samples, counted once for each VPA.
    pub samples: u64,
    pub oom_kills: u64,
    pub skipped: SkippedCounts,
    /// Batches whose pod owners or OOM kills could not be queried.
    pub without_owner_info: u64,
    /// The queries of usage and OOM kills. Some servers omit unreachable data and report that only in their warnings.
    pub reads: QueryStats,
}

impl LoadStats {
    pub(super) fn merge(&mut self, other: Self) {
        self.samples += other.samples;
        self.oom_kills += other.oom_kills;
        self.skipped.add(other.skipped);
        self.without_owner_info += other.without_owner_info;
        self.reads.merge(other.reads);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to load {} of {asked} batches of history, the first in namespace {namespace}: {failure}", .batches)]
pub struct LoadIncomplete {
    /// The number of batches that failed or were not tried.
    pub batches: usize,
    pub asked: usize,
    pub namespace: Arc<str>,
    pub failure: QueryError,
}

impl HistoryLoad {
    pub(super) fn new(
        context: LoadContext,
        batches: Vec<WorkloadBatch>,
        span: (Time, Time),
    ) -> Self {
        let pending = batches.into_iter().map(|batch| BatchLoad::new(batch, span)).collect();
        Self { context: Arc::new(context), span, pending, report: LoadStats::default() }
    }

    /// Queries the owners and the OOM kills of pods for many batches together, which needs fewer queries than one batch after
    /// the other. What fails or does not fit is queried by the batches themselves.
    pub async fn query_owners(&mut self) {
        let new: Vec<usize> =
            (0..self.pending.len()).filter(|index| self.pending[*index].is_new()).collect();
        let batches = new.iter().map(|index| WorkloadBatch::clone(&self.pending[*index].batch));
        let mut groups = VecDeque::from(BatchGroup::all(batches.collect()));
        let mut indices = new.into_iter();
        let mut left = self.context.budget / 2;
        while let Some(mut group) = groups.pop_front() {
            let never = |_: &QueryError| false;
            match PodInfo::query_group(&mut group, &self.context, self.span, left, never).await {
                Ok(infos) => {
                    let size: u64 = infos.iter().map(|info| info.size_in_points).sum();
                    left = left.saturating_sub(size);
                    for (batch, info) in group.batches.into_iter().zip(infos) {
                        if let Some(index) = indices.next() {
                            self.pending[index].set_pod_info(batch, info);
                        }
                    }
                }
                Err(failure) => {
                    tracing::debug!(%failure, "failed to query owners of several namespaces");
                    let is_too_large =
                        matches!(failure, QueryError::CollectorFull | QueryError::TooLarge(_));
                    match group.split().filter(|_| is_too_large && group.batches.len() > 1) {
                        Some([first, second]) => {
                            groups.push_front(second);
                            groups.push_front(first);
                        }
                        None => drop(indices.by_ref().take(group.batches.len()).count()),
                    }
                }
            }
        }
    }

    /// Queries how much CPU limits throttled the containers, like [`super::PrometheusHistory::throttling`]. It needs few
    /// queries after [`Self::query_owners`]. Call it before [`Self::advance`].
    pub async fn throttling(&self, lookback: Duration, now: Time) -> ThrottlingReport {
        let queries = self.pod_queries(&throttling::QUERIES, (now.earlier(lookback), now), 0);
        ThrottlingReport::query(queries, self.groups(&|_| true)).await
    }

    /// Queries values of the pods like [`super::PrometheusHistory::pod_values`], in the time range of this load. VPAs are
    /// left out if none of their batch is wanted. It needs few queries after [`Self::query_owners`]. Call it before
    /// [`Self::advance`].
    pub async fn pod_values(
        &self,
        queries: &[PodQuery],
        is_wanted: &(dyn Fn(&ObjectKey) -> bool + Sync),
        accept: &mut (dyn FnMut(PodValue<'_>) + Send),
    ) -> PodValueReport {
        let queries = self.pod_queries(queries, self.span, MAX_HALVINGS);
        queries.query(self.groups(is_wanted), accept).await
    }

    fn pod_queries<'a>(
        &'a self,
        queries: &'a [PodQuery],
        span: (Time, Time),
        max_halvings: u32,
    ) -> PodQueries<'a> {
        let LoadContext { client, schema, budget, .. } = &*self.context;
        PodQueries { client, schema, queries, span, budget: *budget, max_halvings }
    }

    /// The batches that have not been loaded, in groups. The owners of their pods are known if all batches of a group have
    /// them.
    fn groups(&self, is_wanted: &(dyn Fn(&ObjectKey) -> bool + Sync)) -> Vec<BatchGroup> {
        let wanted = self.pending.iter().filter(|load| load.batch.vpas().any(is_wanted));
        let (with_owners, without): (Vec<&BatchLoad>, Vec<&BatchLoad>) =
            wanted.partition(|load| load.pod_info.is_some());
        let group = |loads: Vec<&BatchLoad>, has_owners: bool| {
            let batches = loads.into_iter().map(|load| WorkloadBatch::clone(&load.batch));
            let groups = BatchGroup::all(batches.collect());
            groups.into_iter().map(move |group| BatchGroup { has_owners, ..group })
        };
        group(with_owners, true).chain(group(without, false)).collect()
    }

    /// Loads until everything is loaded or no more can be. A failed batch does not stop the others. It is cancel-safe: what
    /// was emitted stays, and the load can be resumed.
    pub async fn advance(&mut self, sink: &mut dyn Sink) -> Result<(), LoadIncomplete> {
        let Self { context, pending, report, .. } = self;
        // An empty time range is complete at once.
        for batch_load in &mut *pending {
            batch_load.send_completion(sink);
        }
        pending.retain(|batch_load| !batch_load.is_done());
        let total = pending.len();
        let mut waiting: Vec<usize> = (0..total).collect();
        // Each batch is read by its own task: while one is emitted here, the others keep the server busy. The tasks are
        // aborted when this set is dropped.
        let mut tasks = JoinSet::new();
        let mut first_failure: Option<(Arc<str>, QueryError)> = None;
        let mut consecutive_failures = 0;
        // One more than may query concurrently: it starts while another one is emitted.
        let max_tasks = context.client.limits().max_in_flight.max(1) + 1;
        loop {
            while consecutive_failures < MAX_CONSECUTIVE_FAILURES
                && tasks.len() < max_tasks
                && !waiting.is_empty()
            {
                let is_end = tasks.len() + waiting.len() <= 2 * max_tasks;
                let (index, context) =
                    (take_next(&mut waiting, pending, is_end), Arc::clone(context));
                let mut batch_load = pending[index].clone();
                tasks.spawn(async move {
                    let slice = batch_load.next(&context).await;
                    (index, batch_load, slice)
                });
            }
            let (index, mut batch_load, slice) = match tasks.join_next().await {
                Some(Ok(outcome)) => outcome,
                // The tasks are never aborted here, so this one panicked: propagate the panic.
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => break,
            };
            match slice {
                Ok(slice) => {
                    consecutive_failures = 0;
                    if let Some(density) = batch_load.density(&slice, context) {
                        context.record_density(density);
                    }
                    batch_load.emit(slice, context, sink, report);
                    if batch_load.is_done() {
                        batch_load.send_completion(sink);
                    } else {
                        waiting.push(index);
                    }
                }
                Err(failure) => {
                    consecutive_failures += u32::from(!failure.is_query_specific());
                    if matches!(failure, QueryError::Timeout(_)) {
                        batch_load.halve_next_slice(&context.plan);
                    }
                    let namespace = Arc::clone(&batch_load.batch.namespace);
                    tracing::warn!(%namespace, %failure, "failed to read batch of history");
                    first_failure.get_or_insert((namespace, failure));
                }
            }
            pending[index] = batch_load;
        }
        drop(tasks);
        pending.retain(|batch_load| !batch_load.is_done());
        match first_failure {
            None => Ok(()),
            Some((namespace, failure)) => {
                Err(LoadIncomplete { batches: pending.len(), asked: total, namespace, failure })
            }
        }
    }

    /// The VPAs whose history is not complete yet.
    pub fn pending(&self) -> impl Iterator<Item = &ObjectKey> {
        self.pending.iter().filter(|part| !part.is_done()).flat_map(|part| part.batch.vpas())
    }

    pub fn is_done(&self) -> bool {
        self.pending.iter().all(BatchLoad::is_done)
    }

    /// The loaded and the total length of the pending histories.
    pub fn progress(&self) -> (Duration, Duration) {
        self.pending.iter().fold((Duration::ZERO, Duration::ZERO), |(done, total), part| {
            let (part_done, part_total) = part.progress(self.span.0);
            (done.saturating_add(part_done), total.saturating_add(part_total))
        })
    }

    pub fn since(&self) -> Time {
        self.span.0
    }

    /// The end of the time range: live samples and later loads continue after it.
    pub fn until(&self) -> Time {
        self.span.1
    }

    pub fn cpu_step(&self) -> Duration {
        self.context.plan.cpu
    }

    pub fn schema(&self) -> &Schema {
        &self.context.schema
    }
}

/// Takes the batch to continue with: the one that started first, so that few are half read at a time. Towards the end it
/// is the one that is furthest behind, so that all end together and none is read alone while the server is half idle.
fn take_next(waiting: &mut Vec<usize>, parts: &[BatchLoad], is_end: bool) -> usize {
    let order = |position: &usize| {
        let index = waiting[*position];
        (is_end.then(|| parts[index].loaded_until), index)
    };
    let position = (0..waiting.len()).min_by_key(order).unwrap_or_default();
    waiting.swap_remove(position)
}
