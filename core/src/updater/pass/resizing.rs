//! Decides whether the next pod is resized in place, and to which resources.

use std::sync::Arc;

use super::{UpdatePass, steps::StepDecision};
use crate::{
    api::vpa::UpdateMode,
    sizing::{
        self,
        boost::{self, BoostStatus},
    },
    types::compat::{Compat, Fix},
    updater::{
        action::Action,
        guard::{
            BudgetKind,
            infeasible::{RecommendedTarget, RejectedBy, asks_for_less, recommended_targets},
        },
        in_place::InPlaceDecision,
        pod_sizing::PodSizing,
        refusal_backoff::RefusedRequest,
        skip_reason::SkipReason,
    },
};

impl UpdatePass<'_> {
    /// Decides what is done about a pod that may be resized.
    pub(super) fn decide_resize(&mut self, pod: usize) -> Result<StepDecision, SkipReason> {
        let mode = self.subject.sizing.spec.update_mode();
        let only_in_place = mode == UpdateMode::InPlace;
        let fixes = self.settings.fixes;
        match self.in_place_decision(pod) {
            InPlaceDecision::Approved => {}
            InPlaceDecision::Deferred(_)
                if only_in_place && !fixes.has(Fix::DeferredResizesWait) =>
            {
                self.groups.get(&self.views[pod].pod.status)?;
            }
            InPlaceDecision::Deferred(SkipReason::BelowMinReplicas { .. })
                if !only_in_place && self.may_surge(pod) =>
            {
                return Ok(StepDecision::Evict);
            }
            InPlaceDecision::Deferred(skip) => return Err(skip),
            InPlaceDecision::Evict => return Ok(StepDecision::Evict),
            InPlaceDecision::InfeasibleCached => return Err(SkipReason::Infeasible),
            InPlaceDecision::Infeasible => self.record_infeasible(pod)?,
        }
        if !self.context.can_resize && fixes.has(Fix::OnlyPossibleResizes) {
            return if only_in_place { Err(SkipReason::NoResize) } else { Ok(StepDecision::Evict) };
        }
        let (pod_spec, sizing) = (&self.views[pod].pod.spec, &self.subject.sizing);
        let boosts = boost::status(pod_spec, &sizing.spec, self.context.now);
        let sizes = match sizing.resized(pod_spec, &boosts) {
            Ok(sizes) => sizes,
            Err(SkipReason::QosWouldChange) if !only_in_place => return Ok(StepDecision::Evict),
            // Upstream treats it as a failed resize.
            Err(_) if !only_in_place && !fixes.has(Fix::OnlyPossibleResizes) => {
                return Ok(StepDecision::Evict);
            }
            Err(skip) => return Err(skip),
        };
        let boosts_ended = self.boosts_ended(pod_spec, &sizes, &boosts);
        let restarts_containers = PodSizing::restarts_containers(pod_spec, &sizes);
        let candidate = self.update_candidates[pod].as_ref();
        let reason = candidate.ok_or(SkipReason::NoRecommendation)?.reason;
        let kind = if restarts_containers { BudgetKind::Disruption } else { BudgetKind::Resize };
        self.check_backoff(&RefusedRequest::Resize(pod_spec.uid.as_ref().into()))?;
        self.check_guards(pod, kind, false)?;
        Ok(StepDecision::Act(Action::Resize {
            reason,
            sized_containers: sizes,
            boosts_ended,
            restarts_containers,
        }))
    }

    /// Returns the containers whose boost ends with a resize: those that get a recommended CPU, and those that the pod does
    /// not have. Upstream reports all containers whose boost has expired.
    fn boosts_ended(
        &self,
        pod: &sizing::Pod,
        sizes: &[sizing::SizedContainer],
        boosts: &BoostStatus<'_>,
    ) -> Vec<Arc<str>> {
        let gets_cpu = |name: &str| {
            let mut sizes = sizes.iter().filter(|size| size.requests.cpu().is_some());
            sizes.any(|size| {
                pod.container(size.container).is_some_and(|container| *container.name == *name)
            })
        };
        let is_there = |name: &str| {
            let mut containers = pod.containers.iter().chain(&pod.init_containers);
            containers.any(|container| *container.name == *name)
        };
        let is_upstream = self.settings.compat == Compat::Upstream;
        let ended =
            boosts.expired.iter().filter(|name| is_upstream || gets_cpu(name) || !is_there(name));
        ended.map(|&name| name.into()).collect()
    }

    /// Records that a node rejected a resize. Ours does not retry unless a resource is lower than in the rejected resize;
    /// upstream always retries once.
    fn record_infeasible(&mut self, pod: usize) -> Result<(), SkipReason> {
        let now = self.context.now;
        let pod_spec = &self.views[pod].pod.spec;
        if !self.settings.fixes.has(Fix::InfeasibleResizesExpire) {
            let targets = self.uncapped_targets().unwrap_or_default();
            self.state.workload.refusals.record(&pod_spec.uid, RejectedBy::Node, targets, now);
            return Ok(());
        }
        // The rejected resources are those of the spec.
        let refused: Vec<RecommendedTarget> = pod_spec
            .sized_containers(self.subject.sizing.rules.sidecars)
            .map(|(_, container)| RecommendedTarget {
                container: container.name.clone(),
                target: container.spec.requests().clone(),
            })
            .collect();
        let candidate = self.update_candidates[pod].as_ref().ok_or(SkipReason::NoRecommendation)?;
        if asks_for_less(&recommended_targets(&candidate.recommendation), &refused) {
            return Ok(());
        }
        self.state.workload.refusals.record(&pod_spec.uid, RejectedBy::Node, refused, now);
        Err(SkipReason::Infeasible)
    }
}
