//! Whether a pod whose turn it is gets new sizes in place, and which.

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
    /// What is to be done about a pod that may be resized.
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
            InPlaceDecision::Deferred(why) => return Err(why),
            InPlaceDecision::Evict => return Ok(StepDecision::Evict),
            InPlaceDecision::InfeasibleCached => return Err(SkipReason::Infeasible),
            InPlaceDecision::Infeasible => self.record_infeasible(pod)?,
        }
        if !self.context.can_resize && fixes.has(Fix::OnlyPossibleResizes) {
            return if only_in_place { Err(SkipReason::NoResize) } else { Ok(StepDecision::Evict) };
        }
        let (size, sizing) = (&self.views[pod].pod.spec, &self.subject.sizing);
        let standing = boost::status(size, &sizing.spec, self.context.now);
        let sizes = match sizing.resized(size, &standing) {
            Ok(sizes) => sizes,
            Err(SkipReason::QosWouldChange) if !only_in_place => return Ok(StepDecision::Evict),
            // Upstream takes it for a resize that failed.
            Err(_) if !only_in_place && !fixes.has(Fix::OnlyPossibleResizes) => {
                return Ok(StepDecision::Evict);
            }
            Err(why) => return Err(why),
        };
        let unboosted = self.boosts_ended(size, &sizes, &standing);
        let restarts = PodSizing::restarts_containers(size, &sizes);
        let need = self.update_candidates[pod].as_ref().ok_or(SkipReason::NoRecommendation)?.reason;
        let charge = if restarts { BudgetKind::Disruption } else { BudgetKind::Resize };
        self.check_backoff(&RefusedRequest::Resize(size.uid.as_ref().into()))?;
        self.check_guards(pod, charge, false)?;
        Ok(StepDecision::Act(Action::Resize {
            reason: need,
            sized_containers: sizes,
            boosts_ended: unboosted,
            restarts_containers: restarts,
        }))
    }

    /// Whose boost is over with a resize. A container that gets what is recommended has none any more, and one that is not
    /// there never had one. Upstream says it of all whose time is up.
    fn boosts_ended(
        &self,
        pod: &sizing::Pod,
        sizes: &[sizing::SizedContainer],
        boosts: &BoostStatus<'_>,
    ) -> Vec<Arc<str>> {
        let gets_cpu = |name: &str| {
            let mut sizes = sizes.iter().filter(|size| size.requests.cpu().is_some());
            sizes.any(|size| pod.container(size.container).is_some_and(|one| *one.name == *name))
        };
        let is_there = |name: &str| {
            pod.containers.iter().chain(&pod.init_containers).any(|one| *one.name == *name)
        };
        let is_upstream = self.settings.compat == Compat::Upstream;
        let over =
            boosts.expired.iter().filter(|name| is_upstream || gets_cpu(name) || !is_there(name));
        over.map(|&name| name.into()).collect()
    }

    /// A node said no: that is remembered. Ours tries no more unless less is wanted than what was refused, upstream once
    /// more in any case.
    fn record_infeasible(&mut self, pod: usize) -> Result<(), SkipReason> {
        let now = self.context.now;
        let size = &self.views[pod].pod.spec;
        if !self.settings.fixes.has(Fix::InfeasibleResizesExpire) {
            let raw = self.uncapped_targets().unwrap_or_default();
            self.state.workload.refusals.record(&size.uid, RejectedBy::Node, raw, now);
            return Ok(());
        }
        // What was refused is what the spec asks for.
        let refused: Vec<RecommendedTarget> = size
            .sized_containers(self.subject.sizing.rules.sidecars)
            .map(|(_, one)| RecommendedTarget {
                container: one.name.clone(),
                target: one.spec.requests().clone(),
            })
            .collect();
        let worth = self.update_candidates[pod].as_ref().ok_or(SkipReason::NoRecommendation)?;
        if asks_for_less(&recommended_targets(&worth.recommendation), &refused) {
            return Ok(());
        }
        self.state.workload.refusals.record(&size.uid, RejectedBy::Node, refused, now);
        Err(SkipReason::Infeasible)
    }
}
