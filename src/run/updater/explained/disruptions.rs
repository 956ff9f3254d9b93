//! PodDisruptionBudgets: what the API server would answer to an eviction, as far as that can be told without asking it.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client, api::ListParams};

use super::leases::Read;
use crate::observe::{running::RunningPod, selector::Selector};
use plimsoll_core::updater::{Outcome, Phase};

/// The budgets of a namespace.
#[derive(Debug, Default)]
pub(super) struct Disruptions(Vec<Budget>);

#[derive(Debug)]
struct Budget {
    selector: Selector,
    /// Pods that may be taken down now.
    allowed: i32,
    /// Whether pods that do not serve may go whatever the budget says.
    frees_unready: bool,
}

impl Disruptions {
    /// Reads them.
    pub async fn read(client: &Client, namespace: &str) -> Read<Self> {
        let api = Api::<PodDisruptionBudget>::namespaced(client.clone(), namespace);
        let list = api.list(&ListParams::default()).await;
        Read::of(list).map(|list| Self(list.items.iter().filter_map(Budget::of).collect()))
    }

    /// What an eviction of this pod comes to. One that passes takes its part of the budget.
    pub fn evict(&mut self, pod: &RunningPod) -> Outcome {
        if pod.life.phase == Phase::Pending {
            return Outcome::Done;
        }
        let mut of_it = self.0.iter_mut().filter(|budget| budget.selector.matches(&pod.labels));
        let Some(budget) = of_it.next() else { return Outcome::Done };
        if of_it.next().is_some() {
            // The server does not know which of them counts, and fails.
            return Outcome::Failed;
        }
        if !pod.life.is_ready() && budget.frees_unready {
            return Outcome::Done;
        }
        if budget.allowed <= 0 {
            return Outcome::Disallowed;
        }
        budget.allowed -= 1;
        Outcome::Done
    }
}

impl Budget {
    fn of(object: &PodDisruptionBudget) -> Option<Self> {
        let spec = object.spec.as_ref()?;
        // A selector that says nothing means all pods of the namespace; one that is not there none.
        let selector = Selector::from_label_selector(Some(spec.selector.as_ref()?)).ok()?;
        let status = object.status.clone().unwrap_or_default();
        // One that was not looked at yet lets nothing go.
        let is_known = status.observed_generation >= object.metadata.generation;
        let is_healthy =
            status.desired_healthy > 0 && status.current_healthy >= status.desired_healthy;
        let always = spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow");
        Some(Self {
            selector,
            allowed: if is_known { status.disruptions_allowed } else { 0 },
            frees_unready: always || is_healthy,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn budgets(allowed: &[i32]) -> Disruptions {
        let budget = |allowed: &i32| {
            let object = json!({
                "metadata": {"name": "web", "generation": 1},
                "spec": {"selector": {"matchLabels": {"app": "web"}}},
                "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1,
                    "desiredHealthy": 2, "expectedPods": 3},
            });
            Budget::of(&serde_json::from_value(object).expect("a budget")).expect("a selector")
        };
        Disruptions(allowed.iter().map(budget).collect())
    }

    fn pod(app: &str) -> RunningPod {
        let object = json!({
            "metadata": {"name": "web-1", "labels": {"app": app}}, "status": {"phase": "Running"},
        });
        serde_json::from_str(&object.to_string()).expect("a pod")
    }

    #[test]
    fn a_budget_lets_as_many_go_as_it_says_and_two_of_them_none() {
        let mut one = budgets(&[1]);
        assert_eq!(one.evict(&pod("other")), Outcome::Done);
        assert_eq!(one.evict(&pod("web")), Outcome::Done);
        assert_eq!(one.evict(&pod("web")), Outcome::Disallowed);
        assert_eq!(budgets(&[1, 1]).evict(&pod("web")), Outcome::Failed);
        assert_eq!(budgets(&[]).evict(&pod("web")), Outcome::Done);
    }
}
