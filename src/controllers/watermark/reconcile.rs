//! The reconcile of one object, from its spec to the update of the scale.

use std::time::Duration;

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, Time};
use serde_json::json;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::{
    WatermarkController,
    object_state::{ObjectState, trimmed},
    scaling_gates::Blocked,
};
use crate::{
    cluster::{target::scale::ScaleReadError, write::WpaPatchTarget},
    telemetry::ExportedState,
};
use plimsoll_core::{
    api::wpa::WatermarkPodAutoscalerSpec,
    types::compat::Compat,
    watermark::{
        conditions::ConditionUpdate,
        log_attributes,
        spec::{has_defaults, with_defaults},
        status_update::STATUS_UPDATE_FAILED,
        validation::validate,
    },
};

/// Upstream's finalizer, which only cleans up metrics, but blocks deletion if no controller removes it.
const FINALIZER: &str = "finalizer.watermarkpodautoscaler.datadoghq.com";
/// Delay of the next reconcile after an error, and if the target does not exist.
const ERROR_BACKOFF: Duration = Duration::from_secs(1);
const NO_SCALE_BACKOFF: Duration = Duration::from_secs(10);
/// Delay before the removal of a finalizer is retried, while the object is not being deleted.
const FINALIZER_RETRY_INTERVAL: Duration = Duration::from_mins(10);

/// When an object is due next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requeue {
    /// At its offset within the period.
    Periodic,
    /// After this time.
    After(Duration),
    /// Only when it changes.
    OnChange,
}

