//! Leases: leader election, the fence that guards writes, heartbeats, and state that is stored in an annotation of a Lease.
//!
//! [`election_rules`] implements client-go's rules of an election, [`election`] runs one and grants or revokes the [`fence`].

pub(crate) mod election;
pub(crate) mod election_rules;
pub(crate) mod fence;
pub(crate) mod heartbeat;
pub(crate) mod jitter;
pub(crate) mod lease_annotation;
pub(crate) mod webhook_lease;

pub use election::{Election, ElectionConfig, ElectionState, LeaderState};
pub use fence::Fence;
pub(crate) use fence::Term;
pub use heartbeat::{Heartbeat, HeartbeatResult};
pub(crate) use lease_annotation::LeaseAnnotationStore;
pub(crate) use webhook_lease::WebhookLease;
