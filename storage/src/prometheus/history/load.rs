//! Reads histories, a few batches at a time, and goes on where it stopped.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::{
    batch_load::{BatchLoad, LoadContext},
    load_stats::LoadStats,
    query_plan::QueryPlan,
    workload_batch::WorkloadBatch,
};
use crate::prometheus::{client::PrometheusClient, query_error::QueryError, schema::Schema};
use plimsoll_core::{
    history::Sink,
    types::{ObjectKey, Time},
};

/// Failures in a row after which no other batch is tried: the server is away, or does not let anybody in.
pub(super) const MAX_CONSECUTIVE_FAILURES: u32 = 3;

/// Histories on their way. What has been handed on counts; after a failure [`Loading::advance`] goes on from there, with
/// the same sink. Of each VPA the sink is told once when it has all of it ([`Sink::whole`]).
#[derive(Debug)]
pub struct HistoryLoad {
    context: Arc<LoadContext>,
    span: (Time, Time),
    pending: Vec<BatchLoad>,
    report: LoadStats,
}

/// Why not all of it could be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} of {asked} batches of history could not be read, the first in namespace {namespace}: {failure}", .batches)]
pub struct LoadIncomplete {
    /// How many failed or were not tried.
    pub batches: usize,
    /// Of how many that were left.
    pub asked: usize,
    /// Where it failed first.
    pub namespace: Arc<str>,
    /// Why.
    pub failure: QueryError,
}

impl HistoryLoad {
    pub(super) fn new(
        client: PrometheusClient,
        schema: Arc<Schema>,
        plan: QueryPlan,
        budget: u64,
        batches: Vec<WorkloadBatch>,
        span: (Time, Time),
    ) -> Self {
        let pending = batches.into_iter().map(|batch| BatchLoad::new(batch, span)).collect();
        let way = Arc::new(LoadContext { client, schema, plan, budget });
        Self { context: way, span, pending, report: LoadStats::default() }
    }

    /// Reads on until everything has been read, or no more can be. One batch that fails does not keep the others.
    /// Whoever gives up waiting may go on later: what has been handed on stays, and nothing else is lost.
    pub async fn advance(&mut self, sink: &mut dyn Sink) -> Result<(), LoadIncomplete> {
        let Self { context: way, pending, report, .. } = self;
        // What ends where it begins has all of it, which is nothing.
        for part in &mut *pending {
            part.send_completion(sink);
        }
        pending.retain(|part| !part.is_done());
        let asked = pending.len();
        let mut waiting: Vec<usize> = (0..asked).collect();
        // Each is read by a task of its own: while one is handed on here, the answers to the others are read, and the server
        // goes on. They end with this set.
        let mut under_way = JoinSet::new();
        let mut first: Option<(Arc<str>, QueryError)> = None;
        let mut in_a_row = 0;
        // One more than may be under way: its turn comes while another one is handed on.
        let most = way.client.limits().max_in_flight.max(1) + 1;
        loop {
            while in_a_row < MAX_CONSECUTIVE_FAILURES
                && under_way.len() < most
                && !waiting.is_empty()
            {
                let is_end = under_way.len() + waiting.len() <= 2 * most;
                let (index, way) = (take_next(&mut waiting, pending, is_end), Arc::clone(way));
                let mut part = pending[index].clone();
                under_way.spawn(async move {
                    let slice = part.next(&way).await;
                    (index, part, slice)
                });
            }
            let (index, mut part, slice) = match under_way.join_next().await {
                Some(Ok(read)) => read,
                // Nobody else ends these tasks: this one panicked, and that is passed on as if it had not been a task.
                Some(Err(broken)) => std::panic::resume_unwind(broken.into_panic()),
                None => break,
            };
            match slice {
                Ok(slice) => {
                    in_a_row = 0;
                    part.emit(slice, way, sink, report);
                    if part.is_done() {
                        part.send_completion(sink);
                    } else {
                        waiting.push(index);
                    }
                }
                Err(failure) => {
                    in_a_row += u32::from(!failure.is_query_specific());
                    if matches!(failure, QueryError::Timeout(_)) {
                        part.halve_next_slice(&way.plan);
                    }
                    let namespace = Arc::clone(&part.batch.namespace);
                    tracing::warn!(%namespace, %failure, "a batch of history cannot be read now");
                    first.get_or_insert((namespace, failure));
                }
            }
            pending[index] = part;
        }
        drop(under_way);
        pending.retain(|part| !part.is_done());
        match first {
            None => Ok(()),
            Some((namespace, failure)) => {
                Err(LoadIncomplete { batches: pending.len(), asked, namespace, failure })
            }
        }
    }

    /// The VPAs whose history is not complete yet.
    pub fn pending(&self) -> impl Iterator<Item = &ObjectKey> {
        self.pending.iter().filter(|part| !part.is_done()).flat_map(|part| part.batch.vpas())
    }

    /// Whether everything has been read.
    pub fn is_done(&self) -> bool {
        self.pending.iter().all(BatchLoad::is_done)
    }

    /// How much time of the pending histories has been read, of how much.
    pub fn progress(&self) -> (Duration, Duration) {
        self.pending.iter().fold((Duration::ZERO, Duration::ZERO), |(done, all), part| {
            let (own_done, own) = part.progress(self.span.0);
            (done.saturating_add(own_done), all.saturating_add(own))
        })
    }

    /// The end of what is read: live samples and later histories go on after it.
    pub fn until(&self) -> Time {
        self.span.1
    }

    /// What it came to so far.
    pub fn report(&self) -> &LoadStats {
        &self.report
    }

    /// What the server calls its series.
    pub fn schema(&self) -> &Schema {
        &self.context.schema
    }
}

/// Takes out the part that is to go on: whichever began first, so that few are half read at a time. Towards the end it
/// is the one that is furthest behind: they end together then, and none is left to be read alone, with half of the
/// server idle.
fn take_next(waiting: &mut Vec<usize>, parts: &[BatchLoad], is_end: bool) -> usize {
    let order = |place: &usize| {
        let index = waiting[*place];
        (is_end.then(|| parts[index].loaded_until()), index)
    };
    let place = (0..waiting.len()).min_by_key(order).unwrap_or_default();
    waiting.swap_remove(place)
}
