//! The number of pods in the cluster. It is read only if the hourly limit on changes, a share of all pods, may be reached.

use std::sync::Arc;

use super::{ExplainInputs, Updater, read_only_updater};
use crate::controllers::runtime::shutdown::TaskGroup;
use plimsoll_core::updater::{
    DisruptionBudget,
    guard::{BudgetKind, disruption_budget::PodCounts},
};

impl Updater {
    /// Counts the pods of the whole cluster if the limit for the known pods is already reached.
    pub(super) async fn with_cluster_size(
        self: &Arc<Self>,
        inputs: &ExplainInputs<'_>,
        ledger: &DisruptionBudget,
        known: PodCounts,
        notes: &mut Vec<String>,
    ) -> PodCounts {
        let (guards, now) = (&self.config.settings.guards, self.clock.now());
        let limit_reached = [
            (BudgetKind::Disruption, guards.cluster_disruptions),
            (BudgetKind::Resize, guards.cluster_resizes),
        ]
        .into_iter()
        .any(|(kind, allowance)| {
            let used = ledger.in_cluster(kind, now);
            allowance
                .is_some_and(|limit| limit.share > 0.0 && used >= limit.limit_for(known.cluster))
        });
        if !limit_reached {
            return known;
        }
        let role = read_only_updater(inputs.config, inputs.cluster, None);
        let mut watch_tasks = TaskGroup::default();
        role.start_watches(&watch_tasks.shutdown_token(), watch_tasks.tasks());
        let cluster_pods = if role.synced_in_time().await {
            let workloads = role.workloads().await.workloads;
            Some(workloads.iter().map(|workload| workload.pods.len() as u32).sum())
        } else {
            None
        };
        watch_tasks.shut_down().await;
        if cluster_pods.is_none() {
            notes.push(
                "Failed to count the pods of the cluster, of which a share may be changed: \
                 using the pods of the namespace instead."
                    .to_owned(),
            );
        }
        PodCounts { cluster: cluster_pods.unwrap_or(known.cluster), ..known }
    }
}
