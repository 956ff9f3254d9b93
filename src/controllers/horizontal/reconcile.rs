//! The reconcile of one object, from its spec to a decision that is compared with that of the HPA controller, and applied if the object
//! was adopted.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
use plimsoll_core::{
    hpa::{
        Config, Decision, Fetched, Fixes, HpaRecord, HpaState, MetricRequest, NO_OPTIONS, Observed,
        PausedDirection, Pod, ScaleError, ScaleValues, Selector, SharedMemory, Spec,
        comparison::{Comparison, ShadowRules},
        decide,
        hpa_state::Windows,
        metric_requests,
        pod_groups::PodCounts,
        record::RECORD_ANNOTATION,
        scale_decision,
        status_values::StatusValues,
    },
    scaling::{Alert, Restriction, ScaleDecision, ScaleOutcome},
    types::{ObjectKey, Time, compat::Compat},
};
use tokio::time::Instant;

use super::{
    super::replicas::{
        ObservedScale, OwnershipRule, ReconcileResult, ReplicaAutoscaler as _, Requeue, Scaling,
        matching_pods,
    },
    HorizontalController,
    autoscaler::{HorizontalAutoscaler, ObjectState},
    config::HorizontalMode,
    horizontal_decision::HorizontalDecision,
    horizontal_pod::HorizontalPod,
    object::RecordedHpa,
    own_rules::{AppliedRules, OwnRules, VpaTarget},
    replacement::Replacement,
};
use crate::{cluster::target::scale::ScaleReadError, telemetry::ExportedState};

/// Reconciles an object: decides, compares the decision with the status, and applies it if the object was adopted.
pub(super) async fn reconcile(
    controller: &HorizontalController,
    key: &ObjectKey,
    state: &mut ObjectState,
) -> ReconcileResult {
    if controller.autoscaler.config.is_sentinel(key) {
        state.exported = None;
        return ("ignored", Requeue::OnChange);
    }
    let now = controller.clock.now();
    let object = Arc::clone(&state.object);
    let Ok(spec) = Spec::read(&object.spec) else {
        // The API server stores no such quantities. Only a change of the object can fix it.
        state.exported = None;
        controller.scales.cancel_scale(state);
        return ("invalid", Requeue::OnChange);
    };
    let own_rules = state.own.rules.of(&object, &spec, &controller.autoscaler.config);
    restore_memory(controller, key, state, now);
    if own_rules.acts() {
        let (uid, target) = owner_of(&object);
        state.own.shared_requests.ensure_object(uid, target);
    }
    let observed_at = Instant::now();
    let scale = read_scale(controller, key, state).await;
    let pods = match &scale {
        Ok(scale) => read_pods(controller, key, state, scale).await,
        Err(_) => Vec::new(),
    };
    let rules = with_vpas(own_rules, controller, state, &pods, now);
    report_warnings(controller, state, &rules);
    let others = others(controller, key, scale.as_ref().ok(), &pods);
    let reconcile = Reconcile {
        controller,
        key,
        object: &object,
        spec: &spec,
        rules: &rules,
        scale: scale.as_ref().map(|scale| &scale.values),
        pods: &pods,
        others: &others,
        // The API server accepts a minimum of 0 only with the feature gate HPAScaleToZero.
        config: Config {
            scale_to_zero: spec.min_replicas == 0,
            ..controller.autoscaler.config.hpa
        },
        began: observed_at,
        now,
    };
    if !reconcile.prepare_usage(state).await {
        return ("waiting", Requeue::Periodic);
    }
    let mut resolved = reconcile.observe_changes(state);
    let (decision, mut exported) = reconcile.decide(state).await;
    resolved.shared_requests = state.own.shared_requests.to_store(now);
    let windows = reconcile.windows(rules.spec(&spec));
    state.last_reconcile = Some(controller.clock.now());
    let outcome = if decision.desired.is_none() { "held" } else { "decided" };
    let replaces = rules.replaces;
    match scale {
        Ok(scale) if rules.acts() => {
            let decision = HorizontalDecision { decision, resolved, windows, replaces };
            let target = HorizontalAutoscaler::target(&object);
            let scaling = Scaling {
                target: &target,
                observed: scale.observed,
                observed_at,
                is_dry_run: false,
            };
            controller.scales.apply_decision(state, &mut exported, decision, scaling, now).await;
        }
        _ => {
            controller.scales.cancel_scale(state);
            if replaces {
                let decision = HorizontalDecision { decision, resolved, windows, replaces };
                let (decision, outcome) = (Arc::new(decision), ScaleOutcome::NoChange);
                controller.scales.report(state, &decision, &outcome, now).await;
            }
        }
    }
    state.exported = Some(Arc::new(exported));
    (outcome, rules.options.sync_period.map_or(Requeue::Periodic, Requeue::After))
}

