//! What a kind of autoscaler has to implement: its types, and what differs between kinds.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::de::DeserializeOwned;

/// A kind of object that sets the replicas of a workload.
pub(in crate::controllers) trait ReplicaAutoscaler:
    Send + Sync + 'static
{
    /// The object.
    type Object: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// Its status.
    type Status: Clone + Debug + Default + PartialEq + Send + Sync;
    /// What is kept from reconcile to reconcile besides what all kinds keep.
    type State: Clone + Debug + Default + Send;
    /// What metrics export of an object.
    type Exported: Debug + Send + Sync;

    /// The plural name of the resource, for metrics.
    const RESOURCE: &'static str;

    /// An object without unused fields and capacity.
    fn trimmed(object: Self::Object) -> Arc<Self::Object>;

    /// The stored status.
    fn status(object: &Self::Object) -> Option<&Self::Status>;

    /// Whether a change of an object requires a reconcile: not one of its status alone.
    fn is_material_change(before: &Self::Object, after: &Self::Object) -> bool;

    /// Whether the status records a scale that is about to be written or has an unknown outcome.
    fn is_pending(status: &Self::Status) -> bool;

    /// Forgets what may be outdated after another process has led.
    fn on_takeover(state: &mut Self::State);
}
