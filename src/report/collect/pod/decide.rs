//! Runs the updater's pass for the workload of one pod, without executing its steps.

use std::sync::Arc;

use plimsoll_core::updater::{
    self, Action, PassContext, PersistedState, Settings, StepResult, UpdatePass,
    guard::RecommenderHeartbeat,
};

use super::disruption_budgets::DisruptionBudgets;
use crate::controllers::updater::{decision_inputs::DecisionInputs, matching::Workload};

/// What was decided about a pod.
pub(super) struct PodDecision {
    pub explanation: Option<updater::PodExplanation>,
    /// The persisted state before any action.
    pub persisted: PersistedState,
    pub decision: updater::Decision,
    /// The action on the pod itself.
    pub action: Option<Action>,
    /// Actions on other pods that come first.
    pub earlier_actions: Vec<(usize, &'static str)>,
    /// Containers that lose their boost.
    pub unboosted: Vec<Arc<str>>,
}

/// Decides about the pod with this index.
pub(super) fn decide(
    settings: &Settings,
    workload: &Workload,
    inputs: &DecisionInputs<'_>,
    index: usize,
    context: PassContext<'_>,
    persisted: PersistedState,
    mut disruptions: DisruptionBudgets,
) -> PodDecision {
    let subject = inputs.vpa_with_pods(workload);
    let mut pass = UpdatePass::new(subject, context, settings, persisted).without_boost_removal();
    let explanation = pass.explain_pod(index);
    let persisted = pass.state().clone();
    let order: &[usize] =
        explanation.as_ref().map_or(&[], |explanation| &explanation.candidate_order);
    let position = |pod: usize| order.iter().position(|candidate| *candidate == pod);
    let (mut action, mut earlier_actions) = (None, Vec::new());
    while let Some(step) = pass.next() {
        let outcome = match &step.action {
            Action::Evict { .. } => disruptions.simulate_eviction(&workload.pods[step.pod]),
            _ => StepResult::Done,
        };
        // The end of a surge concerns the whole workload, not one of its pods.
        let is_done = outcome == StepResult::Done && !matches!(step.action, Action::EndSurge);
        if is_done && step.pod == index {
            action = Some(step.action.clone());
        } else if is_done && position(step.pod) < position(index) {
            earlier_actions.push((step.pod, step.action.as_str()));
        }
        pass.record_result(outcome);
    }
    let decision = pass.finish();
    let mut unboosted = Vec::new();
    if settings.startup_boost && workload.pods[index].is_boosted() {
        let context = PassContext {
            heartbeat: RecommenderHeartbeat::Absent,
            is_admission_ready: true,
            ..context
        };
        let mut pass = UpdatePass::new(subject, context, settings, PersistedState::default())
            .only_boost_removal();
        while let Some(step) = pass.next() {
            if let Action::RemoveBoost { containers, .. } = step.action
                && step.pod == index
            {
                unboosted = containers;
            }
            pass.record_result(StepResult::Done);
        }
    }
    PodDecision { explanation, persisted, decision, action, earlier_actions, unboosted }
}
