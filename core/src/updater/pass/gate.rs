//! Whether the guards let a change of one pod pass.

use super::Pass;
use crate::updater::{
    acceptance::Need,
    guard::{Charge, WindowState, freshness::trust, rollout::Entry},
    skip::Skip,
};

impl Pass<'_> {
    /// Whether a pod is in such need that it waits less.
    fn is_urgent(&self, pod: usize) -> bool {
        let quick = self.worth[pod].as_ref().is_some_and(|worth| worth.need == Need::QuickOom);
        quick || self.views[pod].is_dead
    }

    /// How a change of this pod counts for its workload.
    pub(super) fn entry(&self, pod: usize) -> Result<Entry, Skip> {
        let (made, urgent) = (self.views[pod].made, self.is_urgent(pod));
        let (guards, now) = (&self.settings.guards, self.world.now);
        self.recall.memory.admit(made, urgent, self.progress, guards, now)
    }

    /// Whether a pod may be changed now, as far as the guards are concerned.
    pub(super) fn guard(&self, pod: usize, charge: Charge, is_eviction: bool) -> Result<(), Skip> {
        let (guards, now) = (&self.settings.guards, self.world.now);
        if !guards.remembers() {
            return Ok(());
        }
        let memory = &self.recall.memory;
        trust(self.world.heartbeat, guards.heartbeat)?;
        if let Some(rest) = guards.rewritten {
            let since = memory.rewritten.filter(|it| it.generation == self.subject.generation);
            if since.is_some_and(|it| it.at.later(rest) > now) {
                return Err(Skip::Rewritten);
            }
        }
        if guards.breaker.is_some()
            && let Some(until) = memory.open_until(now)
            && !self.is_remedy(pod)
        {
            return Err(Skip::BreakerOpen { until });
        }
        if let WindowState::Closed { next: until } = self.subject.window {
            return Err(Skip::OutsideWindow { until });
        }
        self.entry(pod)?;
        let namespace = &self.subject.vpa.namespace;
        self.recall.ledger.allows(namespace, charge, self.world.sizes, guards, now)?;
        if is_eviction {
            self.recall.ledger.is_effective(guards, now)?;
        }
        Ok(())
    }

    /// A pod that keeps running out of memory and is to get more is helped, whatever went wrong before.
    fn is_remedy(&self, pod: usize) -> bool {
        let grows = |worth: &super::Worth| worth.need == Need::QuickOom && worth.priority.scale_up;
        self.worth[pod].as_ref().is_some_and(grows)
    }
}
