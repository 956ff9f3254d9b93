//! The state of one object that is kept from reconcile to reconcile.

use std::sync::Arc;

use plimsoll_core::types::Time;

use crate::telemetry::ExportedState;
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerStatus},
    watermark::{MetricHistory, WpaOptions, pending_scale::is_pending},
};

/// An object without unused fields and capacity. Deserialized lists have spare capacity, which takes a fifth of the memory
/// of an object.
pub(super) fn trimmed(mut object: WatermarkPodAutoscaler) -> Arc<WatermarkPodAutoscaler> {
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

/// An object with the state that is kept from reconcile to reconcile.
#[derive(Clone, Debug)]
pub(super) struct ObjectState {
    /// The object as last received from the watch or from a write.
    pub object: Arc<WatermarkPodAutoscaler>,
    /// The status that would have been written, in a dry run.
    pub dry_run_status: Option<WatermarkPodAutoscalerStatus>,
    /// When the object was last reconciled.
    pub last_reconcile: Option<Time>,
    /// When this process last wrote the status.
    pub status_written_at: Option<Time>,
    /// Reasons and messages of active warnings, so that each is emitted once.
    pub active_warnings: Vec<(&'static str, String)>,
    /// Whether the last reconcile failed to read the monitor.
    pub has_unread_monitor: bool,
    /// When to retry the removal of the finalizer, after it failed.
    pub finalizer_retry_at: Option<Time>,
    /// Whether the last reconcile found nothing to change.
    pub is_idle: bool,
    /// Replicas that this process has added and removed.
    pub replicas_moved: Option<(u64, u64)>,
    /// Consecutive failed reconciles.
    pub failures: u32,
    /// Options from the annotations.
    pub options: WpaOptions,
    /// Metric history of the last reconcile, if there was one.
    pub metric_history: Option<MetricHistory>,
    /// The resourceVersion of the scale that was last read or written, to detect older ones.
    pub scale_version: Option<u64>,
    /// The state that metrics export.
    pub exported: Option<Arc<ExportedState>>,
}

impl ObjectState {
    pub fn new(object: Arc<WatermarkPodAutoscaler>) -> Self {
        Self {
            object,
            dry_run_status: None,
            last_reconcile: None,
            status_written_at: None,
            active_warnings: Vec::new(),
            has_unread_monitor: false,
            finalizer_retry_at: None,
            is_idle: false,
            replicas_moved: None,
            failures: 0,
            options: WpaOptions::default(),
            metric_history: None,
            scale_version: None,
            exported: None,
        }
    }

    /// The metric history. Before the first reconcile of this process it is restored from the decision in the status.
    pub fn metric_history(&self) -> MetricHistory {
        let restored =
            || Some(MetricHistory::from_decision(self.object.status.as_ref()?.decision.as_ref()?));
        self.metric_history.clone().or_else(restored).unwrap_or_default()
    }

    /// The status that was last written, or would have been in a dry run.
    pub fn status(&self) -> WatermarkPodAutoscalerStatus {
        self.dry_run_status.clone().or_else(|| self.object.status.clone()).unwrap_or_default()
    }

    /// Whether a scale update is pending, whose outcome is unknown.
    pub fn has_pending_scale(&self) -> bool {
        self.dry_run_status.as_ref().or(self.object.status.as_ref()).is_some_and(is_pending)
    }
}
