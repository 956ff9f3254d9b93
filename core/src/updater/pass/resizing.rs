//! Whether a pod whose turn it is gets new sizes in place, and which.

use std::sync::Arc;

use super::{Pass, walk::Turn};
use crate::{
    api::vpa::UpdateMode,
    sizing::{
        self,
        boost::{self, Standing},
    },
    types::compat::{Compat, Fix},
    updater::{
        action::Action,
        guard::{
            Charge,
            refusals::{RefusedBy, Wanted, is_lower, wanted},
        },
        in_place::InPlace,
        rests::Asked,
        sizing::Sizing,
        skip::Skip,
    },
};

impl Pass<'_> {
    /// What is to be done about a pod that may be resized.
    pub(super) fn resize(&mut self, pod: usize) -> Result<Turn, Skip> {
        let mode = self.subject.sizing.plan.mode();
        let only_in_place = mode == UpdateMode::InPlace;
        let fixes = self.settings.fixes;
        match self.in_place(pod) {
            InPlace::Approved => {}
            InPlace::Deferred(_) if only_in_place && !fixes.has(Fix::DeferredResizesWait) => {
                self.groups.of(&self.views[pod].pod.life)?;
            }
            InPlace::Deferred(Skip::BelowMinReplicas { .. })
                if !only_in_place && self.may_surge(pod) =>
            {
                return Ok(Turn::Evict);
            }
            InPlace::Deferred(why) => return Err(why),
            InPlace::Evict => return Ok(Turn::Evict),
            InPlace::InfeasibleCached => return Err(Skip::Infeasible),
            InPlace::Infeasible => self.remember_infeasible(pod)?,
        }
        if !self.world.can_resize && fixes.has(Fix::OnlyPossibleResizes) {
            return if only_in_place { Err(Skip::NoResize) } else { Ok(Turn::Evict) };
        }
        let (size, sizing) = (&self.views[pod].pod.size, &self.subject.sizing);
        let standing = boost::standing(size, &sizing.plan, self.world.now);
        let sizes = match sizing.resize(size, &standing) {
            Ok(sizes) => sizes,
            Err(Skip::QosWouldChange) if !only_in_place => return Ok(Turn::Evict),
            // Upstream takes it for a resize that failed.
            Err(_) if !only_in_place && !fixes.has(Fix::OnlyPossibleResizes) => {
                return Ok(Turn::Evict);
            }
            Err(why) => return Err(why),
        };
        let unboosted = self.unboosted(size, &sizes, &standing);
        let restarts = Sizing::restarts(size, &sizes);
        let need = self.worth[pod].as_ref().ok_or(Skip::NoRecommendation)?.need;
        let charge = if restarts { Charge::Disruption } else { Charge::Resize };
        self.rests(&Asked::Resize(size.uid.as_ref().into()))?;
        self.guard(pod, charge, false)?;
        Ok(Turn::Take(Action::Resize { need, sizes, unboosted, restarts }))
    }

    /// Whose boost is over with a resize. A container that gets what is recommended has none any more, and one that is not
    /// there never had one. Upstream says it of all whose time is up.
    fn unboosted(
        &self,
        pod: &sizing::Pod,
        sizes: &[sizing::Size],
        boosts: &Standing<'_>,
    ) -> Vec<Arc<str>> {
        let gets_cpu = |name: &str| {
            let mut sizes = sizes.iter().filter(|size| size.requests.cpu().is_some());
            sizes.any(|size| pod.at(size.place).is_some_and(|one| *one.name == *name))
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
    fn remember_infeasible(&mut self, pod: usize) -> Result<(), Skip> {
        let now = self.world.now;
        let size = &self.views[pod].pod.size;
        if !self.settings.fixes.has(Fix::InfeasibleResizesExpire) {
            let raw = self.raw().unwrap_or_default();
            self.recall.memory.refusals.remember(&size.uid, RefusedBy::Node, raw, now);
            return Ok(());
        }
        // What was refused is what the spec asks for.
        let refused: Vec<Wanted> = size
            .sized(self.subject.sizing.rules.sidecars)
            .map(|(_, one)| Wanted {
                container: one.name.clone(),
                target: one.spec.requests().clone(),
            })
            .collect();
        let worth = self.worth[pod].as_ref().ok_or(Skip::NoRecommendation)?;
        if is_lower(&wanted(&worth.recommendation), &refused) {
            return Ok(());
        }
        self.recall.memory.refusals.remember(&size.uid, RefusedBy::Node, refused, now);
        Err(Skip::Infeasible)
    }
}
