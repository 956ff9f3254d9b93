//! What a pass knows of one pod, for whoever explains what becomes of it.

use crate::types::Time;

use super::{QueuedAction, UpdatePass};
use crate::{
    api::vpa::Recommendation,
    updater::{
        guard::PodChange,
        priority::Priority,
        replica_group::ReplicaGroup,
        resize::ResizePhase,
        skip_reason::SkipReason,
        update_reason::{UpdateReason, had_quick_oom, update_reason},
    },
};

/// What is known of a pod before any step of the pass.
#[derive(Clone, Debug)]
pub struct PodExplanation {
    /// What is recommended for it after all rules.
    pub recommendation: Result<Recommendation, SkipReason>,
    /// How much it needs that, where anything is recommended.
    pub priority: Option<Priority>,
    /// Why it is worth a change, whatever keeps it from one; or why it is not.
    pub reason: Result<UpdateReason, SkipReason>,
    /// The pods that are looked at, in their order; it may be none of them.
    pub candidate_order: Vec<usize>,
    /// The pods of its controller, or why they are no group of which one could be touched.
    pub group: Result<ReplicaGroup, SkipReason>,
    /// How far its last resize is.
    pub resize_phase: ResizePhase,
    /// What was done to it last.
    pub last_change: Option<PodChange>,
    /// It does not serve, and will not by itself.
    pub is_dead: bool,
    /// When it was made, or resized last.
    pub created_or_resized: Time,
}

impl UpdatePass<'_> {
    /// What is known of a pod, if it is there. To be asked before the first step.
    pub fn explain_pod(&self, pod: usize) -> Option<PodExplanation> {
        let view = self.views.get(pod)?;
        let (size, life, sizing) = (&view.pod.spec, &view.pod.status, &self.subject.sizing);
        let recommendation = sizing.recommendation(size);
        let priority = recommendation.as_ref().ok().map(|recommendation| {
            Priority::new(size, recommendation, &view.observed, sizing.rules.sidecars)
        });
        let (settings, now) = (self.settings, self.context.now);
        let quick = had_quick_oom(life, &view.observed, sizing.spec.spec, settings, now);
        let need = match (&recommendation, &priority) {
            (Err(why), _) => Err(why.clone()),
            (Ok(_), None) => Err(SkipReason::NoRecommendation),
            (Ok(_), Some(priority)) => {
                update_reason(priority, quick, life, view.resized_at(), settings, now)
            }
        };
        let order = self.queue.iter().filter_map(|queued| match queued {
            QueuedAction::InPlace(pod) | QueuedAction::Evict(pod) => Some(*pod),
            QueuedAction::EndSurge | QueuedAction::RemoveBoost(_) => None,
        });
        Some(PodExplanation {
            recommendation,
            priority,
            reason: need,
            candidate_order: order.collect(),
            group: self.groups.get(life).copied(),
            resize_phase: view.resize_phase,
            last_change: view.last_change.clone(),
            is_dead: view.is_dead,
            created_or_resized: view.created_or_resized,
        })
    }
}
