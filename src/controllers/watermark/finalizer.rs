//! Removes upstream's finalizer: metrics of deleted objects end without it, and it must not block deletion.

use std::{sync::Arc, time::Duration};

use kube::ResourceExt as _;
use plimsoll_core::{
    api::wpa::WatermarkPodAutoscaler,
    scaling::STATUS_UPDATE_FAILED,
    types::{Time, compat::Compat},
};
use plimsoll_storage::WritePermit;
use serde_json::json;

use super::{
    super::replicas::{
        AutoscalerKind as _, ERROR_BACKOFF, MetadataResult, ReconcileResult, Requeue, Write,
    },
    WatermarkController,
    autoscaler::{ObjectState, WatermarkAutoscaler},
};
use crate::cluster::write::{ObjectPatchTarget, WriteError};

/// Upstream's finalizer, which only cleans up metrics, but blocks deletion if no controller removes it.
const FINALIZER: &str = "finalizer.watermarkpodautoscaler.datadoghq.com";
/// Delay before the removal of a finalizer is retried, while the object is not being deleted.
const RETRY_INTERVAL: Duration = Duration::from_mins(10);

/// Queues the removal, unless it was queued recently. The reconcile continues in any case: the finalizer only matters when
/// the object is deleted.
pub(super) fn queue_removal(controller: &WatermarkController, state: &mut ObjectState, now: Time) {
    if state.own.finalizer_retry_at.is_none_or(|retry_at| retry_at <= now) {
        let is_queued = put_removal(controller, state);
        state.own.finalizer_retry_at = is_queued.then(|| now.later(RETRY_INTERVAL));
    }
}

pub(super) async fn reconcile_deleted(
    controller: &WatermarkController,
    state: &mut ObjectState,
) -> ReconcileResult {
    state.exported = None;
    controller.scales.cancel_scale(state);
    if controller.settings.compat == Compat::Plimsoll {
        put_removal(controller, state);
        return ("gone", Requeue::OnChange);
    }
    if !has_finalizer(controller, state) {
        return ("gone", Requeue::OnChange);
    }
    let result = send_removal(controller, &state.object, &controller.permit).await;
    match complete_removal(controller, state, &result) {
        None => ("gone", Requeue::OnChange),
        Some(_) => ("error", Requeue::After(ERROR_BACKOFF)),
    }
}

fn has_finalizer(controller: &WatermarkController, state: &ObjectState) -> bool {
    controller.settings.dry_run.is_none()
        && state.object.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Queues the removal. Returns whether there is a finalizer.
fn put_removal(controller: &WatermarkController, state: &ObjectState) -> bool {
    let has_finalizer = has_finalizer(controller, state);
    if has_finalizer {
        controller.status.writes.put(&state.key(), Write::Metadata(Arc::clone(&state.object)));
    }
    has_finalizer
}

/// Removes the finalizer. Returns the new object, or `None` if it is gone.
pub(super) async fn send_removal(
    controller: &WatermarkController,
    object: &WatermarkPodAutoscaler,
    permit: &dyn WritePermit,
) -> MetadataResult<WatermarkAutoscaler> {
    let others: Vec<&String> =
        object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
    let body = json!({"metadata": {"finalizers": others}});
    let context = controller.status.write_context(permit);
    match context.patch_object(object, ObjectPatchTarget::Object, body).await {
        Ok(stored) => Ok(Some(WatermarkAutoscaler::trimmed(stored))),
        Err(WriteError::NotFound) => Ok(None),
        Err(why) => Err(why),
    }
}

/// Applies the result of the removal. Returns when the object is due if it failed.
pub(super) fn complete_removal(
    controller: &WatermarkController,
    state: &mut ObjectState,
    result: &MetadataResult<WatermarkAutoscaler>,
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
            controller.status.report_write_failure(state, why, STATUS_UPDATE_FAILED);
            if matches!(why, WriteError::Conflict(_)) {
                // The object has changed: the next reconcile tries again.
                state.own.finalizer_retry_at = None;
            }
            let is_deleted = state.object.metadata.deletion_timestamp.is_some();
            is_deleted.then(|| {
                controller.clock.now().later(controller.status.back_off(state, ERROR_BACKOFF))
            })
        }
    }
}
