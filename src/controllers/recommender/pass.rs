//! The main loop, and one pass of it: ingests usage and OOM kills, computes recommendations, and queues changed statuses. It never waits for
//! writes, and for usage only up to a limit.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::{
    recommender::{RecommendationSummary, estimate::Resource, published_status::StatusChange},
    types::{ObjectKey, Time},
};
use tokio::sync::watch;

use super::{
    Shared,
    checkpoint_saver::CheckpointSaver,
    desired_status::{DesiredStatus, history_pending_conditions},
    leadership::Leadership,
    oom_ingest::ingest_ooms,
    state::RecommenderState,
    target_lookup::TargetLookup,
    usage_ingest::{UsageIngest, UsageReads},
};
use crate::{
    cluster::{cache::vpa_index::TargetState, write::StatusQueue},
    controllers::runtime::loop_watchdog::LoopWatchdog,
    telemetry::VpaTraits,
};

/// How long the first pass waits for stored history.
const MAX_HISTORY_WAIT: Duration = Duration::from_secs(10);

/// Minimum interval between checks for expired histories.
const EXPIRY_INTERVAL: Duration = Duration::from_hours(1);

/// If the clock jumps further than this between two passes, it may be set back later: do not expire histories yet.
const MAX_CLOCK_JUMP: Duration = Duration::from_hours(6);

/// State that is kept between passes.
#[derive(Debug, Default)]
struct PassState {
    last_expiry: Option<Time>,
    last_pass: Option<Time>,
    /// VPAs that have had no recommendation for long; each is logged once.
    without_recommendation: HashSet<ObjectKey>,
    usage_reads: UsageReads,
    last_reminder: Option<Time>,
}

/// The result of a pass, for logs and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassSummary {
    /// VPAs with a computed recommendation.
    pub vpas: usize,
    /// Pods whose usage was read.
    pub pods: u64,
    pub samples: u64,
    /// Counted OOM kills.
    pub kills: u64,
    /// Statuses to be written.
    pub changed: usize,
}

/// The main loop: runs a pass in every interval.
pub(super) struct PassRunner {
    pub shared: Arc<Shared>,
    pub targets: Arc<TargetLookup>,
    pub usage: Arc<UsageIngest>,
    pub leadership: Arc<Leadership>,
    pub status_queue: Arc<StatusQueue>,
    pub saver: Arc<CheckpointSaver>,
    pub watchdog: LoopWatchdog,
    /// Number of passes so far, and the summary of the last one.
    pub summaries: watch::Sender<(u64, PassSummary)>,
}