/// Takes the VPAs and the template of the target into account.
fn with_vpas(
    rules: Arc<OwnRules>,
    controller: &HorizontalController,
    state: &ObjectState,
    pods: &[Pod],
    now: Time,
) -> AppliedRules {
    let (autoscaler, workloads) = (&controller.autoscaler, &controller.workloads);
    let ignores_vpas = autoscaler.config.compat == Compat::Upstream;
    if !rules.acts() || (ignores_vpas && !rules.asks_for_template()) {
        return AppliedRules::without_vpas(rules);
    }
    let (key, target) = (state.key(), HorizontalAutoscaler::target(&state.object));
    let template = workloads.scopes.template(&workloads.target(&key.namespace, &target));
    let vpas = if ignores_vpas {
        Some(Vec::new())
    } else {
        autoscaler.vpas.of_target(&key.namespace, &target)
    };
    let memory = &state.own.shared_requests;
    let target = VpaTarget { vpas: vpas.as_deref(), pods, template: &template, memory };
    AppliedRules::with_vpas(rules, target, &autoscaler.config.hpa, now)
}

/// Emits an event for each annotation that has no effect, once.
fn report_warnings(
    controller: &HorizontalController,
    state: &mut ObjectState,
    rules: &AppliedRules,
) {
    if controller.autoscaler.config.mode == HorizontalMode::Shadow {
        return;
    }
    let warnings = rules.warnings();
    let reported = std::mem::take(&mut state.own.reported_annotations);
    for (reason, message) in warnings.iter().filter(|new| !reported.contains(new)) {
        controller.status.emit(state, true, reason, message.clone());
    }
    state.own.reported_annotations = warnings;
}

/// What the memory of requests is about: the UID of the object, and kind and name of its target.
fn owner_of(object: &RecordedHpa) -> (Option<&str>, (&str, &str)) {
    let target = &object.spec.scale_target_ref;
    (object.metadata.uid.as_deref(), (&target.kind, &target.name))
}

/// Continues with the memory of the process that stored the record.
fn restore_memory(
    controller: &HorizontalController,
    key: &ObjectKey,
    state: &mut ObjectState,
    now: Time,
) {
    if std::mem::replace(&mut state.own.is_restored, true) {
        return;
    }
    if let Some(why) = &state.object.record_error {
        tracing::warn!(%key, why, "ignoring invalid annotation {RECORD_ANNOTATION}");
    }
    let record = state.object.stored.record.as_ref();
    if let Some(record) = record {
        let (uid, target) = owner_of(&state.object);
        state.own.shared_requests = SharedMemory::restored(record, uid, target, now);
    }
    let stored = record.map(|record| record.restored_memory(now));
    state.own.memory = HpaState::restored(stored, controller.autoscaler.config.fixes);
}

/// The reconcile of one object whose scale and pods have been read.
struct Reconcile<'a> {
    controller: &'a HorizontalController,
    key: &'a ObjectKey,
    object: &'a RecordedHpa,
    /// The spec, with the defaults of the API server.
    spec: &'a Spec,
    rules: &'a AppliedRules,
    scale: Result<&'a ScaleValues, &'a ScaleError>,
    pods: &'a [Pod],
    others: &'a [(String, Selector)],
    config: Config,
    began: Instant,
    now: Time,
}

