//! One object that is looked after, and what is remembered of it from look to look.

use std::sync::Arc;

use plimsoll_core::types::Time;

use super::exported_state::ExportedState;
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerStatus},
    watermark::{MetricHistory, WpaOptions, pending_scale::is_pending},
};

/// An object as it is kept: without what nobody asks it for. Whoever reads lists of one metric and a few conditions leaves
/// room in them for four, and that is a fifth of what an object takes.
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

/// An object, and what is remembered of it from look to look.
#[derive(Clone, Debug)]
pub(super) struct ObjectState {
    /// As the watch told last, or as it was written since.
    pub object: Arc<WatermarkPodAutoscaler>,
    /// What its status would be if anything were written.
    pub dry_run_status: Option<WatermarkPodAutoscalerStatus>,
    /// When it was last told what it asks for.
    pub last_reconcile: Option<Time>,
    /// When its status was last written by this process.
    pub status_written_at: Option<Time>,
    /// Reasons of the warnings that stand, so that they are told once.
    pub active_warnings: Vec<(&'static str, String)>,
    /// Whether its monitor could not be read at the last look.
    pub has_unread_monitor: bool,
    /// Until when nobody tries again to take its finalizer away, which was refused.
    pub finalizer_retry_at: Option<Time>,
    /// Whether the last look found nothing to change.
    pub is_idle: bool,
    /// Replicas that were added and removed by this process.
    pub replicas_moved: Option<(u64, u64)>,
    /// Looks in a row that failed.
    pub failures: u32,
    /// What its annotations ask for.
    pub options: WpaOptions,
    /// What is remembered from the last look, if there was one.
    pub metric_history: Option<MetricHistory>,
    /// The version of the scale that was seen or written last: an older one tells of a time before that.
    pub scale_version: Option<u64>,
    /// What metrics show of it.
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

    /// What is to be remembered of it: where nobody looked yet, what the status tells of the last look of another.
    pub fn metric_history(&self) -> MetricHistory {
        let told =
            || Some(MetricHistory::from_decision(self.object.status.as_ref()?.decision.as_ref()?));
        self.metric_history.clone().or_else(told).unwrap_or_default()
    }

    /// What was written about it last, or would have been.
    pub fn status(&self) -> WatermarkPodAutoscalerStatus {
        self.dry_run_status.clone().or_else(|| self.object.status.clone()).unwrap_or_default()
    }

    /// Whether a change is booked of which nobody said that it was made.
    pub fn has_pending_scale(&self) -> bool {
        self.dry_run_status.as_ref().or(self.object.status.as_ref()).is_some_and(is_pending)
    }
}
