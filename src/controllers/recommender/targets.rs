//! Finds the workloads of VPAs whose kind is not watched, by asking the API server now and then.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use plimsoll_core::types::ObjectKey;

use super::{Recommender, ShutdownToken};
use plimsoll_core::api::vpa::TargetRef;

/// Answers are kept, so looking often costs little; what is new is looked for at once.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Questions under way at once.
const MAX_CONCURRENT_LOOKUPS: usize = 10;

impl Recommender {
    /// Keeps looking for the targets that cannot be found among what is watched.
    pub(super) async fn run_target_lookup_loop(self: Arc<Self>, stop: ShutdownToken) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.watches.wait_for_sync() => {}
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.resolve_unwatched_targets() => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.target_wanted.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    async fn resolve_unwatched_targets(&self) {
        let mut others: Vec<(ObjectKey, TargetRef, bool)> = Vec::new();
        self.state.for_each_page(|core, page| {
            for key in page {
                let Some(vpa) = core.index.vpa(key) else { continue };
                if self.targets.resolve_known(&key.namespace, &vpa.target_ref).is_none() {
                    others.push((key.clone(), vpa.target_ref.clone(), vpa.pod_count() == 0));
                }
            }
        });
        let mut answers = std::pin::pin!(
            futures::stream::iter(others)
                .map(|(key, target, in_doubt)| async move {
                    if in_doubt {
                        self.targets.revalidate(&key.namespace, &target).await;
                    }
                    let outcome = self.targets.resolve(&key.namespace, &target).await;
                    (key, target, outcome)
                })
                .buffer_unordered(MAX_CONCURRENT_LOOKUPS)
        );
        while let Some((key, target, outcome)) = answers.next().await {
            let mut core = self.state.lock();
            // It may point elsewhere by now.
            if core.index.vpa(&key).is_some_and(|vpa| vpa.target_ref == target) {
                core.set_target(&key, outcome);
                if core.is_waiting_for_history(&key) {
                    self.history_wanted.notify_one();
                }
            }
        }
    }
}