/// The outcome of a reconcile as a metric label, and when the object is due next.
pub(super) type ReconcileResult = (&'static str, Requeue);

impl WatermarkController {
    /// Reconciles an object. Its log attributes are attached to every log line.
    pub(super) async fn reconcile(
        &self,
        key: &ObjectKey,
        state: &mut ObjectState,
    ) -> ReconcileResult {
        let annotation = state.object.annotations().get(log_attributes::ANNOTATION);
        let attributes =
            log_attributes::parse(annotation.map(String::as_str)).unwrap_or_else(|why| {
                tracing::debug!(%key, why, "annotation {} is not a JSON object", log_attributes::ANNOTATION);
                None
            });
        let span = attributes
            .map_or_else(Span::none, |attributes| tracing::error_span!("object", %attributes));
        self.reconcile_object(key, state).instrument(span).await
    }

    async fn reconcile_object(&self, key: &ObjectKey, state: &mut ObjectState) -> ReconcileResult {
        let now = self.clock.now();
        if state.object.metadata.deletion_timestamp.is_some() {
            return self.reconcile_deleted(state).await;
        }
        if self.config.compat == Compat::Plimsoll
            && state.finalizer_retry_at.is_none_or(|retry_at| retry_at <= now)
        {
            // The reconcile continues in any case: the finalizer only matters when the object is deleted.
            let is_removed = self.remove_finalizer(state).await;
            state.finalizer_retry_at = (!is_removed).then(|| now.later(FINALIZER_RETRY_INTERVAL));
        }
        let filled = with_defaults(&state.object.spec);
        let mut exported = ExportedState::from_spec(&filled, state.exported.as_deref(), now);
        exported.labels = self.exported_labels(state);
        exported.dry_run |= self.config.dry_run.is_some();
        if let Some(before) =
            state.exported.as_deref().filter(|_| self.config.compat == Compat::Plimsoll)
        {
            exported.advance_cooldown(before.reconciled_at);
        }
        if self.config.compat == Compat::Plimsoll {
            exported.start_cooldown(&filled, &state.status());
        }
        let result = self.reconcile_target(key, state, &filled, &mut exported, now).await;
        exported.set_conditions(&state.status());
        state.last_reconcile = Some(self.clock.now());
        state.exported = Some(std::sync::Arc::new(exported));
        result
    }

    async fn reconcile_target(
        &self,
        key: &ObjectKey,
        state: &mut ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        exported: &mut ExportedState,
        now: Time,
    ) -> ReconcileResult {
        if self.config.compat == Compat::Upstream
            && self.config.dry_run.is_none()
            && !has_defaults(&state.object.spec)
        {
            return self.write_defaults(state, filled).await;
        }
        if let Err(invalid) = validate(filled, &key.to_string()) {
            let why = invalid.to_string();
            let [inactive, _] = ConditionUpdate::unprocessed();
            let is_written =
                self.write_conditions(state, &[inactive, invalid.condition()], now).await;
            if self.config.compat == Compat::Plimsoll {
                exported.clear_decision();
            }
            if state.active_warnings.iter().all(|(_, before)| *before != why) {
                self.emit_event(state, true, "FailedSpecCheck", why.clone());
            }
            state.active_warnings = vec![("FailedSpecCheck", why)];
            // Only a change of the object can fix this. Requeue only until the conditions are written.
            if is_written || self.config.compat == Compat::Upstream {
                return ("invalid", Requeue::OnChange);
            }
            return ("error", Requeue::After(self.back_off(state, ERROR_BACKOFF)));
        }
        self.read_options(state, filled, now).await;
        let started = Instant::now();
        let blocked = self.check_gates(key, state, exported, now).await;
        self.metrics.observe_step("gates", started.elapsed());
        if let Some(Blocked { retry_after: pause, .. }) = &blocked
            && self.config.compat == Compat::Upstream
        {
            return ("blocked", Requeue::After(*pause));
        }
        let target = self.workloads.target(&key.namespace, &filled.scale_target_ref);
        let started = Instant::now();
        let scale = self.observe_scale(state, target).await;
        self.metrics.observe_step("scale", started.elapsed());
        let scale = match scale {
            Ok(scale) => scale,
            Err(why) => return self.report_scale_error(state, exported, &why, now).await,
        };
        let pause = blocked.as_ref().map(|blocked| blocked.retry_after);
        let why = blocked.map(|blocked| blocked.reason);
        let result = self.decide(key, state, filled, scale, why.as_deref(), exported, now).await;
        match pause {
            // Minimum and maximum replicas apply while blocked, so the next reconcile is not delayed.
            Some(pause) => ("blocked", Requeue::After(pause.min(self.config.period))),
            None => result,
        }
    }

    pub(super) async fn report_scale_error(
        &self,
        state: &mut ObjectState,
        exported: &mut ExportedState,
        why: &ScaleReadError,
        now: Time,
    ) -> ReconcileResult {
        if self.config.compat == Compat::Plimsoll {
            exported.clear_limits();
        }
        let text = why.to_string();
        let updates = ConditionUpdate::unprocessed();
        self.write_conditions(state, &updates, now).await;
        let is_new = state.active_warnings.iter().all(|(_, before)| *before != text);
        if is_new || self.config.compat == Compat::Upstream {
            self.emit_event(state, true, "FailedProcessWPA", text.clone());
        }
        state.active_warnings = vec![("FailedProcessWPA", text)];
        let delay = match why {
            ScaleReadError::NotFound(_) => NO_SCALE_BACKOFF,
            // Upstream compares the error text, which is the same for both.
            ScaleReadError::Unavailable(_) if self.config.compat == Compat::Upstream => {
                NO_SCALE_BACKOFF
            }
            _ => ERROR_BACKOFF,
        };
        if self.config.compat == Compat::Upstream {
            return ("error", Requeue::After(delay));
        }
        ("error", Requeue::After(self.back_off(state, delay)))
    }

    /// Doubles the delay after each failure, up to the period.
    fn back_off(&self, state: &mut ObjectState, delay: Duration) -> Duration {
        let delay = delay.saturating_mul(1 << state.failures.min(8)).min(self.config.period);
        state.failures = state.failures.saturating_add(1);
        delay
    }

    /// Reconciles an object that is being deleted: removes the finalizer.
    async fn reconcile_deleted(&self, state: &mut ObjectState) -> ReconcileResult {
        state.exported = None;
        if self.remove_finalizer(state).await {
            ("gone", Requeue::OnChange)
        } else if self.config.compat == Compat::Upstream {
            ("error", Requeue::After(ERROR_BACKOFF))
        } else {
            ("error", Requeue::After(self.back_off(state, ERROR_BACKOFF)))
        }
    }

    /// Removes upstream's finalizer: metrics of deleted objects end without it, and it must not block deletion.
    async fn remove_finalizer(&self, state: &mut ObjectState) -> bool {
        let finalizers = state.object.finalizers();
        if self.config.dry_run.is_some()
            || !finalizers.iter().any(|finalizer| finalizer == FINALIZER)
        {
            return true;
        }
        let others: Vec<&String> =
            finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let body = json!({"metadata": {"finalizers": others}});
        self.write_object(state, body).await
    }

    /// Writes the defaults into the spec, as upstream does.
    async fn write_defaults(
        &self,
        state: &mut ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
    ) -> ReconcileResult {
        let Ok(spec) = serde_json::to_value(filled) else { return ("error", Requeue::Periodic) };
        if self.write_object(state, json!({ "spec": spec })).await {
            ("defaulted", Requeue::After(Duration::ZERO))
        } else {
            ("error", Requeue::After(ERROR_BACKOFF))
        }
    }

    async fn write_object(&self, state: &mut ObjectState, body: serde_json::Value) -> bool {
        match self.write_context().patch_wpa(&state.object, WpaPatchTarget::Object, body).await {
            Ok(stored) => {
                state.object = trimmed(stored);
                true
            }
            Err(crate::cluster::write::WriteError::NotFound) => true,
            Err(why) => {
                self.report_write_failure(state, &why, STATUS_UPDATE_FAILED);
                false
            }
        }
    }

    /// Labels of the object that are exported by metrics.
    fn exported_labels(&self, state: &ObjectState) -> Vec<(String, String)> {
        let labels = state.object.labels();
        let keys = self.config.labels_as_tags.iter();
        keys.map(|key| (key.clone(), labels.get(key).cloned().unwrap_or_default())).collect()
    }
}
