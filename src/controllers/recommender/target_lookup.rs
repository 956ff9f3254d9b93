//! Resolves targets: from the watch caches, and of kinds that are not watched by periodic requests to the API server.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use plimsoll_core::{api::vpa::TargetRef, types::ObjectKey};

use super::{Shared, history_source::VpaOwners, watches::Watches};
use crate::cluster::{cache::vpa_index::TargetState, target::TargetResolver};

/// Results are cached, so polling is cheap. New VPAs are resolved at once.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

const MAX_CONCURRENT_LOOKUPS: usize = 10;

/// Resolves the targets of VPAs.
pub(super) struct TargetLookup {
    pub shared: Arc<Shared>,
    pub watches: Arc<Watches>,
    pub resolver: TargetResolver,
}

impl TargetLookup {
    /// Periodically resolves the targets that are not in the watch caches.
    pub async fn run(self: Arc<Self>) {
        self.watches.set.wait_until_synced().await;
        loop {
            self.resolve_unwatched().await;
            tokio::select! {
                () = self.shared.state.signals.target_wanted.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Resolves targets from the watch caches, without requests.
    pub fn resolve_watched(&self) {
        self.shared.state.for_each_page(|state, page| {
            for key in page {
                let Some(vpa) = state.index.vpa(key) else { continue };
                let resolved = self.resolver.resolve_known(&key.namespace, &vpa.target_ref);
                if let Ok(outcome) = resolved {
                    state.set_target(key, outcome);
                }
            }
        });
    }

    /// The VPAs whose history must be loaded, with the owner of their pods. `again` includes those that failed
    /// before. Empty until the caches are synced: a target that only seems to be missing would match no history.
    pub fn vpas_without_history(&self, again: bool) -> VpaOwners {
        if !self.watches.set.required.iter().all(|status| status.is_synced()) {
            return VpaOwners::new();
        }
        if self.shared.state.lock().vpa_registry.waiting_for_history().next().is_some() {
            self.resolve_watched();
        }
        let state = self.shared.state.lock();
        let has_target = |key: &ObjectKey| {
            state.index.vpa(key).is_some_and(|vpa| vpa.target != TargetState::Unknown)
        };
        let unread = state.vpa_registry.with_missing_history().filter(|_| again);
        let wanted = state
            .vpa_registry
            .waiting_for_history()
            .chain(unread)
            .filter(|(key, _)| has_target(key));
        wanted.map(|(key, owner)| (key.clone(), owner.map(Into::into))).collect()
    }

    async fn resolve_unwatched(&self) {
        let mut unresolved: Vec<(ObjectKey, TargetRef, bool)> = Vec::new();
        self.shared.state.for_each_page(|state, page| {
            for key in page {
                let Some(vpa) = state.index.vpa(key) else { continue };
                if self.resolver.resolve_known(&key.namespace, &vpa.target_ref).is_err() {
                    unresolved.push((key.clone(), vpa.target_ref.clone(), vpa.pods.is_empty()));
                }
            }
        });
        let mut lookups = std::pin::pin!(
            futures::stream::iter(unresolved)
                .map(|(key, target, has_no_pods)| async move {
                    if has_no_pods {
                        self.resolver.revalidate(&key.namespace, &target).await;
                    }
                    let outcome = self.resolver.resolve(&key.namespace, &target).await;
                    (key, target, outcome)
                })
                .buffer_unordered(MAX_CONCURRENT_LOOKUPS)
        );
        while let Some((key, target, outcome)) = lookups.next().await {
            let mut state = self.shared.state.lock();
            // The target may have changed in the meantime.
            if state.index.vpa(&key).is_some_and(|vpa| vpa.target_ref == target) {
                state.set_target(&key, outcome);
                if state.is_waiting_for_history(&key) {
                    self.shared.state.signals.history_wanted.notify_one();
                }
            }
        }
    }
}
