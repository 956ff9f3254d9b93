//! Queries the owners and the OOM kills of the pods of a batch, before their usage.
//!
//! The queried time range is as long as the budget allows. Beyond it, the information is queried again.

use std::collections::HashSet;

use super::{
    batch_group::BatchGroup,
    batch_load::{GROWTH, LoadContext},
    owner_queries::{OomKilledPods, oom_killed_pods, query_owners},
    owner_series::OwnerSeries,
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
    /// Queries a time range that ends at `to` or earlier for a single batch, and stores the owners in the batch. `max_steps`
    /// limits its length, and is reduced if the result exceeds the budget.
    pub(super) async fn query(
        group: &mut BatchGroup,
        context: &LoadContext,
        (after, to): (Time, Time),
        max_steps: &mut u32,
    ) -> Result<Self, QueryError> {
        let is_too_large = |failure: &QueryError| {
            matches!(failure, QueryError::CollectorFull | QueryError::TooLarge(_))
        };
        let is_final = |failure: &QueryError| !failure.is_transient() && !is_too_large(failure);
        loop {
            let until = after.later(context.plan.memory.saturating_mul(*max_steps)).min(to);
            let (span, max_points) = ((after, until), context.budget / 2);
            let failure = match Self::query_group(group, context, span, max_points, is_final).await
            {
                Ok(mut infos) => return Ok(infos.remove(0)),
                Err(failure) if is_too_large(&failure) => failure,
                Err(failure) => return Err(failure),
            };
            let steps = context.plan.steps_between(after, until);
            let batch = &mut group.batches[0];
            if steps <= 1 {
                // A single step cannot be split, so continue without.
                batch.proof = OwnerSeries::default();
                return Ok(Self {
                    patterns: batch.patterns(),
                    oom_killed: HashSet::new(),
                    unavailable: Some((OWNERS_UNAVAILABLE, failure)),
                    until: to,
                    size_in_points: 0,
                });
            }
            *max_steps = u32::try_from(steps / GROWTH).unwrap_or(u32::MAX).max(1);
            let namespace = &*batch.namespace;
            tracing::debug!(namespace, steps = *max_steps, %failure, "querying owners of pods for a shorter time range");
        }
    }

    /// Queries all of the time range for the batches of a group together, and stores the owners in the batches. Continues
    /// without what fails finally.
    pub(super) async fn query_group(
        group: &mut BatchGroup,
        context: &LoadContext,
        span: (Time, Time),
        max_points: u64,
        is_final: impl Fn(&QueryError) -> bool,
    ) -> Result<Vec<Self>, QueryError> {
        let LoadContext { client, schema, plan, .. } = context;
        let mut unavailable = None;
        match query_owners(client, schema, group, span, max_points).await {
            Ok(owners) => group.set_owners(owners),
            Err(failure) if is_final(&failure) => {
                group.batches.iter_mut().for_each(|batch| batch.proof = OwnerSeries::default());
                unavailable = Some((OWNERS_UNAVAILABLE, failure));
            }
            Err(failure) => return Err(failure),
        }
        let mut killed: Vec<OomKilledPods> =
            group.batches.iter().map(|_| OomKilledPods::default()).collect();
        for pods in group.patterns().into_iter().filter(|_| !plan.is_upstream) {
            let size: u64 = killed.iter().map(|killed| killed.size_in_points).sum();
            let left = max_points.saturating_sub(group.size_in_points() + size);
            match oom_killed_pods(client, schema, group, pods, span, left).await {
                Ok(found) => {
                    for (killed, found) in killed.iter_mut().zip(found) {
                        killed.pods.extend(found.pods);
                        killed.size_in_points += found.size_in_points;
                    }
                }
                Err(failure) if is_final(&failure) => {
                    unavailable.get_or_insert((OOM_KILLS_UNAVAILABLE, failure));
                }
                Err(failure) => return Err(failure),
            }
        }
        let infos = group.batches.iter().zip(killed).map(|(batch, killed)| {
            let OomKilledPods { pods: mut oom_killed, size_in_points } = killed;
            oom_killed.retain(|pod| batch.workload_of(pod).is_some());
            Self {
                patterns: batch.patterns(),
                oom_killed,
                unavailable: unavailable.clone(),
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
