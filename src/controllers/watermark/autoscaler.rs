//! WatermarkPodAutoscalers as a kind of replica autoscaler.

use std::{borrow::Cow, sync::Arc, time::Duration};

use kube::ResourceExt as _;
use plimsoll_core::{
    api::{
        scale_decision::ScaleDecisionStatus,
        scale_target::ScaleTarget,
        wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerStatus},
    },
    scaling::{STATUS_UPDATE_FAILED, ScaleDecision},
    types::{ObjectKey, Time, compat::Compat, quantity::Quantity},
    watermark::{
        WpaOptions,
        conditions::{self, ConditionUpdate},
        log_attributes,
        pending_scale::is_pending,
    },
};
use plimsoll_storage::WritePermit;
use serde_json::json;
use tracing::Span;

use super::{
    super::replicas::{
        self, AutoscalerKind, ERROR_BACKOFF, MetadataResult, ReconcileResult, ReplicaAutoscaler,
        Requeue, key_of,
    },
    WatermarkController,
    config::WatermarkConfig,
    decision_field::DecisionField,
    reconcile::{FINALIZER, reconcile},
    watermark_decision::WatermarkDecision,
};
use crate::{
    cluster::{
        cache::replica_pod::ReplicaPod,
        metric_sources::metrics_client::MetricsClient,
        write::{ObjectPatchTarget, WriteError},
    },
    controllers::runtime::target_vpas::Vpas,
    telemetry::{ExportedState, WatermarkMetrics, watermark::watermark_state},
};

/// WatermarkPodAutoscalers: flags, metrics, and the client for values and alerts.
pub struct WatermarkAutoscaler {
    pub(super) config: WatermarkConfig,
    pub(super) metrics_client: MetricsClient,
    pub(super) metrics: WatermarkMetrics,
    pub(super) decision_field: DecisionField,
    /// With `--compat=upstream` there are none: replicas are removed while pods are updated.
    pub(super) vpas: Option<Vpas>,
}

/// An object with the state that is kept from reconcile to reconcile.
pub(super) type ObjectState = replicas::ObjectState<WatermarkAutoscaler>;

/// What is kept from reconcile to reconcile for this kind of object alone.
#[derive(Clone, Debug, Default)]
pub struct WatermarkState {
    /// Whether the last reconcile failed to read the monitor.
    pub has_unread_monitor: bool,
    /// When to retry the removal of the finalizer, after it failed.
    pub finalizer_retry_at: Option<Time>,
    pub options: WpaOptions,
    /// The last decision of this process, if it has made one.
    pub last_decision: Option<Arc<ScaleDecision>>,
}

impl AutoscalerKind for WatermarkAutoscaler {
    type Object = WatermarkPodAutoscaler;
    type Status = WatermarkPodAutoscalerStatus;
    type State = WatermarkState;
    type Pod = ReplicaPod;

    const RESOURCE: &'static str = "watermarkpodautoscalers";

    /// Deserialized lists have spare capacity, which takes a fifth of the memory of an object.
    fn trimmed(mut object: WatermarkPodAutoscaler) -> Arc<WatermarkPodAutoscaler> {
        object.metadata.managed_fields = None;
        object.spec.metrics.shrink_to_fit();
        if let Some(status) = &mut object.status {
            status.current_metrics.shrink_to_fit();
            status.conditions.shrink_to_fit();
            if let Some(decision) = &mut status.decision {
                decision.sources.shrink_to_fit();
                decision.restrictions.shrink_to_fit();
            }
        }
        Arc::new(object)
    }

    fn stored_status(object: &WatermarkPodAutoscaler) -> Option<&WatermarkPodAutoscalerStatus> {
        object.status.as_ref()
    }

    /// A new spec, new annotations, or a deletion timestamp.
    fn is_material_change(before: &WatermarkPodAutoscaler, after: &WatermarkPodAutoscaler) -> bool {
        before.metadata.uid != after.metadata.uid
            || before.spec != after.spec
            || before.metadata.annotations != after.metadata.annotations
            || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
    }

    fn is_pending(status: &WatermarkPodAutoscalerStatus) -> bool {
        is_pending(status)
    }

    fn on_takeover(state: &mut WatermarkState) {
        (state.last_decision, state.finalizer_retry_at) = (None, None);
    }
}

impl ReplicaAutoscaler for WatermarkAutoscaler {
    type Decision = WatermarkDecision;
    type Condition = ConditionUpdate;

    const NAME: &'static str = "watermark";
    const FIELD_MANAGER: &'static str = "plimsoll-watermark";

    fn log_span(object: &WatermarkPodAutoscaler) -> Span {
        let annotation = object.annotations().get(log_attributes::ANNOTATION);
        let attributes =
            log_attributes::parse(annotation.map(String::as_str)).unwrap_or_else(|why| {
                let key = key_of(object);
                tracing::debug!(%key, why, "ignoring invalid annotation {}", log_attributes::ANNOTATION);
                None
            });
        attributes.map_or_else(Span::none, |attributes| tracing::error_span!("object", %attributes))
    }

