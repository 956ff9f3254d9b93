//! The reconcile of one object, from its spec to the update of the scale.

use std::{sync::Arc, time::Duration};

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_storage::WritePermit;
use serde_json::json;
use tokio::time::Instant;

use super::{
    super::replicas::{
        AutoscalerKind as _, ERROR_BACKOFF, ReconcileResult, Requeue, StatusChange, Write,
    },
    WatermarkController,
    autoscaler::{ObjectState, WatermarkAutoscaler},
    scaling_gates::Blocked,
};
use crate::{
    cluster::{
        target::scale::ScaleReadError,
        write::{ObjectPatchTarget, WriteError},
    },
    telemetry::ExportedState,
};
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerSpec},
    scaling::STATUS_UPDATE_FAILED,
    types::compat::Compat,
    watermark::{
        conditions::ConditionUpdate,
        spec::{has_defaults, with_defaults},
        validation::validate,
    },
};

/// Upstream's finalizer, which only cleans up metrics, but blocks deletion if no controller removes it.
const FINALIZER: &str = "finalizer.watermarkpodautoscaler.datadoghq.com";
/// Delay of the next reconcile if the target does not exist.
const NO_SCALE_BACKOFF: Duration = Duration::from_secs(10);
/// Delay before the removal of a finalizer is retried, while the object is not being deleted.
const FINALIZER_RETRY_INTERVAL: Duration = Duration::from_mins(10);

