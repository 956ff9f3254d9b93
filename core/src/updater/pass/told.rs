//! What a pass knows of one pod, for whoever explains what becomes of it.

use crate::types::Time;

use super::{Pass, Queued};
use crate::{
    api::vpa::Recommendation,
    updater::{
        acceptance::{Need, accept, had_quick_oom},
        group::Group,
        guard::Touch,
        priority::Priority,
        resize::ResizePhase,
        skip::Skip,
    },
};

/// What is known of a pod before any step of the pass.
#[derive(Clone, Debug)]
pub struct Told {
    /// What is recommended for it after all rules.
    pub recommendation: Result<Recommendation, Skip>,
    /// How much it needs that, where anything is recommended.
    pub priority: Option<Priority>,
    /// Why it is worth a change, whatever keeps it from one; or why it is not.
    pub need: Result<Need, Skip>,
    /// The pods that are looked at, in their order; it may be none of them.
    pub order: Vec<usize>,
    /// The pods of its controller, or why they are no group of which one could be touched.
    pub group: Result<Group, Skip>,
    /// How far its last resize is.
    pub phase: ResizePhase,
    /// What was done to it last.
    pub touch: Option<Touch>,
    /// It does not serve, and will not by itself.
    pub is_dead: bool,
    /// When it was made, or resized last.
    pub made: Time,
}

impl Pass<'_> {
    /// What is known of a pod, if it is there. To be asked before the first step.
    pub fn tell(&self, pod: usize) -> Option<Told> {
        let view = self.views.get(pod)?;
        let (size, life, sizing) = (&view.pod.size, &view.pod.life, &self.subject.sizing);
        let recommendation = sizing.recommendation(size);
        let priority = recommendation.as_ref().ok().map(|recommendation| {
            Priority::of(size, recommendation, &view.observed, sizing.rules.sidecars)
        });
        let (settings, now) = (self.settings, self.world.now);
        let quick = had_quick_oom(life, &view.observed, sizing.plan.spec, settings, now);
        let need = match (&recommendation, &priority) {
            (Err(why), _) => Err(why.clone()),
            (Ok(_), None) => Err(Skip::NoRecommendation),
            (Ok(_), Some(priority)) => accept(priority, quick, life, view.resized(), settings, now),
        };
        let order = self.queue.iter().filter_map(|queued| match queued {
            Queued::InPlace(pod) | Queued::Evict(pod) => Some(*pod),
            Queued::EndSurge | Queued::Unboost(_) => None,
        });
        Some(Told {
            recommendation,
            priority,
            need,
            order: order.collect(),
            group: self.groups.of(life).copied(),
            phase: view.phase,
            touch: view.touch.clone(),
            is_dead: view.is_dead,
            made: view.made,
        })
    }
}
