//! The main loop: schedules passes, and handles clock jumps.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::Time;

use super::{Recommender, pass::PassState};

/// How long the first pass waits for stored history.
const MAX_HISTORY_WAIT: Duration = Duration::from_secs(10);

impl Recommender {
    /// Runs a pass as soon as the caches are synced, and then one per interval.
    pub(super) async fn run_loop(self: Arc<Self>) {
        self.watches.wait_for_sync().await;
        let deadline = Instant::now() + MAX_HISTORY_WAIT;
        // The first load rarely covers all VPAs: some targets need a request to be resolved.
        while Instant::now() < deadline
            && self.state.lock().vpa_registry.waiting_for_history().next().is_some()
        {
            tokio::select! {
                () = self.history_loaded.notified() => {}
                () = tokio::time::sleep_until(deadline.into()) => {}
            }
        }
        let mut passes = PassState::default();
        let mut planned: Option<Time> = None;
        loop {
            let started = self.clock.now();
            let lag = planned.map_or(0, |planned| started.nanos_since(planned).max(0));
            self.health.loop_metrics.set_lag(Duration::from_nanos(lag.unsigned_abs()));
            if let Some(planned) = planned {
                warn_clock_jump(planned, started, self.config.interval);
            }
            self.loop_watchdog.tick();
            let summary = self.pass(&mut passes).await;
            self.loop_watchdog.tick();
            self.health.loop_metrics.set_last_success(self.clock.now());
            self.update_health();
            tracing::debug!(?summary, "completed pass");
            self.passes.send_modify(|(count, last)| {
                *count += 1;
                *last = summary;
            });
            // Relative to now if the clock was set: neither a burst of passes nor a long pause.
            let (now, interval) = (self.clock.now(), self.config.interval);
            let next = started.later(interval);
            let next = if next < now || next > now.later(interval) { now } else { next };
            planned = Some(next);
            self.clock.sleep_until(next).await;
        }
    }
}

/// Logs a corrected clock or a paused process, which explains oddities in the pass that follows.
fn warn_clock_jump(planned: Time, started: Time, interval: Duration) {
    if started > planned.later(interval) {
        let late = Duration::from_nanos(started.nanos_since(planned).unsigned_abs());
        tracing::warn!(?late, "pass started late: clock jumped forward or process was paused");
    } else if planned > started.later(interval) {
        let back = Duration::from_nanos(planned.nanos_since(started).unsigned_abs());
        tracing::warn!(?back, "clock was set back; ignoring samples until it catches up");
    }
}
