//! Leases: leader election, the fence that guards writes, heartbeats, and state that is stored in an annotation of a Lease.
//!
//! [`election_rules`] implements client-go's rules of an election, [`election`] runs one and grants or revokes the [`fence`].

pub mod election;
pub mod election_rules;
pub mod fence;
pub mod heartbeat;
pub(crate) mod jitter;
pub mod lease_annotation;
pub mod webhook_lease;

pub use election::{Election, ElectionOptions, ElectionState, LeaderState};
pub use fence::{Fence, Term};
pub use heartbeat::{Heartbeat, HeartbeatResult};
pub use lease_annotation::LeaseAnnotationStore;
pub use webhook_lease::WebhookLease;
