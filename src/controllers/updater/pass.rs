//! One pass: every VPA with its pods is decided about, and what was decided is done, one step after another.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use plimsoll_core::types::{ObjectKey, Time};

use super::{
    ShutdownToken, Updater,
    admission_health::AdmissionHealth,
    execute::{PassControl, PassDeadline},
    matching::{MatchedWorkloads, Workload},
    persisted_state::UpdaterState,
};
use crate::telemetry::{PassTotals, VpaTotals};
use plimsoll_core::{
    api::vpa::UpdateMode,
    types::compat::Compat,
    updater::{
        self, Action, Decision, DesiredReplicas, NextStep, PassContext, PersistedState, PodOutcome,
        SkipReason, StepResult, UpdatePass,
        guard::{BudgetKind, RecommenderHeartbeat, disruption_budget::PodCounts},
        workload_order::{self, NextPassOrder},
    },
};

/// Pods that are skipped before other tasks of the thread have their turn: the one that renews the Lease, and the server
/// that answers probes.
const SKIPS_BEFORE_YIELD: usize = 64;

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassSummary {
    /// VPAs that were looked at.
    pub vpas: usize,
    /// Their pods.
    pub pods: usize,
    /// Pods that were evicted.
    pub evicted: usize,
    /// Pods that were resized.
    pub resized: usize,
    /// Whether it ended before all were looked at.
    pub is_incomplete: bool,
    /// Whether it could not begin, because something that it has to know cannot be read.
    pub could_not_start: bool,
}

/// What is carried from pass to pass.
#[derive(Debug, Default)]
pub(super) struct PassState {
    pub persisted_state: UpdaterState,
    /// Whose turn it is first in the next pass.
    waiting: NextPassOrder,
}

/// What came of one VPA in a pass.
struct VpaResult {
    tally: VpaTotals,
    next: PassControl,
    /// Whether a pod was left alone because the cluster's budget was spent.
    waits_for_budget: bool,
}

/// What holds for all VPAs of a pass.
#[derive(Clone, Copy)]
struct PassSettings<'a> {
    is_admission_ready: bool,
    can_resize: bool,
    cluster_pods: u32,
    deadline: PassDeadline<'a>,
}

impl Updater {
    /// Makes a pass. Without the right to act nothing is decided: what is remembered may be old.
    pub(super) async fn pass(&self, passes: &mut PassState, stop: &ShutdownToken) -> PassSummary {
        let began = Instant::now();
        let mut summary = PassSummary::default();
        if !self.may_act() {
            passes.persisted_state.invalidate_stored();
            // What this replica saw when it led is told by whoever leads now.
            if self.paused_updates.clear() {
                self.metrics.clear_leader_series();
            }
            return summary;
        }
        let standing = self.check_admission().await;
        match standing {
            AdmissionHealth::Ready => {}
            AdmissionHealth::Stale => self.metrics.count_admission_unavailable("invalid"),
            AdmissionHealth::Unreadable | AdmissionHealth::Forbidden => {
                self.metrics.count_admission_unavailable("error");
            }
        }
        let is_upstream = self.config.settings.compat == Compat::Upstream;
        if is_upstream && standing != AdmissionHealth::Ready {
            self.metrics.observe_step("total", began.elapsed());
            return summary;
        }
        if let Err(why) = self.read_ledger(&mut passes.persisted_state).await {
            tracing::warn!(why, "what was changed of late cannot be read: nothing is updated");
            return PassSummary { could_not_start: true, ..summary };
        }
        let mut last = Instant::now();
        let mut observe = |name: &str| {
            self.metrics.observe_step(name, last.elapsed());
            last = Instant::now();
        };
        observe("ListVPAs");
        let MatchedWorkloads { mut workloads, unavailable } = self.workloads().await;
        observe("ListPods");
        let known: HashSet<&ObjectKey> = workloads.iter().map(|one| &one.key).collect();
        // A VPA whose target cannot be read for a moment is still there, and so is what was done to its pods.
        let there = self.stores.keys();
        passes.persisted_state.retain(|key| there.contains(key));
        self.paused_updates.retain(|key| known.contains(key));
        self.clear_paused(&known, &unavailable);
        self.end_orphaned_surges(&mut passes.persisted_state).await;
        self.metrics.retain(&there);
        observe("FilterPods");
        let waiting = std::mem::take(&mut passes.waiting);
        let guards = &self.config.settings.guards;
        let trials = passes.persisted_state.ledger().trials(guards, self.clock.now());
        workload_order::order_workloads(&mut workloads, |one| &one.key, &waiting, trials);
        // A pod that may be resizable must not be evicted because nobody knows.
        let Some(can_resize) = self.supports_resize().await else {
            tracing::warn!(
                "whether the server can resize pods cannot be found out: nothing is updated"
            );
            return PassSummary { could_not_start: true, ..summary };
        };
        let common = PassSettings {
            is_admission_ready: standing == AdmissionHealth::Ready,
            can_resize,
            cluster_pods: workloads.iter().map(|one| one.pods.len() as u32).sum(),
            // Counted from here: a first look at a large cluster may take longer than a pass may.
            deadline: PassDeadline {
                deadline: Instant::now() + self.config.interval,
                shutdown: stop,
            },
        };
        observe("AdmissionInit");
        let mut pods_of: HashMap<Arc<str>, u32> = HashMap::new();
        for one in &workloads {
            *pods_of.entry(Arc::clone(&one.key.namespace)).or_default() += one.pods.len() as u32;
        }
        let mut totals = PassTotals::default();
        for workload in &workloads {
            if summary.is_incomplete || common.deadline.has_passed() {
                summary.is_incomplete = true;
                passes.waiting.first_without_time.get_or_insert_with(|| workload.key.clone());
                break;
            }
            let namespace = pods_of.get(&workload.key.namespace).copied().unwrap_or_default();
            let sizes = PodCounts { cluster: common.cluster_pods, namespace };
            let went = self
                .update_vpa(&mut passes.persisted_state, workload, common, sizes, &mut totals)
                .await;
            // Most workloads need no step, and then nothing was awaited.
            tokio::task::yield_now().await;
            summary.vpas += 1;
            summary.pods += workload.pods.len();
            summary.evicted += went.tally.evicted;
            summary.resized += went.tally.resized;
            if went.waits_for_budget {
                passes.waiting.first_without_budget.get_or_insert_with(|| workload.key.clone());
            }
            if went.next == PassControl::EndPass {
                summary.is_incomplete = true;
                passes.waiting.first_without_time = Some(workload.key.clone());
            }
        }
        observe("EvictPods");
        self.report_totals(&passes.persisted_state, &totals, common);
        self.metrics.observe_step("total", began.elapsed());
        summary
    }

