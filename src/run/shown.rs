//! What every role shows of its traffic with the API server.

use std::sync::Arc;

use crate::{act::WriteStats, metrics::Traffic, observe::feed::Feed, serve::Stalled};

/// Brings the series of watches up to what is now.
pub(super) fn show_feeds<'a>(traffic: &Traffic, feeds: impl IntoIterator<Item = &'a Arc<Feed>>) {
    for feed in feeds {
        let (series, status) = (traffic.feed(feed.name()), feed.status());
        series.synced.set(f64::from(u8::from(feed.is_synced())));
        series.malformed.raise_to(status.malformed);
        series.restarts.raise_to(status.lists.saturating_sub(1));
        series.errors.raise_to(status.errors);
        if let Some(heard) = status.last_heard {
            traffic.set_feed_silence(feed.name(), heard.elapsed());
        }
    }
}

/// Brings the series of writes up to what is now.
pub(super) fn show_writes(traffic: &Traffic, stats: &WriteStats) {
    for (kind, answer, count) in stats.counts() {
        traffic.set_writes(kind.as_str(), &answer.to_string(), count.writes);
    }
}

/// What was not read yet, a line each.
pub(super) fn unread<'a>(feeds: impl IntoIterator<Item = &'a Arc<Feed>>) -> Vec<String> {
    let unread = feeds.into_iter().filter(|feed| !feed.is_synced());
    unread
        .map(|feed| match feed.status().last_error {
            Some(error) => format!("{} are not read yet: {error}", feed.name()),
            None => format!("{} are not read yet", feed.name()),
        })
        .collect()
}

/// Whether the loops that run the watches turn. They do while the API server is away, too: each request has a time limit.
pub(super) fn watches_turn<'a>(
    feeds: impl IntoIterator<Item = &'a Arc<Feed>>,
) -> Result<(), Stalled> {
    feeds.into_iter().try_for_each(|feed| match feed.stalled() {
        Some(last_activity) => {
            Err(Stalled { what: format!("the watch of {}", feed.name()), last_activity })
        }
        None => Ok(()),
    })
}
