//! What a reconcile decides to write: the scale of the target, the status, the removal of the finalizer, and events.

use std::sync::Arc;

use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    types::{
        Time,
        compat::{Compat, Fixes},
    },
    watermark::{
        Decision,
        conditions::{self, ConditionUpdate},
        status_update::{ScaleOutcome, StatusBuilder},
    },
};
use tokio::time::Instant;

use super::super::replicas::{ObservedScale, QueuedWrite, WritePart};
use crate::cluster::{
    leader::Term,
    target::scale::ObjectReference,
    write::{EventDetails, WriteError},
};

/// A write of the controller.
#[derive(Debug)]
pub(super) enum Write {
    Scale(Box<ScaleWrite>),
    Status(Box<StatusWrite>),
    /// Removes upstream's finalizer.
    Finalizer(Arc<WatermarkPodAutoscaler>),
    Event(Box<EventDetails>),
}

/// A decision with what its status and events are rendered from.
#[derive(Debug)]
pub(super) struct MadeDecision {
    pub spec: WatermarkPodAutoscalerSpec,
    pub namespace: String,
    pub decision: Decision,
    /// The status with the pending scale resolved: one that was never made is undone.
    pub resolved_status: WatermarkPodAutoscalerStatus,
    pub compat: Compat,
    pub skips_idle_events: bool,
    pub fixes: Fixes,
}

impl MadeDecision {
    /// Renders status and events at this time.
    pub fn builder(&self, now: Time) -> StatusBuilder<'_> {
        StatusBuilder {
            spec: &self.spec,
            namespace: &self.namespace,
            compat: self.compat,
            skips_idle_events: self.skips_idle_events,
            now,
            fixes: self.fixes,
        }
    }

    /// The status after this outcome. Keeps concurrent changes of the status, except the fields that a scale that was never
    /// made has set.
    pub fn status(
        &self,
        before: &WatermarkPodAutoscalerStatus,
        outcome: &ScaleOutcome,
        now: Time,
    ) -> WatermarkPodAutoscalerStatus {
        let mut base = before.clone();
        base.last_scale_time.clone_from(&self.resolved_status.last_scale_time);
        base.scaling_events_count = self.resolved_status.scaling_events_count;
        self.builder(now).status(&base, &self.decision, outcome)
    }
}

/// A change of the status.
#[derive(Clone, Debug)]
pub(super) enum StatusChange {
    Decided(Arc<MadeDecision>, ScaleOutcome),
    Conditions(Vec<ConditionUpdate>, Compat),
}

impl StatusChange {
    /// The status after this change.
    pub fn apply(
        &self,
        before: &WatermarkPodAutoscalerStatus,
        now: Time,
    ) -> WatermarkPodAutoscalerStatus {
        match self {
            Self::Decided(made, outcome) => made.status(before, outcome, now),
            Self::Conditions(updates, compat) => {
                let mut status = before.clone();
                for update in updates {
                    conditions::set_condition(&mut status, update, now);
                }
                // A change of the last condition fields alone is not worth a write.
                if *compat == Compat::Plimsoll && status.conditions == before.conditions {
                    return before.clone();
                }
                status
            }
        }
    }
}

/// A write of the status.
#[derive(Clone, Debug)]
pub(super) struct StatusWrite {
    /// The version of the object to change.
    pub object: Arc<WatermarkPodAutoscaler>,
    /// The stored status that `status` is based on. If another one is stored, `change` is applied to that.
    pub base: Option<WatermarkPodAutoscalerStatus>,
    pub status: WatermarkPodAutoscalerStatus,
    pub change: StatusChange,
    pub now: Time,
    /// The reason of the event if it fails.
    pub failure_reason: &'static str,
    /// Whether the object is reconciled again if it fails: otherwise the next reconcile tries again.
    pub retries: bool,
}

impl StatusWrite {
    /// The status to write now.
    pub fn current_status(&self) -> WatermarkPodAutoscalerStatus {
        if self.object.status == self.base {
            return self.status.clone();
        }
        self.change.apply(&self.object.status.clone().unwrap_or_default(), self.now)
    }
}

/// A write of the scale, after it was recorded in the status as pending.
#[derive(Debug)]
pub(super) struct ScaleWrite {
    pub made: Arc<MadeDecision>,
    pub object: Arc<WatermarkPodAutoscaler>,
    /// The stored status that `status` is based on.
    pub base: Option<WatermarkPodAutoscalerStatus>,
    /// The newest status before the decision.
    pub status: WatermarkPodAutoscalerStatus,
    pub target: ObjectReference,
    /// The scale of the decision.
    pub observed: ObservedScale,
    pub observed_at: Instant,
    pub to: i32,
    pub now: Time,
    /// The term of leadership in which it was decided.
    pub term: Option<Term>,
}

impl QueuedWrite for Write {
    fn part(&self) -> WritePart {
        match self {
            Self::Scale(_) => WritePart::Scale,
            Self::Status(_) => WritePart::Status,
            Self::Finalizer(_) => WritePart::Metadata,
            Self::Event(_) => WritePart::Event,
        }
    }

    fn adds_replicas(&self) -> bool {
        matches!(self, Self::Scale(write) if write.to > write.observed.values().spec_replicas)
    }

    fn requests(&self) -> usize {
        match self {
            // The pending scale is recorded first.
            Self::Scale(_) => 2,
            _ => 1,
        }
    }
}

impl Write {
    /// The object that it changes; `None` for an event.
    pub fn object(&self) -> Option<&WatermarkPodAutoscaler> {
        match self {
            Self::Scale(write) => Some(&write.object),
            Self::Status(write) => Some(&write.object),
            Self::Finalizer(object) => Some(object),
            Self::Event(_) => None,
        }
    }

    /// Changes a waiting write to the object that is stored now by another write of this process.
    pub fn rebase(&mut self, stored: &Arc<WatermarkPodAutoscaler>) {
        let (object, base) = match self {
            Self::Scale(write) => (&mut write.object, Some(&mut write.base)),
            Self::Status(write) => (&mut write.object, Some(&mut write.base)),
            Self::Finalizer(object) => (object, None),
            Self::Event(_) => return,
        };
        if object.metadata.uid != stored.metadata.uid {
            return;
        }
        *object = Arc::clone(stored);
        if let Some(base) = base {
            base.clone_from(&stored.status);
        }
    }
}

/// How a write of the scale ended.
#[derive(Debug)]
pub(super) enum ScaleEnd {
    /// The server has accepted or rejected it.
    Answered(ScaleOutcome),
    /// It was not made, because it could not be recorded as pending.
    NotRecorded(WriteError),
    /// It was not made, because this process does not lead. The next leader resolves the pending scale.
    NotLeader,
    /// Whether it was made is unknown.
    Unknown(String),
    /// It was not made, because the scale has changed since the decision, or could not be read.
    Outdated,
}

/// The result of a write of the scale.
#[derive(Debug)]
pub(super) struct ScaleResult {
    pub made: Arc<MadeDecision>,
    pub end: ScaleEnd,
    /// The object as stored after the pending scale was recorded.
    pub object: Arc<WatermarkPodAutoscaler>,
    pub from: i32,
    pub to: i32,
    /// The version of the scale.
    pub scale_version: Option<u64>,
    pub now: Time,
    /// The term of leadership in which it was decided.
    pub term: Option<Term>,
}

/// The result of a write of the status.
#[derive(Clone, Debug)]
pub(super) struct StatusResult {
    pub write: StatusWrite,
    /// Whether a request was made, or why it failed.
    pub written: Result<bool, WriteError>,
}
