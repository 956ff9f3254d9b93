//! What a pass knows about one pod, for `explain`.

use super::{QueuedAction, UpdatePass};
use crate::{
    api::vpa::Recommendation,
    updater::{
        guard::PodChange,
        priority::Priority,
        replica_group::ReplicaGroup,
        skip_reason::SkipReason,
        update_reason::{UpdateReason, had_quick_oom, update_reason},
    },
};

/// What a pass knows about a pod before its first step.
#[derive(Clone, Debug)]
pub struct PodExplanation {
    /// The capped recommendation.
    pub recommendation: Result<Recommendation, SkipReason>,
    /// The update priority, if there is a recommendation.
    pub priority: Option<Priority>,
    /// Why the pod needs an update, even if it is blocked; or why it does not.
    pub reason: Result<UpdateReason, SkipReason>,
    /// The candidates of the pass, in order. The pod may not be among them.
    pub candidate_order: Vec<usize>,
    /// The replica group of the pod, or why its pods may not be updated.
    pub group: Result<ReplicaGroup, SkipReason>,
    /// The last change of the pod.
    pub last_change: Option<PodChange>,
}

impl UpdatePass<'_> {
    /// Explains a pod; `None` if the index is out of range. Call it before the first step.
    pub fn explain_pod(&self, pod: usize) -> Option<PodExplanation> {
        let view = self.views.get(pod)?;
        let (pod_spec, status, sizing) = (&view.pod.spec, &view.pod.status, &self.subject.sizing);
        let recommendation = sizing.recommendation(pod_spec);
        let priority = recommendation.as_ref().ok().map(|recommendation| {
            Priority::new(pod_spec, recommendation, &view.observed, sizing.rules.sidecars)
        });
        let (settings, now) = (self.settings, self.context.now);
        let quick_oom = had_quick_oom(status, &view.observed, sizing.spec.spec, settings, now);
        let reason = match (&recommendation, &priority) {
            (Err(skip), _) => Err(skip.clone()),
            (Ok(_), None) => Err(SkipReason::NoRecommendation),
            (Ok(_), Some(priority)) => {
                update_reason(priority, quick_oom, status, view.resized_at(), settings, now)
            }
        };
        let order = self.queue.iter().filter_map(|queued| match queued {
            QueuedAction::InPlace(pod) | QueuedAction::Evict(pod) => Some(*pod),
            QueuedAction::EndSurge | QueuedAction::RemoveBoost(_) => None,
        });
        Some(PodExplanation {
            recommendation,
            priority,
            reason,
            candidate_order: order.collect(),
            group: self.groups.get(status).copied(),
            last_change: view.last_change.clone(),
        })
    }
}