impl WatermarkController {
    /// Reconciles an object, from its spec to the update of the scale.
    pub(super) async fn reconcile_object(
        &self,
        key: &ObjectKey,
        state: &mut ObjectState,
    ) -> ReconcileResult {
        let now = self.clock.now();
        if state.object.metadata.deletion_timestamp.is_some() {
            return self.reconcile_deleted(state).await;
        }
        if self.settings.compat == Compat::Plimsoll
            && state.own.finalizer_retry_at.is_none_or(|retry_at| retry_at <= now)
        {
            // The reconcile continues in any case: the finalizer only matters when the object is deleted.
            let is_queued = self.remove_finalizer(state);
            state.own.finalizer_retry_at = is_queued.then(|| now.later(FINALIZER_RETRY_INTERVAL));
        }
        let filled = with_defaults(&state.object.spec);
        let mut exported = ExportedState::from_spec(&filled, state.exported.as_deref(), now);
        exported.labels = self.exported_labels(state);
        exported.dry_run |= self.autoscaler.config.dry_run.is_some();
        if let Some(before) =
            state.exported.as_deref().filter(|_| self.settings.compat == Compat::Plimsoll)
        {
            exported.advance_cooldown(before.reconciled_at);
        }
        if self.settings.compat == Compat::Plimsoll {
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
        if self.settings.compat == Compat::Upstream
            && self.autoscaler.config.dry_run.is_none()
            && !has_defaults(&state.object.spec)
        {
            return self.write_defaults(state, filled).await;
        }
        if let Err(invalid) = validate(filled, &key.to_string()) {
            let why = invalid.to_string();
            let [inactive, _] = ConditionUpdate::unprocessed();
            self.scales.cancel_scale(state);
            let change = StatusChange::Conditions(vec![inactive, invalid.condition()]);
            let is_written =
                self.status.change_status(state, change, now, STATUS_UPDATE_FAILED, true).await;
            if self.settings.compat == Compat::Plimsoll {
                exported.clear_decision();
            }
            if state.active_warnings.iter().all(|(_, before)| *before != why) {
                self.events.emit(state, true, "FailedSpecCheck", why.clone());
            }
            state.active_warnings = vec![("FailedSpecCheck", why)];
            // Only a change of the object can fix this. Requeue only until the conditions are written.
            if is_written || self.settings.compat == Compat::Upstream {
                return ("invalid", Requeue::OnChange);
            }
            return ("error", Requeue::After(self.status.back_off(state, ERROR_BACKOFF)));
        }
        self.read_options(state, filled, now).await;
        let started = Instant::now();
        let blocked = self.check_gates(key, state, exported, now).await;
        self.autoscaler.metrics.observe_step("gates", started.elapsed());
        if let Some(Blocked { retry_after: pause, .. }) = &blocked
            && self.settings.compat == Compat::Upstream
        {
            return ("blocked", Requeue::After(*pause));
        }
        let target = self.workloads.target(&key.namespace, &filled.scale_target_ref);
        let started = Instant::now();
        let scale = self.observe_scale(state, target).await;
        self.autoscaler.metrics.observe_step("scale", started.elapsed());
        let scale = match scale {
            Ok(scale) => scale,
            Err(why) => return self.report_scale_error(state, exported, &why, now).await,
        };
        let pause = blocked.as_ref().map(|blocked| blocked.retry_after);
        let why = blocked.map(|blocked| blocked.reason);
        let result = self.decide(key, state, filled, scale, why.as_deref(), exported, now).await;
        match pause {
            // Minimum and maximum replicas apply while blocked, so the next reconcile is not delayed.
            Some(pause) => ("blocked", Requeue::After(pause.min(self.autoscaler.config.period))),
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
        if self.settings.compat == Compat::Plimsoll {
            exported.clear_limits();
        }
        self.scales.cancel_scale(state);
        let text = why.to_string();
        let updates = ConditionUpdate::unprocessed().to_vec();
        self.status.write_conditions(state, updates, now).await;
        let is_new = state.active_warnings.iter().all(|(_, before)| *before != text);
        if is_new || self.settings.compat == Compat::Upstream {
            self.events.emit(state, true, "FailedProcessWPA", text.clone());
        }
        state.active_warnings = vec![("FailedProcessWPA", text)];
        let delay = match why {
            ScaleReadError::NotFound(_) => NO_SCALE_BACKOFF,
            // Upstream compares the error text, which is the same for both.
            ScaleReadError::Unavailable(_) if self.settings.compat == Compat::Upstream => {
                NO_SCALE_BACKOFF
            }
            _ => ERROR_BACKOFF,
        };
        if self.settings.compat == Compat::Upstream {
            return ("error", Requeue::After(delay));
        }
        ("error", Requeue::After(self.status.back_off(state, delay)))
    }

    /// Reconciles an object that is being deleted: removes the finalizer.
    async fn reconcile_deleted(&self, state: &mut ObjectState) -> ReconcileResult {
        state.exported = None;
        self.scales.cancel_scale(state);
        if self.settings.compat == Compat::Plimsoll {
            self.remove_finalizer(state);
            return ("gone", Requeue::OnChange);
        }
        if !self.has_finalizer(state) {
            return ("gone", Requeue::OnChange);
        }
        let result = self.send_finalizer_removal(&state.object, &self.permit).await;
        match self.complete_finalizer_removal(state, &result) {
            None => ("gone", Requeue::OnChange),
            Some(_) => ("error", Requeue::After(ERROR_BACKOFF)),
        }
    }

    fn has_finalizer(&self, state: &ObjectState) -> bool {
        self.autoscaler.config.dry_run.is_none()
            && state.object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
    }

    /// Removes upstream's finalizer: metrics of deleted objects end without it, and it must not block deletion. Returns
    /// whether there is one.
    fn remove_finalizer(&self, state: &ObjectState) -> bool {
        let has_finalizer = self.has_finalizer(state);
        if has_finalizer {
            self.status.writes.put(&state.key(), Write::Metadata(Arc::clone(&state.object)));
        }
        has_finalizer
    }

    /// Removes upstream's finalizer. Returns the new object, or `None` if it is gone.
    pub(super) async fn send_finalizer_removal(
        &self,
        object: &WatermarkPodAutoscaler,
        permit: &dyn WritePermit,
    ) -> Result<Option<Arc<WatermarkPodAutoscaler>>, WriteError> {
        let others: Vec<&String> =
            object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let body = json!({"metadata": {"finalizers": others}});
        let context = self.status.write_context(permit);
        match context.patch_object(object, ObjectPatchTarget::Object, body).await {
            Ok(stored) => Ok(Some(WatermarkAutoscaler::trimmed(stored))),
            Err(WriteError::NotFound) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Applies the result of the removal of the finalizer. Returns when the object is due if it failed.
    pub(super) fn complete_finalizer_removal(
        &self,
        state: &mut ObjectState,
        result: &Result<Option<Arc<WatermarkPodAutoscaler>>, WriteError>,
    ) -> Option<Time> {
        match result {
            Ok(stored) => {
                if let Some(stored) = stored
                    && stored.metadata.uid == state.object.metadata.uid
                {
                    state.accept_stored(stored);
                }
                state.own.finalizer_retry_at = None;
                None
            }
            Err(why) => {
                self.status.report_write_failure(state, why, STATUS_UPDATE_FAILED);
                if matches!(why, WriteError::Conflict(_)) {
                    // The object has changed: the next reconcile tries again.
                    state.own.finalizer_retry_at = None;
                }
                let is_deleted = state.object.metadata.deletion_timestamp.is_some();
                is_deleted
                    .then(|| self.clock.now().later(self.status.back_off(state, ERROR_BACKOFF)))
            }
        }
    }

    /// Writes the defaults into the spec, as upstream does.
    async fn write_defaults(
        &self,
        state: &mut ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
    ) -> ReconcileResult {
        let Ok(spec) = serde_json::to_value(filled) else { return ("error", Requeue::Periodic) };
        let (context, body) = (self.status.write_context(&self.permit), json!({ "spec": spec }));
        match context.patch_object(&*state.object, ObjectPatchTarget::Object, body).await {
            Ok(stored) => state.object = WatermarkAutoscaler::trimmed(stored),
            Err(WriteError::NotFound) => {}
            Err(why) => {
                self.status.report_write_failure(state, &why, STATUS_UPDATE_FAILED);
                return ("error", Requeue::After(ERROR_BACKOFF));
            }
        }
        ("defaulted", Requeue::After(Duration::ZERO))
    }

    /// Labels of the object that are exported by metrics.
    fn exported_labels(&self, state: &ObjectState) -> Vec<(String, String)> {
        let labels = state.object.labels();
        let keys = self.autoscaler.config.labels_as_tags.iter();
        keys.map(|key| (key.clone(), labels.get(key).cloned().unwrap_or_default())).collect()
    }
}
