//! Reports VPAs without history although their namespaces have series, and lists live pods by name, which makes that
//! rare.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_storage::prometheus::history::LivePods;

use super::HistorySource;
use crate::controllers::recommender::Recommender;

/// Pods older than this have been scraped, if they are scraped at all.
const SCRAPE_GRACE: Duration = Duration::from_mins(10);
/// Maximum number of VPAs named in the log.
const MAX_NAMED: usize = 5;

impl Recommender {
    pub(in crate::controllers::recommender) fn live_pods<'a>(
        &self,
        owners: impl IntoIterator<Item = (&'a ObjectKey, &'a Option<Box<str>>)>,
    ) -> LivePods {
        let mut live = LivePods::new();
        for (key, owner) in owners {
            let Some(owner) = owner else { continue };
            // One lock each: a VPA may have thousands of pods.
            let pods: Vec<Arc<str>> = {
                let state = self.state.lock();
                state.index.pods_of(key).map(|(name, _)| Arc::clone(name)).collect()
            };
            live.add(key, owner, pods.iter().map(|name| &**name));
        }
        live
    }

    /// Reports those of these VPAs whose namespaces have series: in one log line, and as a condition of each.
    pub(super) async fn report_missing_history(
        &self,
        source: &HistorySource,
        mut empty: Vec<ObjectKey>,
    ) {
        let now = self.clock.now();
        empty.retain(|key| self.has_scraped_pods(key, now));
        let namespaces: BTreeSet<&str> = empty.iter().map(|key| &*key.namespace).collect();
        if namespaces.is_empty() {
            return;
        }
        let with_series: HashSet<Box<str>> =
            match source.history.namespaces_with_series(&Vec::from_iter(namespaces)).await {
                Ok(with_series) => with_series,
                Err(error) => {
                    tracing::debug!(%error, "failed to query which namespaces have series");
                    return;
                }
            };
        empty.retain(|key| with_series.contains(&*key.namespace));
        if empty.is_empty() {
            return;
        }
        empty.sort();
        let first: Vec<String> = empty.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        tracing::warn!(
            server = source.address,
            vpas = empty.len(),
            first = first.join(", "),
            "no history found: Prometheus has series of these namespaces, but none of the pods of these VPAs; \
             recommendations start from live usage; run `plimsoll doctor` for details"
        );
        for key in &empty {
            self.state.lock().vpa_registry.mark_not_found(key, now);
        }
    }

    /// Whether a VPA has pods that should have series by now.
    fn has_scraped_pods(&self, key: &ObjectKey, now: Time) -> bool {
        let state = self.state.lock();
        let is_scraped =
            |created: Time| created != Time::EPOCH && now >= created.later(SCRAPE_GRACE);
        state.index.pods_of(key).any(|(_, pod)| !pod.is_finished && is_scraped(pod.created))
    }
}
