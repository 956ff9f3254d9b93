//! One object that is looked after, and what is remembered of it from look to look.

use std::sync::Arc;

use plimsoll_core::types::Time;

use super::rows::Shown;
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerStatus},
    watermark::{Memory, Options, booked::is_booked},
};

/// An object as it is kept: without what nobody asks it for. Whoever reads lists of one metric and a few conditions leaves
/// room in them for four, and that is a fifth of what an object takes.
pub(super) fn keep(mut object: WatermarkPodAutoscaler) -> Arc<WatermarkPodAutoscaler> {
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
pub(super) struct Seat {
    /// As the watch told last, or as it was written since.
    pub object: Arc<WatermarkPodAutoscaler>,
    /// What its status would be if anything were written.
    pub pretended: Option<WatermarkPodAutoscalerStatus>,
    /// When it was last told what it asks for.
    pub had: Option<Time>,
    /// When its status was last written by this process.
    pub written: Option<Time>,
    /// Reasons of the warnings that stand, so that they are told once.
    pub warned: Vec<(&'static str, String)>,
    /// Whether its monitor could not be read at the last look.
    pub has_unread_monitor: bool,
    /// Until when nobody tries again to take its finalizer away, which was refused.
    pub keeps_finalizer: Option<Time>,
    /// Whether the last look found nothing to change.
    pub is_idle: bool,
    /// Replicas that were added and removed by this process.
    pub moved: Option<(u64, u64)>,
    /// Looks in a row that failed.
    pub failures: u32,
    /// What its annotations ask for.
    pub options: Options,
    /// What is remembered from the last look, if there was one.
    pub memory: Option<Memory>,
    /// The version of the scale that was seen or written last: an older one tells of a time before that.
    pub seen: Option<u64>,
    /// What metrics show of it.
    pub shown: Option<Arc<Shown>>,
}

impl Seat {
    pub fn new(object: Arc<WatermarkPodAutoscaler>) -> Self {
        Self {
            object,
            pretended: None,
            had: None,
            written: None,
            warned: Vec::new(),
            has_unread_monitor: false,
            keeps_finalizer: None,
            is_idle: false,
            moved: None,
            failures: 0,
            options: Options::default(),
            memory: None,
            seen: None,
            shown: None,
        }
    }

    /// What is to be remembered of it: where nobody looked yet, what the status tells of the last look of another.
    pub fn memory(&self) -> Memory {
        let told = || Some(Memory::of(self.object.status.as_ref()?.decision.as_ref()?));
        self.memory.clone().or_else(told).unwrap_or_default()
    }

    /// What was written about it last, or would have been.
    pub fn status(&self) -> WatermarkPodAutoscalerStatus {
        self.pretended.clone().or_else(|| self.object.status.clone()).unwrap_or_default()
    }

    /// Whether a change is booked of which nobody said that it was made.
    pub fn is_booked(&self) -> bool {
        self.pretended.as_ref().or(self.object.status.as_ref()).is_some_and(is_booked)
    }
}
