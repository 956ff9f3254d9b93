//! The state of one object that is kept from reconcile to reconcile.

use std::sync::Arc;

use kube::{Resource, ResourceExt as _};
use plimsoll_core::types::{ObjectKey, Time};

use super::AutoscalerKind;
use crate::telemetry::ExportedState;

#[derive(Debug)]
pub struct WaitingStatus<A: AutoscalerKind> {
    /// The object whose stored status it is based on. It is void if another client changes that status.
    pub base: Arc<A::Object>,
    /// Shared with the write: thousands can wait for the rate limit.
    pub status: Arc<A::Status>,
}

/// An object with the state that is kept from reconcile to reconcile.
#[derive(Debug)]
pub struct ObjectState<A: AutoscalerKind> {
    /// The object as last received from the watch or from a write.
    pub object: Arc<A::Object>,
    /// The status that would have been written, in a dry run.
    pub dry_run_status: Option<A::Status>,
    /// The newest status, while it waits to be written.
    pub waiting_status: Option<WaitingStatus<A>>,
    pub last_reconcile: Option<Time>,
    /// When this process last wrote the status.
    pub status_written_at: Option<Time>,
    /// Reasons and messages of active warnings, so that each is emitted once.
    pub active_warnings: Vec<(&'static str, String)>,
    /// Whether the last reconcile found nothing to change.
    pub is_idle: bool,
    /// Replicas that this process has added and removed.
    pub replicas_moved: Option<(u64, u64)>,
    pub failures: u32,
    /// The resourceVersion of the scale that was last read or written, to detect older ones.
    pub scale_version: Option<u64>,
    pub exported: Option<Arc<ExportedState>>,
    pub own: A::State,
}

impl<A: AutoscalerKind> ObjectState<A> {
    pub fn new(object: Arc<A::Object>) -> Self {
        Self {
            object,
            dry_run_status: None,
            waiting_status: None,
            last_reconcile: None,
            status_written_at: None,
            active_warnings: Vec::new(),
            is_idle: false,
            replicas_moved: None,
            failures: 0,
            scale_version: None,
            exported: None,
            own: A::State::default(),
        }
    }

    pub fn key(&self) -> ObjectKey {
        key_of(&*self.object)
    }

    pub fn stored_status(&self) -> Option<&A::Status> {
        A::stored_status(&self.object)
    }

    fn newest_status(&self) -> Option<&A::Status> {
        let stored = self.stored_status();
        let waiting = self.waiting_status.as_ref();
        let waiting = waiting.filter(|waiting| A::stored_status(&waiting.base) == stored);
        let waiting = waiting.map(|waiting| &*waiting.status);
        self.dry_run_status.as_ref().or(waiting).or(stored)
    }

    /// The newest status: written, waiting to be written, or one that would have been written in a dry run.
    pub fn status(&self) -> A::Status {
        self.newest_status().cloned().unwrap_or_default()
    }

    /// Whether a scale update is pending, whose outcome is unknown.
    pub fn has_pending_scale(&self) -> bool {
        self.newest_status().is_some_and(A::is_pending)
    }

    /// Replaces the object by what a write has stored, unless the watch has a newer version. A status that still waits is
    /// based on the stored one from now on.
    pub fn accept_stored(&mut self, stored: &Arc<A::Object>) {
        if let Some(waiting) = &mut self.waiting_status {
            waiting.base = Arc::clone(stored);
        }
        if !self.is_newer_than(stored) {
            self.object = Arc::clone(stored);
        }
    }

    pub fn is_newer_than(&self, other: &A::Object) -> bool {
        let version = |object: &A::Object| {
            object.resource_version().and_then(|version| version.parse::<u64>().ok())
        };
        self.object.uid() == other.uid()
            && version(other).is_some_and(|other| version(&self.object) > Some(other))
    }

    /// Counts replicas that this process has added or removed. Returns the sums.
    pub fn add_moved_replicas(&mut self, from: i32, to: i32) -> (u64, u64) {
        let (up, down) = self.replicas_moved.unwrap_or_default();
        let moved = u64::from(from.abs_diff(to));
        let moved = if to > from { (up + moved, down) } else { (up, down + moved) };
        self.replicas_moved = Some(moved);
        moved
    }
}

pub(in crate::controllers) fn key_of<K: Resource>(object: &K) -> ObjectKey {
    let metadata = object.meta();
    ObjectKey::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}
