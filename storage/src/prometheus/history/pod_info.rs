//! What is asked about the pods of a batch before their usage is: who owns them, and which were ever killed.
//!
//! It is asked for as long a time as fits into the budget; a part that goes on behind that asks again.

use std::collections::HashSet;

use super::{
    batch_load::{GROWTH, LoadContext},
    owner_series::{self, OwnerSeries},
    workload_batch::WorkloadBatch,
};
use crate::prometheus::{query_error::QueryError, selector::Pattern};
use plimsoll_core::types::Time;

/// What it means that a server does not say who owns pods, or who was killed.
const OWNERS_UNAVAILABLE: &str = "owners of pods cannot be asked about: names of pods decide alone";
const OOM_KILLS_UNAVAILABLE: &str =
    "kills for lack of memory cannot be asked about, and do not count";

/// What was asked.
#[derive(Debug)]
pub(super) struct PodInfo {
    /// Patterns of pods, each for a query of its own.
    pub(super) patterns: Vec<Pattern>,
    pub(super) oom_killed: HashSet<Box<str>>,
    /// What the server does not say, and why.
    pub(super) unavailable: Option<(&'static str, QueryError)>,
    /// Up to when it holds.
    pub(super) until: Time,
    /// What it takes, in points.
    pub(super) size_in_points: u64,
}

impl PodInfo {
    /// Asks about what comes after a time, up to another one or less, and puts the owners into the batch. `most` is for
    /// how many steps at most, and becomes less where more comes than may be held.
    pub(super) async fn query(
        batch: &mut WorkloadBatch,
        way: &LoadContext,
        (after, to): (Time, Time),
        most: &mut u32,
    ) -> Result<Self, QueryError> {
        loop {
            let until = after.later(way.plan.memory.saturating_mul(*most)).min(to);
            let asked = Self::query_once(batch, way, (after, until)).await;
            let failure = match asked {
                Err(failure @ (QueryError::CollectorFull | QueryError::TooLarge(_))) => failure,
                asked => return asked,
            };
            let length = u128::from(until.nanos_since(after).max(0).unsigned_abs());
            let steps = length.div_ceil(way.plan.memory.as_nanos().max(1));
            if steps <= 1 {
                // There is nothing shorter to ask for, so it is not asked for at all.
                batch.proof = OwnerSeries::default();
                let (patterns, killed) = (batch.patterns(), HashSet::new());
                let untold = Some((OWNERS_UNAVAILABLE, failure));
                return Ok(Self {
                    patterns,
                    oom_killed: killed,
                    unavailable: untold,
                    until: to,
                    size_in_points: 0,
                });
            }
            *most = u32::try_from(steps / u128::from(GROWTH)).unwrap_or(u32::MAX).max(1);
            let namespace = &*batch.namespace;
            tracing::debug!(namespace, steps = *most, %failure, "owners of pods are asked about for less time");
        }
    }

    async fn query_once(
        batch: &mut WorkloadBatch,
        way: &LoadContext,
        (after, until): (Time, Time),
    ) -> Result<Self, QueryError> {
        let LoadContext { client, schema, plan, budget } = way;
        let most = budget / 2;
        let span = (after, until);
        let mut untold = None;
        let is_too_much = |failure: &QueryError| {
            matches!(failure, QueryError::CollectorFull | QueryError::TooLarge(_))
        };
        if batch.labelled.is_none() {
            let owners: Vec<_> = batch.claims.iter().map(|claim| &claim.owner).collect();
            let WorkloadBatch { namespace, live_pods: live, .. } = &*batch;
            let asked =
                OwnerSeries::query(client, schema, namespace, &owners, live, span, most).await;
            batch.proof = match asked {
                Ok(proof) => proof,
                Err(failure) if failure.is_transient() || is_too_much(&failure) => {
                    return Err(failure);
                }
                Err(failure) => {
                    untold = Some((OWNERS_UNAVAILABLE, failure));
                    OwnerSeries::default()
                }
            };
        }
        let patterns = batch.patterns();
        let mut killed = HashSet::new();
        let mut held = batch.proof.size_in_points();
        for pods in patterns.iter().filter(|_| plan.has_kills()) {
            let left = most.saturating_sub(held);
            match owner_series::oom_killed_pods(
                client,
                schema,
                &batch.namespace,
                pods.clone(),
                span,
                left,
            )
            .await
            {
                Ok((pods, taken)) => {
                    killed.extend(pods);
                    held += taken;
                }
                Err(failure) if failure.is_transient() || is_too_much(&failure) => {
                    return Err(failure);
                }
                Err(failure) => {
                    untold.get_or_insert((OOM_KILLS_UNAVAILABLE, failure));
                }
            }
        }
        killed.retain(|pod| batch.workload_of(pod).is_some());
        Ok(Self { patterns, oom_killed: killed, unavailable: untold, until, size_in_points: held })
    }

    /// One pattern of all pods that are asked for.
    pub(super) fn pattern(&self) -> Pattern {
        match &self.patterns[..] {
            [one] => one.clone(),
            // Longer than some servers take; what comes along is passed over.
            _ => Pattern::regex(".+"),
        }
    }
}
