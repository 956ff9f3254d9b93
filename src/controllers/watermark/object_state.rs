//! The state of one object that is kept from reconcile to reconcile.

use std::sync::Arc;

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, Time};

use super::{exported_state::ExportedState, writes::key_of};
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

/// A status that waits to be written.
#[derive(Clone, Debug)]
pub(super) struct WaitingStatus {
    /// The stored status that it is based on. It is void if another client changes that.
    pub base: Option<WatermarkPodAutoscalerStatus>,
    pub status: WatermarkPodAutoscalerStatus,
}

/// An object with the state that is kept from reconcile to reconcile.
#[derive(Clone, Debug)]
pub(super) struct ObjectState {
    /// The object as last received from the watch or from a write.
    pub object: Arc<WatermarkPodAutoscaler>,
    /// The status that would have been written, in a dry run.
    pub dry_run_status: Option<WatermarkPodAutoscalerStatus>,
    /// The newest status, while it waits to be written.
    pub waiting_status: Option<WaitingStatus>,
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
            waiting_status: None,
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

    /// The key of the object.
    pub fn key(&self) -> ObjectKey {
        key_of(&self.object)
    }

    fn newest_status(&self) -> Option<&WatermarkPodAutoscalerStatus> {
        let stored = &self.object.status;
        let waiting = self.waiting_status.as_ref().filter(|waiting| waiting.base == *stored);
        let waiting = waiting.map(|waiting| &waiting.status);
        self.dry_run_status.as_ref().or(waiting).or(stored.as_ref())
    }

    /// The newest status: written, waiting to be written, or one that would have been written in a dry run.
    pub fn status(&self) -> WatermarkPodAutoscalerStatus {
        self.newest_status().cloned().unwrap_or_default()
    }

    /// Whether a scale update is pending, whose outcome is unknown.
    pub fn has_pending_scale(&self) -> bool {
        self.newest_status().is_some_and(is_pending)
    }

    /// Replaces the object by what a write has stored, unless the watch has a newer version. A status that still waits is
    /// based on the stored one from now on.
    pub fn accept_stored(&mut self, stored: &Arc<WatermarkPodAutoscaler>) {
        if let Some(waiting) = &mut self.waiting_status {
            waiting.base.clone_from(&stored.status);
        }
        if !self.is_newer_than(stored) {
            self.object = Arc::clone(stored);
        }
    }

    /// Whether the object is a newer version than `other` of the same object.
    pub fn is_newer_than(&self, other: &WatermarkPodAutoscaler) -> bool {
        let version = |object: &WatermarkPodAutoscaler| {
            object.resource_version().and_then(|version| version.parse::<u64>().ok())
        };
        self.object.uid() == other.uid()
            && version(other).is_some_and(|other| version(&self.object) > Some(other))
    }

    /// Forgets this status if it still waits, because its write has ended.
    pub fn end_waiting(&mut self, status: &WatermarkPodAutoscalerStatus) {
        self.waiting_status.take_if(|waiting| waiting.status == *status);
    }
}
