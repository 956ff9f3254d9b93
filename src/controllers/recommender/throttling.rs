//! How much containers were kept from the CPU that they wanted, asked for now and then where a Prometheus is read.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::ObjectKey;
use plimsoll_storage::prometheus::history::{KnownPods, ThrottlingReport};

use super::{Recommender, ShutdownToken, history_loader::HistorySource};
use crate::cluster::cache::vpa_index::TargetState;

/// Throttling is told of as a share of a day: by the hour is often enough.
const QUERY_INTERVAL: Duration = Duration::from_hours(1);
/// The time that a share is of.
const QUERY_WINDOW: Duration = Duration::from_hours(24);
/// What a server did not answer is asked again after this.
const RETRY_DELAY: Duration = Duration::from_mins(5);

impl Recommender {
    /// Asks soon after histories were read, and then by the hour. Nothing waits for it: a container without an answer
    /// is not known to be throttled. What was not answered is asked again sooner, by itself.
    pub(super) async fn run_throttling_query_loop(
        self: Arc<Self>,
        series: Arc<HistorySource>,
        stop: ShutdownToken,
    ) {
        let mut unanswered = HashSet::new();
        let mut all_again = Instant::now();
        loop {
            let mut wanted = self.vpas_with_history();
            let is_all = unanswered.is_empty() || Instant::now() >= all_again;
            if !is_all {
                wanted.retain(|key, _| unanswered.contains(key));
            }
            let wait = if wanted.is_empty() {
                super::storage_loader::POLL_INTERVAL
            } else {
                unanswered = tokio::select! {
                    () = stop.cancelled() => return,
                    asked = self.query_throttling(&series, &wanted) => asked,
                };
                if is_all {
                    all_again = Instant::now() + QUERY_INTERVAL;
                }
                let rest = all_again.saturating_duration_since(Instant::now());
                if unanswered.is_empty() { rest } else { rest.min(RETRY_DELAY) }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// The VPAs whose history is there, with the owner of their pods. None while others wait for theirs: histories
    /// go first.
    fn vpas_with_history(&self) -> HashMap<ObjectKey, Option<Box<str>>> {
        let core = self.state.lock();
        if core.vpa_registry.waiting_for_history().next().is_some() {
            return HashMap::new();
        }
        let found = |key: &&ObjectKey| {
            core.index.vpa(key).is_some_and(|vpa| *vpa.target() == TargetState::Found)
        };
        let owner = |key: &ObjectKey| core.vpa_registry.get(key)?.owner().map(Into::into);
        core.vpa_registry
            .keys_after(None)
            .filter(found)
            .map(|key| (key.clone(), owner(key)))
            .collect()
    }

    /// Asks about these, and takes what is answered. Answers which of them nothing could be learned of.
    async fn query_throttling(
        &self,
        series: &HistorySource,
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
    ) -> HashSet<ObjectKey> {
        let asked = match self.pod_ownership(series, wanted.keys(), Some(QUERY_WINDOW)).await {
            Ok(whose) => {
                let live = self.live_pods(wanted);
                let pods = KnownPods { by_label: whose.as_ref(), live: Some(&live) };
                let asked = series.history.throttling(wanted, QUERY_WINDOW, pods).await;
                asked.map_err(|unknown| series.unavailable_error(&unknown))
            }
            Err(error) => Err(error),
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => {
                tracing::warn!(%error, "throttling cannot be asked about now");
                return wanted.keys().cloned().collect();
            }
        };
        let ThrottlingReport { measured, unlimited, failed_vpas: unanswered, failure } = asked;
        if let Some((namespace, failure)) = failure {
            let vpas = unanswered.len();
            tracing::warn!(%namespace, %failure, vpas, "throttling cannot be asked about now");
        }
        let now = self.clock.now();
        // One lock each: there may be tens of thousands.
        for (key, throttling) in measured {
            self.state.lock().vpa_registry.set_throttling(&key, throttling, now);
        }
        for key in unlimited {
            self.state.lock().vpa_registry.clear_throttling(&key, now);
        }
        unanswered
    }
}
