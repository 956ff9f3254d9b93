//! How large the cluster is: asked only where the share of it matters that may be changed within an hour.

use std::sync::Arc;

use super::{Asked, Role, reader};
use crate::run::tasks::Group;
use plimsoll_core::updater::{
    Ledger,
    guard::{Charge, ledger::Sizes},
};

impl Role {
    /// With the cluster counted, where more was changed in it than any cluster of this size may.
    pub(super) async fn sizes(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        ledger: &Ledger,
        known: Sizes,
        notes: &mut Vec<String>,
    ) -> Sizes {
        let (guards, now) = (&self.config.settings.guards, self.clock.now());
        let is_full = [
            (Charge::Disruption, guards.cluster_disruptions),
            (Charge::Resize, guards.cluster_resizes),
        ]
        .into_iter()
        .any(|(charge, allowance)| {
            let used = ledger.in_cluster(charge, now);
            allowance.is_some_and(|it| it.share > 0.0 && used >= it.of(known.cluster))
        });
        if !is_full {
            return known;
        }
        let role = reader(asked.config, asked.cluster, None);
        let mut feeds = Group::new();
        role.start_feeds(&feeds.stop(), feeds.tasks());
        let counted = if role.all_known_in_time().await {
            Some(role.workloads().await.workloads.iter().map(|one| one.pods.len() as u32).sum())
        } else {
            None
        };
        feeds.end().await;
        if counted.is_none() {
            notes.push(
                "The pods of the cluster could not be counted, of which a share may be changed: \
                 those of the namespace count alone."
                    .to_owned(),
            );
        }
        Sizes { cluster: counted.unwrap_or(known.cluster), ..known }
    }
}
