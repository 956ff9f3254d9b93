//! Reports decisions without a scale, in the status and by events, where this controller replaces the HPA controller.

use std::sync::Arc;

use plimsoll_core::{scaling::ScaleOutcome, types::Time};

use super::{
    super::replicas::{DecisionRecord as _, StatusChange},
    HorizontalController,
    autoscaler::ObjectState,
    horizontal_decision::HorizontalDecision,
};

/// Queues the status and the events of a decision about a target whose scale could not be read.
pub(super) async fn report_unread_scale(
    controller: &HorizontalController,
    state: &mut ObjectState,
    decision: HorizontalDecision,
    now: Time,
) {
    let (decision, outcome) = (Arc::new(decision), ScaleOutcome::NoChange);
    let reason = decision.status_failure_reason(&outcome);
    let change = StatusChange::Decided(Arc::clone(&decision), outcome.clone());
    controller.status.change_status(state, change, now, reason, false).await;
    controller.events.emit_all(state, decision.events(&outcome, now));
}
