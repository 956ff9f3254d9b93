//! The controller of a kind of replica autoscaler, and what it shares with every other kind.
//!
//! ```text
//!   watches ──▶ reconcile queue: objects by due time ──▶ workers ──▶ the kind's reconcile
//!   watches ──▶ pods, scales ────────────────────────────────────────────┤
//!                                                                        ▼
//!                                         apply: a decision ──▶ write queue: by class and namespace
//!                                                                        ├─▶ scale_writer: pending scale ──▶ scale
//!                                                                        └─▶ status_writer, events
//! ```

mod apply;
mod autoscaler;
mod controller;
mod current_term;
mod health;
mod object_state;
mod pods;
mod probes;
mod reconcile_queue;
mod reconcile_result;
mod scale_client;
mod scale_writer;
mod schedule;
mod status_writer;
mod watch_scopes;
mod watches;
mod workers;
mod write_queue;
mod writes;

use std::{fmt, sync::Arc};

use kube::Client;

pub(super) use self::{
    apply::Scaling,
    autoscaler::{AutoscalerKind, DecisionRecord, MetadataResult, ReplicaAutoscaler},
    controller::{ReplicaController, ReplicaSettings},
    object_state::{ObjectState, WaitingStatus, key_of},
    pods::OwnershipRule,
    reconcile_queue::{NextItem, ReconcileQueue},
    reconcile_result::{ReconcileResult, Requeue},
    scale_client::ObservedScale,
    schedule::next_reconcile,
    status_writer::ERROR_BACKOFF,
    watch_scopes::{WatchScope, WatchScopes},
    write_queue::{QueuedWrite, WritePart, WriteQueue},
    writes::{StatusChange, Write},
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
