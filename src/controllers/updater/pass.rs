//! One pass over all VPAs: decides which of their pods to update, and executes the decisions step by step.

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

/// Skipped pods before the pass yields to other tasks of the thread, such as the renewal of the Lease and the server that
/// answers probes.
const SKIPS_BEFORE_YIELD: usize = 64;

/// Summary of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassSummary {
    /// VPAs that were processed.
    pub vpas: usize,
    /// Pods of these VPAs.
    pub pods: usize,
    /// Pods that were evicted.
    pub evicted: usize,
    /// Pods that were resized.
    pub resized: usize,
    /// Whether the pass ended before all VPAs were processed.
    pub is_incomplete: bool,
    /// Whether the pass could not start because required state was unreadable.
    pub could_not_start: bool,
}

#[derive(Debug, Default)]
pub(super) struct PassState {
    pub persisted_state: UpdaterState,
    waiting: NextPassOrder,
}

/// The outcome of a pass for one VPA.
struct VpaResult {
    tally: VpaTotals,
    next: PassControl,
    /// Whether a pod was skipped because the cluster's disruption budget was exhausted.
    waits_for_budget: bool,
}

/// Settings that are the same for all VPAs of a pass.
#[derive(Clone, Copy)]
struct PassSettings<'a> {
    is_admission_ready: bool,
    can_resize: bool,
    cluster_pods: u32,
    deadline: PassDeadline<'a>,
}

fn pods_by_namespace(workloads: &[Workload]) -> HashMap<Arc<str>, u32> {
    let mut pods: HashMap<Arc<str>, u32> = HashMap::new();
    for workload in workloads {
        *pods.entry(Arc::clone(&workload.key.namespace)).or_default() += workload.pods.len() as u32;
    }
    pods
}

impl Updater {
    async fn check_admission(&self) -> AdmissionHealth {
        let Some(check) = &self.config.admission_check else { return AdmissionHealth::Ready };
        let (health, why) = check.run(&self.client, self.config.settings.compat).await;
        self.admission_log.log(check, health, &why);
        let label = match health {
            AdmissionHealth::Ready => return health,
            AdmissionHealth::Stale => "invalid",
            AdmissionHealth::Unreadable | AdmissionHealth::Forbidden => "error",
        };
        self.metrics.admission_invalid.with_labels([label]).increment();
        health
    }

