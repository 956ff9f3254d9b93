//! Storage of the history of workloads.
//!
//! ```text
//!                 load: streams                    save: batches
//!   backend ──▶ Sink (snapshots or samples)   Record ──▶ Writer, under a WritePermit
//! ```
//!
//! A backend implements [`Storage`]; one that can also write provides a [`Writer`]. The crate does not depend on the
//! recommender: it loads and saves snapshots and samples by container, and makes no sizing decisions.

pub mod checkpoint;
pub mod codec;
pub mod error_text;
pub mod local;
pub mod prometheus;
pub mod store;

pub use checkpoint::CheckpointStorage;
pub use local::LocalStorage;
pub use store::{
    Error, LoadReport, LoadRequest, NotLeader, OrphanPredicate, SaveDecision, SaveReport, Storage,
    WritePermit, Writer,
};
