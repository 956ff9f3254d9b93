//! How large the cluster is: asked only where the share of it matters that may be changed within an hour.

use std::sync::Arc;

use super::{ExplainInputs, Updater, read_only_updater};
use crate::controllers::runtime::shutdown::TaskGroup;
use plimsoll_core::updater::{
    DisruptionBudget,
    guard::{BudgetKind, disruption_budget::PodCounts},
};

impl Updater {
    /// With the cluster counted, where more was changed in it than any cluster of this size may.
    pub(super) async fn with_cluster_size(
        self: &Arc<Self>,
        asked: &ExplainInputs<'_>,
        ledger: &DisruptionBudget,
        known: PodCounts,
        notes: &mut Vec<String>,
    ) -> PodCounts {
        let (guards, now) = (&self.config.settings.guards, self.clock.now());
        let is_full = [
            (BudgetKind::Disruption, guards.cluster_disruptions),
            (BudgetKind::Resize, guards.cluster_resizes),
        ]
        .into_iter()
        .any(|(charge, allowance)| {
            let used = ledger.in_cluster(charge, now);
            allowance.is_some_and(|it| it.share > 0.0 && used >= it.limit_for(known.cluster))
        });
        if !is_full {
            return known;
        }
        let role = read_only_updater(asked.config, asked.cluster, None);
        let mut feeds = TaskGroup::default();
        role.start_watches(&feeds.shutdown_token(), feeds.tasks());
        let counted = if role.synced_in_time().await {
            Some(role.workloads().await.workloads.iter().map(|one| one.pods.len() as u32).sum())
        } else {
            None
        };
        feeds.shut_down().await;
        if counted.is_none() {
            notes.push(
                "The pods of the cluster could not be counted, of which a share may be changed: \
                 those of the namespace count alone."
                    .to_owned(),
            );
        }
        PodCounts { cluster: counted.unwrap_or(known.cluster), ..known }
    }
}