    /// Makes a pass. A process that does not lead decides nothing, because its state may be outdated.
    pub(super) async fn pass(&self, passes: &mut PassState, stop: &ShutdownToken) -> PassSummary {
        let started = Instant::now();
        let mut summary = PassSummary::default();
        if !self.may_act() {
            passes.persisted_state.invalidate_stored();
            // The new leader exports the series of these VPAs from now on.
            if self.paused_updates.clear() {
                self.metrics.clear_leader_series();
            }
            return summary;
        }
        let admission = self.check_admission().await;
        let is_upstream = self.config.settings.compat == Compat::Upstream;
        if is_upstream && admission != AdmissionHealth::Ready {
            self.metrics.steps.with_labels(["total"]).observe_duration(started.elapsed());
            return summary;
        }
        if let Err(error) = self.read_ledger(&mut passes.persisted_state).await {
            tracing::warn!(
                %error,
                "failed to read the disruption ledger from the Lease; skipping this pass"
            );
            return PassSummary { could_not_start: true, ..summary };
        }
        let mut last = Instant::now();
        let mut observe = |name: &str| {
            self.metrics.steps.with_labels([name]).observe_duration(last.elapsed());
            last = Instant::now();
        };
        observe("ListVPAs");
        let MatchedWorkloads { mut workloads, unavailable } = self.workloads().await;
        observe("ListPods");
        let known: HashSet<&ObjectKey> = workloads.iter().map(|workload| &workload.key).collect();
        // A VPA whose target is temporarily unreadable still exists, so its state is kept.
        let existing_vpas = self.stores.keys();
        passes.persisted_state.retain(|key| existing_vpas.contains(key));
        self.paused_updates.retain(|key| known.contains(key));
        self.clear_paused(&known, &unavailable);
        self.end_orphaned_surges(&mut passes.persisted_state).await;
        self.metrics.retain(&existing_vpas);
        observe("FilterPods");
        let order = std::mem::take(&mut passes.waiting);
        let guards = &self.config.settings.guards;
        let trials = passes.persisted_state.ledger.trials(guards, self.clock.now());
        workload_order::order_workloads(&mut workloads, |workload| &workload.key, &order, trials);
        // Without knowing whether resize is supported, pods might be evicted that could be resized.
        let Some(can_resize) = self.supports_resize().await else {
            tracing::warn!(
                "failed to discover whether the API server supports pods/resize; skipping this pass"
            );
            return PassSummary { could_not_start: true, ..summary };
        };
        let settings = PassSettings {
            is_admission_ready: admission == AdmissionHealth::Ready,
            can_resize,
            cluster_pods: workloads.iter().map(|workload| workload.pods.len() as u32).sum(),
            // Starts here because matching the pods of a large cluster for the first time may take longer than a pass.
            deadline: PassDeadline {
                deadline: Instant::now() + self.config.interval,
                shutdown: stop,
            },
        };
        observe("AdmissionInit");
        let pods_by_namespace = pods_by_namespace(&workloads);
        let mut totals = PassTotals::default();
        for workload in &workloads {
            if summary.is_incomplete || settings.deadline.has_passed() {
                summary.is_incomplete = true;
                passes.waiting.first_without_time.get_or_insert_with(|| workload.key.clone());
                break;
            }
            let namespace =
                pods_by_namespace.get(&workload.key.namespace).copied().unwrap_or_default();
            let pod_counts = PodCounts { cluster: settings.cluster_pods, namespace };
            let result = self
                .update_vpa(
                    &mut passes.persisted_state,
                    workload,
                    settings,
                    pod_counts,
                    &mut totals,
                )
                .await;
            // Most workloads need no step, so the loop would never yield.
            tokio::task::yield_now().await;
            summary.vpas += 1;
            summary.pods += workload.pods.len();
            summary.evicted += result.tally.evicted;
            summary.resized += result.tally.resized;
            if result.waits_for_budget {
                passes.waiting.first_without_budget.get_or_insert_with(|| workload.key.clone());
            }
            if result.next == PassControl::EndPass {
                summary.is_incomplete = true;
                passes.waiting.first_without_time = Some(workload.key.clone());
            }
        }
        observe("EvictPods");
        self.report_totals(&passes.persisted_state, &totals, settings);
        self.metrics.steps.with_labels(["total"]).observe_duration(started.elapsed());
        summary
    }

    /// Makes and executes the decision about one VPA.
    async fn update_vpa(
        &self,
        state: &mut UpdaterState,
        workload: &Workload,
        pass_settings: PassSettings<'_>,
        pod_counts: PodCounts,
        totals: &mut PassTotals,
    ) -> VpaResult {
        let (persisted, ignored) = state.recall(workload);
        if let Some(why) = ignored {
            self.metrics.unreadable.increment();
            let ObjectKey { namespace, name } = &workload.key;
            tracing::warn!(
                namespace = &**namespace,
                name = &**name,
                %why,
                "ignoring unreadable updater state in the annotation of a VPA"
            );
        }
        let now = self.clock.now();
        let heartbeat = self.heartbeats.for_vpa(&workload.vpa, &workload.key.namespace);
        *totals.heartbeats.entry(heartbeat_label(heartbeat)).or_default() += 1.0;
        let inputs = self.decision_inputs(workload, now);
        let desired_replicas = |owner: &updater::PodOwner| {
            workload.desired_replicas.get(owner).copied().unwrap_or(DesiredReplicas::Unknown)
        };
        let context = PassContext {
            desired_replicas: &desired_replicas,
            pod_counts,
            heartbeat,
            is_admission_ready: pass_settings.is_admission_ready,
            can_resize: pass_settings.can_resize,
            now,
        };
        let subject = inputs.vpa_with_pods(workload);
        let mut pass = UpdatePass::new(subject, context, &self.config.settings, persisted)
            .without_boost_removal();
        let mut control = PassControl::Continue;
        loop {
            let step = match pass.next_within(SKIPS_BEFORE_YIELD) {
                NextStep::Step(step) => step,
                // Skipping a pod never awaits, so the loop has to yield explicitly.
                NextStep::More => {
                    self.loop_watchdog.tick();
                    tokio::task::yield_now().await;
                    if pass_settings.deadline.has_passed() {
                        control = PassControl::EndPass;
                        break;
                    }
                    continue;
                }
                NextStep::End => break,
            };
            let persisted: PersistedState = pass.state().clone();
            let (outcome, next) =
                self.execute_step(state, workload, &step, &persisted, pass_settings.deadline).await;
            pass.record_result(outcome);
            if next != PassControl::Continue {
                control = next;
                break;
            }
        }
        let decision = pass.finish();
        self.persist_decision(state, workload, &decision, now).await;
        self.count_decision(workload, &decision, totals, now);
        self.report_paused(workload, &decision, now);
        let budget_exhausted = PodOutcome::Skipped(SkipReason::ClusterBudget);
        let waits_for_budget = decision.pod_outcomes.contains(&budget_exhausted);
        VpaResult { tally: tally(workload, &decision), next: control, waits_for_budget }
    }

