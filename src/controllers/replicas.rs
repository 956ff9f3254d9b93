//! Shared by controllers that set replicas: the pods of a workload, and reading and writing its scale.

mod autoscaler;
mod object_state;
mod pods;
mod reconcile_queue;
mod scale_client;
mod schedule;
mod watch_scopes;
mod write_queue;

use std::{fmt, sync::Arc};

use kube::Client;

pub(super) use self::{
    autoscaler::ReplicaAutoscaler,
    object_state::{ObjectState, WaitingStatus, key_of},
    pods::OwnershipRule,
    reconcile_queue::{NextItem, ReconcileQueue},
    scale_client::ObservedScale,
    schedule::next_reconcile,
    watch_scopes::{WatchScope, WatchScopes},
    write_queue::{QueuedWrite, WritePart, WriteQueue},
};
use crate::cluster::{target::scale::ScaleClient, watch::WatchFactory};
use plimsoll_core::types::compat::Compat;

/// Access to the workloads of a controller.
pub(super) struct Workloads {
    /// Watches per namespace.
    pub scopes: WatchScopes,
    /// Client for the scale subresource.
    pub scales: ScaleClient,
    client: Client,
    watch_factory: WatchFactory,
    compat: Compat,
}

impl fmt::Debug for Workloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workloads").field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

impl Workloads {
    /// Workloads of these namespaces, or of all if empty. With `Compat::Upstream` every read goes to the API server.
    pub fn new(
        namespaces: &[String],
        scales: ScaleClient,
        client: Client,
        watch_factory: WatchFactory,
        compat: Compat,
    ) -> Arc<Self> {
        Arc::new(Self {
            scopes: WatchScopes::new(namespaces),
            scales,
            client,
            watch_factory,
            compat,
        })
    }
}
