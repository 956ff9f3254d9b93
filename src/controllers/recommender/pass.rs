//! One pass: usage and kills into the histories, decisions out, and the statuses that changed on their way.
//! Nothing here waits for a write, and for usage only so long.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::{ObjectKey, Time};
use tokio::task::JoinSet;

use super::{
    Recommender, node_clock_skew::NodeClockSkew, state::RecommenderState, usage_ingest::UsageRead,
};
use crate::{
    cluster::cache::vpa_index::TargetState,
    telemetry::{RecommendationChange, VpaTraits},
};
use plimsoll_core::{
    api::vpa::UpdateMode,
    recommender::{
        RecommendationSummary, estimate::Resource, registry::VpaState, status::StatusChange,
    },
};

/// Histories are looked through for what has expired no more often than that.
const EXPIRY_INTERVAL: Duration = Duration::from_hours(1);

/// A clock that moves further than this from one pass to the next may be set back as well: what seems to have
/// expired by it is not forgotten yet.
const MAX_CLOCK_JUMP: Duration = Duration::from_hours(6);

/// What passes remember of each other.
#[derive(Debug, Default)]
pub struct PassState {
    last_expiry: Option<Time>,
    last_pass: Option<Time>,
    /// VPAs that have had no recommendation for long: said once of each.
    without_recommendation: HashSet<ObjectKey>,
    /// The read of usage that a pass did not wait for to its end.
    pub(super) usage_reads: JoinSet<UsageRead>,
    /// Nodes whose clocks are ahead, each of which was warned of.
    pub(super) node_clock_skew: NodeClockSkew,
    last_reminder: Option<Time>,
}

/// What a pass did, for logs and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassSummary {
    /// VPAs that were worked out.
    pub vpas: usize,
    /// Pods whose usage was read.
    pub pods: u64,
    /// Samples that were taken.
    pub samples: u64,
    /// Kills that were counted.
    pub kills: u64,
    /// Statuses that are to be written.
    pub changed: usize,
}

impl Recommender {
    /// Makes one pass.
    pub(super) async fn pass(self: &Arc<Self>, passes: &mut PassState) -> PassSummary {
        let began = Instant::now();
        let mut summary = PassSummary::default();
        self.timed("LoadVPAs", || self.resolve_watched_targets());
        self.timed("LoadPods", || {
            let now = self.clock.now();
            self.register_containers(now);
            summary.kills += self.ingest_ooms(now, true);
        });
        let step = Instant::now();
        self.ingest_usage(passes, &mut summary).await;
        summary.kills += self.ingest_ooms(self.clock.now(), false);
        self.metrics.observe_step("LoadMetrics", step.elapsed());
        self.timed("DeleteRemovedPods", || self.forget_deleted_pods());
        self.timed("UpdateVPAs", || self.decide(passes, &mut summary));
        self.timed("MaintainCheckpoints", || self.save_trigger.wake());
        self.timed("GarbageCollect", || self.forget_expired(passes));
        self.metrics.observe_step("total", began.elapsed());
        summary
    }

    fn timed(&self, step: &'static str, work: impl FnOnce()) {
        let began = Instant::now();
        work();
        self.metrics.observe_step(step, began.elapsed());
    }

    /// Follows the targets that can be followed without asking anybody.
    pub(super) fn resolve_watched_targets(&self) {
        self.state.for_each_page(|core, page| {
            for key in page {
                let Some(vpa) = core.index.vpa(key) else { continue };
                let known = self.targets.resolve_known(&key.namespace, &vpa.target_ref);
                if let Some(outcome) = known {
                    core.set_target(key, outcome);
                }
            }
        });
    }

    fn register_containers(&self, now: Time) {
        self.state.for_each_page(|core, page| {
            for key in page {
                core.register_containers(key, now);
            }
        });
    }

    /// Forgets what was kept for single pods that are gone.
    fn forget_deleted_pods(&self) {
        let now = self.clock.now();
        self.state.for_each_page(|core, page| {
            for key in page {
                // A history that is not loaded brings pods of its own; of endless ones nobody waits for all.
                let is_crowded = || {
                    core.vpa_registry.get(key).is_some_and(|watched| watched.history().is_crowded())
                };
                if !core.is_waiting_for_history(key) || is_crowded() {
                    let index = &core.index;
                    let lives = |pod: &str| index.pod(&key.namespace, pod).is_some();
                    core.vpa_registry.retain_pods(key, lives, now);
                }
            }
        });
    }

