//! Several metrics: the largest proposal wins, and a metric without one blocks fewer replicas but not more.

use super::{
    conditions::{Condition, SCALING_ACTIVE},
    evaluation::Evaluation,
};

/// What all metrics of an object ask for together.
#[derive(Clone, Debug, PartialEq)]
pub struct Combined {
    /// How many replicas; `None` if nothing may be done.
    pub replicas: Option<i32>,
    /// Which metric asks for it.
    pub winner: Option<usize>,
    /// What is wrong, if some metrics have no proposal.
    pub error: Option<String>,
    /// What the condition `ScalingActive` becomes.
    pub condition: Condition,
}

/// Combines proposals.
pub fn combine(evaluations: &[Evaluation], current: i32) -> Combined {
    let mut best = 0;
    let mut winner = None;
    for (index, evaluation) in evaluations.iter().enumerate() {
        if let Ok(proposal) = &evaluation.outcome
            && (best == 0 || proposal.replicas > best)
        {
            best = proposal.replicas;
            winner = Some(index);
        }
    }
    let failed = || evaluations.iter().filter_map(|one| one.outcome.as_ref().err());
    let (invalid, all) = (failed().count(), evaluations.len());
    let error = failed().next().map(|first| {
        format!(
            "invalid metrics ({invalid} invalid out of {all}), first error is: {}",
            first.in_pass
        )
    });
    if invalid >= all || (invalid > 0 && best < current) {
        let condition = failed().next().map_or_else(Condition::default, |first| {
            let message =
                format!("the HPA was unable to compute the replica count: {}", first.error);
            Condition::new(SCALING_ACTIVE, false, first.reason, message)
        });
        return Combined { replicas: None, winner: None, error, condition };
    }
    let name = winner.and_then(|index| evaluations.get(index)).map_or("", |one| one.name.as_str());
    let message = format!("the HPA was able to successfully calculate a replica count from {name}");
    let condition = Condition::new(SCALING_ACTIVE, true, "ValidMetricFound", message);
    Combined { replicas: Some(best), winner, error, condition }
}
