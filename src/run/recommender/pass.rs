//! One pass: usage and kills into the histories, decisions out, and the statuses that changed on their way.
//! Nothing here waits for a write, and for usage only so long.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::{Time, VpaKey};
use tokio::task::JoinSet;

use super::{Role, clocks_ahead::ClocksAhead, intake::Reading, state::Core};
use crate::{
    metrics::{RecommendationChange, VpaTraits},
    observe::index::Target,
};
use plimsoll_core::{
    api::vpa::UpdateMode,
    recommender::{Advice, estimate::Resource, fleet::Watched, status::Change},
};

/// Histories are looked through for what has expired no more often than that.
const BETWEEN_EXPIRIES: Duration = Duration::from_hours(1);

/// A clock that moves further than this from one pass to the next may be set back as well: what seems to have
/// expired by it is not forgotten yet.
const LEAP: Duration = Duration::from_hours(6);

/// What passes remember of each other.
#[derive(Debug, Default)]
pub struct Passes {
    last_expiry: Option<Time>,
    last_pass: Option<Time>,
    /// VPAs that have had no recommendation for long: said once of each.
    missing: HashSet<VpaKey>,
    /// The read of usage that a pass did not wait for to its end.
    pub(super) reads: JoinSet<Reading>,
    /// Nodes whose clocks are ahead, each of which was warned of.
    pub(super) clocks_ahead: ClocksAhead,
    last_reminder: Option<Time>,
}

/// What a pass did, for logs and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
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

