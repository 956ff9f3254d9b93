//! The reconcile of one object, from its spec to a decision that is applied.

use std::{sync::Arc, time::Duration};

use kube::ResourceExt as _;
use plimsoll_core::{
    api::wpa::WatermarkPodAutoscalerSpec,
    coordination::RemovalHold,
    scaling::{Pod, STATUS_UPDATE_FAILED, Scale},
    types::{ObjectKey, Time, compat::Compat},
    watermark::{
        DecisionInput, EffectiveSpec, EvaluationContext,
        conditions::ConditionUpdate,
        pending_scale::resolve_pending_scale,
        spec::{has_defaults, target_name, with_defaults},
        status_update::StatusBuilder,
        validation::{SpecError, validate},
        vpa_wave,
    },
};
use serde_json::json;
use tokio::time::Instant;

use super::{
    super::replicas::{
        AutoscalerKind as _, ERROR_BACKOFF, ObservedScale, OwnershipRule, ReconcileResult,
        ReplicaAutoscaler as _, Requeue, Scaling, StatusChange, Write, matching_pods,
    },
    WatermarkController,
    autoscaler::{ObjectState, WatermarkAutoscaler, last_decision},
    fetch_metrics::fetch_metrics,
    scaling_gates::{check_gates, read_options},
    watermark_decision::WatermarkDecision,
};
use crate::{
    cluster::{
        cache::selector::Selector,
        target::scale::{ScaleReadError, ScaleState},
        write::{ObjectPatchTarget, WriteError},
    },
    telemetry::{ExportedState, watermark::watermark_state},
};

/// Delay of the next reconcile if the target does not exist.
const NO_SCALE_BACKOFF: Duration = Duration::from_secs(10);
/// Upstream's finalizer, which only cleans up metrics, but blocks deletion if no controller removes it.
pub(super) const FINALIZER: &str = "finalizer.watermarkpodautoscaler.datadoghq.com";
/// Delay before the removal of a finalizer is retried, while the object is not being deleted.
const FINALIZER_RETRY_INTERVAL: Duration = Duration::from_mins(10);
/// If `true`, all pods that match the selector of the scale belong to the target, whatever their owners.
const SKIP_OWNER_CHECK: &str = "wpa.datadoghq.com/skip-owner-check";

/// Reconciles an object, from its spec to the update of the scale.
pub(super) async fn reconcile(
    controller: &WatermarkController,
    key: &ObjectKey,
    state: &mut ObjectState,
) -> ReconcileResult {
    let now = controller.clock.now();
    if state.object.metadata.deletion_timestamp.is_some() {
        return reconcile_deleted(controller, state).await;
    }
    let config = &controller.autoscaler.config;
    let spec = with_defaults(&state.object.spec);
    let before = state.exported.as_deref();
    let mut exported = watermark_state::from_spec(&spec, before, now);
    exported.labels = exported_labels(&config.labels_as_tags, state);
    exported.dry_run |= config.settings.dry_run.is_some();
    if config.settings.compat == Compat::Plimsoll {
        if let Some(before) = before {
            exported.advance_cooldown(before.reconciled_at);
        }
        watermark_state::start_cooldown(&mut exported, &spec, &state.status());
        queue_finalizer_removal(controller, state, now);
    }
    let mut reconcile = Reconcile { controller, key, state, spec, exported, now };
    let result = reconcile.run().await;
    let Reconcile { state, mut exported, .. } = reconcile;
    watermark_state::set_conditions(&mut exported, &state.status());
    state.last_reconcile = Some(controller.clock.now());
    state.exported = Some(Arc::new(exported));
    result
}

fn exported_labels(keys: &[String], state: &ObjectState) -> Vec<(String, String)> {
    let labels = state.object.labels();
    let keys = keys.iter();
    keys.map(|key| (key.clone(), labels.get(key).cloned().unwrap_or_default())).collect()
}

/// The reconcile of an object that is not being deleted.
pub(super) struct Reconcile<'a> {
    pub controller: &'a WatermarkController,
    pub key: &'a ObjectKey,
    pub state: &'a mut ObjectState,
    pub spec: WatermarkPodAutoscalerSpec,
    exported: ExportedState,
    now: Time,
}

