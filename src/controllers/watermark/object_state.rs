//! WatermarkPodAutoscalers as the kind of object that the shared reconcile queue and state hold.

use std::sync::Arc;

use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerStatus},
    types::Time,
    watermark::{MetricHistory, WpaOptions, pending_scale::is_pending},
};

use super::{
    super::replicas::{self, ReplicaAutoscaler},
    exported_state::ExportedState,
};

/// WatermarkPodAutoscalers.
#[derive(Debug)]
pub(super) enum WatermarkAutoscaler {}

/// An object with the state that is kept from reconcile to reconcile.
pub(super) type ObjectState = replicas::ObjectState<WatermarkAutoscaler>;

/// What is kept from reconcile to reconcile for this kind of object alone.
#[derive(Clone, Debug, Default)]
pub(super) struct WatermarkState {
    /// Whether the last reconcile failed to read the monitor.
    pub has_unread_monitor: bool,
    /// When to retry the removal of the finalizer, after it failed.
    pub finalizer_retry_at: Option<Time>,
    /// Options from the annotations.
    pub options: WpaOptions,
    /// Metric history of the last reconcile, if there was one.
    pub metric_history: Option<MetricHistory>,
}

impl ReplicaAutoscaler for WatermarkAutoscaler {
    type Object = WatermarkPodAutoscaler;
    type Status = WatermarkPodAutoscalerStatus;
    type State = WatermarkState;
    type Exported = ExportedState;

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

    fn status(object: &WatermarkPodAutoscaler) -> Option<&WatermarkPodAutoscalerStatus> {
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
        (state.metric_history, state.finalizer_retry_at) = (None, None);
    }
}

/// An object without unused fields and capacity.
pub(super) fn trimmed(object: WatermarkPodAutoscaler) -> Arc<WatermarkPodAutoscaler> {
    WatermarkAutoscaler::trimmed(object)
}

/// The metric history. Before the first reconcile of this process it is restored from the decision in the status.
pub(super) fn metric_history(state: &ObjectState) -> MetricHistory {
    let restored = || Some(MetricHistory::from_decision(state.stored_status()?.decision.as_ref()?));
    state.own.metric_history.clone().or_else(restored).unwrap_or_default()
}
