//! Delays statuses and events while a scale may still come: a reconcile may be about to queue one, or one is being written.

use std::collections::BTreeSet;

use tokio::time::{Duration, Instant};

/// Work that takes longer delays nothing, because a metrics API may hang.
const SLOW_AFTER: Duration = Duration::from_millis(100);
/// The longest delay, because some work may always be in progress.
const MAX_DELAY: Duration = Duration::from_millis(250);

/// When some work began, and a number to distinguish it from other work.
pub(super) type WorkId = (Instant, u64);

/// The work in progress that may lead to a scale.
#[derive(Debug, Default)]
pub(super) struct StatusDelay {
    running: BTreeSet<WorkId>,
    started: u64,
    /// Since when a status is delayed. It is kept until no work is in progress, so that statuses are delayed once and not
    /// one after the other.
    since: Option<Instant>,
}

impl StatusDelay {
    pub fn begin(&mut self, now: Instant) -> WorkId {
        if self.slow_at(now).is_none() {
            self.since = None;
        }
        self.started += 1;
        let id = (now, self.started);
        self.running.insert(id);
        id
    }

    pub fn end(&mut self, id: &WorkId) {
        self.running.remove(id);
    }

    /// When a status that is next may start at the latest; `None` for now.
    pub fn delayed_until(&mut self, now: Instant) -> Option<Instant> {
        let slow_at = self.slow_at(now)?;
        let longest = *self.since.get_or_insert(now) + MAX_DELAY;
        (longest > now).then(|| slow_at.min(longest))
    }

    /// When all work in progress is slow; `None` if it is, or if there is none.
    fn slow_at(&self, now: Instant) -> Option<Instant> {
        let slow_at = self.running.last()?.0 + SLOW_AFTER;
        (slow_at > now).then_some(slow_at)
    }
}
