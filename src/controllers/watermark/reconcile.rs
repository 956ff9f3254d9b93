//! One look at one object, from what it asks for to what is done about it.

use std::time::Duration;

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, Time};
use serde_json::json;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::{
    WatermarkController,
    exported_state::ExportedState,
    object_state::{ObjectState, trimmed},
    scaling_gates::Blocked,
};
use crate::{
    cluster::{target::scale::ScaleReadError, write::WpaPatchTarget},
    telemetry::ReconcileStep,
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

/// What exists for series alone, and keeps objects from going where nobody takes it away.
const FINALIZER: &str = "finalizer.watermarkpodautoscaler.datadoghq.com";
/// Until an object that could not be looked at has its next turn, and one whose target is not there.
const ERROR_BACKOFF: Duration = Duration::from_secs(1);
const NO_SCALE_BACKOFF: Duration = Duration::from_secs(10);
/// Until a finalizer that could not be taken away is tried again, while nobody waits for it.
const FINALIZER_RETRY_INTERVAL: Duration = Duration::from_mins(10);

/// When an object has its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requeue {
    /// In its period.
    Periodic,
    /// After so long.
    After(Duration),
    /// When it changes.
    OnChange,
}

/// What came of a look, in one word for metrics.
pub(super) type ReconcileResult = (&'static str, Requeue);

impl WatermarkController {
    /// Looks at an object. What it wants to be found by goes with every line of the log about it.
    pub(super) async fn reconcile(
        &self,
        key: &ObjectKey,
        seat: &mut ObjectState,
    ) -> ReconcileResult {
        let annotation = seat.object.annotations().get(log_attributes::ANNOTATION);
        let attributes =
            log_attributes::parse(annotation.map(String::as_str)).unwrap_or_else(|why| {
                tracing::debug!(%key, why, "{} is no JSON object", log_attributes::ANNOTATION);
                None
            });
        let span = attributes
            .map_or_else(Span::none, |attributes| tracing::error_span!("object", %attributes));
        self.reconcile_object(key, seat).instrument(span).await
    }

    async fn reconcile_object(&self, key: &ObjectKey, seat: &mut ObjectState) -> ReconcileResult {
        let now = self.clock.now();
        if seat.object.metadata.deletion_timestamp.is_some() {
            return self.reconcile_deleted(seat).await;
        }
        if self.config.compat == Compat::Plimsoll
            && seat.finalizer_retry_at.is_none_or(|it| it <= now)
        {
            // It is followed all the same: the finalizer is in nobody's way before it is deleted.
            let is_dropped = self.remove_finalizer(seat).await;
            seat.finalizer_retry_at = (!is_dropped).then(|| now.later(FINALIZER_RETRY_INTERVAL));
        }
        let filled = with_defaults(&seat.object.spec);
        let mut shown = ExportedState::from_spec(&filled, seat.exported.as_deref(), now);
        shown.labels = self.exported_labels(seat);
        shown.dry_run |= self.config.dry_run.is_some();
        if let Some(before) =
            seat.exported.as_deref().filter(|_| self.config.compat == Compat::Plimsoll)
        {
            shown.advance_cooldown(before.reconciled_at);
        }
        if self.config.compat == Compat::Plimsoll {
            shown.start_cooldown(&filled, &seat.status());
        }
        let came = self.reconcile_target(key, seat, &filled, &mut shown, now).await;
        shown.set_conditions(&seat.status());
        seat.last_reconcile = Some(self.clock.now());
        seat.exported = Some(std::sync::Arc::new(shown));
        came
    }

    async fn reconcile_target(
        &self,
        key: &ObjectKey,
        seat: &mut ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        shown: &mut ExportedState,
        now: Time,
    ) -> ReconcileResult {
        if self.config.compat == Compat::Upstream
            && self.config.dry_run.is_none()
            && !has_defaults(&seat.object.spec)
        {
            return self.write_defaults(seat, filled).await;
        }
        if let Err(invalid) = validate(filled, &key.to_string()) {
            let why = invalid.to_string();
            let [inactive, _] = ConditionUpdate::unprocessed();
            let is_said = self.write_conditions(seat, &[inactive, invalid.condition()], now).await;
            if self.config.compat == Compat::Plimsoll {
                shown.clear_decision();
            }
            if seat.active_warnings.iter().all(|(_, before)| *before != why) {
                self.emit_event(seat, true, "FailedSpecCheck", why.clone());
            }
            seat.active_warnings = vec![("FailedSpecCheck", why)];
            // Nothing but a change makes it right; only what it says is tried until it stands.
            if is_said || self.config.compat == Compat::Upstream {
                return ("invalid", Requeue::OnChange);
            }
            return ("error", Requeue::After(self.back_off(seat, ERROR_BACKOFF)));
        }
        self.read_options(seat, filled, now).await;
        let begun = Instant::now();
        let blocked = self.check_gates(key, seat, shown, now).await;
        self.metrics.observe_step(ReconcileStep::Gates, begun.elapsed());
        if let Some(Blocked { retry_after: pause, .. }) = &blocked
            && self.config.compat == Compat::Upstream
        {
            return ("blocked", Requeue::After(*pause));
        }
        let of = self.workloads.target(&key.namespace, &filled.scale_target_ref);
        let begun = Instant::now();
        let scale = self.observe_scale(seat, of).await;
        self.metrics.observe_step(ReconcileStep::Scale, begun.elapsed());
        let scale = match scale {
            Ok(scale) => scale,
            Err(why) => return self.report_scale_error(seat, shown, &why, now).await,
        };
        let pause = blocked.as_ref().map(|blocked| blocked.retry_after);
        let why = blocked.map(|blocked| blocked.reason);
        let came = self.decide(key, seat, filled, scale, why.as_deref(), shown, now).await;
        match pause {
            // Bounds hold meanwhile, so that the next look is no later than any other.
            Some(pause) => ("blocked", Requeue::After(pause.min(self.config.period))),
            None => came,
        }
    }

    pub(super) async fn report_scale_error(
        &self,
        seat: &mut ObjectState,
        shown: &mut ExportedState,
        why: &ScaleReadError,
        now: Time,
    ) -> ReconcileResult {
        if self.config.compat == Compat::Plimsoll {
            shown.clear_limits();
        }
        let text = why.to_string();
        let said = ConditionUpdate::unprocessed();
        self.write_conditions(seat, &said, now).await;
        let is_new = seat.active_warnings.iter().all(|(_, before)| *before != text);
        if is_new || self.config.compat == Compat::Upstream {
            self.emit_event(seat, true, "FailedProcessWPA", text.clone());
        }
        seat.active_warnings = vec![("FailedProcessWPA", text)];
        let pause = match why {
            ScaleReadError::NotFound(_) => NO_SCALE_BACKOFF,
            // Upstream goes by the text, which is the same.
            ScaleReadError::Unavailable(_) if self.config.compat == Compat::Upstream => {
                NO_SCALE_BACKOFF
            }
            _ => ERROR_BACKOFF,
        };
        if self.config.compat == Compat::Upstream {
            return ("error", Requeue::After(pause));
        }
        ("error", Requeue::After(self.back_off(seat, pause)))
    }

    /// Twice as long each time, up to the time between two looks.
    fn back_off(&self, seat: &mut ObjectState, pause: Duration) -> Duration {
        let pause = pause.saturating_mul(1 << seat.failures.min(8)).min(self.config.period);
        seat.failures = seat.failures.saturating_add(1);
        pause
    }

    /// An object on its way out: what keeps it is taken away.
    async fn reconcile_deleted(&self, seat: &mut ObjectState) -> ReconcileResult {
        seat.exported = None;
        if self.remove_finalizer(seat).await {
            ("gone", Requeue::OnChange)
        } else if self.config.compat == Compat::Upstream {
            ("error", Requeue::After(ERROR_BACKOFF))
        } else {
            ("error", Requeue::After(self.back_off(seat, ERROR_BACKOFF)))
        }
    }

    /// Takes upstream's finalizer away: series go with their objects here, and a delete must not hang on anybody.
    async fn remove_finalizer(&self, seat: &mut ObjectState) -> bool {
        let finalizers = seat.object.finalizers();
        if self.config.dry_run.is_some() || !finalizers.iter().any(|one| one == FINALIZER) {
            return true;
        }
        let others: Vec<&String> = finalizers.iter().filter(|one| *one != FINALIZER).collect();
        let body = json!({"metadata": {"finalizers": others}});
        self.write_object(seat, body).await
    }

    /// Upstream writes into the spec what it lacks.
    async fn write_defaults(
        &self,
        seat: &mut ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
    ) -> ReconcileResult {
        let Ok(spec) = serde_json::to_value(filled) else { return ("error", Requeue::Periodic) };
        if self.write_object(seat, json!({ "spec": spec })).await {
            ("defaulted", Requeue::After(Duration::ZERO))
        } else {
            ("error", Requeue::After(ERROR_BACKOFF))
        }
    }

    async fn write_object(&self, seat: &mut ObjectState, body: serde_json::Value) -> bool {
        match self.write_context().patch_wpa(&seat.object, WpaPatchTarget::Object, body).await {
            Ok(stored) => {
                seat.object = trimmed(stored);
                true
            }
            Err(crate::cluster::write::WriteError::NotFound) => true,
            Err(why) => {
                self.report_write_failure(seat, &why, STATUS_UPDATE_FAILED);
                false
            }
        }
    }

    /// Labels of the object that are wanted in metrics.
    fn exported_labels(&self, seat: &ObjectState) -> Vec<(String, String)> {
        let labels = seat.object.labels();
        let wanted = self.config.labels_as_tags.iter();
        wanted.map(|key| (key.clone(), labels.get(key).cloned().unwrap_or_default())).collect()
    }
}
