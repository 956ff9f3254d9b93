//! Histories that come back empty although the server has series of their namespaces, and the pods that are asked for by name
//! so that this is rare.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_storage::prometheus::history::LivePods;

use super::HistorySource;
use crate::controllers::recommender::Recommender;

/// A pod that is older has been scraped, if it is at all.
const SCRAPE_GRACE: Duration = Duration::from_mins(10);
/// So many VPAs are named in the log.
const MAX_NAMED: usize = 5;

impl Recommender {
    /// The pods of these VPAs that are there now.
    pub(in crate::controllers::recommender) fn live_pods<'a>(
        &self,
        owners: impl IntoIterator<Item = (&'a ObjectKey, &'a Option<Box<str>>)>,
    ) -> LivePods {
        let mut live = LivePods::new();
        for (key, owner) in owners {
            let Some(owner) = owner else { continue };
            // One lock each: a VPA may have thousands of pods.
            let pods: Vec<Arc<str>> = {
                let core = self.state.lock();
                core.index.pods_of(key).map(|(name, _)| Arc::clone(name)).collect()
            };
            live.add(key, owner, pods.iter().map(|name| &**name));
        }
        live
    }

    /// Reports those of these VPAs, about which nothing was found, whose namespaces have series: once in the log, and on each.
    pub(super) async fn report_missing_history(
        &self,
        series: &HistorySource,
        mut empty: Vec<ObjectKey>,
    ) {
        let now = self.clock.now();
        empty.retain(|key| self.has_scraped_pods(key, now));
        let namespaces: BTreeSet<&str> = empty.iter().map(|key| &*key.namespace).collect();
        if namespaces.is_empty() {
            return;
        }
        let known: HashSet<Box<str>> =
            match series.history.namespaces_with_series(&Vec::from_iter(namespaces)).await {
                Ok(known) => known,
                Err(unknown) => {
                    tracing::debug!(%unknown, "cannot tell empty histories from missing ones");
                    return;
                }
            };
        empty.retain(|key| known.contains(&*key.namespace));
        if empty.is_empty() {
            return;
        }
        empty.sort();
        let named: Vec<String> = empty.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        tracing::warn!(
            server = series.address,
            vpas = empty.len(),
            first = named.join(", "),
            "no history found: the server has series of these namespaces, but none of the pods of these VPAs; their \
             recommendations start from live usage; see `plimsoll doctor`"
        );
        for key in &empty {
            self.state.lock().vpa_registry.mark_not_found(key, now);
        }
    }

    /// Whether a VPA has pods that must have series by now.
    fn has_scraped_pods(&self, key: &ObjectKey, now: Time) -> bool {
        let core = self.state.lock();
        let is_settled =
            |created: Time| created != Time::EPOCH && now >= created.later(SCRAPE_GRACE);
        core.index.pods_of(key).any(|(_, pod)| !pod.is_finished && is_settled(pod.created))
    }
}
