//! What every role shows of its traffic with the API server.

use std::sync::Arc;

use crate::{
    cluster::{server::Stalled, watch::status::WatchStatus, write::WriteStats},
    telemetry::ApiTrafficMetrics,
};

/// Brings the series of watches up to what is now.
pub(crate) fn export_watch_metrics<'a>(
    traffic: &ApiTrafficMetrics,
    feeds: impl IntoIterator<Item = &'a Arc<WatchStatus>>,
) {
    for feed in feeds {
        let (series, status) = (traffic.watch(feed.name()), feed.stats());
        series.synced.set(f64::from(u8::from(feed.is_synced())));
        series.malformed.set_total(status.invalid);
        series.restarts.set_total(status.lists.saturating_sub(1));
        series.errors.set_total(status.errors);
        if let Some(heard) = status.last_response {
            traffic.set_watch_silence(feed.name(), heard.elapsed());
        }
    }
}

/// Brings the series of writes up to what is now.
pub(crate) fn export_write_metrics(traffic: &ApiTrafficMetrics, stats: &WriteStats) {
    for (kind, answer, count) in stats.counts() {
        traffic.set_writes(kind.as_str(), &answer.to_string(), count.writes);
    }
}

/// What was not read yet, a line each.
pub(crate) fn unsynced_watches<'a>(
    feeds: impl IntoIterator<Item = &'a Arc<WatchStatus>>,
) -> Vec<String> {
    let unread = feeds.into_iter().filter(|feed| !feed.is_synced());
    unread
        .map(|feed| match feed.stats().last_error {
            Some(error) => format!("{} are not read yet: {error}", feed.name()),
            None => format!("{} are not read yet", feed.name()),
        })
        .collect()
}

/// Whether the loops that run the watches turn. They do while the API server is away, too: each request has a time limit.
pub(crate) fn check_watch_loops<'a>(
    feeds: impl IntoIterator<Item = &'a Arc<WatchStatus>>,
) -> Result<(), Stalled> {
    feeds.into_iter().try_for_each(|feed| match feed.stalled_for() {
        Some(last_activity) => {
            Err(Stalled { what: format!("the watch of {}", feed.name()), last_activity })
        }
        None => Ok(()),
    })
}
