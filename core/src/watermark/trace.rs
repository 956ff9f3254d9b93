//! The trace of a decision, as its object tells it.

use crate::types::Time;

use super::{combine::Row, conditions::stamp, decide::Decision, gate::Hold, rules::Rules};
use crate::{
    api::trace::{Trace, TracedSource},
    types::quantity::{Format, Quantity},
};

/// How a decision came about.
pub fn trace(decision: &Decision, rules: &Rules, now: Time) -> Trace {
    let held_until = match decision.passage.and_then(|passage| passage.held) {
        Some(Hold::Window { until }) => Some(until),
        Some(Hold::Delay { until }) => until,
        Some(Hold::Same) | None => None,
    };
    let mut trace = Trace {
        at: Some(stamp(now)),
        sources: decision.rows.iter().map(source).collect(),
        from: decision.scale.wanted,
        proposal: decision.combined.as_ref().ok().map(|combined| combined.replicas.max(0)),
        limited: decision.normal.map(|normal| normal.replicas),
        held_until: held_until.map(stamp),
        to: decision.desired,
        restrictions: decision
            .restrictions(rules)
            .into_iter()
            .map(|restriction| restriction.word().to_owned())
            .collect(),
        unknown_since: None,
    };
    decision.memory.tell(&mut trace);
    trace
}

fn source(row: &Row) -> TracedSource {
    let quantity = |milli| Quantity::milli(milli, Format::DecimalSi);
    let mut traced = TracedSource {
        name: row.name.clone(),
        low: row.band.map(|band| quantity(band.adjusted_low())),
        high: row.band.map(|band| quantity(band.adjusted_high())),
        chosen: row.is_chosen,
        ..TracedSource::default()
    };
    match &row.outcome {
        Ok(asked) => {
            traced.value = Some(quantity(asked.proposal.utilisation));
            asked.proposal.position.word().clone_into(&mut traced.position);
            traced.proposal = Some(asked.proposal.replicas);
        }
        Err(why) => {
            why.word().clone_into(&mut traced.unknown);
            traced.message = why.to_string();
        }
    }
    traced
}
