//! Leases: leader election, the fence that writes pass, heartbeats, and state that an annotation of a Lease keeps.
//!
//! [`lease`] has the rules of an election as client-go has them, [`election`] runs one and opens or closes the [`fence`].

pub mod election;
pub mod fence;
pub mod heartbeat;
pub(crate) mod jitter;
pub mod lease;
pub mod lease_annotation;
pub mod lease_client;
pub mod webhook_lease;

pub use election::{Election, ElectionOptions, ElectionState, LeaderState};
pub use fence::{Fence, Term};
pub use heartbeat::{Heartbeat, HeartbeatResult};
pub use lease_annotation::{LeaseAnnotationStore, LeaseWriteResult};
pub use lease_client::LeaseError;
pub use webhook_lease::WebhookLease;
