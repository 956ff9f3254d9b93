//! Resolves targets of kinds that are not watched, by periodic requests to the API server.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use plimsoll_core::types::ObjectKey;

use super::Recommender;
use plimsoll_core::api::vpa::TargetRef;

/// Results are cached, so polling is cheap. New VPAs are resolved at once.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

const MAX_CONCURRENT_LOOKUPS: usize = 10;

impl Recommender {
    /// Periodically resolves the targets that are not in the watch caches.
    pub(super) async fn run_target_lookup_loop(self: Arc<Self>) {
        self.watches.wait_for_sync().await;
        loop {
            self.resolve_unwatched_targets().await;
            tokio::select! {
                () = self.target_wanted.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    async fn resolve_unwatched_targets(&self) {
        let mut unresolved: Vec<(ObjectKey, TargetRef, bool)> = Vec::new();
        self.state.for_each_page(|state, page| {
            for key in page {
                let Some(vpa) = state.index.vpa(key) else { continue };
                if self.targets.resolve_known(&key.namespace, &vpa.target_ref).is_err() {
                    unresolved.push((key.clone(), vpa.target_ref.clone(), vpa.pod_count() == 0));
                }
            }
        });
        let mut lookups = std::pin::pin!(
            futures::stream::iter(unresolved)
                .map(|(key, target, has_no_pods)| async move {
                    if has_no_pods {
                        self.targets.revalidate(&key.namespace, &target).await;
                    }
                    let outcome = self.targets.resolve(&key.namespace, &target).await;
                    (key, target, outcome)
                })
                .buffer_unordered(MAX_CONCURRENT_LOOKUPS)
        );
        while let Some((key, target, outcome)) = lookups.next().await {
            let mut state = self.state.lock();
            // The target may have changed in the meantime.
            if state.index.vpa(&key).is_some_and(|vpa| vpa.target_ref == target) {
                state.set_target(&key, outcome);
                if state.is_waiting_for_history(&key) {
                    self.history_wanted.notify_one();
                }
            }
        }
    }
}