    fn target(object: &WatermarkPodAutoscaler) -> Cow<'_, ScaleTarget> {
        Cow::Borrowed(&object.spec.scale_target_ref)
    }

    fn last_scale(status: &WatermarkPodAutoscalerStatus) -> Option<Time> {
        status.last_scale_time.as_ref().map(conditions::from_timestamp)
    }

    fn reconcile(
        controller: &WatermarkController,
        key: &ObjectKey,
        state: &mut ObjectState,
    ) -> impl Future<Output = ReconcileResult> + Send {
        reconcile(controller, key, state)
    }

    /// Removes the finalizer.
    async fn write_metadata(
        controller: &WatermarkController,
        object: &WatermarkPodAutoscaler,
        permit: &dyn WritePermit,
    ) -> MetadataResult<Self> {
        let others: Vec<&String> =
            object.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        let body = json!({"metadata": {"finalizers": others}});
        let context = controller.status.write_context(permit);
        match context.patch_object(object, ObjectPatchTarget::Object, body).await {
            Ok(stored) => Ok(Some(Self::trimmed(stored))),
            Err(WriteError::NotFound) => Ok(None),
            Err(why) => Err(why),
        }
    }

    fn complete_metadata(
        controller: &WatermarkController,
        state: &mut ObjectState,
        result: &MetadataResult<Self>,
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
                let back_off = || controller.status.back_off(state, ERROR_BACKOFF);
                is_deleted.then(back_off).map(|delay| controller.clock.now().later(delay))
            }
        }
    }

    fn unknown_outcome(why: &str) -> Option<ConditionUpdate> {
        Some(ConditionUpdate::indeterminate(why))
    }

    fn with_conditions(
        &self,
        before: &WatermarkPodAutoscalerStatus,
        updates: &[ConditionUpdate],
        now: Time,
    ) -> WatermarkPodAutoscalerStatus {
        let mut status = before.clone();
        for update in updates {
            conditions::set_condition(&mut status, update, now);
        }
        // A change of the last condition fields alone is not worth a write.
        if self.config.settings.compat == Compat::Plimsoll && status.conditions == before.conditions
        {
            return before.clone();
        }
        status
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

    fn differ_in_values_only(
        before: &WatermarkPodAutoscalerStatus,
        after: &WatermarkPodAutoscalerStatus,
    ) -> bool {
        without_values(before) == without_values(after)
    }

    fn drop_unstored(
        &self,
        before: Option<&WatermarkPodAutoscalerStatus>,
        after: &mut WatermarkPodAutoscalerStatus,
        now: Time,
    ) {
        if self.decision_field.is_dropped(now) {
            after.decision = before.and_then(|before| before.decision.clone());
        }
    }

    fn on_stored(
        &self,
        sent: &WatermarkPodAutoscalerStatus,
        stored: Option<&WatermarkPodAutoscalerStatus>,
        now: Time,
    ) {
        if sent.decision.is_some() {
            let is_stored = stored.is_some_and(|stored| stored.decision.is_some());
            self.decision_field.record(is_stored, now);
        }
    }

    async fn wait_until_known(&self) {
        if let Some(vpas) = &self.vpas {
            vpas.wait_until_known().await;
        }
    }

    fn export_status(exported: &mut ExportedState, status: &WatermarkPodAutoscalerStatus) {
        watermark_state::set_conditions(exported, status);
    }

    fn begin_reconcile(&self, lateness: Duration) {
        self.metrics.begin_reconcile(lateness);
    }

    fn end_reconcile(&self, (outcome, next): ReconcileResult, took: Duration) {
        // The label that controller-runtime, which upstream uses, would give to the result.
        let label = match next {
            _ if outcome == "error" => "error",
            Requeue::OnChange => "success",
            Requeue::Periodic | Requeue::After(_) => "requeue_after",
        };
        self.metrics.end_reconcile(outcome, label, took);
    }
}

/// The last decision. Before the first one of this process, it is what the status has of it.
pub(super) fn last_decision(state: &ObjectState) -> Arc<ScaleDecision> {
    let stored = || {
        let decision = state.stored_status()?.decision.as_ref()?;
        Some(Arc::new(ScaleDecision::from_status(decision)))
    };
    state.own.last_decision.clone().or_else(stored).unwrap_or_default()
}

/// A status without the values, which need not be up to date.
fn without_values(status: &WatermarkPodAutoscalerStatus) -> WatermarkPodAutoscalerStatus {
    let mut status = status.clone();
    for metric in &mut status.current_metrics {
        if let Some(external) = &mut metric.external {
            external.current_value = Quantity::ZERO;
        }
        if let Some(resource) = &mut metric.resource {
            resource.current_average_value = Quantity::ZERO;
        }
        if let Some(resource) = &mut metric.container_resource {
            resource.current_average_value = Quantity::ZERO;
        }
    }
    for condition in &mut status.conditions {
        // Messages of conditions contain values and pod counts.
        condition.message.clear();
    }
    status.decision = status.decision.take().map(ScaleDecisionStatus::without_values);
    status.last_condition_type.clear();
    status.last_condition_state.clear();
    status
}
