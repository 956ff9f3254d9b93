//! How a role's loop is: what Plimsoll tells beyond upstream, with as many series whatever the size of the cluster.

use std::{sync::Arc, time::Duration};

use plimsoll_storage::Time;

use super::{
    definition::{Definition, counter, gauge},
    family::Family,
    labels::HistoryState,
    registry::Registry,
    traffic::Traffic,
    value::{Counter, Gauge},
};

const NEVER: &str = "it has not happened yet";

const LEADER: Definition = gauge(
    "plimsoll_leader",
    "1 while this replica may write, 0 while another one does. Of several roles in one process: the latest to tell.",
);
const LAST_SUCCESS: Definition = gauge(
    "plimsoll_loop_last_success_timestamp_seconds",
    "When the latest pass without an error ended, since the Unix epoch.",
)
.unit("seconds")
.absent("no pass has succeeded yet");
const LAG: Definition =
    gauge("plimsoll_loop_lag_seconds", "How much later than planned the latest pass began.")
        .unit("seconds");
const HISTORY: Definition = gauge(
    "plimsoll_history_state",
    "1 for the state that the history as a whole is in, 0 for the others.",
)
.labels(&["state"], "4");
const QUEUE: Definition = gauge("plimsoll_write_queue", "Writes that wait for their turn.")
    .labels(&["kind"], "up to 8")
    .absent(NEVER);
const SAMPLES: Definition =
    counter("plimsoll_samples_total", "Samples of use, and what became of them.")
        .labels(&["outcome"], "up to 16")
        .absent(NEVER);
const KILLS: Definition = counter(
    "plimsoll_oom_kills_total",
    "Out-of-memory kills by where they were seen, and what became of them.",
)
.labels(&["outcome", "source"], "up to 32")
.absent(NEVER);
const CHECKPOINTS: Definition = counter(
    "plimsoll_checkpoints_total",
    "Records of history: loaded, skipped, adopted, written, unchanged, kept_richer, refused, failed, collected.",
)
.labels(&["outcome"], "up to 16")
.absent(NEVER);
const CHECKPOINTS_SAVED: Definition = gauge(
    "plimsoll_checkpoints_last_save_timestamp_seconds",
    "When the latest save of history without an error ended, since the Unix epoch.",
)
.unit("seconds")
.absent("none has succeeded yet");

/// How a role's loop is.
#[derive(Debug)]
pub struct Health {
    leader: Arc<Gauge>,
    last_success: Arc<Family<Gauge>>,
    lag: Arc<Gauge>,
    history: Arc<Family<Gauge, 1>>,
    traffic: Traffic,
    queue: Arc<Family<Gauge, 1>>,
    samples: Arc<Family<Counter, 1>>,
    kills: Arc<Family<Counter, 2>>,
    checkpoints: Arc<Family<Counter, 1>>,
    checkpoints_saved: Arc<Family<Gauge>>,
}

impl Health {
    /// Adds the families to a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let health = Self {
            leader: registry.gauge(LEADER),
            last_success: registry.family(LAST_SUCCESS, 1),
            lag: registry.gauge(LAG),
            history: registry.family(HISTORY, HistoryState::ALL.len()),
            traffic: Traffic::new(registry),
            queue: registry.family(QUEUE, 8),
            samples: registry.family(SAMPLES, 16),
            kills: registry.family(KILLS, 32),
            checkpoints: registry.family(CHECKPOINTS, 16),
            checkpoints_saved: registry.family(CHECKPOINTS_SAVED, 1),
        };
        health.set_history_state(HistoryState::Loading);
        health
    }

    /// This replica may write, or may not.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(f64::from(u8::from(leads)));
    }

    /// A pass ended well.
    pub fn loop_succeeded(&self, at: Time) {
        self.last_success.with([]).set(seconds(at));
    }

    /// A pass began this much later than planned.
    pub fn set_loop_lag(&self, lag: Duration) {
        self.lag.set(lag.as_secs_f64());
    }

    /// The history as a whole is so far.
    pub fn set_history_state(&self, state: HistoryState) {
        for other in HistoryState::ALL {
            self.history.with([other.as_str()]).set(f64::from(u8::from(other == state)));
        }
    }

    /// What watches and writes are told by.
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// So many writes of this kind wait.
    pub fn set_write_queue(&self, kind: &'static str, waiting: usize) {
        self.queue.with([kind]).set(waiting as f64);
    }

    /// So many samples came to this end.
    pub fn count_samples(&self, outcome: &'static str, count: u64) {
        self.samples.with([outcome]).add(count);
    }

    /// A kill that was seen there came to this end.
    pub fn count_oom_kill(&self, source: &'static str, outcome: &'static str) {
        self.kills.with([outcome, source]).increment();
    }

    /// So many records of history came to this end.
    pub fn count_checkpoints(&self, outcome: &'static str, count: u64) {
        self.checkpoints.with([outcome]).add(count);
    }

    /// A save of history ended well.
    pub fn checkpoints_saved(&self, at: Time) {
        self.checkpoints_saved.with([]).set(seconds(at));
    }
}

fn seconds(at: Time) -> f64 {
    at.as_nanos() as f64 / 1e9
}
