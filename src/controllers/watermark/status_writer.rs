//! Writes the status of objects when it changes materially, and emits events.

use std::{sync::atomic::Ordering, time::Duration};

use kube::ResourceExt as _;
use plimsoll_core::types::Time;

use super::{
    WatermarkController,
    object_state::{ObjectState, trimmed},
};
use crate::cluster::write::{
    EventDetails, InvolvedObject, WpaPatchTarget, WriteContext, WriteError, wpa_status_patch,
};
use plimsoll_core::{
    api::{
        scale_decision::ScaleDecision,
        wpa::{MetricStatus, WatermarkPodAutoscaler, WatermarkPodAutoscalerStatus},
    },
    types::compat::Compat,
    watermark::{
        conditions::{self, ConditionUpdate},
        status_update::{Event, STATUS_UPDATE_FAILED},
    },
};

/// The field manager in `managedFields`.
const FIELD_MANAGER: &str = "plimsoll-watermark";
/// Attempts to write a status if other clients change it concurrently.
const MAX_CONFLICT_RETRIES: usize = 3;

/// How long to wait before writing `status.decision` again after the API server dropped it.
const DROPPED_DECISION_RETRY: Duration = Duration::from_mins(10);

/// An object that is overdue for this long has priority over status updates that only change values.
const OVERDUE_AFTER: Duration = Duration::from_millis(500);

/// How a new status differs from the current one.
enum StatusDiff {
    Unchanged,
    /// Only values differ, which is not urgent.
    ValuesOnly,
    Material,
}