    /// Stores the findings of a pass. Those that stop updates are persisted at once, so that a new leader sees them.
    async fn persist_decision(
        &self,
        state: &mut UpdaterState,
        workload: &Workload,
        decision: &Decision,
        now: Time,
    ) {
        let was_not_executed =
            |outcome: &StepResult| !matches!(outcome, StepResult::Done | StepResult::Indeterminate);
        let was_undone = decision
            .steps
            .iter()
            .any(|(step, outcome)| step.needs_persisting && was_not_executed(outcome));
        let has_findings = decision.regression.is_some() || decision.externally_overwritten;
        let needs_write = has_findings || was_undone || state.needs_write(&workload.key);
        state.set_needs_write(&workload.key, needs_write);
        if needs_write && self.config.dry_run.is_none() && !state.ledger_was_replaced {
            let written = self.persist_intent(state, workload, &decision.state).await;
            state.set_needs_write(&workload.key, written.is_err());
            if let Err(why) = written {
                let ObjectKey { namespace, name } = &workload.key;
                tracing::warn!(
                    namespace = &**namespace,
                    name = &**name,
                    %why,
                    "failed to persist the state of a workload; retrying in the next pass"
                );
            }
        }
        if let Some(regression) = decision.regression {
            self.metrics.regressions.with_labels([regression.as_str()]).increment();
            let message = format!("Updates are paused: {regression}.");
            self.emit_vpa_event(workload, "PodsGotWorse", message, now, true);
        }
        if decision.externally_overwritten {
            self.metrics.rewritten.increment();
            let message =
                "Updates are paused: another controller overwrites the resources of the pods.";
            self.emit_vpa_event(workload, "ResourcesRewritten", message.to_owned(), now, true);
        }
        state.store(workload, decision.state.clone());
    }

    fn count_decision(
        &self,
        workload: &Workload,
        decision: &Decision,
        totals: &mut PassTotals,
        now: Time,
    ) {
        let labels = workload.metric_labels();
        let mode = workload.vpa.spec.update_mode();
        if !matches!(mode, UpdateMode::Off | UpdateMode::Initial) {
            self.metrics.init_counters(labels);
        }
        totals.add(labels, tally(workload, decision));
        for outcome in &decision.pod_outcomes {
            if let PodOutcome::Skipped(skip) = outcome {
                *totals.skipped.entry(skip.as_str()).or_default() += 1.0;
            }
        }
        self.metrics.count_infeasible(labels, decision.known_infeasible);
        if decision.state.workload.breaker_open_until(now).is_some() {
            totals.open_breakers += 1;
        }
    }

    fn report_totals(&self, state: &UpdaterState, totals: &PassTotals, settings: PassSettings<'_>) {
        self.metrics.set_pass_totals(totals);
        let (guards, ledger) = (&self.config.settings.guards, &state.ledger);
        let now = self.clock.now();
        for (label, kind, allowance) in [
            ("disruption", BudgetKind::Disruption, guards.cluster_disruptions),
            ("resize", BudgetKind::Resize, guards.cluster_resizes),
        ] {
            let allowed = allowance.map(|allowance| allowance.limit_for(settings.cluster_pods));
            self.metrics.set_budget(label, ledger.in_cluster(kind, now), allowed);
        }
        self.metrics.cluster_open.set_bool(ledger.open_until(now).is_some());
        let objects = self.stores.counts().0 as u64;
        let mut health = self.health_reporter.lock();
        (health.last_pass, health.objects) = (Some(now), objects);
        (health.breaker_until, health.held_workloads) =
            (ledger.open_until(now), totals.open_breakers.into());
    }
}

fn tally(workload: &Workload, decision: &Decision) -> VpaTotals {
    let mode = workload.vpa.spec.update_mode();
    let done = |predicate: fn(&Action) -> bool| {
        let finished = decision.steps.iter().filter(|(_, outcome)| *outcome == StepResult::Done);
        finished.filter(|(step, _)| predicate(&step.action)).count()
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