    /// Decides about one VPA, and does it.
    async fn update_vpa(
        &self,
        recollection: &mut UpdaterState,
        workload: &Workload,
        common: PassSettings<'_>,
        sizes: PodCounts,
        totals: &mut PassTotals,
    ) -> VpaResult {
        let (recall, ignored) = recollection.recall(workload);
        if let Some(why) = ignored {
            self.metrics.count_unreadable_state();
            let parts = workload.key_parts();
            tracing::warn!(namespace = parts.namespace, name = parts.name, %why, "what was done to a workload before, as its VPA tells it, does not count");
        }
        let now = self.clock.now();
        let heartbeat = self.heartbeats.for_vpa(&workload.vpa, &workload.key.namespace);
        totals.count_heartbeat(heartbeat_label(heartbeat));
        let ground = self.decision_inputs(workload, now);
        let wanted = |owner: &updater::PodOwner| {
            workload.desired_replicas.get(owner).copied().unwrap_or(DesiredReplicas::Unknown)
        };
        let world = PassContext {
            desired_replicas: &wanted,
            pod_counts: sizes,
            heartbeat,
            is_admission_ready: common.is_admission_ready,
            can_resize: common.can_resize,
            now,
        };
        let subject = self.vpa_with_pods(workload, &ground);
        let mut pass =
            UpdatePass::new(subject, world, &self.config.settings, recall).without_boost_removal();
        let mut then = PassControl::Continue;
        loop {
            let step = match pass.next_within(SKIPS_BEFORE_YIELD) {
                NextStep::Step(step) => step,
                // A pod that is skipped waits for nothing, so the thread would do nothing else meanwhile.
                NextStep::More => {
                    self.loop_watchdog.tick();
                    tokio::task::yield_now().await;
                    if common.deadline.has_passed() {
                        then = PassControl::EndPass;
                        break;
                    }
                    continue;
                }
                NextStep::End => break,
            };
            let recall: PersistedState = pass.state().clone();
            let (outcome, next) =
                self.execute_step(recollection, workload, &step, &recall, common.deadline).await;
            pass.record_result(outcome);
            if next != PassControl::Continue {
                then = next;
                break;
            }
        }
        let decision = pass.finish();
        self.persist_decision(recollection, workload, &decision, now).await;
        self.count_decision(workload, &decision, totals, now);
        self.report_paused(workload, &decision, now);
        let no_budget = PodOutcome::Skipped(SkipReason::ClusterBudget);
        let waits_for_budget = decision.pod_outcomes.contains(&no_budget);
        VpaResult { tally: tally(workload, &decision), next: then, waits_for_budget }
    }

