//! What a reconcile decides to write: the scale of the target, the status, metadata, and events.

use std::sync::Arc;

use plimsoll_core::{scaling::ScaleOutcome, types::Time};
use tokio::time::Instant;

use super::{DecisionRecord as _, ObservedScale, QueuedWrite, ReplicaAutoscaler, WritePart};
use crate::cluster::{
    leader::Term,
    target::scale::ObjectReference,
    write::{EventDetails, WriteError},
};

#[derive(Debug)]
pub(in crate::controllers) enum Write<A: ReplicaAutoscaler> {
    Scale(Box<ScaleWrite<A>>),
    Status(Box<StatusWrite<A>>),
    /// A change of the metadata, such as the removal of a finalizer.
    Metadata(Arc<A::Object>),
    Event(Box<EventDetails>),
}

#[derive(Debug)]
pub(in crate::controllers) enum StatusChange<A: ReplicaAutoscaler> {
    Decided(Arc<A::Decision>, ScaleOutcome),
    Conditions(Vec<A::Condition>),
}

impl<A: ReplicaAutoscaler> StatusChange<A> {
    pub fn apply(&self, autoscaler: &A, before: &A::Status, now: Time) -> A::Status {
        match self {
            Self::Decided(decision, outcome) => decision.status(before, outcome, now),
            Self::Conditions(updates) => autoscaler.with_conditions(before, updates, now),
        }
    }
}

#[derive(Debug)]
pub(in crate::controllers) struct StatusWrite<A: ReplicaAutoscaler> {
    /// The version of the object to change.
    pub object: Arc<A::Object>,
    /// The object whose stored status `status` is based on. If another status is stored, `change` is applied to that.
    pub base: Arc<A::Object>,
    pub status: Arc<A::Status>,
    pub change: StatusChange<A>,
    pub now: Time,
    pub failure_reason: &'static str,
    /// Whether the object is reconciled again if it fails: otherwise the next reconcile tries again.
    pub retries: bool,
}

impl<A: ReplicaAutoscaler> StatusWrite<A> {
    pub fn current_status(&self, autoscaler: &A) -> A::Status {
        let stored = A::stored_status(&self.object);
        if stored == A::stored_status(&self.base) {
            return A::Status::clone(&self.status);
        }
        self.change.apply(autoscaler, &stored.cloned().unwrap_or_default(), self.now)
    }
}

/// A write of the scale, after it was recorded in the status as pending.
#[derive(Debug)]
pub(in crate::controllers) struct ScaleWrite<A: ReplicaAutoscaler> {
    pub decision: Arc<A::Decision>,
    pub object: Arc<A::Object>,
    /// The object whose stored status `status` is based on.
    pub base: Arc<A::Object>,
    /// The newest status before the decision.
    pub status: A::Status,
    pub target: ObjectReference,
    pub observed: ObservedScale,
    pub observed_at: Instant,
    pub to: i32,
    pub now: Time,
    /// The term of leadership in which it was decided.
    pub term: Option<Term>,
}

impl<A: ReplicaAutoscaler> ScaleWrite<A> {
    pub fn spec_replicas(&self) -> i32 {
        self.observed.values().spec_replicas
    }
}

impl<A: ReplicaAutoscaler> QueuedWrite for Write<A> {
    fn part(&self) -> WritePart {
        match self {
            Self::Scale(_) => WritePart::Scale,
            Self::Status(_) => WritePart::Status,
            Self::Metadata(_) => WritePart::Metadata,
            Self::Event(_) => WritePart::Event,
        }
    }

    fn adds_replicas(&self) -> bool {
        matches!(self, Self::Scale(write) if write.to > write.spec_replicas())
    }

    fn requests(&self) -> usize {
        match self {
            // The pending scale is recorded first.
            Self::Scale(_) => 2,
            _ => 1,
        }
    }
}

impl<A: ReplicaAutoscaler> Write<A> {
    /// The object that it changes; `None` for an event.
    pub fn object(&self) -> Option<&A::Object> {
        match self {
            Self::Scale(write) => Some(&write.object),
            Self::Status(write) => Some(&write.object),
            Self::Metadata(object) => Some(object),
            Self::Event(_) => None,
        }
    }

    /// Changes a waiting write to the object that is stored now by another write of this process.
    pub fn rebase(&mut self, stored: &Arc<A::Object>) {
        use kube::Resource as _;
        let (object, base) = match self {
            Self::Scale(write) => (&mut write.object, Some(&mut write.base)),
            Self::Status(write) => (&mut write.object, Some(&mut write.base)),
            Self::Metadata(object) => (object, None),
            Self::Event(_) => return,
        };
        if object.meta().uid != stored.meta().uid {
            return;
        }
        *object = Arc::clone(stored);
        if let Some(base) = base {
            *base = Arc::clone(stored);
        }
    }
}

#[derive(Debug)]
pub(in crate::controllers) enum ScaleEnd {
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

#[derive(Debug)]
pub(in crate::controllers) struct ScaleResult<A: ReplicaAutoscaler> {
    /// The write, with the object as stored after the pending scale was recorded.
    pub write: ScaleWrite<A>,
    pub end: ScaleEnd,
    pub scale_version: Option<u64>,
}

#[derive(Debug)]
pub(in crate::controllers) struct StatusResult<A: ReplicaAutoscaler> {
    pub write: StatusWrite<A>,
    /// Whether a request was made, or why it failed.
    pub written: Result<bool, WriteError>,
}
