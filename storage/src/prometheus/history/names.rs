//! What is asked about the pods of a batch before their usage is: who owns them, and which were ever killed.
//!
//! It is asked for as long a time as fits into the budget; a part that goes on behind that asks again.

use std::collections::HashSet;

use super::{
    batch::Batch,
    part::{GROWTH, Way},
    proof::{self, Proof},
};
use crate::prometheus::{failure::Failure, selector::Pattern};
use plimsoll_core::types::Time;

/// What it means that a server does not say who owns pods, or who was killed.
const UNTOLD_OWNERS: &str = "owners of pods cannot be asked about: names of pods decide alone";
const UNTOLD_KILLS: &str = "kills for lack of memory cannot be asked about, and do not count";

/// What was asked.
#[derive(Debug)]
pub(super) struct Names {
    /// Patterns of pods, each for a query of its own.
    pub(super) patterns: Vec<Pattern>,
    pub(super) killed: HashSet<Box<str>>,
    /// What the server does not say, and why.
    pub(super) untold: Option<(&'static str, Failure)>,
    /// Up to when it holds.
    pub(super) until: Time,
    /// What it takes, in points.
    pub(super) held: u64,
}

impl Names {
    /// Asks about what comes after a time, up to another one or less, and puts the owners into the batch. `most` is for
    /// how many steps at most, and becomes less where more comes than may be held.
    pub(super) async fn ask(
        batch: &mut Batch,
        way: &Way,
        (after, to): (Time, Time),
        most: &mut u32,
    ) -> Result<Self, Failure> {
        loop {
            let until = after.later(way.plan.memory.saturating_mul(*most)).min(to);
            let asked = Self::ask_once(batch, way, (after, until)).await;
            let failure = match asked {
                Err(failure @ (Failure::Full | Failure::TooLarge(_))) => failure,
                asked => return asked,
            };
            let length = u128::from(until.nanos_since(after).max(0).unsigned_abs());
            let steps = length.div_ceil(way.plan.memory.as_nanos().max(1));
            if steps <= 1 {
                // There is nothing shorter to ask for, so it is not asked for at all.
                batch.proof = Proof::default();
                let (patterns, killed) = (batch.patterns(), HashSet::new());
                let untold = Some((UNTOLD_OWNERS, failure));
                return Ok(Self { patterns, killed, untold, until: to, held: 0 });
            }
            *most = u32::try_from(steps / u128::from(GROWTH)).unwrap_or(u32::MAX).max(1);
            let namespace = &*batch.namespace;
            tracing::debug!(namespace, steps = *most, %failure, "owners of pods are asked about for less time");
        }
    }

    async fn ask_once(
        batch: &mut Batch,
        way: &Way,
        (after, until): (Time, Time),
    ) -> Result<Self, Failure> {
        let Way { client, schema, plan, budget } = way;
        let most = budget / 2;
        let span = (after, until);
        let mut untold = None;
        let is_too_much =
            |failure: &Failure| matches!(failure, Failure::Full | Failure::TooLarge(_));
        if batch.labelled.is_none() {
            let owners: Vec<_> = batch.claims.iter().map(|claim| &claim.owner).collect();
            let Batch { namespace, live, .. } = &*batch;
            let asked = Proof::ask(client, schema, namespace, &owners, live, span, most).await;
            batch.proof = match asked {
                Ok(proof) => proof,
                Err(failure) if failure.is_passing() || is_too_much(&failure) => {
                    return Err(failure);
                }
                Err(failure) => {
                    untold = Some((UNTOLD_OWNERS, failure));
                    Proof::default()
                }
            };
        }
        let patterns = batch.patterns();
        let mut killed = HashSet::new();
        let mut held = batch.proof.held();
        for pods in patterns.iter().filter(|_| plan.has_kills()) {
            let left = most.saturating_sub(held);
            match proof::killed(client, schema, &batch.namespace, pods.clone(), span, left).await {
                Ok((pods, taken)) => {
                    killed.extend(pods);
                    held += taken;
                }
                Err(failure) if failure.is_passing() || is_too_much(&failure) => {
                    return Err(failure);
                }
                Err(failure) => {
                    untold.get_or_insert((UNTOLD_KILLS, failure));
                }
            }
        }
        killed.retain(|pod| batch.claim_of(pod).is_some());
        Ok(Self { patterns, killed, untold, until, held })
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
