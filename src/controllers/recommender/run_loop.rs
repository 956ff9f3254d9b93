//! The main loop: schedules passes, and handles clock jumps.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::Time;
use tokio::sync::watch;

use super::{
    Shared,
    pass::{PassRunner, PassState, PassSummary},
};
use crate::controllers::runtime::loop_watchdog::LoopWatchdog;

/// How long the first pass waits for stored history.
const MAX_HISTORY_WAIT: Duration = Duration::from_secs(10);

/// Runs a pass in every interval.
pub(super) struct RunLoop {
    pub pass: PassRunner,
    pub watchdog: LoopWatchdog,
    /// Number of passes so far, and the summary of the last one.
    pub passes: watch::Sender<(u64, PassSummary)>,
}

impl RunLoop {
    /// Runs a pass as soon as the caches are synced, and then one per interval.
    pub async fn run(self: Arc<Self>) {
        let PassRunner { shared, targets, leadership, .. } = &self.pass;
        let Shared { config, clock, state, health, .. } = &**shared;
        targets.watches.wait_for_sync().await;
        let deadline = Instant::now() + MAX_HISTORY_WAIT;
        // The first load rarely covers all VPAs: some targets need a request to be resolved.
        while Instant::now() < deadline
            && state.lock().vpa_registry.waiting_for_history().next().is_some()
        {
            tokio::select! {
                () = state.signals.history_loaded.notified() => {}
                () = tokio::time::sleep_until(deadline.into()) => {}
            }
        }
        let mut passes = PassState::default();
        let mut planned: Option<Time> = None;
        loop {
            let started = clock.now();
            let lag = planned.map_or(0, |planned| started.nanos_since(planned).max(0));
            health.loop_metrics.set_lag(Duration::from_nanos(lag.unsigned_abs()));
            if let Some(planned) = planned {
                warn_clock_jump(planned, started, config.interval);
            }
            self.watchdog.tick();
            let summary = self.pass.run(&mut passes).await;
            self.watchdog.tick();
            health.loop_metrics.set_last_success(clock.now());
            leadership.update_health();
            tracing::debug!(?summary, "completed pass");
            self.passes.send_modify(|(count, last)| {
                *count += 1;
                *last = summary;
            });
            // Relative to now if the clock was set: neither a burst of passes nor a long pause.
            let (now, interval) = (clock.now(), config.interval);
            let next = started.later(interval);
            let next = if next < now || next > now.later(interval) { now } else { next };
            planned = Some(next);
            clock.sleep_until(next).await;
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