impl Reconcile<'_> {
    fn windows(&self, spec: &Spec) -> Windows {
        Windows::of(spec.behavior.as_ref(), self.config.downscale_stabilization)
    }

    /// Requests the usage that the decision needs. Returns whether it can be made now.
    async fn prepare_usage(&self, state: &ObjectState) -> bool {
        let usage = &self.controller.autoscaler.usage;
        let resources = || self.spec.metrics.iter().filter_map(|metric| metric.source.resource());
        let needs_usage = resources().next().is_some() && self.needs_metrics(state);
        !needs_usage || usage.prepare(self.key, resources()).await
    }

    /// Whether the decision needs metrics. Replicas out of bounds do not wait for any.
    fn needs_metrics(&self, state: &ObjectState) -> bool {
        let (newest, none) = (self.own_status(state), HorizontalPodAutoscalerStatus::default());
        let observed = Observed {
            namespace: &self.key.namespace,
            name: &self.key.name,
            uid: None,
            spec: self.rules.spec(self.spec),
            status: newest.as_ref().or(self.object.stored.status.as_ref()).unwrap_or(&none),
            scale: self.scale,
            pods: self.pods,
            others: self.others,
            memory: &state.own.memory,
            config: &self.config,
            fixes: self.controller.autoscaler.config.fixes,
            options: &self.rules.options,
            now: self.now,
        };
        observed.needs_metrics()
    }

    /// Whether an alert holds the replicas: it is firing, or its state is unknown.
    async fn is_held_by_alert(&self, used_until: Option<Time>) -> bool {
        let Some(query) = &self.rules.alert else { return false };
        let queries = &self.controller.autoscaler.queries;
        match queries.alert(&self.key.namespace, query, self.now, used_until).await {
            Alert::NotFiring => false,
            Alert::Firing => true,
            Alert::Unknown(why) => {
                tracing::debug!(key = %self.key, why, "the state of the alert is unknown");
                true
            }
        }
    }

    /// Adds changes of the scale to the memories: those of the HPA controller, and one of this controller whose outcome was
    /// unknown. Returns the record with that resolved.
    fn observe_changes(&self, state: &mut ObjectState) -> HpaRecord {
        let mut resolved = state.status().record.unwrap_or_default();
        let Ok(scale) = self.scale else { return resolved };
        let own_behavior = self.rules.spec(self.spec).behavior.as_ref();
        let none = HorizontalPodAutoscalerStatus::default();
        let status = self.object.stored.status.as_ref().unwrap_or(&none);
        if !self.rules.replaces
            && let Some((from, at)) = state.own.shadow.observe_scale(scale.replicas, status)
        {
            let compared = (&mut state.own.compared_memory, self.spec.behavior.as_ref());
            for (memory, behavior) in [compared, (&mut state.own.memory, own_behavior)] {
                if let Some(behavior) = behavior {
                    memory.scaled(from, scale.replicas, behavior, at);
                }
            }
        }
        if resolved.pending.is_some() {
            resolved.memory.clone_from(&state.own.memory);
            if resolved.resolve_pending(scale.replicas, own_behavior) {
                tracing::info!(key = %self.key, replicas = scale.replicas, "the update of the scale had been made");
            }
            state.own.memory.clone_from(&resolved.memory);
        }
        resolved
    }

    /// Decides as upstream and with the own rules, and compares the former with the status.
    async fn decide(&self, state: &mut ObjectState) -> (Decision, ExportedState) {
        let Self { controller, object, now, .. } = *self;
        let autoscaler = &controller.autoscaler;
        let (newest, none) = (self.own_status(state), HorizontalPodAutoscalerStatus::default());
        let status = newest.as_ref().or(object.stored.status.as_ref()).unwrap_or(&none);
        let period = autoscaler.config.settings.period;
        let shadow = &mut state.own.shadow;
        let reported = |scale| shadow.reported_replicas(scale, status, period, now);
        let reported_replicas = self.scale.map_or(0, reported);
        let observed = Observed {
            namespace: &self.key.namespace,
            name: &self.key.name,
            uid: object.metadata.uid.as_deref(),
            spec: self.spec,
            status,
            scale: self.scale,
            pods: self.pods,
            others: self.others,
            memory: &state.own.compared_memory,
            config: &self.config,
            fixes: Fixes::UPSTREAM,
            options: &NO_OPTIONS,
            now,
        };
        let spec = self.rules.spec(self.spec);
        let own = Observed {
            spec,
            memory: &state.own.memory,
            fixes: autoscaler.config.fixes,
            options: &self.rules.options,
            ..observed
        };
        // The metrics of annotations come after those of the spec.
        let needs_metrics = !metric_requests(&own).is_empty();
        let measured = if needs_metrics { &own } else { &observed };
        let used_until = state.last_reconcile;
        let fetched = fetch(controller, self.key, measured, reported_replicas, used_until).await;
        let (answers, fetch_times): (Vec<_>, Vec<_>) = fetched.into_iter().unzip();
        let compared = decide(&observed, &answers);
        let decided = decide(&own, &answers);
        self.rules.remember(&mut state.own.shared_requests, &decided, own.tolerance().up);
        let mut decision = self.rules.combine(decided, &compared);
        if self.is_held_by_alert(used_until).await {
            decision.hold(PausedDirection::All, Restriction::HoldWhile);
        }
        if let Some(replacement) = &autoscaler.replacement {
            replacement.count(self.key, &decision, self.began.elapsed(), &fetch_times);
        }
        let record = Arc::new(scale_decision(&decision, &own, &state.own.last_decision));
        let exported = self.exported_state(state, &decision, status, &record);
        if !self.rules.replaces {
            self.compare(state, &compared, status);
        }
        state.own.compared_memory = compared.memory.compact(self.windows(self.spec), now);
        state.own.memory = decision.memory.compact(self.windows(spec), now);
        state.own.last_decision = record;
        (decision, exported)
    }

    /// Compares a decision as upstream makes it with the status of the HPA controller.
    fn compare(
        &self,
        state: &mut ObjectState,
        decision: &Decision,
        status: &HorizontalPodAutoscalerStatus,
    ) {
        let autoscaler = &self.controller.autoscaler;
        let (period, windows) = (autoscaler.config.settings.period, self.windows(self.spec));
        for result in state.own.shadow.compare(decision, status, ShadowRules { period, windows }) {
            autoscaler.metrics.count_comparison(result);
            if result == Comparison::Unexplained {
                tracing::debug!(
                    key = %self.key, ours = decision.desired, theirs = status.desired_replicas,
                    "decision differs from that of the HPA controller"
                );
            }
        }
    }

    /// The status that this controller has stored or is going to store, if it writes statuses.
    fn own_status(&self, state: &ObjectState) -> Option<HorizontalPodAutoscalerStatus> {
        self.rules.replaces.then(|| state.status().status).flatten()
    }

    /// The exported state according to the spec and the decision, with the rest taken from the previous state.
    fn exported_state(
        &self,
        state: &ObjectState,
        decision: &Decision,
        status: &HorizontalPodAutoscalerStatus,
        record: &Arc<ScaleDecision>,
    ) -> ExportedState {
        let target = HorizontalAutoscaler::target(self.object);
        let difference = |desired: i32| desired.saturating_sub(status.desired_replicas);
        let mut exported = ExportedState {
            target: (target.kind.clone(), target.name.clone()),
            dry_run: !self.rules.acts(),
            bounds: (self.spec.min_replicas, self.spec.max_replicas),
            update_mode: self.rules.mode_name(),
            decision: None,
            reconciled_at: self.now,
            pods: pod_counts(decision, self.pods),
            shadow_difference: decision.desired.filter(|_| !self.rules.replaces).map(difference),
            ..state.exported.as_deref().cloned().unwrap_or_default()
        };
        exported.set_decision(Arc::clone(record));
        exported
    }
}

