//! Metrics of API traffic that every controller exports.

use std::sync::Arc;

use crate::{
    cluster::{server::Stalled, watch::status::WatchStatus, write::WriteStats},
    telemetry::ApiTrafficMetrics,
};

pub(crate) fn export_watch_metrics<'a>(
    traffic: &ApiTrafficMetrics,
    statuses: impl IntoIterator<Item = &'a Arc<WatchStatus>>,
) {
    for watch_status in statuses {
        let (feed, status) = ([watch_status.name], watch_status.stats());
        traffic.watch_synced.with_labels(feed).set_bool(watch_status.is_synced());
        traffic.watch_malformed.with_labels(feed).set_total(status.invalid);
        traffic.watch_restarts.with_labels(feed).set_total(status.lists.saturating_sub(1));
        traffic.watch_errors.with_labels(feed).set_total(status.errors);
        if let Some(last_response) = status.last_response {
            let silence = last_response.elapsed().as_secs_f64();
            traffic.watch_silence.with_labels(feed).set(silence);
        }
    }
}

pub(crate) fn export_write_metrics(traffic: &ApiTrafficMetrics, stats: &WriteStats) {
    for ((kind, outcome), count) in stats.counts() {
        traffic.writes.with_labels([kind.as_str(), &outcome.to_string()]).set_total(count);
    }
}

/// The watches that are not synced yet, one line each.
pub(crate) fn unsynced_watches<'a>(
    statuses: impl IntoIterator<Item = &'a Arc<WatchStatus>>,
) -> Vec<String> {
    let unsynced = statuses.into_iter().filter(|status| !status.is_synced());
    unsynced
        .map(|status| match status.stats().last_error {
            Some(error) => format!("{} are not synced yet: {error}", status.name),
            None => format!("{} are not synced yet", status.name),
        })
        .collect()
}

/// Whether all watch loops make progress. They do even while the API server is unavailable, since requests have
/// timeouts.
pub(crate) fn check_watch_loops<'a>(
    statuses: impl IntoIterator<Item = &'a Arc<WatchStatus>>,
) -> Result<(), Stalled> {
    statuses.into_iter().try_for_each(|status| match status.stalled_for() {
        Some(last_activity) => {
            Err(Stalled { what: format!("the watch of {}", status.name), last_activity })
        }
        None => Ok(()),
    })
}
