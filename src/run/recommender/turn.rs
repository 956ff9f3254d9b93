//! The loop: when passes begin, and what a clock that was set does to them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::Time;

use super::{Role, Stop, pass::Passes};

/// How long the first pass waits for the stored history; then it begins to sample without.
const HISTORY_PATIENCE: Duration = Duration::from_secs(10);

impl Role {
    /// The loop: a pass at once when everything is read, and then one every interval.
    pub(super) async fn turn(self: Arc<Self>, stop: Stop) {
        tokio::select! {
            () = stop.stopped() => return,
            () = self.feeds.synced() => {}
        }
        let patience = Instant::now() + HISTORY_PATIENCE;
        // One load seldom brings all: some targets take a question to find.
        while Instant::now() < patience && self.state.lock().fleet.waiting().next().is_some() {
            tokio::select! {
                () = stop.stopped() => return,
                () = self.loaded.notified() => {}
                () = tokio::time::sleep_until(patience.into()) => {}
            }
        }
        let mut passes = Passes::default();
        let mut planned: Option<Time> = None;
        loop {
            let began = self.clock.now();
            let lag = planned.map_or(0, |planned| began.nanos_since(planned).max(0));
            self.health.pace().set_lag(Duration::from_nanos(lag.unsigned_abs()));
            if let Some(planned) = planned {
                note_jump(planned, began, self.config.interval);
            }
            self.pulse.beat();
            let summary = tokio::select! {
                () = stop.stopped() => return,
                summary = self.pass(&mut passes) => summary,
            };
            self.pulse.beat();
            self.health.pace().succeeded(self.clock.now());
            self.note_condition();
            tracing::debug!(?summary, "pass done");
            self.passes.send_modify(|(count, last)| {
                *count += 1;
                *last = summary;
            });
            // Counted from now if the clock was set: neither a burst of passes nor a long silence.
            let (now, interval) = (self.clock.now(), self.config.interval);
            let next = began.later(interval);
            let next = if next < now || next > now.later(interval) { now } else { next };
            planned = Some(next);
            tokio::select! {
                () = stop.stopped() => return,
                () = self.clock.sleep_until(next) => {}
            }
        }
    }
}

/// A clock that was corrected, or a process that did not run, explains much of what is seen next.
fn note_jump(planned: Time, began: Time, interval: Duration) {
    if began > planned.later(interval) {
        let late = Duration::from_nanos(began.nanos_since(planned).unsigned_abs());
        tracing::warn!(
            ?late,
            "a pass begins late: the clock was set forwards, or this process did not run"
        );
    } else if planned > began.later(interval) {
        let back = Duration::from_nanos(planned.nanos_since(began).unsigned_abs());
        tracing::warn!(?back, "the clock was set back; samples count once it is where it was");
    }
}