impl Reconcile<'_> {
    async fn run(&mut self) -> ReconcileResult {
        let Self { controller, key, now, .. } = *self;
        let autoscaler = &controller.autoscaler;
        let is_upstream = autoscaler.config.settings.compat == Compat::Upstream;
        if is_upstream
            && autoscaler.config.settings.dry_run.is_none()
            && !has_defaults(&self.state.object.spec)
        {
            return self.write_defaults().await;
        }
        if let Err(invalid) = validate(&self.spec, &key.to_string()) {
            return self.report_invalid(&invalid).await;
        }
        read_options(controller, self.state, &self.spec, now).await;
        let started = Instant::now();
        let blocked = check_gates(controller, key, self.state, &mut self.exported, now).await;
        autoscaler.metrics.observe_step("gates", started.elapsed());
        if let Some((_, retry_after)) = &blocked
            && is_upstream
        {
            return ("blocked", Requeue::After(*retry_after));
        }
        let target = controller.workloads.target(&key.namespace, &self.spec.scale_target_ref);
        let started = Instant::now();
        // It is fetched while a change is pending, because the current scale shows whether it was made.
        let (is_pending, version) = (self.state.has_pending_scale(), &mut self.state.scale_version);
        let scale = controller.workloads.observe_scale(target, is_pending, version).await;
        autoscaler.metrics.observe_step("scale", started.elapsed());
        let scale = match scale {
            Ok(scale) => scale,
            Err(why) => return self.report_scale_error(&why).await,
        };
        let reason = blocked.as_ref().map(|(reason, _)| reason.as_str());
        let result = self.decide(scale, reason).await;
        match blocked {
            // Minimum and maximum replicas apply while blocked, so the next reconcile is not delayed.
            Some((_, retry_after)) => {
                let period = autoscaler.config.settings.period;
                ("blocked", Requeue::After(retry_after.min(period)))
            }
            None => result,
        }
    }

    /// Makes the decision from the current scale, and applies it.
    async fn decide(&mut self, observed: ObservedScale, blocked: Option<&str>) -> ReconcileResult {
        let Self { controller, key, now, .. } = *self;
        let autoscaler = &controller.autoscaler;
        let config = &autoscaler.config;
        let fixes = config.fixes;
        let mut rules = EffectiveSpec::from_spec(&self.spec).with_options(self.state.own.options);
        rules.dry_run |= config.settings.dry_run.is_some();
        let readiness = rules.readiness_policy(target_name(&key.namespace, &self.spec), now, fixes);
        let previous = last_decision(self.state);
        let observed_at = Instant::now();
        let values = observed.values();
        let scale =
            Scale { spec_replicas: values.spec_replicas, status_replicas: values.status_replicas };
        let selector = values.selector.as_ref().map_or("", Selector::as_str).to_owned();
        let started = Instant::now();
        let pods = self.target_pods(values).await;
        autoscaler.metrics.observe_step("pods", started.elapsed());
        let mut metrics = Vec::new();
        if blocked.is_none() {
            let started = Instant::now();
            let ready_pods = readiness.ready_pods(&pods, scale);
            metrics = fetch_metrics(self, &rules, scale, ready_pods).await;
            autoscaler.metrics.observe_step("metrics", started.elapsed());
        }
        let resolved_status = match config.settings.compat {
            Compat::Plimsoll => resolve_pending_scale(&self.state.status(), scale, &rules),
            Compat::Upstream => self.state.status(),
        };
        let input = DecisionInput {
            context: EvaluationContext {
                rules: &rules,
                readiness,
                selector: &selector,
                pods: &pods,
                scale,
                oldest_sample: config.max_metric_age.map(|age| now.earlier(age)),
                fixes,
            },
            metrics: &metrics,
            blocked_reason: blocked,
            removal_hold: self.removal_hold(&pods, rules.readiness_delay, now),
            status: &resolved_status,
            previous: &previous,
            now,
        };
        let decision = input.decide();
        for row in &decision.metrics {
            let result = row.result.as_ref().map(drop);
            autoscaler.metrics.count_metric_result(row.kind.into_str(), result);
        }
        let record = Arc::new(decision.record.clone());
        self.state.own.last_decision = Some(Arc::clone(&record));
        self.state.failures = 0;
        let is_dry_run = self.spec.dry_run;
        let previous_desired = self.exported.desired_replicas;
        self.exported.set_decision(record);
        watermark_state::set_limits(&mut self.exported, &decision, fixes);
        if decision.change.is_some() && !is_dry_run && config.settings.dry_run.is_none() {
            // Until the change is made.
            self.exported.desired_replicas = previous_desired;
        }
        let outcome = if decision.proposal.is_ok() { "decided" } else { "held" };
        let started = Instant::now();
        let builder = StatusBuilder {
            spec: self.spec.clone(),
            namespace: key.namespace.to_string(),
            compat: config.settings.compat,
            skips_idle_events: config.skips_idle_events,
            fixes,
        };
        let decision = WatermarkDecision { builder, decision, resolved_status };

        let target = &self.spec.scale_target_ref;
        let scaling = Scaling { target, observed, observed_at, is_dry_run };
        controller
            .scales
            .apply_decision(self.state, &mut self.exported, decision, scaling, now)
            .await;
        autoscaler.metrics.observe_step("write", started.elapsed());
        (outcome, Requeue::Periodic)
    }

    /// The pods that match the scale's selector, with whether the target owns them.
    async fn target_pods(&self, scale: &ScaleState) -> Vec<Pod> {
        let skips_owner_check =
            self.state.object.annotations().get(SKIP_OWNER_CHECK).is_some_and(|it| it == "true");
        let ownership_rule = match self.controller.settings.compat {
            _ if skips_owner_check => OwnershipRule::Selector,
            Compat::Upstream => OwnershipRule::OwnerName,
            Compat::Plimsoll => OwnershipRule::OwnerChain,
        };
        let target = &self.spec.scale_target_ref;
        let workloads = &self.controller.workloads;
        let namespace = &self.key.namespace;
        let pods = matching_pods(workloads, namespace, target, scale, ownership_rule, |pod| {
            pod.pod.clone()
        });
        let pods = pods.await.into_iter();
        pods.map(|(pod, owned_by_target)| Pod { owned_by_target, ..pod }).collect()
    }

    /// Why no replica may be removed, because the updater changes pods of the target.
    fn removal_hold(
        &self,
        pods: &[Pod],
        readiness_delay: Duration,
        now: Time,
    ) -> Option<RemovalHold> {
        let vpas = self.controller.autoscaler.vpas.as_ref()?;
        let vpas = vpas.of_target(&self.key.namespace, &self.spec.scale_target_ref);
        let updates: Option<Vec<_>> =
            vpas.map(|vpas| vpas.iter().filter_map(|vpa| vpa.updates).collect());
        vpa_wave::removal_hold(updates.as_deref(), pods, readiness_delay, now)
    }

    async fn report_invalid(&mut self, invalid: &SpecError) -> ReconcileResult {
        let Self { controller, now, .. } = *self;
        let is_upstream = controller.settings.compat == Compat::Upstream;
        let why = invalid.to_string();
        let [inactive, _] = ConditionUpdate::unprocessed();
        controller.scales.cancel_scale(self.state);
        let change = StatusChange::Conditions(vec![inactive, invalid.condition()]);
        let is_written = controller
            .status
            .change_status(self.state, change, now, STATUS_UPDATE_FAILED, true)
            .await;
        if !is_upstream {
            self.exported.clear_decision();
        }
        if self.state.active_warnings.iter().all(|(_, before)| *before != why) {
            controller.status.emit(self.state, true, "FailedSpecCheck", why.clone());
        }
        self.state.active_warnings = vec![("FailedSpecCheck", why)];
        // Only a change of the object can fix this. Requeue only until the conditions are written.
        if is_written || is_upstream {
            return ("invalid", Requeue::OnChange);
        }
        ("error", Requeue::After(controller.status.back_off(self.state, ERROR_BACKOFF)))
    }

    async fn report_scale_error(&mut self, why: &ScaleReadError) -> ReconcileResult {
        let Self { controller, now, .. } = *self;
        let is_upstream = controller.settings.compat == Compat::Upstream;
        if !is_upstream {
            self.exported.clear_limits();
        }
        controller.scales.cancel_scale(self.state);
        let text = why.to_string();
        let updates = ConditionUpdate::unprocessed().to_vec();
        controller.status.write_conditions(self.state, updates, now).await;
        let is_new = self.state.active_warnings.iter().all(|(_, before)| *before != text);
        if is_new || is_upstream {
            controller.status.emit(self.state, true, "FailedProcessWPA", text.clone());
        }
        self.state.active_warnings = vec![("FailedProcessWPA", text)];
        let delay = match why {
            ScaleReadError::NotFound(_) => NO_SCALE_BACKOFF,
            // Upstream compares the error text, which is the same for both.
            ScaleReadError::Unavailable(_) if is_upstream => NO_SCALE_BACKOFF,
            _ => ERROR_BACKOFF,
        };
        if is_upstream {
            return ("error", Requeue::After(delay));
        }
        ("error", Requeue::After(controller.status.back_off(self.state, delay)))
    }

    /// Writes the defaults into the spec, as upstream does.
    async fn write_defaults(&mut self) -> ReconcileResult {
        let Self { controller, .. } = *self;
        let Ok(spec) = serde_json::to_value(&self.spec) else {
            return ("error", Requeue::Periodic);
        };
        let (context, body) =
            (controller.status.write_context(&controller.permit), json!({"spec": spec}));
        let object = &*self.state.object;
        match context.patch_object(object, ObjectPatchTarget::Object, body).await {
            Ok(stored) => self.state.object = WatermarkAutoscaler::trimmed(stored),
            Err(WriteError::NotFound) => {}
            Err(why) => {
                controller.status.report_write_failure(self.state, &why, STATUS_UPDATE_FAILED);
                return ("error", Requeue::After(ERROR_BACKOFF));
            }
        }
        ("defaulted", Requeue::After(Duration::ZERO))
    }
}

