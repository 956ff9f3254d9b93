//! Checks the guards before a change of one pod.

use super::UpdatePass;
use crate::updater::{
    guard::{BudgetKind, WindowState, freshness::ensure_fresh, rollout::RolloutEntry},
    skip_reason::SkipReason,
    update_reason::UpdateReason,
};

impl UpdatePass<'_> {
    /// Whether a pod needs an update urgently, so that it has a shorter cool-down.
    fn is_urgent(&self, pod: usize) -> bool {
        let quick_oom = self.update_candidates[pod]
            .as_ref()
            .is_some_and(|candidate| candidate.reason == UpdateReason::QuickOom);
        quick_oom || self.views[pod].is_dead
    }

    /// Returns the role of a change of this pod in the rollout of its workload.
    pub(super) fn rollout_entry(&self, pod: usize) -> Result<RolloutEntry, SkipReason> {
        let (changed_at, urgent) = (self.views[pod].created_or_resized, self.is_urgent(pod));
        let (guards, now) = (&self.settings.guards, self.context.now);
        self.state.workload.admit_change(changed_at, urgent, self.progress, guards, now)
    }

    /// Returns an error if a guard blocks a change of the pod.
    pub(super) fn check_guards(
        &self,
        pod: usize,
        kind: BudgetKind,
        is_eviction: bool,
    ) -> Result<(), SkipReason> {
        let (guards, now) = (&self.settings.guards, self.context.now);
        if !guards.needs_state() {
            return Ok(());
        }
        let state = &self.state.workload;
        ensure_fresh(self.context.heartbeat, guards.heartbeat)?;
        if let Some(pause) = guards.external_overwrite_pause {
            let overwrite =
                state.rewritten.filter(|overwrite| overwrite.generation == self.subject.generation);
            if overwrite.is_some_and(|overwrite| overwrite.at.later(pause) > now) {
                return Err(SkipReason::ExternallyOverwritten);
            }
        }
        if guards.breaker.is_some()
            && let Some(until) = state.breaker_open_until(now)
            && !self.fixes_oom(pod)
        {
            return Err(SkipReason::BreakerOpen { until });
        }
        if let WindowState::Closed { next: until } = self.subject.maintenance_window {
            return Err(SkipReason::OutsideWindow { until });
        }
        self.rollout_entry(pod)?;
        let namespace = &self.subject.vpa.namespace;
        self.state.budget.allows(namespace, kind, self.context.pod_counts, guards, now)?;
        if is_eviction {
            self.state.budget.ensure_effective(guards, now)?;
        }
        Ok(())
    }

    /// Whether the change raises requests of a pod after a quick OOM kill. It is allowed even if the breaker is open.
    fn fixes_oom(&self, pod: usize) -> bool {
        let grows = |candidate: &super::UpdateCandidate| {
            candidate.reason == UpdateReason::QuickOom && candidate.priority.scale_up
        };
        self.update_candidates[pod].as_ref().is_some_and(grows)
    }
}