impl WatermarkController {
    /// The context of all writes.
    pub(super) fn write_context(&self) -> WriteContext<'_> {
        WriteContext {
            client: &self.client,
            permit: &self.permit,
            stats: &self.write_stats,
            field_manager: FIELD_MANAGER,
        }
    }

    /// Writes the new status if it differs from the current one. On a conflict, the new status is computed again from the
    /// stored object.
    pub(super) async fn write_status(
        &self,
        state: &mut ObjectState,
        now: Time,
        become_status: impl Fn(&WatermarkPodAutoscalerStatus) -> WatermarkPodAutoscalerStatus,
    ) -> Result<(), WriteError> {
        if self.config.dry_run.is_some() {
            state.dry_run_status = Some(become_status(&state.status()));
            return Ok(());
        }
        let generation = state.object.metadata.generation;
        let mut last = WriteError::NotFound;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let before = state.object.status.clone();
            let mut after = become_status(&before.clone().unwrap_or_default());
            if self.drops_decisions(now) {
                after.decision = before.as_ref().and_then(|before| before.decision.clone());
            }
            let permit = match self.status_diff(state, before.as_ref(), &after, now) {
                StatusDiff::Unchanged => return Ok(()),
                StatusDiff::Material => None,
                // A worker that waits for a write reconciles no other object.
                StatusDiff::ValuesOnly => match self.value_writes.try_acquire() {
                    Ok(permit) => Some(permit),
                    Err(_) => return Ok(()),
                },
            };
            let patch = wpa_status_patch(before.as_ref(), &after);
            let written =
                self.write_context().patch_wpa(&state.object, WpaPatchTarget::Status, patch).await;
            drop(permit);
            match written {
                Ok(stored) => {
                    let is_stored = stored.status.as_ref().is_some_and(|it| it.decision.is_some());
                    if after.decision.is_some() {
                        self.record_decision_kept(is_stored, now);
                    }
                    state.object = trimmed(stored);
                    state.status_written_at = Some(now);
                    return Ok(());
                }
                Err(WriteError::Conflict(why)) => {
                    last = WriteError::Conflict(why);
                    let Some(fresh) = self.write_context().get_wpa(&state.object).await? else {
                        return Err(WriteError::NotFound);
                    };
                    // The decision is outdated: the object was changed, or another process has scaled its target.
                    let last_scale_time = |object: &WatermarkPodAutoscaler| {
                        object.status.as_ref().and_then(|status| status.last_scale_time.clone())
                    };
                    if fresh.metadata.generation != generation
                        || fresh.uid() != state.object.uid()
                        || last_scale_time(&fresh) != last_scale_time(&state.object)
                    {
                        return Err(last);
                    }
                    state.object = trimmed(fresh);
                }
                Err(why) => return Err(why),
            }
        }
        Err(last)
    }

    /// Whether the API server drops `status.decision`. The field is written again from time to time because the CRD may have
    /// been updated.
    fn drops_decisions(&self, now: Time) -> bool {
        let last = self.decision_dropped_at.load(Ordering::Relaxed);
        let from = Time::from_nanos(last);
        last != 0 && (from..from.later(DROPPED_DECISION_RETRY)).contains(&now)
    }

    /// Records whether the API server stored `status.decision`. It drops the field if upstream's CRD is installed.
    fn record_decision_kept(&self, is_stored: bool, now: Time) {
        let last = if is_stored { 0 } else { now.as_nanos() };
        let before = self.decision_dropped_at.swap(last, Ordering::Relaxed);
        if is_stored && before != 0 {
            tracing::info!("the WatermarkPodAutoscaler CRD now has status.decision");
        }
        if !is_stored && before == 0 {
            tracing::warn!(
                "the WatermarkPodAutoscaler CRD in this cluster has no status.decision: decisions are not stored, \
                 `plimsoll explain wpa` shows less, and delays of single metrics and fallbacks restart when another \
                 replica becomes the leader; apply the output of `plimsoll crds`, which is detected within ten minutes"
            );
        }
    }

    /// Compares two statuses. A difference in values counts only if no status was written for a while. Upstream writes every
    /// difference.
    fn status_diff(
        &self,
        state: &ObjectState,
        before: Option<&WatermarkPodAutoscalerStatus>,
        after: &WatermarkPodAutoscalerStatus,
        now: Time,
    ) -> StatusDiff {
        let Some(before) = before else { return StatusDiff::Material };
        if is_same_status(before, after) {
            return StatusDiff::Unchanged;
        }
        if self.config.compat == Compat::Upstream || without_values(before) != without_values(after)
        {
            return StatusDiff::Material;
        }
        let next_value_write =
            state.status_written_at.map(|at| at.later(self.config.status_interval));
        if next_value_write.is_none_or(|next_value_write| next_value_write <= now)
            && self.may_write_values()
        {
            StatusDiff::ValuesOnly
        } else {
            StatusDiff::Unchanged
        }
    }

    /// Whether a status update that only changes values delays neither other writes nor reconciles.
    fn may_write_values(&self) -> bool {
        self.permit.limiter().has_spare_capacity()
            && self.queue.longest_wait(self.clock.now()) < OVERDUE_AFTER
    }

    /// Writes only conditions of an object, without a decision. Returns whether they are stored.
    pub(super) async fn write_conditions(
        &self,
        state: &mut ObjectState,
        updates: &[ConditionUpdate],
        now: Time,
    ) -> bool {
        let written = self
            .write_status(state, now, |before| {
                let mut status = before.clone();
                for update in updates {
                    conditions::set_condition(&mut status, update, now);
                }
                // A change of the last condition fields alone is not worth a write.
                if self.config.compat == Compat::Plimsoll && status.conditions == before.conditions
                {
                    return before.clone();
                }
                status
            })
            .await;
        if let Err(why) = &written {
            self.report_write_failure(state, why, STATUS_UPDATE_FAILED);
        }
        written.is_ok()
    }

    /// Reports a failed status update with the given event reason. The next reconcile tries again.
    pub(super) fn report_write_failure(
        &self,
        state: &ObjectState,
        why: &WriteError,
        reason: &'static str,
    ) {
        let (namespace, name) =
            (state.object.namespace().unwrap_or_default(), state.object.name_any());
        match why {
            WriteError::NotFound | WriteError::NotLeader | WriteError::Conflict(_) => {
                tracing::debug!(%namespace, %name, %why, "status not written");
            }
            WriteError::NoResponse(_)
            | WriteError::Indeterminate(_)
            | WriteError::Rejected(_)
            | WriteError::Malformed(_) => {
                tracing::warn!(%namespace, %name, %why, "failed to update status; retrying on the next reconcile");
                self.emit_event(state, true, reason, why.message());
            }
        }
    }

    /// Reports that the outcome of a scale update is unknown. The change stays pending, and the next reconcile resolves it.
    pub(super) async fn report_unknown_scale_outcome(
        &self,
        state: &mut ObjectState,
        why: String,
        now: Time,
    ) {
        let (namespace, name) =
            (state.object.namespace().unwrap_or_default(), state.object.name_any());
        tracing::warn!(%namespace, %name, %why, "scale update outcome unknown; will verify on next reconcile");
        self.write_conditions(state, &[ConditionUpdate::indeterminate(&why)], now).await;
        let event = Event { is_warning: true, reason: "FailedScale", message: why };
        self.emit_events(state, vec![event]);
    }

    /// Emits the events of a decision. A lasting warning is emitted once; upstream emits it on every reconcile.
    pub(super) fn emit_events(&self, state: &mut ObjectState, events: Vec<Event>) {
        if self.config.compat == Compat::Upstream {
            for Event { is_warning, reason, message } in events {
                self.emit_event(state, is_warning, reason, message);
            }
            return;
        }
        let (warnings, others): (Vec<Event>, Vec<Event>) =
            events.into_iter().partition(|event| event.is_warning);
        let mut active_warnings = Vec::new();
        for Event { reason, message, .. } in warnings {
            let is_new = state.active_warnings.iter().all(|(before, _)| *before != reason);
            if is_new {
                self.emit_event(state, true, reason, message.clone());
            }
            active_warnings.push((reason, message));
        }
        state.active_warnings = active_warnings;
        let was_idle = state.is_idle;
        state.is_idle = others.iter().any(|event| event.reason == "NotScaling");
        for Event { reason, message, .. } in others {
            if reason != "NotScaling" || !was_idle {
                self.emit_event(state, false, reason, message);
            }
        }
    }

    /// Emits an event about an object.
    pub(super) fn emit_event(
        &self,
        state: &ObjectState,
        is_warning: bool,
        reason: &'static str,
        message: String,
    ) {
        if self.config.dry_run.is_some_and(|dry| !dry.events) {
            return;
        }
        let involved_object = InvolvedObject {
            api_version: "datadoghq.com/v1alpha1",
            kind: "WatermarkPodAutoscaler",
            namespace: state.object.namespace().unwrap_or_default(),
            name: state.object.name_any(),
            uid: state.object.uid().unwrap_or_default(),
        };
        let at = self.clock.now();
        self.events.publish(EventDetails { involved_object, is_warning, reason, message, at });
    }
}