/// Queues the removal, unless it was queued recently. The reconcile continues in any case: the finalizer only matters when
/// the object is deleted.
fn queue_finalizer_removal(controller: &WatermarkController, state: &mut ObjectState, now: Time) {
    if state.own.finalizer_retry_at.is_none_or(|retry_at| retry_at <= now) {
        let is_queued = put_finalizer_removal(controller, state);
        state.own.finalizer_retry_at = is_queued.then(|| now.later(FINALIZER_RETRY_INTERVAL));
    }
}

async fn reconcile_deleted(
    controller: &WatermarkController,
    state: &mut ObjectState,
) -> ReconcileResult {
    state.exported = None;
    controller.scales.cancel_scale(state);
    if controller.settings.compat == Compat::Plimsoll {
        put_finalizer_removal(controller, state);
        return ("gone", Requeue::OnChange);
    }
    if !has_finalizer(controller, state) {
        return ("gone", Requeue::OnChange);
    }
    let result = WatermarkAutoscaler::write_metadata(controller, &state.object, &controller.permit);
    let result = result.await;
    match WatermarkAutoscaler::complete_metadata(controller, state, &result) {
        None => ("gone", Requeue::OnChange),
        Some(_) => ("error", Requeue::After(ERROR_BACKOFF)),
    }
}

fn has_finalizer(controller: &WatermarkController, state: &ObjectState) -> bool {
    controller.settings.dry_run.is_none()
        && state.object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Queues the removal. Returns whether there is a finalizer.
fn put_finalizer_removal(controller: &WatermarkController, state: &ObjectState) -> bool {
    let has_finalizer = has_finalizer(controller, state);
    if has_finalizer {
        controller.status.writes.put(&state.key(), Write::Metadata(Arc::clone(&state.object)));
    }
    has_finalizer
}
