//! What a kind of autoscaler has to implement: its types, its reconcile, and how its status and events are rendered.

use std::{borrow::Cow, fmt::Debug, future::Future, sync::Arc, time::Duration};

use plimsoll_core::{
    api::scale_target::ScaleTarget,
    scaling::{Event, ScaleOutcome},
    types::{ObjectKey, Time},
};
use serde::Serialize;
use tracing::Span;

use super::{ObjectState, ReplicaController};
use crate::{
    cluster::{
        cache::replica_pod::CachedPod,
        watch::WatchableObject,
        write::{ObjectPatchTarget, WriteContext, WriteError, status_patch},
    },
    telemetry::ExportedState,
};

/// When an object is due next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// At its offset within the period.
    Periodic,
    After(Duration),
    OnChange,
}

/// The outcome of a reconcile as a metric label, and when the object is due next.
pub type ReconcileResult = (&'static str, Requeue);

/// The outcome label of a reconcile that failed.
pub(in crate::controllers) const ERROR: &str = "error";

/// A kind of object that sets the replicas of a workload: what the queue of objects has to know.
pub trait AutoscalerKind: Sized + Send + Sync + 'static {
    type Object: WatchableObject + Sync;
    type Status: Clone + Debug + Default + PartialEq + Serialize + Send + Sync;
    /// What is kept from reconcile to reconcile besides what all kinds keep.
    type State: Clone + Debug + Default + Send;
    type Pod: CachedPod;

    /// The plural name of the resource, for metrics.
    const RESOURCE: &'static str;

    /// An object without unused fields and capacity.
    fn trimmed(object: Self::Object) -> Arc<Self::Object>;

    fn stored_status(object: &Self::Object) -> Option<&Self::Status>;

    /// Whether a change of an object requires a reconcile: not one of its status alone.
    fn is_material_change(before: &Self::Object, after: &Self::Object) -> bool;

    /// Whether the status records a scale that is about to be written or has an unknown outcome.
    fn is_pending(status: &Self::Status) -> bool;

    /// Forgets what may be outdated after another process has led.
    fn on_takeover(state: &mut Self::State);
}

/// A kind of autoscaler that a [`ReplicaController`] runs: its reconcile, and how status and events are rendered.
pub trait ReplicaAutoscaler: AutoscalerKind {
    type Decision: DecisionRecord<Self::Status>;
    type Condition: Clone + Debug + Send + Sync;

    /// The name of the controller, for health and metrics.
    const NAME: &'static str;
    const FIELD_MANAGER: &'static str;

    fn log_span(object: &Self::Object) -> Span;

    /// The workload whose replicas are set.
    fn target(object: &Self::Object) -> Cow<'_, ScaleTarget>;

    /// When the target was last scaled, by the status.
    fn last_scale(status: &Self::Status) -> Option<Time>;

    fn reconcile(
        controller: &ReplicaController<Self>,
        key: &ObjectKey,
        state: &mut ObjectState<Self>,
    ) -> impl Future<Output = ReconcileResult> + Send;

    /// Stores a status, with a precondition on the version of the object: in the status of the object, unless the kind has
    /// another place for it. Returns the stored object.
    fn store_status(
        context: WriteContext<'_>,
        object: &Self::Object,
        after: &Self::Status,
    ) -> impl Future<Output = Result<Self::Object, WriteError>> + Send {
        let patch = status_patch(Self::stored_status(object), after);
        context.patch_object(object, ObjectPatchTarget::Status, patch)
    }

    /// Updates the state after the scale was updated by a decision.
    fn on_scaled(_state: &mut Self::State, _decision: &Self::Decision, _now: Time) {}

    /// Makes a write of this kind other than of the scale, the status and events: of the object's metadata.
    fn write_metadata(
        _controller: &ReplicaController<Self>,
        _object: &Self::Object,
        _permit: &dyn plimsoll_storage::WritePermit,
    ) -> impl Future<Output = MetadataResult<Self>> + Send {
        std::future::ready(Ok(None))
    }

    /// Applies the result of a write of the metadata. Returns when the object is due if it failed.
    fn complete_metadata(
        _controller: &ReplicaController<Self>,
        _state: &mut ObjectState<Self>,
        _result: &MetadataResult<Self>,
    ) -> Option<Time> {
        None
    }

    /// The condition for a scale update whose outcome is unknown, if the kind has conditions.
    fn unknown_outcome(_why: &str) -> Option<Self::Condition> {
        None
    }

    fn with_conditions(
        &self,
        before: &Self::Status,
        updates: &[Self::Condition],
        now: Time,
    ) -> Self::Status;

    /// Whether two statuses are equal, except for what is not worth a write.
    fn is_same_status(before: &Self::Status, after: &Self::Status) -> bool;

    /// Whether two statuses differ in values alone, which need not be up to date.
    fn differ_in_values_only(before: &Self::Status, after: &Self::Status) -> bool;

    /// Leaves out of a status what the API server does not store.
    fn drop_unstored(&self, _before: Option<&Self::Status>, _after: &mut Self::Status, _now: Time) {
    }

    /// Observes what the API server has stored of a status.
    fn on_stored(&self, _sent: &Self::Status, _stored: Option<&Self::Status>, _now: Time) {}

    /// Waits until what this kind reads besides objects and pods is known.
    fn wait_until_known(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// What this kind still waits for before it is ready.
    fn missing(&self) -> Option<String> {
        None
    }

    /// What the controller does with objects, for kinds that have modes.
    fn mode(&self) -> Option<&'static str> {
        None
    }

    fn export_status(_exported: &mut ExportedState, _status: &Self::Status) {}

    /// Observes the start of a reconcile, and how late it is.
    fn begin_reconcile(&self, lateness: Duration);

    fn end_reconcile(&self, result: ReconcileResult, took: Duration);
}

/// The result of a write of the metadata: the new object, or `None` if it is gone.
pub type MetadataResult<A> = Result<Option<Arc<<A as AutoscalerKind>::Object>>, WriteError>;

pub trait DecisionRecord<S>: Debug + Send + Sync + 'static {
    /// The new replicas and the reason, if they change.
    fn change(&self) -> Option<(i32, &str)>;

    fn desired(&self) -> i32;

    /// The status after this outcome, based on the stored one.
    fn status(&self, before: &S, outcome: &ScaleOutcome, now: Time) -> S;

    fn events(&self, outcome: &ScaleOutcome, now: Time) -> Vec<Event>;

    /// The reason of the event if the status cannot be written.
    fn status_failure_reason(&self, outcome: &ScaleOutcome) -> &'static str;
}