    /// Works out every VPA, and hands those whose status is to be written to the outbox.
    fn decide(&self, passes: &mut PassState, summary: &mut PassSummary) {
        let config = &self.config;
        let mut counts = Vec::new();
        let may_write = self.may_write();
        {
            self.state.lock().update_node_capacity(config.pod_cap);
        }
        self.state.for_each_page(|core, page| {
            let now = self.clock.now();
            for key in page {
                if core.is_waiting_for_history(key) {
                    core.slow_history.record_waiting(key, now);
                }
                let verdict = core.desired_status(key, now);
                let Some(vpa) = core.index.vpa(key) else { continue };
                let mode = vpa.mode;
                let pods = vpa.pod_count();
                let unsupported = matches!(
                    vpa.target(),
                    TargetState::Unsupported(_) | TargetState::Unavailable(_)
                );
                let Some(verdict) = verdict else {
                    let conditions = core.history_pending_conditions(key, now);
                    let known = core
                        .unconfirmed
                        .get(key)
                        .or(core.index.vpa(key).map(|vpa| &vpa.published_status));
                    let is_news = conditions.as_ref() != known.map(|known| &known.conditions);
                    if may_write && conditions.is_some() && is_news {
                        self.status_queue.push(key.clone(), core.status_written_at(key));
                    }
                    counts.push((
                        mode,
                        vpa.published_status
                            .recommendation
                            .as_ref()
                            .is_some_and(|it| !it.is_empty()),
                        pods > 0,
                        unsupported,
                    ));
                    continue;
                };
                summary.vpas += 1;
                counts.push((
                    mode,
                    !verdict.recommendation.containers.is_empty(),
                    pods > 0,
                    unsupported,
                ));
                let old: Vec<RecommendationSummary> = core
                    .vpa_registry
                    .get(key)
                    .map(|watched| watched.summaries().to_vec())
                    .unwrap_or_default();
                let band = config.bounds_dead_band;
                let change = core.unconfirmed.get(key).unwrap_or(&vpa.published_status).change(
                    &verdict.conditions,
                    &verdict.recommendation,
                    vpa.generation,
                    band,
                );
                if change == StatusChange::Write {
                    summary.changed += 1;
                    if may_write {
                        self.status_queue.push(key.clone(), core.status_written_at(key));
                    }
                }
                if let Some(latency) =
                    core.vpa_registry.store_summary(key, &verdict.recommendation, now)
                {
                    self.metrics.observe_first_recommendation(latency);
                }
                self.observe_changes(core, key, &old, mode.map(UpdateMode::as_str), pods);
                warn_no_recommendation(passes, core, key, now);
            }
        });
        let mut core = self.state.lock();
        let mut fetching = std::mem::take(&mut core.slow_history);
        fetching.retain(|key| core.is_waiting_for_history(key));
        core.slow_history = fetching;
        passes.without_recommendation.retain(|key| core.vpa_registry.get(key).is_some());
        self.metrics.set_container_states(core.vpa_registry.containers());
        drop(core);
        log_no_recommendation_reminder(passes, self.clock.now());
        self.metrics.set_vpa_counts(counts.iter().map(|&(mode, said, matched, unsupported)| {
            VpaTraits {
                update_mode: mode.map(UpdateMode::as_str),
                has_recommendation: said,
                matches_pods: matched,
                unsupported_config: unsupported,
            }
        }));
    }

    fn observe_changes(
        &self,
        core: &RecommenderState,
        key: &ObjectKey,
        old: &[RecommendationSummary],
        update_mode: Option<&str>,
        pods: usize,
    ) {
        let Some(watched) = core.vpa_registry.get(key) else { return };
        for before in old {
            let Some(after) = watched.summary_for(&before.container) else { continue };
            for resource in [Resource::Cpu, Resource::Memory] {
                let both = before.resource(resource).zip(after.resource(resource));
                let Some((old, new)) = both.map(|(old, new)| (old.uncapped, new.uncapped)) else {
                    continue;
                };
                self.metrics.observe_change(&RecommendationChange {
                    update_mode,
                    resource,
                    old,
                    new,
                    pods,
                });
            }
        }
    }

    fn forget_expired(&self, passes: &mut PassState) {
        let now = self.clock.now();
        let last_pass = passes.last_pass.replace(now);
        if last_pass.is_some_and(|last| now > last.later(MAX_CLOCK_JUMP)) {
            tracing::warn!(at = %now, "the clock leapt forward; nothing expires for an hour");
            passes.last_expiry = Some(now);
        }
        let due = passes.last_expiry.is_none_or(|last| {
            // A clock that was set back must not put this off.
            now >= last.later(EXPIRY_INTERVAL) || now < last
        });
        if due {
            passes.last_expiry = Some(now);
            let gone = self.state.lock().vpa_registry.forget_expired(now);
            for key in &gone {
                tracing::info!(container = %key, "history expired");
            }
        }
    }
}

/// How long a VPA may be without a recommendation before a line says so, and how long after that all of those are
/// named again.
const NO_RECOMMENDATION_GRACE: Duration = Duration::from_mins(30);

/// So many VPAs or nodes are named one by one in a line.
pub(super) const MAX_NAMED: usize = 10;

/// After half an hour without a recommendation one line says so.
fn warn_no_recommendation(
    passes: &mut PassState,
    core: &RecommenderState,
    key: &ObjectKey,
    now: Time,
) {
    let since = core.vpa_registry.get(key).and_then(VpaState::without_recommendation_since);
    match since {
        Some(since) if now > since.later(NO_RECOMMENDATION_GRACE) => {
            if passes.without_recommendation.insert(key.clone()) {
                tracing::warn!(vpa = %key, %since, "no recommendation for more than half an hour");
            }
        }
        Some(_) => {}
        None => {
            passes.without_recommendation.remove(key);
        }
    }
}

/// Every half hour one line for all VPAs that still have none: whoever looks at the log of the last hour alone is to
/// see them, and there may be thousands.
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
    // The first line about a VPA is its own.
    if passes.last_reminder.replace(now).is_some() {
        let mut names: Vec<String> =
            passes.without_recommendation.iter().map(ToString::to_string).collect();
        names.sort_unstable();
        let vpas = names.len();
        names.truncate(MAX_NAMED);
        tracing::warn!(vpas, first = names.join(", "), "still without a recommendation");
    }
}