impl Role {
    /// Makes one pass.
    pub(super) async fn pass(self: &Arc<Self>, passes: &mut Passes) -> Summary {
        let began = Instant::now();
        let mut summary = Summary::default();
        self.timed("LoadVPAs", || self.find_known_targets());
        self.timed("LoadPods", || {
            let now = self.clock.now();
            self.see_containers(now);
            summary.kills += self.take_kills(now, true);
        });
        let step = Instant::now();
        self.take_usage(passes, &mut summary).await;
        summary.kills += self.take_kills(self.clock.now(), false);
        self.metrics.observe_step("LoadMetrics", step.elapsed());
        self.timed("DeleteRemovedPods", || self.forget_pods());
        self.timed("UpdateVPAs", || self.decide(passes, &mut summary));
        self.timed("MaintainCheckpoints", || self.saver.wake());
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
    pub(super) fn find_known_targets(&self) {
        self.state.each_page(|core, page| {
            for key in page {
                let Some(vpa) = core.index.vpa(key) else { continue };
                let known = self.targets.resolve_known(&key.namespace, &vpa.target_ref);
                if let Some(outcome) = known {
                    core.take_outcome(key, outcome);
                }
            }
        });
    }

    fn see_containers(&self, now: Time) {
        self.state.each_page(|core, page| {
            for key in page {
                core.see_containers(key, now);
            }
        });
    }

    /// Forgets what was kept for single pods that are gone.
    fn forget_pods(&self) {
        let now = self.clock.now();
        self.state.each_page(|core, page| {
            for key in page {
                // A history that is not loaded brings pods of its own; of endless ones nobody waits for all.
                let is_crowded =
                    || core.fleet.get(key).is_some_and(|watched| watched.history().is_crowded());
                if !core.is_waiting(key) || is_crowded() {
                    let index = &core.index;
                    let lives = |pod: &str| index.pod(&key.namespace, pod).is_some();
                    core.fleet.retain_pods(key, lives, now);
                }
            }
        });
    }

    /// Works out every VPA, and hands those whose status is to be written to the outbox.
    fn decide(&self, passes: &mut Passes, summary: &mut Summary) {
        let config = &self.config;
        let mut counts = Vec::new();
        let may_write = self.may_write();
        {
            self.state.lock().survey(config.pod_cap);
        }
        self.state.each_page(|core, page| {
            let now = self.clock.now();
            for key in page {
                if core.is_waiting(key) {
                    core.fetching.note(key, now);
                }
                let verdict = core.judge(key, now);
                let Some(vpa) = core.index.vpa(key) else { continue };
                let mode = vpa.mode;
                let pods = vpa.pod_count();
                let unsupported =
                    matches!(vpa.target(), Target::Unsupported(_) | Target::Unavailable(_));
                let Some(verdict) = verdict else {
                    let conditions = core.waiting_conditions(key, now);
                    let known = core.sent.get(key).or(core.index.vpa(key).map(|vpa| &vpa.reported));
                    let is_news = conditions.as_ref() != known.map(|known| &known.conditions);
                    if may_write && conditions.is_some() && is_news {
                        self.outbox.push(key.clone(), core.last_written(key));
                    }
                    counts.push((
                        mode,
                        vpa.reported.recommendation.as_ref().is_some_and(|it| !it.is_empty()),
                        pods > 0,
                        unsupported,
                    ));
                    continue;
                };
                summary.vpas += 1;
                counts.push((mode, !verdict.said.containers.is_empty(), pods > 0, unsupported));
                let old: Vec<Advice> = core
                    .fleet
                    .get(key)
                    .map(|watched| watched.advice().to_vec())
                    .unwrap_or_default();
                let band = config.bounds_dead_band;
                let change = core.sent.get(key).unwrap_or(&vpa.reported).change(
                    &verdict.conditions,
                    &verdict.said,
                    vpa.generation,
                    band,
                );
                if change == Change::Due {
                    summary.changed += 1;
                    if may_write {
                        self.outbox.push(key.clone(), core.last_written(key));
                    }
                }
                if let Some(latency) = core.fleet.keep_advice(key, &verdict.said, now) {
                    self.metrics.observe_first_recommendation(latency);
                }
                self.observe_changes(core, key, &old, mode.map(UpdateMode::as_str), pods);
                note_missing(passes, core, key, now);
            }
        });
        let mut core = self.state.lock();
        let mut fetching = std::mem::take(&mut core.fetching);
        fetching.retain(|key| core.is_waiting(key));
        core.fetching = fetching;
        passes.missing.retain(|key| core.fleet.get(key).is_some());
        self.metrics.set_container_states(core.fleet.containers());
        drop(core);
        remind(passes, self.clock.now());
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
        core: &Core,
        key: &VpaKey,
        old: &[Advice],
        update_mode: Option<&str>,
        pods: usize,
    ) {
        let Some(watched) = core.fleet.get(key) else { return };
        for before in old {
            let Some(after) = watched.advice_for(&before.container) else { continue };
            for resource in [Resource::Cpu, Resource::Memory] {
                let both = before.of(resource).zip(after.of(resource));
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

    fn forget_expired(&self, passes: &mut Passes) {
        let now = self.clock.now();
        let last_pass = passes.last_pass.replace(now);
        if last_pass.is_some_and(|last| now > last.later(LEAP)) {
            tracing::warn!(at = %now, "the clock leapt forward; nothing expires for an hour");
            passes.last_expiry = Some(now);
        }
        let due = passes.last_expiry.is_none_or(|last| {
            // A clock that was set back must not put this off.
            now >= last.later(BETWEEN_EXPIRIES) || now < last
        });
        if due {
            passes.last_expiry = Some(now);
            let gone = self.state.lock().fleet.forget_expired(now);
            for key in &gone {
                tracing::info!(container = %key, "history expired");
            }
        }
    }
}

/// How long a VPA may be without a recommendation before a line says so, and how long after that all of those are
/// named again.
const PATIENCE: Duration = Duration::from_mins(30);

/// So many VPAs or nodes are named one by one in a line.
pub(super) const NAMED: usize = 10;

/// After half an hour without a recommendation one line says so.
fn note_missing(passes: &mut Passes, core: &Core, key: &VpaKey, now: Time) {
    let since = core.fleet.get(key).and_then(Watched::empty_since);
    match since {
        Some(since) if now > since.later(PATIENCE) => {
            if passes.missing.insert(key.clone()) {
                tracing::warn!(vpa = %key, %since, "no recommendation for more than half an hour");
            }
        }
        Some(_) => {}
        None => {
            passes.missing.remove(key);
        }
    }
}

/// Every half hour one line for all VPAs that still have none: whoever looks at the log of the last hour alone is to
/// see them, and there may be thousands.
fn remind(passes: &mut Passes, now: Time) {
    if passes.missing.is_empty() {
        passes.last_reminder = None;
        return;
    }
    let due = passes.last_reminder.is_none_or(|last| now >= last.later(PATIENCE) || now < last);
    if !due {
        return;
    }
    // The first line about a VPA is its own.
    if passes.last_reminder.replace(now).is_some() {
        let mut names: Vec<String> = passes.missing.iter().map(ToString::to_string).collect();
        names.sort_unstable();
        let vpas = names.len();
        names.truncate(NAMED);
        tracing::warn!(vpas, first = names.join(", "), "still without a recommendation");
    }
}
