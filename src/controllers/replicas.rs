//! The controller of a kind of replica autoscaler, and what it shares with every other kind.
//!
//! ```text
//!   watches ──▶ reconcile queue: objects by due time ──▶ workers ──▶ the kind's reconcile
//!   watches ──▶ pods, scales ────────────────────────────────────────────┤
//!                                                                        ▼
//!                                  scale_writer: a decision ──▶ write queue: by class and namespace
//!                                                                        │
//!                                                                        ▼
//!                             write_runner ──▶ scale_writer: pending scale ──▶ scale
//!                                          └─▶ status_writer: statuses, events
//!
//!   exported states ──▶ controller: a page for a scrape
//! ```

mod autoscaler;
mod controller;
mod current_term;
mod health;
mod object_state;
mod pods;
mod reconcile_queue;
mod scale_writer;
mod schedule;
mod status_writer;
mod watch_scopes;
mod workers;
mod workloads;
mod write_queue;
mod write_runner;
mod writes;

pub use self::controller::ReplicaSettings;
pub(super) use self::{
    autoscaler::{
        AutoscalerKind, DecisionRecord, MetadataResult, ReconcileResult, ReplicaAutoscaler, Requeue,
    },
    controller::ReplicaController,
    object_state::{ObjectState, WaitingStatus, key_of},
    pods::{OwnershipRule, matching_pods},
    reconcile_queue::{NextItem, ReconcileQueue},
    scale_writer::{ScaleWriter, Scaling},
    schedule::next_reconcile,
    status_writer::{ERROR_BACKOFF, StatusWriter},
    watch_scopes::{WatchScope, WatchScopes},
    workloads::{ObservedScale, Workloads},
    write_queue::{QueuedWrite, WritePart, WriteQueue},
    writes::{StatusChange, Write},
};
