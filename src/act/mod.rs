//! Act: the only writers of this crate, each of them under a permit.
//!
//! ```text
//!   Election ──▶ Fence ─┐
//!                       ├─▶ Permit ──▶ Outbox ──▶ statuses of VerticalPodAutoscalers
//!              Limiter ─┘         ├──▶ Heartbeat ──▶ a Lease that says "the recommender works"
//!                                 └──▶ storage/, which knows only the trait `WritePermit`
//! ```
//!
//! - `fence` says whether this process may write now, `limiter` how fast, `permit` is both.
//! - `lease` knows the rules of a leader election, `election` runs one and moves the fence.
//! - `queue` is the order in which things are written, `status` one write, `outbox` the workers.
//! - `access` asks beforehand what is allowed, `writes` counts what became of every write.

pub mod access;
pub mod election;
pub mod fence;
pub mod heartbeat;
mod jitter;
pub mod lease;
pub mod limiter;
pub mod outbox;
pub mod permit;
mod queue;
pub mod status;
pub mod writes;

pub use access::{Rule, Verdict, may};
pub use election::{Election, ElectionOptions, ElectionState, Standing};
pub use fence::Fence;
pub use heartbeat::{Beat, Heartbeat};
pub use limiter::Limiter;
pub use outbox::Outbox;
pub use permit::Permit;
pub use status::{Outcome, Source, StatusPatch, write_status};
pub use writes::WriteStats;
