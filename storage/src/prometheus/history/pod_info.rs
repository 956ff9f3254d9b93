//! Queries the owners and the OOM kills of the pods of a batch, before their usage.
//!
//! The queried time range is as long as the budget allows. Beyond it, the information is queried again.

use std::{collections::HashSet, slice};

use super::{
    batch_group::BatchGroup,
    batch_load::{GROWTH, LoadContext},
    owner_queries::{OomKilledPods, oom_killed_pods, query_owners},
    owner_series::OwnerSeries,
    workload_batch::WorkloadBatch,
};
use crate::prometheus::{query_error::QueryError, selector::Pattern};
use plimsoll_core::types::Time;

/// Log messages for failed queries.
const OWNERS_UNAVAILABLE: &str = "failed to query owners of pods; matching pods by name only";
const OOM_KILLS_UNAVAILABLE: &str = "failed to query OOM kills; ignoring them";

#[derive(Debug)]
pub(super) struct PodInfo {
    /// Patterns of pod names, one per query.
    pub(super) patterns: Vec<Pattern>,
    pub(super) oom_killed: HashSet<Box<str>>,
    /// The log message and the failure, if something could not be queried.
    pub(super) unavailable: Option<(&'static str, QueryError)>,
    pub(super) until: Time,
    /// The memory of the information, in points.
    pub(super) size_in_points: u64,
}

impl PodInfo {
    /// Queries a time range that ends at `to` or earlier, and stores the owners in the batch. `max_steps` limits its length,
    /// and is reduced if the result exceeds the budget.
    pub(super) async fn query(
        batch: &mut WorkloadBatch,
        context: &LoadContext,
        (after, to): (Time, Time),
        max_steps: &mut u32,
    ) -> Result<Self, QueryError> {
        loop {
            let until = after.later(context.plan.memory.saturating_mul(*max_steps)).min(to);
            let result = Self::query_once(batch, context, (after, until)).await;
            let failure = match result {
                Err(failure @ (QueryError::CollectorFull | QueryError::TooLarge(_))) => failure,
                result => return result,
            };
            let steps = context.plan.steps_between(after, until);
            if steps <= 1 {
                // A single step cannot be split, so continue without.
                batch.proof = OwnerSeries::default();
                let (patterns, oom_killed) = (batch.patterns(), HashSet::new());
                let unavailable = Some((OWNERS_UNAVAILABLE, failure));
                return Ok(Self {
                    patterns,
                    oom_killed,
                    unavailable,
                    until: to,
                    size_in_points: 0,
                });
            }
            *max_steps = u32::try_from(steps / GROWTH).unwrap_or(u32::MAX).max(1);
            let namespace = &*batch.namespace;
            tracing::debug!(namespace, steps = *max_steps, %failure, "querying owners of pods for a shorter time range");
        }
    }

    async fn query_once(
        batch: &mut WorkloadBatch,
        context: &LoadContext,
        span: (Time, Time),
    ) -> Result<Self, QueryError> {
        let LoadContext { client, schema, plan, budget, .. } = context;
        let max_points = budget / 2;
        let mut unavailable = None;
        let is_final = |failure: &QueryError| {
            !failure.is_transient()
                && !matches!(failure, QueryError::CollectorFull | QueryError::TooLarge(_))
        };
        match batch.query_owners(client, schema, span, max_points).await {
            Ok(()) => {}
            Err(failure) if is_final(&failure) => {
                unavailable = Some((OWNERS_UNAVAILABLE, failure));
            }
            Err(failure) => return Err(failure),
        }
        let patterns = batch.patterns();
        let mut oom_killed = HashSet::new();
        let mut size = batch.proof.size_in_points;
        for pods in patterns.iter().filter(|_| !plan.is_upstream) {
            let left = max_points.saturating_sub(size);
            let (batch, pods) = (slice::from_ref(&*batch), pods.clone());
            match oom_killed_pods(client, schema, batch, pods, span, left).await {
                Ok(killed) => {
                    for OomKilledPods { pods, size_in_points } in killed {
                        oom_killed.extend(pods);
                        size += size_in_points;
                    }
                }
                Err(failure) if is_final(&failure) => {
                    unavailable.get_or_insert((OOM_KILLS_UNAVAILABLE, failure));
                }
                Err(failure) => return Err(failure),
            }
        }
        oom_killed.retain(|pod| batch.workload_of(pod).is_some());
        Ok(Self { patterns, oom_killed, unavailable, until: span.1, size_in_points: size })
    }

    /// Queries all of the time range for the batches of a group together, and stores the owners in the batches.
    pub(super) async fn query_group(
        group: &mut BatchGroup,
        context: &LoadContext,
        span: (Time, Time),
        max_points: u64,
    ) -> Result<Vec<Self>, QueryError> {
        let LoadContext { client, schema, plan, .. } = context;
        let owners = query_owners(client, schema, &group.batches, span, max_points).await?;
        for (batch, owners) in group.batches.iter_mut().zip(owners) {
            batch.proof = owners;
        }
        group.has_owners = true;
        let mut killed: Vec<OomKilledPods> =
            group.batches.iter().map(|_| OomKilledPods::default()).collect();
        for pods in group.patterns().into_iter().filter(|_| !plan.is_upstream) {
            let size: u64 = killed.iter().map(|killed| killed.size_in_points).sum();
            let left = max_points.saturating_sub(group.size_in_points() + size);
            let found = oom_killed_pods(client, schema, &group.batches, pods, span, left).await?;
            for (killed, found) in killed.iter_mut().zip(found) {
                killed.pods.extend(found.pods);
                killed.size_in_points += found.size_in_points;
            }
        }
        let infos = group.batches.iter().zip(killed).map(|(batch, killed)| {
            let OomKilledPods { pods: mut oom_killed, size_in_points } = killed;
            oom_killed.retain(|pod| batch.workload_of(pod).is_some());
            Self {
                patterns: batch.patterns(),
                oom_killed,
                unavailable: None,
                until: span.1,
                size_in_points: size_in_points + batch.proof.size_in_points,
            }
        });
        Ok(infos.collect())
    }

    /// One pattern for all pods of the batch.
    pub(super) fn pattern(&self) -> Pattern {
        match &self.patterns[..] {
            [one] => one.clone(),
            // The combined pattern is too long for some servers. Other pods are skipped.
            _ => Pattern::regex(".+"),
        }
    }
}
