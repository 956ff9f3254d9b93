//! Combines several metrics: the largest proposal wins, and a failed metric blocks scaling down but not up.

use super::{
    conditions::{Condition, SCALING_ACTIVE},
    evaluation::Evaluation,
};

/// The combined proposal of all metrics of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Combined {
    /// The proposed replicas; `None` if nothing may be changed.
    pub replicas: Option<i32>,
    /// Index of the metric that proposed them.
    pub winner: Option<usize>,
    /// The error, if some metrics failed.
    pub error: Option<String>,
    /// The condition `ScalingActive`.
    pub condition: Condition,
}

/// Combines proposals. `partial_holds` is whether a failed metric blocks scaling up, too.
pub fn combine(evaluations: &[Evaluation], current: i32, partial_holds: bool) -> Combined {
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
    let failed = || evaluations.iter().filter_map(|evaluation| evaluation.outcome.as_ref().err());
    let (invalid, total) = (failed().count(), evaluations.len());
    let error = failed().next().map(|first| {
        format!(
            "invalid metrics ({invalid} invalid out of {total}), first error is: {}",
            first.in_pass
        )
    });
    if invalid >= total || (invalid > 0 && (partial_holds || best < current)) {
        let condition = failed().next().map_or_else(Condition::default, |first| {
            let message =
                format!("the HPA was unable to compute the replica count: {}", first.error);
            Condition::new(SCALING_ACTIVE, false, first.reason, message)
        });
        return Combined { replicas: None, winner: None, error, condition };
    }
    let name = winner
        .and_then(|index| evaluations.get(index))
        .map_or("", |evaluation| evaluation.name.as_str());
    let message = format!("the HPA was able to successfully calculate a replica count from {name}");
    let condition = Condition::new(SCALING_ACTIVE, true, "ValidMetricFound", message);
    Combined { replicas: Some(best), winner, error, condition }
}