impl PassRunner {
    /// Runs a pass as soon as the caches are synced, and then one per interval.
    pub async fn run(self: Arc<Self>) {
        let Shared { config, clock, state, health, .. } = &*self.shared;
        self.targets.watches.set.wait_until_synced().await;
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
            let summary = self.pass(&mut passes).await;
            self.watchdog.tick();
            health.loop_metrics.set_last_success(clock.now());
            self.leadership.update_health();
            tracing::debug!(?summary, "completed pass");
            self.summaries.send_modify(|(count, last)| {
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

    async fn pass(&self, passes: &mut PassState) -> PassSummary {
        let started = Instant::now();
        let mut summary = PassSummary::default();
        self.timed("LoadVPAs", || self.targets.resolve_watched());
        self.timed("LoadPods", || {
            let now = self.shared.clock.now();
            self.shared.state.for_each_page(|state, page| {
                for key in page {
                    state.register_containers(key, now);
                }
            });
            summary.kills += ingest_ooms(&self.shared, now, true);
        });
        let step = Instant::now();
        passes.usage_reads.ingest(&self.usage, &mut summary).await;
        summary.kills += ingest_ooms(&self.shared, self.shared.clock.now(), false);
        self.shared.metrics.steps.with_labels(["LoadMetrics"]).observe_duration(step.elapsed());
        self.timed("DeleteRemovedPods", || self.forget_deleted_pods());
        self.timed("UpdateVPAs", || self.decide(passes, &mut summary));
        self.timed("MaintainCheckpoints", || self.saver.trigger.notify_one());
        self.timed("GarbageCollect", || self.forget_expired(passes));
        self.shared.metrics.steps.with_labels(["total"]).observe_duration(started.elapsed());
        summary
    }

    fn timed(&self, step: &'static str, work: impl FnOnce()) {
        let started = Instant::now();
        work();
        self.shared.metrics.steps.with_labels([step]).observe_duration(started.elapsed());
    }

    fn forget_deleted_pods(&self) {
        let now = self.shared.clock.now();
        self.shared.state.for_each_page(|state, page| {
            for key in page {
                // Loading a history may still add pods, so wait for it, unless it has grown too large.
                let is_crowded =
                    || state.vpa_registry.get(key).is_some_and(|vpa| vpa.history.is_crowded());
                if !state.is_waiting_for_history(key) || is_crowded() {
                    let index = &state.index;
                    let exists = |pod: &str| index.pod(&key.namespace, pod).is_some();
                    state.vpa_registry.retain_pods(key, exists, now);
                }
            }
        });
    }

    /// Computes the recommendation of every VPA, and queues the statuses to write.
    fn decide(&self, passes: &mut PassState, summary: &mut PassSummary) {
        let config = &self.shared.config;
        let mut counts = Vec::new();
        let may_write = self.leadership.may_write();
        self.shared.state.lock().update_node_capacity(config.pod_cap);
        self.shared.state.for_each_page(|state, page| {
            let now = self.shared.clock.now();
            for key in page {
                if state.is_waiting_for_history(key) {
                    state.slow_history.record_waiting(key, now);
                }
                state.vpa_registry.decide_plans(key, now);
                let desired = DesiredStatus::new(state, key, now);
                let Some(vpa) = state.index.vpa(key) else { continue };
                let mode = vpa.mode;
                let pods = vpa.pods.len();
                let traits = |has_recommendation| VpaTraits {
                    update_mode: mode.map(|mode| mode.into_str()),
                    has_recommendation,
                    matches_pods: pods > 0,
                    unsupported_config: matches!(
                        &vpa.target,
                        TargetState::Unsupported(_) | TargetState::Unavailable(_)
                    ),
                };
                let Some(desired) = desired else {
                    let conditions = history_pending_conditions(state, key, now);
                    let last_status = state
                        .unconfirmed
                        .get(key)
                        .or(state.index.vpa(key).map(|vpa| &vpa.published_status));
                    let has_changed = conditions.as_ref()
                        != last_status.map(|last_status| &last_status.conditions);
                    if may_write && conditions.is_some() && has_changed {
                        self.status_queue.push(key.clone(), state.status_written_at(key));
                    }
                    let published = vpa.published_status.recommendation.as_ref();
                    counts.push(traits(published.is_some_and(|published| !published.is_empty())));
                    continue;
                };
                summary.vpas += 1;
                counts.push(traits(!desired.recommendation.containers.is_empty()));
                let old: Vec<RecommendationSummary> = state
                    .vpa_registry
                    .get(key)
                    .map(|registered| registered.summaries.to_vec())
                    .unwrap_or_default();
                let change = state.unconfirmed.get(key).unwrap_or(&vpa.published_status).change(
                    &desired.conditions,
                    &desired.recommendation,
                    vpa.generation,
                    config.bounds_dead_band,
                );
                if change == StatusChange::Write {
                    summary.changed += 1;
                    if may_write {
                        self.status_queue.push(key.clone(), state.status_written_at(key));
                    }
                }
                if let Some(latency) =
                    state.vpa_registry.store_summary(key, &desired.recommendation, now)
                {
                    self.shared.metrics.latency.observe_duration(latency);
                }
                self.observe_changes(state, key, &old, mode.map(|mode| mode.into_str()), pods);
                warn_no_recommendation(passes, state, key, now);
            }
        });
        let mut state = self.shared.state.lock();
        let mut slow_history = std::mem::take(&mut state.slow_history);
        slow_history.retain(|key| state.is_waiting_for_history(key));
        state.slow_history = slow_history;
        passes.without_recommendation.retain(|key| state.vpa_registry.get(key).is_some());
        self.shared.metrics.states.set(state.vpa_registry.containers() as f64);
        drop(state);
        log_no_recommendation_reminder(passes, self.shared.clock.now());
        self.shared.metrics.set_vpa_counts(counts);
    }

    fn observe_changes(
        &self,
        state: &RecommenderState,
        key: &ObjectKey,
        old: &[RecommendationSummary],
        update_mode: Option<&str>,
        pods: usize,
    ) {
        let Some(vpa) = state.vpa_registry.get(key) else { return };
        for before in old {
            let Some(after) = vpa.summary_for(&before.container) else { continue };
            for resource in [Resource::Cpu, Resource::Memory] {
                let both = before.resources.get(resource).zip(after.resources.get(resource));
                let Some((old, new)) = both else { continue };
                let change = [old.uncapped, new.uncapped];
                self.shared.metrics.quality.observe_change(update_mode, resource, change, pods);
            }
        }
    }

    fn forget_expired(&self, passes: &mut PassState) {
        let now = self.shared.clock.now();
        let last_pass = passes.last_pass.replace(now);
        if last_pass.is_some_and(|last| now > last.later(MAX_CLOCK_JUMP)) {
            tracing::warn!(at = %now, "clock jumped forward; not expiring histories for an hour");
            passes.last_expiry = Some(now);
        }
        let due = passes.last_expiry.is_none_or(|last| {
            // Do not postpone it if the clock was set back.
            now >= last.later(EXPIRY_INTERVAL) || now < last
        });
        if due {
            passes.last_expiry = Some(now);
            let expired = self.shared.state.lock().vpa_registry.forget_expired(now);
            for key in &expired {
                tracing::info!(container = %key, "removed expired history");
            }
        }
    }
}

/// How long a VPA may be without a recommendation before it is logged, and the interval of reminders after that.
const NO_RECOMMENDATION_GRACE: Duration = Duration::from_mins(30);

/// Maximum number of VPAs or nodes named in one log line.
pub(super) const MAX_NAMED: usize = 10;

/// Logs once when a VPA has had no recommendation for more than half an hour.
fn warn_no_recommendation(
    passes: &mut PassState,
    state: &RecommenderState,
    key: &ObjectKey,
    now: Time,
) {
    let since = state.vpa_registry.get(key).and_then(|vpa| vpa.without_recommendation_since);
    match since {
        Some(since) if now > since.later(NO_RECOMMENDATION_GRACE) => {
            if passes.without_recommendation.insert(key.clone()) {
                tracing::warn!(vpa = %key, %since, "VPA has had no recommendation for more than 30 minutes");
            }
        }
        Some(_) => {}
        None => {
            passes.without_recommendation.remove(key);
        }
    }
}

/// Logs one reminder every half hour for all VPAs that still have no recommendation. One line, since there may be
/// thousands.
fn log_no_recommendation_reminder(passes: &mut PassState, now: Time) {
    if passes.without_recommendation.is_empty() {
        passes.last_reminder = None;
        return;
    }
    let due = passes
        .last_reminder
        .is_none_or(|last| now >= last.later(NO_RECOMMENDATION_GRACE) || now < last);
    if !due {
        return;
    }
    // The first interval only has the individual log lines.
    if passes.last_reminder.replace(now).is_some() {
        let mut names: Vec<String> =
            passes.without_recommendation.iter().map(ToString::to_string).collect();
        names.sort_unstable();
        let vpas = names.len();
        names.truncate(MAX_NAMED);
        tracing::warn!(vpas, first = names.join(", "), "VPAs still have no recommendation");
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