struct TargetScale {
    observed: ObservedScale,
    values: ScaleValues,
}

async fn read_scale(
    controller: &HorizontalController,
    key: &ObjectKey,
    state: &mut ObjectState,
) -> Result<TargetScale, ScaleError> {
    let target = HorizontalAutoscaler::target(&state.object);
    let target = controller.workloads.target(&key.namespace, &target);
    // The current scale shows whether a pending change was made.
    let is_pending = state.has_pending_scale();
    let observed = controller.workloads.observe_scale(target, is_pending, &mut state.scale_version);
    let observed = observed.await.map_err(|error| match error {
        ScaleReadError::InvalidVersion(_) => ScaleError::InvalidApiVersion(error.to_string()),
        _ => ScaleError::Failed(error.to_string()),
    })?;
    let state = observed.values();
    let values = ScaleValues {
        replicas: state.spec_replicas,
        status_replicas: state.status_replicas,
        selector: state.selector.as_ref().map_or_else(|_| String::new(), ToString::to_string),
    };
    Ok(TargetScale { observed, values })
}

async fn read_pods(
    controller: &HorizontalController,
    key: &ObjectKey,
    state: &ObjectState,
    scale: &TargetScale,
) -> Vec<Pod> {
    // Without a selector nothing is decided.
    if scale.values.selector.is_empty() {
        return Vec::new();
    }
    let target = HorizontalAutoscaler::target(&state.object);
    let (workloads, rule) = (&controller.workloads, OwnershipRule::OwnerChain);
    let (scale, to_pod) = (scale.observed.values(), HorizontalPod::to_pod);
    let pods = matching_pods(workloads, &key.namespace, &target, scale, rule, to_pod);
    let pods = pods.await.into_iter();
    pods.map(|(pod, is_own)| Pod { is_foreign: !is_own, ..pod }).collect()
}

