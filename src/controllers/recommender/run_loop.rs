//! The loop: when passes begin, and what a clock that was set does to them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::Time;

use super::{Recommender, ShutdownToken, pass::PassState};

/// How long the first pass waits for the stored history; then it begins to sample without.
const MAX_HISTORY_WAIT: Duration = Duration::from_secs(10);

impl Recommender {
    /// The loop: a pass at once when everything is read, and then one every interval.
    pub(super) async fn run_loop(self: Arc<Self>, stop: ShutdownToken) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.watches.wait_for_sync() => {}
        }
        let patience = Instant::now() + MAX_HISTORY_WAIT;
        // One load seldom brings all: some targets take a question to find.
        while Instant::now() < patience
            && self.state.lock().vpa_registry.waiting_for_history().next().is_some()
        {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.history_loaded.notified() => {}
                () = tokio::time::sleep_until(patience.into()) => {}
            }
        }
        let mut passes = PassState::default();
        let mut planned: Option<Time> = None;
        loop {
            let began = self.clock.now();
            let lag = planned.map_or(0, |planned| began.nanos_since(planned).max(0));
            self.health.loop_metrics().set_lag(Duration::from_nanos(lag.unsigned_abs()));
            if let Some(planned) = planned {
                warn_clock_jump(planned, began, self.config.interval);
            }
            self.loop_watchdog.tick();
            let summary = tokio::select! {
                () = stop.cancelled() => return,
                summary = self.pass(&mut passes) => summary,
            };
            self.loop_watchdog.tick();
            self.health.loop_metrics().set_last_success(self.clock.now());
            self.update_health();
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
                () = stop.cancelled() => return,
                () = self.clock.sleep_until(next) => {}
            }
        }
    }
}

/// A clock that was corrected, or a process that did not run, explains much of what is seen next.
fn warn_clock_jump(planned: Time, began: Time, interval: Duration) {
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