/// Whether two statuses are equal except for the time of the decision.
fn is_same_status(
    before: &WatermarkPodAutoscalerStatus,
    after: &WatermarkPodAutoscalerStatus,
) -> bool {
    let mut after = after.clone();
    if let (Some(decision), Some(before)) = (&mut after.decision, &before.decision) {
        decision.at.clone_from(&before.at);
    }
    *before == after
}

/// A status without the values, which need not be up to date.
fn without_values(status: &WatermarkPodAutoscalerStatus) -> WatermarkPodAutoscalerStatus {
    let mut status = status.clone();
    status.current_metrics.iter_mut().for_each(clear_value);
    for condition in &mut status.conditions {
        // Messages of conditions contain values and pod counts.
        condition.message.clear();
    }
    status.decision = status.decision.take().map(ScaleDecision::without_values);
    status.last_condition_type.clear();
    status.last_condition_state.clear();
    status
}

fn clear_value(metric: &mut MetricStatus) {
    if let Some(external) = &mut metric.external {
        external.current_value = plimsoll_core::types::quantity::Quantity::ZERO;
    }
    if let Some(resource) = &mut metric.resource {
        resource.current_average_value = plimsoll_core::types::quantity::Quantity::ZERO;
    }
    if let Some(resource) = &mut metric.container_resource {
        resource.current_average_value = plimsoll_core::types::quantity::Quantity::ZERO;
    }
}
