//! What is asked about the pods of a batch before their usage is: who owns them, and which were killed.

use std::collections::HashSet;

use super::{
    batch::Batch,
    part::Way,
    proof::{self, Proof},
};
use crate::{
    Time,
    prometheus::{failure::Failure, selector::Pattern},
};

/// What it means that a server does not say who owns pods, or who was killed.
const UNTOLD_OWNERS: &str = "owners of pods cannot be asked about: names of pods decide alone";
const UNTOLD_KILLS: &str = "kills for lack of memory cannot be asked about, and do not count";

/// What the answers came to.
#[derive(Debug)]
pub(super) struct Names {
    /// Patterns of pods, each for a query of its own.
    pub(super) patterns: Vec<Pattern>,
    /// The pods that were killed at some time.
    pub(super) killed: HashSet<Box<str>>,
    /// What the server does not say, and why.
    pub(super) untold: Option<(&'static str, Failure)>,
}

impl Names {
    /// Asks about a batch within this time, and has it know the answers.
    pub(super) async fn ask(
        way: &Way,
        batch: &mut Batch,
        span: (Time, Time),
    ) -> Result<Self, Failure> {
        let Way { client, schema, plan, .. } = way;
        let mut untold = None;
        let owners: Vec<_> = batch.claims.iter().map(|claim| &claim.owner).collect();
        if batch.labelled.is_none() {
            batch.proof = match Proof::ask(client, schema, &batch.namespace, &owners, span).await {
                Ok(proof) => proof,
                Err(failure) if failure.is_passing() => return Err(failure),
                Err(failure) => {
                    untold = Some((UNTOLD_OWNERS, failure));
                    Proof::default()
                }
            };
        }
        let patterns = batch.patterns();
        let mut killed = HashSet::new();
        for pods in patterns.iter().filter(|_| plan.has_kills()) {
            match proof::killed(client, schema, &batch.namespace, pods.clone(), span).await {
                Ok(pods) => killed.extend(pods),
                Err(failure) if failure.is_passing() => return Err(failure),
                Err(failure) => {
                    untold.get_or_insert((UNTOLD_KILLS, failure));
                }
            }
        }
        killed.retain(|pod| batch.claim_of(pod).is_some());
        Ok(Self { patterns, killed, untold })
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
