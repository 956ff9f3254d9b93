//! Whether the guards let a change of one pod pass.

use super::UpdatePass;
use crate::updater::{
    guard::{BudgetKind, WindowState, freshness::ensure_fresh, rollout::RolloutEntry},
    skip_reason::SkipReason,
    update_reason::UpdateReason,
};

impl UpdatePass<'_> {
    /// Whether a pod is in such need that it waits less.
    fn is_urgent(&self, pod: usize) -> bool {
        let quick = self.update_candidates[pod]
            .as_ref()
            .is_some_and(|worth| worth.reason == UpdateReason::QuickOom);
        quick || self.views[pod].is_dead
    }

    /// How a change of this pod counts for its workload.
    pub(super) fn rollout_entry(&self, pod: usize) -> Result<RolloutEntry, SkipReason> {
        let (made, urgent) = (self.views[pod].created_or_resized, self.is_urgent(pod));
        let (guards, now) = (&self.settings.guards, self.context.now);
        self.state.workload.admit_change(made, urgent, self.progress, guards, now)
    }

    /// Whether a pod may be changed now, as far as the guards are concerned.
    pub(super) fn check_guards(
        &self,
        pod: usize,
        charge: BudgetKind,
        is_eviction: bool,
    ) -> Result<(), SkipReason> {
        let (guards, now) = (&self.settings.guards, self.context.now);
        if !guards.needs_state() {
            return Ok(());
        }
        let memory = &self.state.workload;
        ensure_fresh(self.context.heartbeat, guards.heartbeat)?;
        if let Some(rest) = guards.external_overwrite_pause {
            let since = memory.rewritten.filter(|it| it.generation == self.subject.generation);
            if since.is_some_and(|it| it.at.later(rest) > now) {
                return Err(SkipReason::ExternallyOverwritten);
            }
        }
        if guards.breaker.is_some()
            && let Some(until) = memory.breaker_open_until(now)
            && !self.fixes_oom(pod)
        {
            return Err(SkipReason::BreakerOpen { until });
        }
        if let WindowState::Closed { next: until } = self.subject.maintenance_window {
            return Err(SkipReason::OutsideWindow { until });
        }
        self.rollout_entry(pod)?;
        let namespace = &self.subject.vpa.namespace;
        self.state.budget.allows(namespace, charge, self.context.pod_counts, guards, now)?;
        if is_eviction {
            self.state.budget.ensure_effective(guards, now)?;
        }
        Ok(())
    }

    /// A pod that keeps running out of memory and is to get more is helped, whatever went wrong before.
    fn fixes_oom(&self, pod: usize) -> bool {
        let grows = |worth: &super::UpdateCandidate| {
            worth.reason == UpdateReason::QuickOom && worth.priority.scale_up
        };
        self.update_candidates[pod].as_ref().is_some_and(grows)
    }
}
