//! What Plimsoll remembers about workloads, and where it is kept.
//!
//! ```text
//!                 load: streams                    save: batches
//!   backend ──▶ Sink (snapshots or samples)   Record ──▶ Writer, under a WritePermit
//! ```
//!
//! A backend implements [`Storage`]; one that can also write hands out a [`Writer`]. The crate knows
//! nothing of the recommender: it moves [`Snapshot`]s and [`Sample`]s under [`Key`]s, and never decides.

pub mod checkpoint;
pub mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod local;
pub mod memory;
pub mod prometheus;
pub mod store;

pub use checkpoint::CheckpointStorage;
pub use local::LocalStorage;
pub use memory::MemoryStorage;
pub use store::{
    Error, LoadReport, LoadRequest, NotLeader, OrphanPredicate, SaveDecision, SaveReport, Storage,
    WritePermit, Writer,
};
