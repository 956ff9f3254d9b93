//! Periodically queries Prometheus for CPU throttling of containers.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::ObjectKey;
use plimsoll_storage::prometheus::history::ThrottlingReport;

use super::{
    history_source::{HistorySource, VpaOwners},
    state::SharedState,
    storage_loader::POLL_INTERVAL,
};
use crate::cluster::cache::vpa_index::TargetState;

/// Throttling is reported as a share of a day, so an hourly query is enough.
const QUERY_INTERVAL: Duration = Duration::from_hours(1);
const QUERY_WINDOW: Duration = Duration::from_hours(24);
/// Delay before failed queries are retried.
const RETRY_DELAY: Duration = Duration::from_mins(5);

/// Queries throttling soon after histories were loaded, and then hourly. Nothing waits for it: a container
/// without data is not considered throttled. VPAs whose queries failed are retried sooner.
pub(super) async fn run_throttling_queries(source: Arc<HistorySource>) {
    let mut failed = HashSet::new();
    let mut next_full_query = Instant::now();
    loop {
        let mut wanted = vpas_with_history(&source.shared.state);
        let is_full_query = failed.is_empty() || Instant::now() >= next_full_query;
        if !is_full_query {
            wanted.retain(|key, _| failed.contains(key));
        }
        let wait = if wanted.is_empty() {
            POLL_INTERVAL
        } else {
            failed = query_throttling(&source, &wanted).await;
            if is_full_query {
                next_full_query = Instant::now() + QUERY_INTERVAL;
            }
            let remaining = next_full_query.saturating_duration_since(Instant::now());
            if failed.is_empty() { remaining } else { remaining.min(RETRY_DELAY) }
        };
        tokio::time::sleep(wait).await;
    }
}

/// The VPAs with loaded history, with the owner of their pods. Empty while any VPA waits for its history, which
/// has priority.
fn vpas_with_history(state: &SharedState) -> VpaOwners {
    let state = state.lock();
    if state.vpa_registry.waiting_for_history().next().is_some() {
        return VpaOwners::new();
    }
    let has_target =
        |key: &&ObjectKey| state.index.vpa(key).is_some_and(|vpa| vpa.target == TargetState::Found);
    let owner = |key: &ObjectKey| state.vpa_registry.get(key)?.owner().map(Into::into);
    state
        .vpa_registry
        .keys_after(None)
        .filter(has_target)
        .map(|key| (key.clone(), owner(key)))
        .collect()
}

/// Queries throttling of these VPAs, and stores the results. Returns the VPAs whose query failed.
async fn query_throttling(source: &HistorySource, wanted: &VpaOwners) -> HashSet<ObjectKey> {
    let result = async {
        let pods = source.pods_of(wanted, Some(QUERY_WINDOW)).await?;
        let result = source.history.throttling(wanted, QUERY_WINDOW, pods.known()).await;
        result.map_err(|error| source.unavailable_error(&error))
    };
    let report = match result.await {
        Ok(report) => report,
        Err(error) => {
            tracing::warn!(%error, "failed to query CPU throttling");
            return wanted.keys().cloned().collect();
        }
    };
    let ThrottlingReport { measured, unlimited, failed_vpas, failure } = report;
    if let Some((namespace, failure)) = failure {
        let vpas = failed_vpas.len();
        tracing::warn!(%namespace, %failure, vpas, "failed to query CPU throttling");
    }
    let now = source.shared.clock.now();
    // Lock for each VPA separately: there may be tens of thousands.
    let measured = measured.into_iter().map(|(key, throttling)| (key, Some(throttling)));
    for (key, throttling) in measured.chain(unlimited.into_iter().map(|key| (key, None))) {
        source.shared.state.lock().vpa_registry.ingest().set_throttling(&key, throttling, now);
    }
    failed_vpas
}
