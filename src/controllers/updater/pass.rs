//! The main loop: every interval, one pass over all VPAs.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    admission_health::{AdmissionHealth, AdmissionMonitor},
    decision_inputs::DecisionInputs,
    execute::{PassControl, PassDeadline, StepExecutor},
    heartbeats::Heartbeats,
    matching::{MatchedWorkloads, Workload, WorkloadMatcher},
    owner_lookups::OwnerLookups,
    persisted_state::UpdaterState,
    status_reporter::StatusReporter,
    surges::SurgeCleanup,
};
use crate::{
    cluster::target::TargetResolver,
    controllers::runtime::role_health::HealthReporter,
    telemetry::{LoopMetrics, PassTotals, VpaTotals},
};
use plimsoll_core::{
    api::vpa::UpdateMode,
    types::{ObjectKey, Time, compat::Compat},
    updater::{
        Action, Decision, NextStep, PassContext, PodOutcome, SkipReason, StepResult, UpdatePass,
        guard::{BudgetKind, RecommenderHeartbeat, disruption_budget::PodCounts},
        workload_order::{self, NextPassOrder},
    },
    vpa_match,
};

/// How often a process that does not lead checks whether it has become the leader.
const LEADER_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Skipped pods before the pass yields to other tasks of the thread, such as the renewal of the Lease and the server that
/// answers probes.
const SKIPS_BEFORE_YIELD: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassSummary {
    /// VPAs that were processed.
    pub vpas: usize,
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
struct PassState {
    persisted_state: UpdaterState,
    waiting: NextPassOrder,
}

struct VpaResult {
    tally: VpaTotals,
    next: PassControl,
    /// Whether a pod was skipped because the cluster's disruption budget was exhausted.
    waits_for_budget: bool,
}

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

/// The main loop of the updater: makes a pass every interval.
pub(super) struct PassRunner {
    pub shared: Arc<Shared>,
    pub admission: AdmissionMonitor,
    pub targets: TargetResolver,
    pub lookups: OwnerLookups,
    pub surges: SurgeCleanup,
    pub updater: WorkloadUpdater,
    pub health: HealthReporter,
    pub loop_metrics: LoopMetrics,
    /// Number of passes so far, and the summary of the last one.
    pub summaries: watch::Sender<(u64, PassSummary)>,
}

impl PassRunner {
    /// Makes passes until `stop`. Upstream makes its first pass one interval after the start; Plimsoll makes it at once.
    pub async fn run(&self, stop: CancellationToken) {
        let Shared { config, clock, permissions, watchdog, .. } = &*self.shared;
        if config.settings.compat == Compat::Upstream {
            let first = clock.now().later(config.interval);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock.sleep_until(first) => {}
            }
        }
        let mut passes = PassState::default();
        let mut planned_start: Option<Time> = None;
        loop {
            watchdog.tick();
            let started = clock.now();
            let lag =
                planned_start.map_or(0, |planned_start| started.nanos_since(planned_start).max(0));
            self.loop_metrics.set_lag(Duration::from_nanos(lag.unsigned_abs()));
            // A pass is never aborted in the middle of a step: it finishes the current one and starts no other.
            let summary = self.pass(&mut passes, &stop).await;
            watchdog.tick();
            tracing::debug!(?summary, "completed pass");
            self.summaries.send_modify(|(count, last)| {
                *count += 1;
                *last = summary;
            });
            let (now, interval) = (clock.now(), config.interval);
            let next = started.later(interval);
            // After a clock jump the next pass is due at once, so there is neither a burst of passes nor a long gap.
            let next = if next < now || next > now.later(interval) { now } else { next };
            planned_start = Some(next);
            if !summary.could_not_start {
                self.loop_metrics.set_last_success(now);
            }
            let could_act = permissions.may_act();
            let leadership_change = async {
                while could_act || !permissions.may_act() {
                    tokio::time::sleep(LEADER_POLL_INTERVAL).await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock.sleep_until(next) => {}
                () = leadership_change => {}
            }
        }
    }

    /// Makes a pass. A process that does not lead decides nothing, because its state may be outdated.
    async fn pass(&self, passes: &mut PassState, stop: &CancellationToken) -> PassSummary {
        let Shared { config, clock, permissions, stores, metrics, watchdog } = &*self.shared;
        let reporter = &self.updater.reporter;
        let started = Instant::now();
        let mut summary = PassSummary::default();
        if !permissions.may_act() {
            passes.persisted_state.invalidate_stored();
            // The new leader exports the series of these VPAs from now on.
            if reporter.paused.clear() {
                metrics.clear_leader_series();
            }
            return summary;
        }
        let admission = self.admission.check().await;
        let compat = config.settings.compat;
        if compat == Compat::Upstream && admission != AdmissionHealth::Ready {
            metrics.steps.with_labels(["total"]).observe_duration(started.elapsed());
            return summary;
        }
        if let Err(error) = self.surges.store.read_ledger(&mut passes.persisted_state).await {
            tracing::warn!(
                %error,
                "failed to read the disruption ledger from the Lease; skipping this pass"
            );
            return PassSummary { could_not_start: true, ..summary };
        }
        let mut last = Instant::now();
        let mut observe = |name: &str| {
            metrics.steps.with_labels([name]).observe_duration(last.elapsed());
            last = Instant::now();
        };
        observe("ListVPAs");
        let active = stores.all_vpas().filter(|vpa| vpa_match::changes_running_pods(vpa, compat));
        let active = active.collect();
        let lookups = self.lookups.start_pass(Some(watchdog));
        let matcher = WorkloadMatcher::new(&self.targets, lookups);
        let MatchedWorkloads { mut workloads, unavailable } =
            matcher.match_pods(active, |namespace| stores.pods(namespace)).await;
        observe("ListPods");
        let known: HashSet<&ObjectKey> = workloads.iter().map(|workload| &workload.key).collect();
        // A VPA whose target is temporarily unreadable still exists, so its state is kept.
        let existing_vpas = stores.keys();
        passes.persisted_state.retain(|key| existing_vpas.contains(key));
        reporter.paused.retain(|key| known.contains(key));
        reporter.clear_paused(&known, &unavailable);
        self.surges.run(&mut passes.persisted_state).await;
        metrics.retain(&existing_vpas);
        observe("FilterPods");
        let order = std::mem::take(&mut passes.waiting);
        let guards = &config.settings.guards;
        let trials = passes.persisted_state.ledger.trials(guards, clock.now());
        workload_order::order_workloads(&mut workloads, |workload| &workload.key, &order, trials);
        // Without knowing whether resize is supported, pods might be evicted that could be resized.
        let Some(can_resize) = permissions.supports_resize().await else {
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
            deadline: PassDeadline { deadline: Instant::now() + config.interval, shutdown: stop },
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
            let state = &mut passes.persisted_state;
            let result =
                self.updater.update_vpa(state, workload, settings, pod_counts, &mut totals).await;
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
        metrics.steps.with_labels(["total"]).observe_duration(started.elapsed());
        summary
    }

    fn report_totals(&self, state: &UpdaterState, totals: &PassTotals, settings: PassSettings<'_>) {
        let Shared { config, clock, metrics, stores, .. } = &*self.shared;
        metrics.set_pass_totals(totals);
        let (guards, ledger, now) = (&config.settings.guards, &state.ledger, clock.now());
        for (label, kind, allowance) in [
            ("disruption", BudgetKind::Disruption, guards.cluster_disruptions),
            ("resize", BudgetKind::Resize, guards.cluster_resizes),
        ] {
            let allowed = allowance.map(|allowance| allowance.limit_for(settings.cluster_pods));
            metrics.set_budget(label, ledger.changes(kind).in_cluster(now), allowed);
        }
        metrics.cluster_open.set_bool(ledger.open_until(now).is_some());
        let objects = stores.counts().0 as u64;
        let mut health = self.health.lock();
        (health.last_pass, health.objects) = (Some(now), objects);
        (health.breaker_until, health.held_workloads) =
            (ledger.open_until(now), totals.open_breakers.into());
    }
}

/// Updates the pods of VPAs.
pub(super) struct WorkloadUpdater {
    pub shared: Arc<Shared>,
    pub heartbeats: Heartbeats,
    pub executor: Arc<StepExecutor>,
    pub reporter: Arc<StatusReporter>,
}

impl WorkloadUpdater {
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
            self.shared.metrics.unreadable.increment();
            tracing::warn!(
                namespace = &*workload.key.namespace,
                name = &*workload.key.name,
                %why,
                "ignoring unreadable updater state in the annotation of a VPA"
            );
        }
        let now = self.shared.clock.now();
        let heartbeat = self.heartbeats.for_vpa(&workload.vpa, &workload.key.namespace);
        *totals.heartbeats.entry(heartbeat_label(heartbeat)).or_default() += 1.0;
        let inputs = DecisionInputs::from_stores(&self.shared, workload, now);
        let context = PassContext {
            desired_replicas: &|owner| workload.desired_replicas_of(owner),
            pod_counts,
            heartbeat,
            is_admission_ready: pass_settings.is_admission_ready,
            can_resize: pass_settings.can_resize,
            now,
        };
        let subject = inputs.vpa_with_pods(workload);
        let mut pass = UpdatePass::new(subject, context, &self.shared.config.settings, persisted)
            .without_boost_removal();
        let mut control = PassControl::Continue;
        loop {
            let step = match pass.next_within(SKIPS_BEFORE_YIELD) {
                NextStep::Step(step) => step,
                // Skipping a pod never awaits, so the loop has to yield explicitly.
                NextStep::More => {
                    self.shared.watchdog.tick();
                    tokio::task::yield_now().await;
                    if pass_settings.deadline.has_passed() {
                        control = PassControl::EndPass;
                        break;
                    }
                    continue;
                }
                NextStep::End => break,
            };
            let targets = pass.targets_before(&step);
            let step = (&step, &targets[..]);
            let (outcome, next) = self
                .executor
                .execute_step(state, workload, step, pass.state(), pass_settings.deadline)
                .await;
            pass.record_result(outcome);
            if next != PassControl::Continue {
                control = next;
                break;
            }
        }
        if control == PassControl::Continue && !pass_settings.deadline.has_passed() {
            self.executor.write_targets(workload, &pass.outdated_targets()).await;
        }
        let decision = pass.finish();
        self.executor.store.persist_decision(state, workload, &decision).await;
        self.reporter.events.emit_findings(workload, &decision, now);
        self.count_decision(workload, &decision, totals, now);
        self.reporter.report_paused(workload, &decision, now);
        let budget_exhausted = PodOutcome::Skipped(SkipReason::ClusterBudget);
        let waits_for_budget = decision.pod_outcomes.contains(&budget_exhausted);
        VpaResult { tally: tally(workload, &decision), next: control, waits_for_budget }
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
            self.shared.metrics.init_counters(labels);
        }
        totals.add(labels, tally(workload, decision));
        for outcome in &decision.pod_outcomes {
            if let PodOutcome::Skipped(skip) = outcome {
                *totals.skipped.entry(skip.into_str()).or_default() += 1.0;
            }
        }
        if let Some(regression) = decision.regression {
            self.shared.metrics.regressions.with_labels([regression.into_str()]).increment();
        }
        if decision.externally_overwritten {
            self.shared.metrics.rewritten.increment();
        }
        self.shared.metrics.count_infeasible(labels, decision.known_infeasible);
        if decision.state.workload.breaker_open_until(now).is_some() {
            totals.open_breakers += 1;
        }
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