    /// Keeps what a pass found out. What is to keep others from acting, too, is written at once.
    async fn persist_decision(
        &self,
        recollection: &mut UpdaterState,
        workload: &Workload,
        decision: &Decision,
        now: Time,
    ) {
        let given_back =
            |outcome: &StepResult| !matches!(outcome, StepResult::Done | StepResult::Indeterminate);
        let was_undone = decision
            .steps
            .iter()
            .any(|(step, outcome)| step.needs_persisting && given_back(outcome));
        let is_news = decision.regression.is_some() || decision.externally_overwritten;
        let is_owed = is_news || was_undone || recollection.needs_write(&workload.key);
        recollection.set_needs_write(&workload.key, is_owed);
        if is_owed && self.config.dry_run.is_none() && !recollection.ledger_was_replaced() {
            let booked = self.persist_intent(recollection, workload, &decision.state).await;
            recollection.set_needs_write(&workload.key, booked.is_err());
            if let Err(why) = booked {
                let parts = workload.key_parts();
                tracing::warn!(
                    namespace = parts.namespace,
                    name = parts.name,
                    ?why,
                    "what was found out is not written down yet"
                );
            }
        }
        if let Some(harm) = decision.regression {
            self.metrics.count_regression(harm.as_str());
            let message = format!("Updates are stopped for a while: {harm}.");
            self.emit_vpa_event(workload, "PodsGotWorse", message, now, true);
        }
        if decision.externally_overwritten {
            self.metrics.count_rewritten();
            let message = "Updates are stopped: somebody else writes other resources to the pods.";
            self.emit_vpa_event(workload, "ResourcesRewritten", message.to_owned(), now, true);
        }
        recollection.store(workload, decision.state.clone());
    }

    fn count_decision(
        &self,
        workload: &Workload,
        decision: &Decision,
        totals: &mut PassTotals,
        now: Time,
    ) {
        let of = workload.metric_labels();
        let mode = workload.vpa.spec.update_mode();
        if !matches!(mode, UpdateMode::Off | UpdateMode::Initial) {
            self.metrics.init_counters(of);
        }
        totals.add(of, tally(workload, decision));
        for verdict in &decision.pod_outcomes {
            if let PodOutcome::Skipped(skip) = verdict {
                totals.count_skipped(skip.as_str());
            }
        }
        self.metrics.count_infeasible(of, decision.known_infeasible);
        if decision.state.workload.breaker_open_until(now).is_some() {
            totals.count_open_breaker();
        }
    }

    fn report_totals(
        &self,
        recollection: &UpdaterState,
        totals: &PassTotals,
        common: PassSettings<'_>,
    ) {
        self.metrics.set_pass_totals(totals);
        let (guards, ledger) = (&self.config.settings.guards, recollection.ledger());
        let now = self.clock.now();
        for (word, charge, allowance) in [
            ("disruption", BudgetKind::Disruption, guards.cluster_disruptions),
            ("resize", BudgetKind::Resize, guards.cluster_resizes),
        ] {
            let allowed = allowance.map(|allowance| allowance.limit_for(common.cluster_pods));
            self.metrics.set_budget(word, ledger.in_cluster(charge, now), allowed);
        }
        self.metrics.set_cluster_open(ledger.open_until(now).is_some());
        let objects = self.stores.counts().0 as u64;
        let mut vitals = self.health_reporter.lock();
        (vitals.last_pass, vitals.objects) = (Some(now), objects);
        (vitals.breaker_until, vitals.held_workloads) =
            (ledger.open_until(now), totals.open_breakers());
    }
}

fn tally(workload: &Workload, decision: &Decision) -> VpaTotals {
    let mode = workload.vpa.spec.update_mode();
    let done = |is: fn(&Action) -> bool| {
        let finished = decision.steps.iter().filter(|(_, outcome)| *outcome == StepResult::Done);
        finished.filter(|(step, _)| is(&step.action)).count()
    };
    VpaTotals {
        candidates: decision.candidates,
        evicted: done(|action| matches!(action, Action::Evict { .. })),
        resized: done(|action| matches!(action, Action::Resize { .. })),
        in_place: matches!(mode, UpdateMode::InPlace | UpdateMode::InPlaceOrRecreate),
    }
}

const fn heartbeat_label(heartbeat: RecommenderHeartbeat) -> &'static str {
    match heartbeat {
        RecommenderHeartbeat::Fresh { history_loaded: true } => "fresh",
        RecommenderHeartbeat::Fresh { history_loaded: false } => "loading",
        RecommenderHeartbeat::Stale => "stale",
        RecommenderHeartbeat::Absent => "absent",
        RecommenderHeartbeat::Unknown => "unknown",
        RecommenderHeartbeat::NotYetObserved => "awaited",
    }
}