/// Other objects that select the same pods.
fn others(
    controller: &HorizontalController,
    key: &ObjectKey,
    scale: Option<&TargetScale>,
    pods: &[Pod],
) -> Vec<(String, Selector)> {
    let index = &controller.autoscaler.selectors;
    let text = scale.map(|scale| &*scale.values.selector).filter(|text| !text.is_empty());
    let Some(Ok(selector)) = text.map(Selector::parse) else {
        index.remove(key);
        return Vec::new();
    };
    index.set(key, &selector);
    index.others(key, pods)
}

/// The responses to all requests: usage was fetched once for the namespace, and identical queries are sent once. Everything
/// else is taken from the status, unless this controller replaces the one that writes it. With the time that each took.
async fn fetch(
    controller: &HorizontalController,
    key: &ObjectKey,
    observed: &Observed<'_>,
    reported_replicas: i32,
    used_until: Option<Time>,
) -> Vec<(Option<Fetched>, Duration)> {
    let autoscaler = &controller.autoscaler;
    let (requests, empty) = (metric_requests(observed), ScaleValues::default());
    let values = StatusValues {
        status: observed.status,
        scale: observed.scale.unwrap_or(&empty),
        reported_replicas,
        pods: observed.pods,
        now: observed.now,
    };
    // Metrics of annotations come after those of the spec.
    let from_status = values.answers(observed.spec).into_iter().chain(std::iter::repeat(None));
    let resources = observed.spec.metrics.iter().map(|metric| metric.source.resource());
    let resources = resources.chain(std::iter::repeat(None));
    let answers = requests.into_iter().zip(from_status).zip(resources);
    let answers = answers.map(|((request, from_status), resource)| async move {
        let began = Instant::now();
        let answer = match (request, resource) {
            (None, _) => None,
            (Some(MetricRequest::Resource { .. }), Some(resource)) => {
                Some(autoscaler.usage.answer(&key.namespace, resource, observed.pods))
            }
            (Some(MetricRequest::Prometheus { query }), _) => {
                let (queries, namespace) = (&autoscaler.queries, &key.namespace);
                Some(queries.answer(namespace, &query, observed.now, used_until).await)
            }
            (Some(request), _) => match &autoscaler.replacement {
                Some(Replacement { own_metrics, .. }) => {
                    let kinds = &controller.workloads.scales;
                    own_metrics.answer(kinds, &key.namespace, &request).await
                }
                None => from_status,
            },
        };
        (answer, began.elapsed())
    });
    join_all(answers).await
}

/// The pods by how they counted for the metric that decided.
fn pod_counts(decision: &Decision, pods: &[Pod]) -> Option<PodCounts> {
    let winner = decision.evaluations.get(decision.winner?)?;
    let groups = winner.outcome.as_ref().ok()?.groups.as_ref()?;
    let foreign = pods.iter().filter(|pod| pod.is_foreign).count();
    Some(PodCounts::new(groups, foreign))
}
