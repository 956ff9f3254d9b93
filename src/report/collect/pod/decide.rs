//! Runs the updater's pass for the workload of one pod, without executing its steps. PodDisruptionBudgets predict how the API
//! server would respond to an eviction.

use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use plimsoll_core::updater::{
    self, Action, PassContext, PersistedState, Phase, Settings, StepResult, UpdatePass,
    guard::RecommenderHeartbeat,
};

use crate::{
    cluster::{
        cache::{selector::Selector, updater_pod::UpdaterPod},
        snapshot::Listed,
    },
    controllers::updater::{decision_inputs::DecisionInputs, matching::Workload},
};

pub(super) struct PodDecision {
    pub explanation: Option<updater::PodExplanation>,
    pub persisted: PersistedState,
    pub decision: updater::Decision,
    pub action: Option<Action>,
    pub earlier_actions: Vec<(usize, &'static str)>,
    pub unboosted: Vec<Arc<str>>,
}

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
        let outcome = disruptions.simulate(&step.action, &workload.pods[step.pod]);
        // The end of a surge concerns the whole workload, not one of its pods.
        let is_done = outcome == StepResult::Done && !matches!(step.action, Action::EndSurge);
        if is_done && step.pod == index {
            action = Some(step.action.clone());
        } else if is_done && position(step.pod) < position(index) {
            earlier_actions.push((step.pod, step.action.into_str()));
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

#[derive(Debug, Default)]
pub(super) struct DisruptionBudgets(Vec<PodBudget>);

#[derive(Debug)]
struct PodBudget {
    selector: Selector,
    disruptions_allowed: i32,
    /// Whether pods that are not ready may be evicted regardless of the budget.
    always_allows_unready: bool,
}

impl DisruptionBudgets {
    /// The PodDisruptionBudgets of a namespace. Without permission to list them, there is a note and none is assumed.
    pub fn of(listed: &Listed<PodDisruptionBudget>, notes: &mut Vec<String>) -> Self {
        match listed {
            Ok(list) => Self(list.objects.iter().filter_map(PodBudget::from_object).collect()),
            Err(error) => {
                notes.push(if error.is_forbidden() {
                    "No permission to list PodDisruptionBudgets: one may block the eviction."
                        .to_owned()
                } else {
                    format!("Failed to list PodDisruptionBudgets: {}.", error.why)
                });
                Self::default()
            }
        }
    }

    /// Simulates an action. A successful eviction is deducted from the budget.
    pub fn simulate(&mut self, action: &Action, pod: &UpdaterPod) -> StepResult {
        if !matches!(action, Action::Evict { .. }) || pod.status.phase == Phase::Pending {
            return StepResult::Done;
        }
        let mut matching = self.0.iter_mut().filter(|budget| budget.selector.matches(&pod.labels));
        let Some(budget) = matching.next() else { return StepResult::Done };
        if matching.next().is_some() {
            // The API server rejects evictions of pods with several PodDisruptionBudgets.
            return StepResult::Failed;
        }
        if !pod.status.is_ready() && budget.always_allows_unready {
            return StepResult::Done;
        }
        if budget.disruptions_allowed <= 0 {
            return StepResult::BlockedByBudget;
        }
        budget.disruptions_allowed -= 1;
        StepResult::Done
    }
}

impl PodBudget {
    fn from_object(object: &PodDisruptionBudget) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        // An empty selector matches all pods of the namespace, a missing one none.
        let selector = Selector::from_label_selector(Some(spec.selector.as_ref()?)).ok()?;
        let status = object.status.clone().unwrap_or_default();
        // Until the disruption controller has observed the spec, no disruption is allowed.
        let is_observed = status.observed_generation >= object.metadata.generation;
        let is_healthy =
            status.desired_healthy > 0 && status.current_healthy >= status.desired_healthy;
        let always_allow = spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow");
        Some(Self {
            selector,
            disruptions_allowed: if is_observed { status.disruptions_allowed } else { 0 },
            always_allows_unready: always_allow || is_healthy,
        })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::updater::UpdateReason;
    use serde_json::json;

    use super::*;

    fn budgets(allowed: &[i32]) -> DisruptionBudgets {
        let budget = |allowed: &i32| {
            let object = json!({
                "metadata": {"name": "web", "generation": 1},
                "spec": {"selector": {"matchLabels": {"app": "web"}}},
                "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1,
                    "desiredHealthy": 2, "expectedPods": 3},
            });
            PodBudget::from_object(&serde_json::from_value(object).expect("a budget"))
                .expect("a selector")
        };
        DisruptionBudgets(allowed.iter().map(budget).collect())
    }

    fn pod(app: &str) -> UpdaterPod {
        let object = json!({
            "metadata": {"name": "web-1", "labels": {"app": app}}, "status": {"phase": "Running"},
        });
        serde_json::from_str(&object.to_string()).expect("a pod")
    }

    #[test]
    fn a_pdb_allows_its_number_of_evictions_and_two_pdbs_allow_none() {
        let evict = Action::Evict { reason: UpdateReason::Drift };
        let mut single = budgets(&[1]);
        assert_eq!(single.simulate(&evict, &pod("other")), StepResult::Done);
        assert_eq!(single.simulate(&evict, &pod("web")), StepResult::Done);
        assert_eq!(single.simulate(&evict, &pod("web")), StepResult::BlockedByBudget);
        assert_eq!(budgets(&[1, 1]).simulate(&evict, &pod("web")), StepResult::Failed);
        assert_eq!(budgets(&[]).simulate(&evict, &pod("web")), StepResult::Done);
    }
}
