//! Finds the workloads of VPAs whose kind is not watched, by asking the API server now and then.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use plimsoll_core::types::VpaKey;

use super::{Role, Stop};
use plimsoll_core::api::vpa::TargetRef;

/// Answers are kept, so looking often costs little; what is new is looked for at once.
const LOOK: Duration = Duration::from_secs(5);

/// Questions under way at once.
const AT_ONCE: usize = 10;

impl Role {
    /// Keeps looking for the targets that cannot be found among what is watched.
    pub(super) async fn keep_finding_targets(self: Arc<Self>, stop: Stop) {
        tokio::select! {
            () = stop.stopped() => return,
            () = self.feeds.synced() => {}
        }
        loop {
            tokio::select! {
                () = stop.stopped() => return,
                () = self.find_other_targets() => {}
            }
            tokio::select! {
                () = stop.stopped() => return,
                () = self.found.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    async fn find_other_targets(&self) {
        let mut others: Vec<(VpaKey, TargetRef, bool)> = Vec::new();
        self.state.each_page(|core, page| {
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
                        self.targets.doubt(&key.namespace, &target).await;
                    }
                    let outcome = self.targets.resolve(&key.namespace, &target).await;
                    (key, target, outcome)
                })
                .buffer_unordered(AT_ONCE)
        );
        while let Some((key, target, outcome)) = answers.next().await {
            let mut core = self.state.lock();
            // It may point elsewhere by now.
            if core.index.vpa(&key).is_some_and(|vpa| vpa.target_ref == target) {
                core.take_outcome(&key, outcome);
                if core.is_waiting(&key) {
                    self.news.notify_one();
                }
            }
        }
    }
}
